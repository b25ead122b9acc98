/** Films that can be watched while they are being uploaded, by whoever uploads them. */

import { unfinishedUploads } from "../uploads/api.js";
import { coveredBytes } from "../uploads/chunk_plan.js";

/**
 * Emits `change` when its `list` does: `{ id, filename, length, poster, share }`, the share from 0 to 1; and `left`
 * (detail: id) when one is complete, or gone.
 */
export class ArrivingFilms extends EventTarget {
  #list = [];
  /** What was cancelled on this page: an answer may be older than that. */
  #cancelled = new Set();

  get list() {
    return this.#list;
  }

  /** Asks the server again. */
  async refresh(signal) {
    const uploads = await unfinishedUploads(signal);
    const list = uploads.filter(isWatchable).filter(({ id }) => !this.#cancelled.has(id)).map(fromAnswer);
    if (JSON.stringify(list) === JSON.stringify(this.#list)) return;
    const left = this.#list.filter(({ id }) => !list.some((film) => film.id === id));
    this.#list = list;
    for (const { id } of left) this.dispatchEvent(new CustomEvent("left", { detail: id }));
    this.dispatchEvent(new Event("change"));
  }

  /** Takes one off the list that was cancelled on this page, without asking the server. */
  forget(id) {
    this.#cancelled.add(id);
    if (!this.#list.some((film) => film.id === id)) return;
    this.#list = this.#list.filter((film) => film.id !== id);
    this.dispatchEvent(new Event("change"));
  }

  /** Lists one again that could not be cancelled, once the server is asked. */
  recall(id) {
    this.#cancelled.delete(id);
  }
}

function isWatchable({ state, playback }) {
  return state !== "complete" && Boolean(playback?.playable?.hls);
}

function fromAnswer({ id, filename, length, received, playback }) {
  return { id, filename, length, poster: playback.poster ?? null, share: coveredBytes(received) / length };
}
