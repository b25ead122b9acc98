/** What can be chosen about a video, from its `playback` document. Works without the page. */

/**
 * @typedef {object} WatchedVideo
 * @property {string} id
 * @property {string} filename
 * @property {number} length bytes
 * @property {string | null} media the file as it was uploaded; null until a link user knows its URL
 * @property {boolean} inline whether browsers may play it in place
 * @property {boolean} isArriving whether it is still being uploaded
 * @property {number} share of the bytes that have arrived, from 0 to 1
 * @property {Api.Playback} playback
 *
 * What a viewer has chosen: ORIGINAL or a height, and the number of the audio track.
 * @typedef {{ quality: string, audio: number }} Wanted
 *
 * @typedef {{ kind: "file" | "hls", url: string }} Way
 *
 * An entry of a menu.
 * @typedef {{ value: string, name: string, hint?: string, isDisabled?: boolean }} Choice
 */

export const ORIGINAL = "source";

/**
 * Of a video that the server has not looked at yet.
 * @type {Api.Playback}
 */
export const UNKNOWN_PLAYBACK = {
  state: "waiting",
  duration: null,
  width: null,
  height: null,
  poster: null,
  frame_rate: null,
  hdr: null,
  container: null,
  tracks: [],
  chapters: [],
  thumbnails: null,
  waveform: null,
  subtitles: [],
  playable: null,
  renditions: [],
  progress: null,
  problem: null,
};

const CHOOSABLE = new Set(["on_demand", "making", "ready"]);

/**
 * Whether browsers may be able to decode the video as it was uploaded; of others only renditions are played.
 * @param {Api.Playback} playback
 */
export function hasOriginal({ playable, renditions = [] }) {
  return playable !== null && (playable.from !== "hls" || Boolean(playable.mp4) || renditions.length === 0);
}

/**
 * The tracks of one kind: "video", "audio" or "text".
 * @param {Api.Playback} playback
 * @param {Api.Track["kind"]} kind
 */
export function tracksOf({ tracks = [] }, kind) {
  return tracks.filter((track) => track.kind === kind);
}

/**
 * Whether there is sound and no video track.
 * @param {Api.Playback} playback
 */
export function isAudioOnly(playback) {
  return tracksOf(playback, "audio").length > 0 && tracksOf(playback, "video").length === 0;
}

/**
 * The renditions that are made or can be, tallest first; those that failed are included.
 * @param {Api.Playback} playback
 */
export function renditionsOf({ renditions = [] }) {
  const offered = renditions.filter(({ state }) => CHOOSABLE.has(state) || state === "failed");
  return offered.sort((one, other) => other.height - one.height);
}

/**
 * The entries of the quality menu: `{ value, name, hint, isDisabled }`. The value is ORIGINAL or a height; the hint says
 * what choosing it means.
 * @param {Api.Playback} playback
 * @returns {Choice[]}
 */
export function qualitiesOf(playback) {
  const height = shortSide(playback);
  const original = { value: ORIGINAL, name: height ? `Original, ${height}p` : "Original", hint: "" };
  const made = renditionsOf(playback).map((rendition) => ({
    value: String(rendition.height),
    name: `${rendition.height}p`,
    hint: hintOf(rendition),
    isDisabled: rendition.state === "failed",
  }));
  return hasOriginal(playback) ? [original, ...made] : made;
}

/**
 * Heights such as 720 mean the short side, so that a video that stands upright has the same ones.
 * @param {Api.Playback} playback
 */
function shortSide({ width, height }) {
  return width && height ? Math.min(width, height) : null;
}

/** @param {Api.Rendition} rendition */
function hintOf({ state, progress }) {
  if (state === "on_demand") return "made when chosen";
  if (state === "making") return `being made, ${percentOf(progress)}`;
  return state === "failed" ? "could not be made" : "";
}

/**
 * A share from 0 to 1 as "40 %"; 100 % is only what is finished.
 * @param {number | null | undefined} share
 */
export function percentOf(share) {
  return `${Math.min(99, Math.floor(100 * (share ?? 0)))}\u00a0%`;
}

/**
 * The tallest rendition that can be played instead of an original that the browser cannot decode, or null.
 * @param {Api.Playback} playback
 */
export function substituteFor(playback) {
  const usable = renditionsOf(playback).find(({ state }) => CHOOSABLE.has(state));
  return usable && playback.playable?.hls ? String(usable.height) : null;
}

const PLAYED_AS_IT_IS = new Set(["waiting", "playable", "ready"]);

/**
 * How to play what is wanted: `{ kind: "file" | "hls", url }`, or null if it cannot be played. HLS costs the browser a
 * large script, so it is only used for what a file cannot do. `media` is the file as it was uploaded.
 * @param {WatchedVideo} video
 * @param {Partial<Wanted>} [wanted]
 * @returns {Way | null}
 */
export function wayToPlay({ playback, media, inline, isArriving }, { quality = ORIGINAL, audio = 0 } = {}) {
  const { from, mp4, hls } = playback.playable ?? { from: null, mp4: null, hls: null };
  const isPlainFile = quality === ORIGINAL && audio === 0 && !isArriving && from !== "hls";
  if (mp4 && (isPlainFile || !hls)) return { kind: "file", url: mp4 };
  if (hls) return { kind: "hls", url: hls };
  // A WebM file is played as it is; so is any other until the server has looked at it.
  return media && inline && !isArriving && PLAYED_AS_IT_IS.has(playback.state) ? { kind: "file", url: media } : null;
}

/**
 * Whether two URLs are of the same file, perhaps with another ticket or signature: link users get new ones.
 * @param {string | null} url
 * @param {string | null} other
 */
export function isSameFile(url, other) {
  return unsigned(url) === unsigned(other);
}

/** @param {string | null} url */
function unsigned(url) {
  return url?.replace(/\/t\/[^/]+/, "").replace(/\?.*/, "");
}

/**
 * Whether it is worth opening the player, as far as a list of videos tells.
 * @param {{ inline: boolean, playback?: Pick<Api.Playback, "state"> | null }} video
 */
export function canBeWatched({ inline, playback }) {
  const state = playback?.state;
  return state === "playable" || state === "ready" || (inline && state !== "unplayable");
}

/**
 * Whether the server is likely to say something new soon.
 * @param {Api.Playback} playback
 */
export function isChanging({ state, renditions = [] }) {
  return state === "waiting" || state === "probed" || renditions.some((rendition) => rendition.state === "making");
}
