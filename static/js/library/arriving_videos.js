/** What is being uploaded: videos that can be watched meanwhile, and all that others send. */

import { formatSpan } from "../page/format.js";
import { unfinishedUploads } from "../uploads/api.js";
import { coveredBytes } from "../uploads/chunk_plan.js";
import { senderName } from "../words.js";

/** An upload without bytes for so long has stopped, milliseconds. */
const STANDS_STILL = 120_000;
/** Of more uploads, the latest are listed. */
const MOST_LISTED = 50;

/**
 * Emits `change` when its `list` does: `{ id, filename, length, poster, share, isWatchable, sender, stopped }`, the
 * share from 0 to 1 or null, `sender` the name of somebody else or null, and `stopped` how long ago bytes last came,
 * if they do no longer; and `left` (detail: id) when one is complete, or gone.
 */
export class ArrivingVideos extends EventTarget {
  #list = [];
  /** What has ended on this page: an answer may be older than that. */
  #ended = new Set();

  get list() {
    return this.#list;
  }

  /** Asks the server again. */
  async refresh(signal) {
    const uploads = (await unfinishedUploads(signal)).filter(({ state }) => state !== "complete");
    const shown = uploads.filter((upload) => !upload.yours || isWatchable(upload));
    const list = shown.filter(({ id }) => !this.#ended.has(id)).slice(0, MOST_LISTED).map(fromAnswer);
    if (JSON.stringify(list) === JSON.stringify(this.#list)) return;
    const left = this.#list.filter(({ id }) => !uploads.some((upload) => upload.id === id));
    this.#list = list;
    for (const { id } of left) this.dispatchEvent(new CustomEvent("left", { detail: id }));
    this.dispatchEvent(new Event("change"));
  }

  /** Takes one off the list that was completed or cancelled on this page, without asking the server. */
  forget(id) {
    this.#ended.add(id);
    if (!this.#list.some((video) => video.id === id)) return;
    this.#list = this.#list.filter((video) => video.id !== id);
    this.dispatchEvent(new Event("change"));
  }

  /** Lists one again that could not be cancelled, once the server is asked. */
  recall(id) {
    this.#ended.delete(id);
  }
}

function isWatchable({ playback }) {
  return Boolean(playback?.playable?.hls);
}

function fromAnswer(upload) {
  const { id, filename, length, received, playback, yours, sender, active } = upload;
  const still = Date.now() - new Date(active);
  return {
    id,
    filename,
    length,
    poster: playback?.poster ?? null,
    share: length ? coveredBytes(received) / length : null,
    isWatchable: isWatchable(upload),
    sender: yours ? null : senderName(sender) ?? "Someone",
    stopped: still > STANDS_STILL ? formatSpan(still) : null,
  };
}
