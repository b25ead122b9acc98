/** The videos on the server that match a search, in an order, as far as this page has loaded them. */

import { deleteVideo, listVideos, renameVideo } from "../uploads/api.js";
import { sleep } from "../uploads/retry.js";

export const NEWEST = "newest";

const PAGE_SIZE = 50;
/** The most that the server returns at once. */
const LARGEST_PAGE = 200;
/** Time between two checks for new videos, milliseconds: thousands of small uploads may finish within seconds. */
const LOOK_PAUSE = 500;
/** Checking a long list may take a tenth of the time. */
const PAUSE_PER_LOOK = 9;
/** Time until a failed check is repeated, milliseconds. */
const RETRY_PAUSE = 5_000;

/**
 * Emits `replaced` and `appended` (detail: videos), `inserted` (detail: list of `{ video, before }`, the id of the
 * video that it stands before, or null at the end), `renamed` (detail: video) and `removed` (detail: id).
 */
export class Library extends EventTarget {
  #ids;
  #next;
  #query;
  #loading = null;
  #look = Promise.resolve();
  #waitingLook = null;
  #earliestLook = 0;
  #expected = new Set();
  #deleted = new Set();

  /** Begins with what the page contains: the ids of its rows and the cursor after them, or null at the end. */
  constructor({ ids = [], next = null, search = "", sort = NEWEST } = {}) {
    super();
    this.#ids = new Set(ids);
    this.#next = next;
    this.#query = { search, sort };
  }

  get size() {
    return this.#ids.size;
  }

  get hasMore() {
    return this.#next !== null;
  }

  /** What the names contain; empty for all videos. */
  get search() {
    return this.#query.search;
  }

  get sort() {
    return this.#query.sort;
  }

  /** Shows another list; of several calls in a row the last one counts. The old list stays until it is loaded. */
  async show({ search = this.search, sort = this.sort }, signal) {
    const before = this.#query;
    const query = { search, sort };
    this.#query = query;
    this.#loading = null;
    try {
      const { videos, next } = await listVideos({ limit: PAGE_SIZE, ...query }, signal);
      if (this.#query !== query) return;
      this.#next = next;
      this.#ids = new Set(videos.map(({ id }) => id));
      this.#emit("replaced", videos);
    } catch (error) {
      if (this.#query === query) this.#query = before;
      throw error;
    }
  }

  /** Loads the next page; a second call meanwhile joins the first. */
  loadMore(signal) {
    this.#loading ??= this.#loadPage(signal).finally(() => {
      this.#loading = null;
    });
    return this.#loading;
  }

  /** Adds new videos, including `id`, at once; those that follow soon after are added together. */
  refresh(id = null) {
    if (id) this.#expected.add(id);
    this.#waitingLook ??= this.#look
      .catch(() => {})
      .then(() => sleep(Math.max(0, this.#earliestLook - performance.now())))
      .then(() => {
        this.#waitingLook = null;
        this.#look = this.#lookForNew();
        return this.#look;
      });
    return this.#waitingLook;
  }

  /** Renames a video, here and on the server. */
  async rename(id, filename, signal) {
    this.#emit("renamed", await renameVideo(id, filename, signal));
  }

  /** Deletes a video, here and on the server. */
  async delete(id, signal) {
    await deleteVideo(id, signal);
    this.#deleted.add(id);
    this.#ids.delete(id);
    this.#emit("removed", id);
  }

  async #lookForNew() {
    const query = this.#query;
    const expected = this.#expected;
    this.#expected = new Set();
    const start = performance.now();
    try {
      const found = await this.#videosUpToKnown(query, new Set(expected));
      this.#earliestLook = performance.now() + Math.max(LOOK_PAUSE, PAUSE_PER_LOOK * (performance.now() - start));
      if (this.#query === query) this.#insert(found);
    } catch (error) {
      this.#earliestLook = performance.now() + RETRY_PAUSE;
      for (const id of expected) this.#expected.add(id);
      if (error.retryable) this.refresh().catch(() => {});
      throw error;
    }
  }

  /** The videos from the first one on, as far as new ones may be among those that are loaded. */
  async #videosUpToKnown(query, expected) {
    const found = [];
    let cursor = null;
    do {
      const { videos, next } = await listVideos({ limit: LARGEST_PAGE, cursor, ...query });
      found.push(...videos);
      for (const { id } of videos) expected.delete(id);
      cursor = this.#mayHaveNewAfter(videos, found, expected) ? next : null;
    } while (cursor);
    return this.hasMore ? upToLastKnown(found, this.#ids) : found;
  }

  /**
   * Newest first, new videos end at the first known one. An expected one may still be below it: of videos
   * that are published at the same moment, the older may show up later. A search may keep it out for good. In other
   * orders new ones may be anywhere, and only those among the loaded ones are wanted.
   */
  #mayHaveNewAfter(videos, found, expected) {
    const isKnown = ({ id }) => this.#ids.has(id);
    if (this.sort === NEWEST) return (expected.size > 0 && !this.search) || !videos.some(isKnown);
    return !this.hasMore || found.filter(isKnown).length < this.size;
  }

  #insert(found) {
    let before = null;
    const unseen = [];
    for (const video of found.toReversed()) {
      if (!this.#isNew(video)) before = video.id;
      else unseen.push({ video, before });
    }
    for (const { video } of unseen) this.#ids.add(video.id);
    if (unseen.length > 0) this.#emit("inserted", unseen.reverse());
  }

  async #loadPage(signal) {
    const query = this.#query;
    const { videos, next } = await listVideos({ limit: PAGE_SIZE, cursor: this.#next, ...query }, signal);
    if (this.#query !== query) return;
    this.#next = next;
    const unseen = videos.filter((video) => this.#isNew(video));
    for (const { id } of unseen) this.#ids.add(id);
    this.#emit("appended", unseen);
  }

  #isNew({ id }) {
    return !this.#ids.has(id) && !this.#deleted.has(id);
  }

  #emit(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}

/** Without what follows the last loaded video: that is loaded at the end of the list. */
function upToLastKnown(videos, ids) {
  const last = videos.findLastIndex(({ id }) => ids.has(id));
  return last < 0 ? videos : videos.slice(0, last);
}
