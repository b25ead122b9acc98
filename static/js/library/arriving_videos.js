/** What is being uploaded: videos that can be watched already, and all that others send. */

import { Emitter } from "../events.js";
import { formatSpan } from "../page/format.js";
import { unfinishedUploads } from "../uploads/api.js";
import { coveredBytes } from "../uploads/chunk_plan.js";
import { senderName } from "../words.js";

/**
 * @typedef {object} ArrivingVideo
 * @property {string} id
 * @property {string} filename
 * @property {number | null} length bytes
 * @property {string | null} poster
 * @property {number | null} share of the bytes that have arrived, from 0 to 1
 * @property {boolean} isWatchable
 * @property {string | null} sender the name, if it is another person's upload
 * @property {string | null} stopped how long ago bytes last came, if they do no longer
 */

/** An upload without bytes for so long has stopped, milliseconds. */
const STANDS_STILL = 120_000;
/** Of more uploads, the latest are listed. */
const MOST_LISTED = 50;

/**
 * Emits `change` when its `list` does, and `left` (detail: id) when one is complete, or gone.
 * @extends {Emitter<{ change: void, left: string }>}
 */
export class ArrivingVideos extends Emitter {
  /** @type {ArrivingVideo[]} */
  #list = [];
  /**
   * What has ended on this page: an answer may be older than that.
   * @type {Set<string>}
   */
  #ended = new Set();

  get list() {
    return this.#list;
  }

  /**
   * Asks the server again.
   * @param {AbortSignal} [signal]
   */
  async refresh(signal) {
    const uploads = (await unfinishedUploads(signal)).filter(({ state }) => state !== "complete");
    const shown = uploads.filter((upload) => !upload.yours || isWatchable(upload));
    const list = shown.filter(({ id }) => !this.#ended.has(id)).slice(0, MOST_LISTED).map(fromAnswer);
    if (JSON.stringify(list) === JSON.stringify(this.#list)) return;
    const left = this.#list.filter(({ id }) => !uploads.some((upload) => upload.id === id));
    this.#list = list;
    for (const { id } of left) this.emit("left", id);
    this.dispatchEvent(new Event("change"));
  }

  /**
   * Takes one off the list that was completed or cancelled on this page, without asking the server.
   * @param {string} id
   */
  forget(id) {
    this.#ended.add(id);
    if (!this.#list.some((video) => video.id === id)) return;
    this.#list = this.#list.filter((video) => video.id !== id);
    this.dispatchEvent(new Event("change"));
  }

  /**
   * Lists one again that could not be cancelled, once the server is asked.
   * @param {string} id
   */
  recall(id) {
    this.#ended.delete(id);
  }
}

/** @param {Api.Upload} upload */
function isWatchable({ playback }) {
  return Boolean(playback?.playable?.hls);
}

/**
 * @param {Api.Upload} upload
 * @returns {ArrivingVideo}
 */
function fromAnswer(upload) {
  const { id, filename, length, received, playback, yours, sender, active } = upload;
  const still = Date.now() - Date.parse(active);
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
