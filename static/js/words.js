/** What the page says: problems, figures of the server, and the state and details of videos. */

import { formatBytes, formatDuration, formatSpeed } from "./page/format.js";
import { lineOf } from "./page/meter.js";
import { percentOf, renditionsOf, tracksOf } from "./player/playback.js";
import { problemOfError } from "./uploads/problem.js";

/**
 * @import { WatchedVideo } from "./player/playback.js"
 * @import { Problem } from "./uploads/problem.js"
 */

// ---- problems ----------------------------------------------------------------------------------------------------

/**
 * Every code has words; unknown codes get general ones.
 * @type {Record<string, (about: { limit: number, detail: string }) => string>}
 */
const WORDS = {
  too_large: ({ limit }) => `This file is too large. The limit here is ${formatBytes(limit)}.`,
  no_room: () => "The server does not have enough space for this file. Try again once space has been freed.",
  quota_exceeded: ({ detail }) => detail,
  larger_than_quota: ({ detail }) => detail,
  too_much_reserved: ({ detail }) => detail,
  link_full: () => "This link does not have enough space left for this file. Ask the person who sent it to you for another.",
  link_closed: () => "This link has been closed. What has arrived is safe; ask the person who sent it to you for another.",
  upload_gone: () => "This upload has expired or was cancelled elsewhere. It can be started again.",
  upload_not_found: () => "The server no longer knows this upload. It can be started again.",
  upload_conflict: () => "The server has different contents for this upload. Cancel it and choose the file again.",
  chunk_mismatch: () => "What the server received does not match this file. Has the file changed since you chose it?",
  type_not_allowed: () => "Files of this type are not accepted here.",
  malformed_request: () => "The server did not understand this page. Reload the page and try again.",
  file_unreadable: () =>
    "This file can no longer be read: it may have been changed, moved or removed. Choose it again.",
  already_here: () => "This file is already being uploaded, in another row of this list.",
  bytes_missing: () => "Some bytes did not reach the server. Try again: only those will be sent.",
  connection_unstable: () => "The connection keeps breaking while sending. What has arrived is safe; try again later.",
  not_signed_in: () => "You are no longer signed in. What has arrived is safe; sign in and try again.",
  storage_failed: () => "The server could not write to its disk. What has arrived is safe; try again later.",
  internal_server_error: () => "Something went wrong on the server. What has arrived is safe; try again later.",
};

/**
 * A sentence or two about a failure; `limit` is the largest upload in bytes.
 * @param {Problem | null} problem
 * @param {{ limit: number }} options
 */
export function wordsForProblem(problem, { limit }) {
  const words = problem && WORDS[problem.code];
  if (words) return words({ limit, detail: problem.detail });
  return "Something unexpected went wrong. What has arrived is safe; try again.";
}

/**
 * What an upload is waiting for.
 * @param {Problem | null} problem
 */
export function wordsForWaiting(problem) {
  if (problem?.isConnectionLost) return "Waiting for the connection. Resumes automatically.";
  if (problem?.isSignedOut) return "Waiting for you to sign in. What has arrived is safe.";
  if (problem?.code === "server_busy") return "The server is busy. Resumes automatically.";
  return "The server asked to retry later. Resumes automatically.";
}

/**
 * What the page says about a new name that the server refuses.
 * @param {unknown} error
 */
export function wordsForName(error) {
  const problem = problemOfError(error);
  if (problem.isAbsence) return "This video has been deleted in the meantime.";
  if (problem.code === "type_not_allowed") return "This server does not accept files with this extension.";
  if (problem.code === "malformed_request") return "The server refused this name. Try a shorter or simpler one.";
  return wordsForRequest("rename the video", problem);
}

/**
 * What the page says when a request outside an upload fails, such as deleting or listing.
 * @param {string} action
 * @param {unknown} error
 */
export function wordsForRequest(action, error) {
  const problem = problemOfError(error);
  if (problem.isConnectionLost) return `Could not ${action}: the server cannot be reached. Try again in a moment.`;
  if (problem.isSignedOut) return `Could not ${action}: you are no longer signed in.`;
  return `Could not ${action}: the server refused. Try again, or reload the page.`;
}

/**
 * The name of the sender of an upload; null where it is not known.
 * @param {Api.Sender | null | undefined} sender
 */
export function senderName(sender) {
  if (!sender) return null;
  if (sender.kind !== "upload_link") return sender.name;
  return sender.name ?? `Someone via ${sender.link ?? "an upload link"}`;
}

/**
 * Who sent a file, as "from Aunt Rosa via Wedding films"; empty if that is not known.
 * @param {Api.Sender | null | undefined} sender
 */
export function senderWords(sender) {
  if (!sender) return "";
  const name = sender.name ? `from ${sender.name}` : "";
  return sender.kind === "upload_link" ? `${name} via ${sender.link ?? "an upload link"}`.trim() : name;
}

/**
 * The receipt of a link user in a sentence: "All 3 files have arrived", with their size.
 * @param {{ count: number, unfinished: number, isBusy: boolean }} sent
 * @param {string} size
 */
export function receipt({ count, unfinished, isBusy }, size) {
  if (isBusy || unfinished > 0) return `${count} of ${count + Math.max(unfinished, 1)} files have arrived, ${size}`;
  return count === 1 ? `Your file has arrived, ${size}` : `All ${count.toLocaleString("en")} files have arrived, ${size}`;
}

// ---- figures of the server ---------------------------------------------------------------------------------------

const MISSING = "–";

/**
 * Seconds of a stage as "0.42 ms", "63 ms", "1.2 s".
 * @param {number} seconds
 */
export function formatStage(seconds) {
  if (seconds < 0.01) return `${(seconds * 1000).toFixed(2)} ms`;
  return seconds < 1 ? `${Math.round(seconds * 1000)} ms` : `${seconds.toFixed(1)} s`;
}

/**
 * Seconds since the start as "42 s", "5 min", "3 h 20 min", "12 days 4 h".
 * @param {number} seconds
 */
export function formatUptime(seconds) {
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} days ${hours % 24} h`;
}

/**
 * A job as "index", "rendition 720 40 %".
 * @param {Pick<Api.Job, "step" | "argument" | "state" | "progress">} job
 */
export function formatJob({ step, argument, state, progress }) {
  const share = state === "running" ? `${Math.round((progress ?? 0) * 100)} %` : "";
  return [step, argument, share].filter(Boolean).join(" ");
}

/**
 * What a server of a fleet does, in the order of the table's columns after its name.
 * @param {Api.Node} node
 */
export function nodeFigures(node) {
  return [
    node.state,
    inWords(node.received_bytes_per_second, "speed"),
    inWords(node.sent_bytes_per_second, "speed"),
    inWords(node.requests_now, "count"),
    inWords(node.free_bytes, "bytes"),
    inWords(node.uptime_seconds, "uptime"),
  ];
}

/** @type {Record<string, (value: number) => string>} */
const FORMATS = {
  count: (value) => value.toLocaleString("en"),
  bytes: formatBytes,
  speed: (value) => formatSpeed(Math.round(value)),
  duration: formatStage,
  uptime: formatUptime,
};

/**
 * A figure in the named format; a dash if there is none.
 * @param {number | null | undefined} value
 * @param {string} format
 */
export function inWords(value, format) {
  return value === null || value === undefined ? MISSING : FORMATS[format](value);
}

// ---- videos ------------------------------------------------------------------------------------------------------

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

/** @type {Record<number, string>} */
const CHANNELS = { 1: "mono", 2: "stereo", 6: "5.1", 8: "7.1" };

/**
 * The state in words, empty when there is nothing to say; `share` is how much of an upload has arrived, 0 to 1.
 * @param {WatchedVideo} video
 */
export function wordsForState({ playback, inline, isArriving, share }) {
  const { state, problem } = playback;
  if (isArriving) return `Still being uploaded: ${roughly(share)} has arrived.`;
  if (state === "waiting") return inline ? "" : "The server has not looked at this file yet. You can download it.";
  if (state === "probed") return wordsForPreparing(playback);
  if (state === "unplayable") return wordsForUnplayable(problem);
  return [problem?.detail, wordsForMaking(playback)].filter(Boolean).join(" ");
}

/**
 * The state of a video in a list, empty where it can simply be watched.
 * @param {Api.Playback | null | undefined} playback
 */
export function wordsInList(playback) {
  const state = playback?.state;
  if (state === "unplayable") return "download only";
  return state === "waiting" || state === "probed" ? "being prepared" : "";
}

/**
 * Why a video cannot be played, and what can be done with it.
 * @param {{ detail: string } | null} problem
 */
export function wordsForUnplayable(problem) {
  return `${problem?.detail ?? "This file cannot be played."} You can download it.`;
}

/** @param {Api.Playback} playback */
function wordsForPreparing({ progress, problem }) {
  const share = progress ? `: ${roughly(progress)}` : "";
  return [`This video is being prepared for watching${share}.`, problem?.detail].filter(Boolean).join(" ");
}

/** @param {Api.Playback} playback */
function wordsForMaking(playback) {
  const making = renditionsOf(playback).filter(({ state }) => state === "making");
  if (making.length === 0) return "";
  const list = making.map(({ height, progress, problem }) => {
    return problem ? `${height}p has to wait` : `${height}p is being made: ${roughly(progress)}`;
  });
  return `Playable. ${list.join(", ")}.`;
}

/**
 * In steps of ten percent: screen readers read these words aloud each time they change.
 * @param {number | null} share
 */
function roughly(share) {
  return percentOf(Math.floor(10 * (share ?? 0)) / 10);
}

/**
 * Of a quality that can be downloaded: how it is doing, and the name of its button.
 * @param {Pick<Api.Rendition, "height" | "state" | "progress" | "problem">} rendition
 */
export function orderFor({ height, state, progress, problem }) {
  const name = `${height}p`;
  if (state === "making") {
    return { words: problem ? `has to wait: ${problem.detail}` : `is being made: ${percentOf(progress)}`, action: `Cancel ${name}` };
  }
  if (state === "ready") return { words: ["is ready", problem?.detail].filter(Boolean).join(". "), action: `Delete ${name}` };
  if (state === "failed") return { words: problem?.detail ?? "could not be made", action: `Make ${name} again` };
  return { words: "can be made", action: `Make ${name}` };
}

/**
 * While the video still plays in another quality than the one that was chosen.
 * @param {string} quality
 */
export function wordsForChange(quality) {
  return `${quality}p is being made from here on. Until then the video goes on as it is.`;
}

/**
 * When a quality that was chosen cannot be played.
 * @param {{ quality: string, detail: string }} failure
 */
export function wordsForUnmakeable({ quality, detail }) {
  return [`${quality}p cannot be played here.`, detail].filter(Boolean).join(" ");
}

/**
 * Where something in a video cannot be decoded, at `seconds`; `outcome` says what comes of it.
 * @param {number} seconds
 * @param {string} outcome
 */
export function wordsForDamage(seconds, outcome) {
  return `The video is damaged at ${formatDuration(Math.floor(seconds))}. ${outcome}`;
}

/**
 * Details as `[term, text]`; `length` is the file's in bytes.
 * @param {Pick<WatchedVideo, "playback" | "length">} video
 * @returns {[term: string, text: string][]}
 */
export function detailsOf({ playback, length }) {
  /** @type {[term: string, text: string][]} */
  const rows = [["File", lineOf([playback.container?.toUpperCase(), formatBytes(length)])]];
  for (const track of tracksOf(playback, "video").slice(0, 1)) rows.push(["Video", videoTrackWords(track, playback)]);
  for (const track of tracksOf(playback, "audio")) rows.push(["Sound", soundWords(track)]);
  const subtitles = (playback.subtitles ?? []).map(({ language }) => languageName(language) ?? "unnamed");
  if (subtitles.length > 0) rows.push(["Subtitles", subtitles.join(", ")]);
  return rows.filter(([, text]) => text);
}

/**
 * @param {Api.Track} track
 * @param {Api.Playback} playback
 */
function videoTrackWords(track, { width, height, frame_rate: frameRate, hdr }) {
  return lineOf([
    codecName(track.codec),
    width && height && `${width} × ${height}`,
    frameRate && `${round(frameRate)} frames per second`,
    bitRateWords(track.bit_rate),
    hdr && (typeof hdr === "string" ? hdr.toUpperCase() : "HDR"),
  ]);
}

/** @param {Api.Track} track */
function soundWords({ codec, language, title, channels, bit_rate: bitRate }) {
  return lineOf([languageName(language), title, codecName(codec), channelWords(channels), bitRateWords(bitRate)]);
}

/** @param {number | null | undefined} channels */
function channelWords(channels) {
  return channels && (CHANNELS[channels] ?? `${channels} channels`);
}

/**
 * The names of the entries of a menu of audio tracks, all different.
 * @param {Api.Playback} playback
 */
export function audioNames(playback) {
  const names = tracksOf(playback, "audio").map(({ language, title, channels }, index) => {
    return lineOf([title || (languageName(language) ?? `Track ${index + 1}`), (channels ?? 0) > 2 && channelWords(channels)]);
  });
  return names.map((name, index) => (names.indexOf(name) === names.lastIndexOf(name) ? name : `${name} (${index + 1})`));
}

/**
 * The name of a BCP 47 language, or null where it is not known.
 * @param {string | null | undefined} language
 */
export function languageName(language) {
  if (!language || language === "und") return null;
  try {
    return LANGUAGES.of(language);
  } catch {
    return language;
  }
}

/** @param {string | null | undefined} codec */
export function codecName(codec) {
  if (!codec) return "";
  const known = CODECS.find(([start]) => codec.toLowerCase().startsWith(start));
  return known ? known[1] : codec.toUpperCase();
}

/** @param {number | null | undefined} bitsPerSecond */
function bitRateWords(bitsPerSecond) {
  if (!bitsPerSecond) return "";
  if (bitsPerSecond < 1_000_000) return `${Math.round(bitsPerSecond / 1000)} kbit/s`;
  return `${round(bitsPerSecond / 1_000_000, 1)} Mbit/s`;
}

/** @param {number} number */
function round(number, digits = 2) {
  return String(Number(number.toFixed(digits)));
}
