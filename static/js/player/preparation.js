/** Has the server make the part of a film that is watched next in another quality, while it still plays in this one. */

import { sleep } from "../uploads/retry.js";

/** Time until the server is asked again whether a segment is made, milliseconds. */
const PAUSE = 1_000;

/** The server cannot make this quality, or does not offer it. */
export class NotMakeable extends Error {}

/**
 * Resolves once the segment at the position is there, and in the browser's cache. `position()` is the time in seconds:
 * the film goes on meanwhile. `master` is the master playlist.
 */
export async function prepareQuality(master, quality, { position, signal }) {
  const playlist = new URL(`${quality}/index.m3u8`, new URL(master, location.href));
  const segments = await (await load(playlist, signal)).text();
  let number = 0;
  while (number !== segmentAt(segments, position())) {
    number = segmentAt(segments, position());
    await load(new URL(`${number}.m4s`, playlist), signal);
  }
  await load(new URL("init.mp4", playlist), signal); // It is made with the first segment, whichever that is.
}

/** The number of the segment that is shown at a time, by a media playlist; the last one at the end. */
export function segmentAt(playlist, seconds) {
  const durations = [...playlist.matchAll(/^#EXTINF:([\d.]+)/gm)].map(([, duration]) => Number(duration));
  let end = 0;
  const found = durations.findIndex((duration) => (end += duration) > seconds);
  return found === -1 ? durations.length : found + 1;
}

async function load(url, signal) {
  for (;;) {
    const answer = await fetch(url, { signal });
    if (answer.ok) {
      await answer.clone().arrayBuffer(); // Whole, as only that is cached.
      return answer;
    }
    if (answer.status !== 503) throw new NotMakeable((await answer.json().catch(() => ({}))).detail);
    await sleep(PAUSE, signal);
  }
}
