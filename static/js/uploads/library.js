/** The videos on the server, as far as this page has loaded them, newest first. */

import { deleteVideo, listVideos, videoDetails } from "./api.js";

const PAGE_SIZE = 50;

/** Emits `appended` and `prepended` (detail: list of videos) and `removed` (detail: id). */
export class Library extends EventTarget {
  #ids;
  #next;
  #loading = null;

  /** Begins with what the page came with: the ids of its rows and the cursor behind them, or null at the end. */
  constructor({ ids = [], next = null } = {}) {
    super();
    this.#ids = new Set(ids);
    this.#next = next;
  }

  get size() {
    return this.#ids.size;
  }

  get hasMore() {
    return this.#next !== null;
  }

  /** Loads the next page; a second call while one is under way joins it. */
  loadMore(signal) {
    this.#loading ??= this.#loadPage(signal).finally(() => {
      this.#loading = null;
    });
    return this.#loading;
  }

  /** Puts a video that has just been completed at the top. */
  async addCompleted(id, signal) {
    if (this.#ids.has(id)) return;
    const video = await videoDetails(id, signal);
    this.#announce("prepended", [video]);
  }

  /** Deletes a video, here and on the server. */
  async delete(id, signal) {
    await deleteVideo(id, signal);
    this.#ids.delete(id);
    this.dispatchEvent(new CustomEvent("removed", { detail: id }));
  }

  async #loadPage(signal) {
    const { videos, next } = await listVideos({ limit: PAGE_SIZE, cursor: this.#next }, signal);
    this.#next = next;
    this.#announce("appended", videos);
  }

  #announce(type, videos) {
    const unseen = videos.filter(({ id }) => !this.#ids.has(id));
    for (const { id } of unseen) this.#ids.add(id);
    this.dispatchEvent(new CustomEvent(type, { detail: unseen }));
  }
}
