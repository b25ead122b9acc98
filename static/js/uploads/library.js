/** The videos on the server, as far as this page has loaded them, newest first. */

import { deleteVideo, listVideos } from "./api.js";
import { sleep } from "./backoff.js";

const PAGE_SIZE = 50;
/** The most that the server gives at once. */
const LARGEST_PAGE = 200;
/** Time in which completed uploads are gathered before the library is asked for them, milliseconds. */
const REFRESH_PAUSE = 500;

/** Emits `appended` and `prepended` (detail: list of videos) and `removed` (detail: id). */
export class Library extends EventTarget {
  #ids;
  #next;
  #loading = null;
  #refreshing = null;
  #expected = new Set();

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

  /**
   * Brings in what is new at the top, `id` among it. Calls are joined: thousands of small uploads end within seconds.
   */
  refresh(id = null) {
    if (id) this.#expected.add(id);
    this.#refreshing ??= sleep(REFRESH_PAUSE)
      .then(() => {
        this.#refreshing = null;
        return this.#newestVideos();
      })
      .then((videos) => this.#announce("prepended", videos));
    return this.#refreshing;
  }

  /** Deletes a video, here and on the server. */
  async delete(id, signal) {
    await deleteVideo(id, signal);
    this.#ids.delete(id);
    this.dispatchEvent(new CustomEvent("removed", { detail: id }));
  }

  /**
   * The newest videos: of pages up to one with a known video, and with all that are expected. Not just up to the first
   * known one: of videos that are published at the same moment, the older may show up later.
   */
  async #newestVideos() {
    const expected = this.#expected;
    this.#expected = new Set();
    const found = [];
    let cursor = null;
    do {
      const { videos, next } = await listVideos({ limit: LARGEST_PAGE, cursor });
      found.push(...videos);
      for (const { id } of videos) expected.delete(id);
      const isFarEnough = expected.size === 0 && videos.some(({ id }) => this.#ids.has(id));
      cursor = isFarEnough ? null : next;
    } while (cursor);
    return this.hasMore ? upToLastKnown(found, this.#ids) : found;
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

/** Without what follows the last video that is loaded: that has its turn at the end of the list. */
function upToLastKnown(videos, ids) {
  const last = videos.findLastIndex(({ id }) => ids.has(id));
  return last < 0 ? videos : videos.slice(0, last);
}
