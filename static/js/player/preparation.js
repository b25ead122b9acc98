/** Has the server make the part of a video that is watched next in another quality, while it still plays in this one. */

import { sleep } from "../uploads/retry.js";

/** Time until the server is asked again whether a segment is made, milliseconds. */
const PAUSE = 1_000;
/** A server that is still making a segment answers after 8 seconds; this is a quarter of an hour of them. */
const MOST_ATTEMPTS = 100;
const TOO_SLOW = "The server did not make it in time.";
const LOST = "The connection was lost.";

const TOO_MANY_REQUESTS = 429;
const NO_ROOM = 507;

/** The server cannot make this quality, does not offer it, or could not be asked for long. */
export class NotMakeable extends Error {}

/**
 * Resolves once the segment at the position is there, and in the browser's cache. `position()` is the time in seconds,
 * as the video goes on. `master` is the master playlist.
 * @param {string} master
 * @param {string} quality
 * @param {{ position: () => number, signal: AbortSignal }} options
 */
export async function prepareQuality(master, quality, { position, signal }) {
  const playlist = new URL(`${quality}/index.m3u8`, new URL(master, location.href));
  const segments = await (await load(playlist, signal)).text();
  let number = 0;
  while (number !== segmentAt(segments, position())) {
    number = segmentAt(segments, position());
    await load(new URL(`${number}.m4s`, playlist), signal);
  }
  await load(new URL("init.mp4", playlist), signal); // It is made with the first segment that is made.
}

/**
 * The number of the segment that is shown at a time, by a media playlist; the last one at the end.
 * @param {string} playlist
 * @param {number} seconds
 */
export function segmentAt(playlist, seconds) {
  const durations = [...playlist.matchAll(/^#EXTINF:([\d.]+)/gm)].map(([, duration]) => Number(duration));
  let end = 0;
  const found = durations.findIndex((duration) => (end += duration) > seconds);
  return found === -1 ? durations.length : found + 1;
}

/**
 * @param {URL} url
 * @param {AbortSignal} signal
 */
async function load(url, signal) {
  for (let attempt = 1; ; attempt += 1) {
    const answer = await loadOnce(url, signal);
    if (answer?.ok) return answer;
    if (answer && !isTemporary(answer)) throw new NotMakeable((await answer.json().catch(() => ({}))).detail);
    if (attempt === MOST_ATTEMPTS) throw new NotMakeable(answer ? TOO_SLOW : LOST);
    await sleep(PAUSE, signal);
  }
}

/**
 * The answer, whole if it is what was asked for, as only that is cached; null if the connection is lost.
 * @param {URL} url
 * @param {AbortSignal} signal
 */
async function loadOnce(url, signal) {
  try {
    const answer = await fetch(url, { signal });
    if (answer.ok) await answer.clone().arrayBuffer();
    return answer;
  } catch {
    signal.throwIfAborted();
    return null;
  }
}

/**
 * Whether the server may answer otherwise when it is asked again; a disk without room stays so for a while.
 * @param {Response} response
 */
function isTemporary({ status }) {
  return status === TOO_MANY_REQUESTS || (status >= 500 && status !== NO_ROOM);
}
