/** The videos on the server that match a search, in an order, as far as this page has loaded them; and which are selected. */

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
 * video that it stands before, or null at the end), `changed` (detail: a video with a new name or state), `moved`
 * (detail: `{ id, before }`), `left` (detail: id of a video that no longer belongs to what is shown) and `removed` (detail: id of a deleted one).
 */
export class Library extends EventTarget {
  #ids;
  #next;
  /** What is shown, and what the latest call of `show` asked for; the same object once that is loaded or has failed. */
  #query;
  #wanted;
  #showing = Promise.resolve();
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
    this.#query = this.#wanted = { search, sort };
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

  /** Whether this list is shown already, or being loaded. */
  wants({ search, sort }) {
    return search === this.#wanted.search && sort === this.#wanted.sort;
  }

  /** Shows another list; of several calls in a row the last one counts. The old list stays until it is loaded. */
  show({ search = this.#wanted.search, sort = this.#wanted.sort }, signal) {
    this.#wanted = { search, sort };
    this.#loading = null;
    const showing = this.#replace(this.#wanted, signal);
    this.#showing = showing.catch(() => {});
    return showing;
  }

  /** Loads the next page, of the list that is about to be shown if there is one; a second call joins the first. */
  loadMore(signal) {
    if (this.#loading) return this.#loading;
    const loading = this.#showing
      .then(() => this.#loadPage(signal))
      .finally(() => {
        if (this.#loading === loading) this.#loading = null;
      });
    this.#loading = loading;
    return loading;
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

  /** Renames a video, here and on the server; resolves to it once it is at its place in the list. */
  async rename(id, filename, signal) {
    const video = await renameVideo(id, filename, signal);
    await this.#showing; // A list that is being loaded may still have the old name.
    this.#emit("changed", video);
    // The name is changed whether or not its new place is found.
    if (this.search || this.sort.endsWith("name")) await this.#place(id).catch(() => {});
    return video;
  }

  /** Tells what the server now says about a video of the list. */
  change(video) {
    if (this.#ids.has(video.id)) this.#emit("changed", video);
  }

  /** Deletes a video, here and on the server. */
  async delete(id, signal) {
    await deleteVideo(id, signal);
    this.#deleted.add(id);
    this.#ids.delete(id);
    this.#emit("removed", id);
  }

  async #replace(query, signal) {
    try {
      const { videos, next } = await listVideos({ limit: PAGE_SIZE, ...query }, signal);
      if (this.#wanted !== query) return;
      const present = videos.filter(({ id }) => !this.#deleted.has(id));
      this.#query = query;
      this.#next = next;
      this.#ids = new Set(present.map(({ id }) => id));
      this.#emit("replaced", present);
    } catch (error) {
      if (this.#wanted === query) this.#wanted = this.#query;
      throw error;
    }
  }

  async #lookForNew() {
    await this.#showing;
    const query = this.#query;
    const expected = this.#expected;
    this.#expected = new Set();
    const start = performance.now();
    try {
      const found = await this.#videosUpToKnown(query, expected);
      this.#earliestLook = performance.now() + Math.max(LOOK_PAUSE, PAUSE_PER_LOOK * (performance.now() - start));
      if (this.#query === query) this.#insert(found);
      else this.#lookAgain(expected);
    } catch (error) {
      this.#earliestLook = performance.now() + RETRY_PAUSE;
      if (error.retryable) this.#lookAgain(expected);
      else for (const id of expected) this.#expected.add(id);
      throw error;
    }
  }

  #lookAgain(expected) {
    for (const id of expected) this.#expected.add(id);
    this.refresh().catch(() => {});
  }

  /** The videos from the first one on, as far as new ones may be among those that are loaded. */
  async #videosUpToKnown(query, expected) {
    const waitedFor = new Set(expected);
    const most = this.size + expected.size;
    const found = await this.#list(query, (videos, found) => {
      for (const { id } of videos) waitedFor.delete(id);
      return !this.#mayHaveNewAfter(found, waitedFor, most);
    });
    return this.hasMore ? upToLastKnown(found, this.#ids) : found;
  }

  /**
   * Newest first, new videos end at the first known one. One that is waited for may be below it all the same: of videos
   * that are published at the same moment, the older may show up later. A search may keep it out for good. In other
   * orders new ones may be anywhere, and only those among the loaded ones are wanted. `most` ends the look where known
   * ones have been deleted elsewhere.
   */
  #mayHaveNewAfter(found, waitedFor, most) {
    const known = found.filter(({ id }) => this.#ids.has(id)).length;
    if (this.sort === NEWEST && known === 0) return true;
    if (this.sort !== NEWEST && !this.hasMore) return true;
    if (found.length >= most) return false;
    return this.sort === NEWEST ? waitedFor.size > 0 && !this.search : known < this.size;
  }

  /** The videos of a list from the first one on, page by page until `isEnough(page, found)` or another list is shown. */
  async #list(query, isEnough) {
    const found = [];
    let cursor = null;
    do {
      const { videos, next } = await listVideos({ limit: LARGEST_PAGE, cursor, ...query });
      found.push(...videos);
      cursor = isEnough(videos, found) || this.#query !== query ? null : next;
    } while (cursor);
    return found;
  }

  #insert(found) {
    let before = null;
    const unseen = [];
    for (const video of found.toReversed()) {
      if (this.#ids.has(video.id)) before = video.id;
      else if (this.#isNew(video)) unseen.push({ video, before });
    }
    for (const { video } of unseen) this.#ids.add(video.id);
    if (unseen.length > 0) this.#emit("inserted", unseen.reverse());
  }

  /** Moves a renamed video to where the server lists it now, or takes it off the list. */
  async #place(id) {
    const query = this.#query;
    const isOther = (video) => video && video.id !== id && this.#ids.has(video.id);
    const placeIn = (videos) => videos.findIndex((video) => video.id === id);
    const nextOf = (videos) => videos.slice(placeIn(videos) + 1).find(isOther);
    const found = await this.#list(query, (_, found) => {
      return placeIn(found) < 0 ? this.hasMore && found.length >= this.size : Boolean(nextOf(found));
    });
    if (this.#query !== query || !this.#ids.has(id)) return;
    const index = placeIn(found);
    const next = nextOf(found);
    // At the very end it belongs to what is loaded only if nothing that is not loaded comes before it.
    if (index === 0 || (index > 0 && (next || !this.hasMore || isOther(found[index - 1])))) {
      this.#emit("moved", { id, before: next?.id ?? null });
    } else {
      this.#ids.delete(id);
      this.#emit("left", id);
    }
  }

  async #loadPage(signal) {
    if (!this.hasMore) return;
    const query = this.#query;
    const cursor = this.#next;
    const { videos, next } = await listVideos({ limit: PAGE_SIZE, cursor, ...query }, signal);
    if (this.#query !== query || this.#next !== cursor) return;
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

/** Up to the last loaded video: what follows is loaded at the end of the list. */
function upToLastKnown(videos, ids) {
  const last = videos.findLastIndex(({ id }) => ids.has(id));
  return last < 0 ? videos : videos.slice(0, last + 1);
}

/** The videos that are selected; all of them are in the list. Emits `change`. */
export class Selection extends EventTarget {
  #lengths = new Map();

  get size() {
    return this.#lengths.size;
  }

  get ids() {
    return [...this.#lengths.keys()];
  }

  /** Bytes of all of them. */
  get bytes() {
    return [...this.#lengths.values()].reduce((sum, length) => sum + length, 0);
  }

  has(id) {
    return this.#lengths.has(id);
  }

  /** Selects videos (`{ id, length }`, length in bytes), or deselects them. */
  set(videos, isSelected) {
    for (const { id, length } of videos) {
      if (isSelected) this.#lengths.set(id, length);
      else this.#lengths.delete(id);
    }
    this.#tell();
  }

  remove(id) {
    if (this.#lengths.delete(id)) this.#tell();
  }

  clear() {
    if (this.size === 0) return;
    this.#lengths.clear();
    this.#tell();
  }

  #tell() {
    this.dispatchEvent(new Event("change"));
  }
}

/** Items from one to the other, both included, in either order. */
export function rangeBetween(items, one, other) {
  const [first, last] = [items.indexOf(one), items.indexOf(other)].sort((a, b) => a - b);
  return first < 0 ? [items[last]] : items.slice(first, last + 1);
}
