/** What the player says about a video: its state in a sentence, and its technical details. */

import { formatBytes, formatDuration } from "../helpers/format.js";
import { percentOf, renditionsOf, tracksOf } from "./playback.js";

const LANGUAGES = new Intl.DisplayNames("en", { type: "language", fallback: "code" });

/** Names of codecs by the beginning of their RFC 6381 string. */
const CODECS = [
  ["avc", "H.264"],
  ["hvc1", "HEVC"],
  ["hev1", "HEVC"],
  ["hevc", "HEVC"],
  ["h264", "H.264"],
  ["av01", "AV1"],
  ["vp09", "VP9"],
  ["vp9", "VP9"],
  ["vp08", "VP8"],
  ["mp4a.40", "AAC"],
  ["mp4a.6b", "MP3"],
  ["mp4a.69", "MP3"],
  ["mp4a", "AAC"],
  ["mp3", "MP3"],
  ["ac3", "Dolby Digital"],
  ["eac3", "Dolby Digital Plus"],
  ["vorbis", "Vorbis"],
  ["pcm", "PCM"],
  ["mpeg4", "MPEG-4"],
  ["mpeg2video", "MPEG-2"],
  ["prores", "ProRes"],
  ["theora", "Theora"],
  ["ac-3", "Dolby Digital"],
  ["ec-3", "Dolby Digital Plus"],
  ["opus", "Opus"],
  ["flac", "FLAC"],
];

const CHANNELS = { 1: "mono", 2: "stereo", 6: "5.1", 8: "7.1" };

/** The state in words, empty when there is nothing to say; `share` is how much of an upload has arrived, 0 to 1. */
export function wordsForState({ playback, inline, isArriving, share }) {
  const { state, problem } = playback;
  if (isArriving) return `Still being uploaded: ${roughly(share)} has arrived.`;
  if (state === "waiting") return inline ? "" : "The server has not looked at this file yet. You can download it.";
  if (state === "probed") return wordsForPreparing(playback);
  if (state === "unplayable") return wordsForUnplayable(problem);
  return [problem?.detail, wordsForMaking(playback)].filter(Boolean).join(" ");
}

/** The state of a video in a list, empty where it can simply be watched. */
export function wordsInList(playback) {
  const state = playback?.state;
  if (state === "unplayable") return "download only";
  return state === "waiting" || state === "probed" ? "being prepared" : "";
}

/** Why a video cannot be played, and what can be done with it. */
export function wordsForUnplayable(problem) {
  return `${problem?.detail ?? "This file cannot be played."} You can download it.`;
}

function wordsForPreparing({ progress, problem }) {
  const share = progress ? `: ${roughly(progress)}` : "";
  return [`This film is being prepared for watching${share}.`, problem?.detail].filter(Boolean).join(" ");
}

function wordsForMaking(playback) {
  const making = renditionsOf(playback).filter(({ state }) => state === "making");
  if (making.length === 0) return "";
  const list = making.map(({ height, progress, problem }) => {
    return problem ? `${height}p has to wait` : `${height}p is being made: ${roughly(progress)}`;
  });
  return `Playable. ${list.join(", ")}.`;
}

/** In steps of ten percent: screen readers read these words aloud each time they change. */
function roughly(share) {
  return percentOf(Math.floor(10 * (share ?? 0)) / 10);
}

/** Of a quality that can be downloaded: how it is doing, and the name of its button. */
export function orderFor({ height, state, progress, problem }) {
  const name = `${height}p`;
  if (state === "making") {
    return { words: problem ? `has to wait: ${problem.detail}` : `is being made: ${percentOf(progress)}`, action: `Cancel ${name}` };
  }
  if (state === "ready") return { words: ["is ready", problem?.detail].filter(Boolean).join(". "), action: `Delete ${name}` };
  if (state === "failed") return { words: problem?.detail ?? "could not be made", action: `Make ${name} again` };
  return { words: "can be made", action: `Make ${name}` };
}

/** While the film still plays in another quality than the one that was chosen. */
export function wordsForChange(quality) {
  return `${quality}p is being made from here on. Until then the film goes on as it is.`;
}

/** When a quality that was chosen cannot be played. */
export function wordsForUnmakeable({ quality, detail }) {
  return [`${quality}p cannot be played here.`, detail].filter(Boolean).join(" ");
}

/** Where something in a film cannot be decoded, at `seconds`; `outcome` says what comes of it. */
export function wordsForDamage(seconds, outcome) {
  return `The film is damaged at ${formatDuration(Math.floor(seconds))}. ${outcome}`;
}

/** Details as `[term, text]`; `length` is the file's in bytes. */
export function detailsOf({ playback, length }) {
  const rows = [["File", lineOf([playback.container?.toUpperCase(), formatBytes(length)])]];
  for (const track of tracksOf(playback, "video").slice(0, 1)) rows.push(["Picture", pictureWords(track, playback)]);
  for (const track of tracksOf(playback, "audio")) rows.push(["Sound", soundWords(track)]);
  const subtitles = (playback.subtitles ?? []).map(({ language }) => languageName(language) ?? "unnamed");
  if (subtitles.length > 0) rows.push(["Subtitles", subtitles.join(", ")]);
  return rows.filter(([, text]) => text);
}

function pictureWords(track, { width, height, frame_rate: frameRate, hdr }) {
  return lineOf([
    codecName(track.codec),
    width && height && `${width} × ${height}`,
    frameRate && `${round(frameRate)} frames per second`,
    bitRateWords(track.bit_rate),
    hdr && (typeof hdr === "string" ? hdr.toUpperCase() : "HDR"),
  ]);
}

function soundWords({ codec, language, title, channels, bit_rate: bitRate }) {
  return lineOf([languageName(language), title, codecName(codec), channelWords(channels), bitRateWords(bitRate)]);
}

function channelWords(channels) {
  return channels && (CHANNELS[channels] ?? `${channels} channels`);
}

/** The names of the entries of a menu of audio tracks, all different. */
export function audioNames(playback) {
  const names = tracksOf(playback, "audio").map(({ language, title, channels }, index) => {
    return lineOf([title || (languageName(language) ?? `Track ${index + 1}`), channels > 2 && channelWords(channels)]);
  });
  return names.map((name, index) => (names.indexOf(name) === names.lastIndexOf(name) ? name : `${name} (${index + 1})`));
}

/** The name of a BCP 47 language, or null where it is not known. */
export function languageName(language) {
  if (!language || language === "und") return null;
  try {
    return LANGUAGES.of(language);
  } catch {
    return language;
  }
}

export function codecName(codec) {
  if (!codec) return "";
  const known = CODECS.find(([start]) => codec.toLowerCase().startsWith(start));
  return known ? known[1] : codec.toUpperCase();
}

function bitRateWords(bitsPerSecond) {
  if (!bitsPerSecond) return "";
  if (bitsPerSecond < 1_000_000) return `${Math.round(bitsPerSecond / 1000)} kbit/s`;
  return `${round(bitsPerSecond / 1_000_000, 1)} Mbit/s`;
}

function round(number, digits = 2) {
  return String(Number(number.toFixed(digits)));
}

function lineOf(parts) {
  return parts.filter(Boolean).join(" · ");
}
