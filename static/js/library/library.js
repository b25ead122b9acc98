/** The videos on the server that match a search, in an order, as far as this page has loaded them; and which are selected. */

import { Emitter } from "../events.js";
import { deleteVideo, listVideos, renameVideo } from "../uploads/api.js";
import { problemOfError } from "../uploads/problem.js";
import { sleep } from "../uploads/retry.js";

/**
 * Which videos are shown: those with `search` in their names, in the order `sort`.
 * @typedef {{ search: string, sort: string }} Query
 */

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
 * (detail: `{ id, before }`), `left` (detail: id of a video that no longer belongs to what is
 * shown) and `removed` (detail: id of a deleted one).
 * @extends {Emitter<{
 *   replaced: Api.Video[],
 *   appended: Api.Video[],
 *   inserted: { video: Api.Video, before: string | null }[],
 *   changed: Api.Video,
 *   moved: { id: string, before: string | null },
 *   left: string,
 *   removed: string,
 * }>}
 */
export class Library extends Emitter {
  /** @type {Set<string>} */
  #ids;
  /** @type {string | null} */
  #next;
  /**
   * What is shown, and what the latest call of `show` asked for; the same object once that is loaded or has failed.
   * @type {Query}
   */
  #query;
  /** @type {Query} */
  #wanted;
  /** @type {Promise<void>} */
  #showing = Promise.resolve();
  /** @type {Promise<void> | null} */
  #loading = null;
  /** @type {Promise<void>} */
  #look = Promise.resolve();
  /** @type {Promise<void> | null} */
  #waitingLook = null;
  #earliestLook = 0;
  /** @type {Set<string>} */
  #expected = new Set();
  /** @type {Set<string>} */
  #deleted = new Set();

  /**
   * Begins with what the page contains: the ids of its rows and the cursor after them, or null at the end.
   * @param {Partial<Query> & { ids?: string[], next?: string | null }} [page]
   */
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

  /**
   * Whether this list is shown already, or being loaded.
   * @param {Query} query
   */
  wants({ search, sort }) {
    return search === this.#wanted.search && sort === this.#wanted.sort;
  }

  /**
   * Shows another list; of several calls in a row the last one counts. The old list stays until it is loaded.
   * @param {Partial<Query>} query
   * @param {AbortSignal} [signal]
   */
  show({ search = this.#wanted.search, sort = this.#wanted.sort }, signal) {
    this.#wanted = { search, sort };
    this.#loading = null;
    const showing = this.#replace(this.#wanted, signal);
    this.#showing = showing.catch(() => {});
    return showing;
  }

  /**
   * Loads the next page, of the list that is about to be shown if there is one; a second call joins the first.
   * @param {AbortSignal} [signal]
   */
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

  /**
   * Adds new videos, including `id`, at once; those that follow soon after are added together.
   * @param {string | null} [id]
   */
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

  /**
   * Renames a video, here and on the server; resolves to it once it is at its place in the list.
   * @param {string} id
   * @param {string} filename
   * @param {AbortSignal} [signal]
   */
  async rename(id, filename, signal) {
    const video = await renameVideo(id, filename, signal);
    await this.#showing; // A list that is being loaded may still have the old name.
    this.emit("changed", video);
    // The name is changed whether or not its new place is found.
    if (this.search || this.sort.endsWith("name")) await this.#place(id).catch(() => {});
    return video;
  }

  /**
   * Tells what the server now says about a video of the list.
   * @param {Api.Video} video
   */
  change(video) {
    if (this.#ids.has(video.id)) this.emit("changed", video);
  }

  /**
   * Deletes a video, here and on the server.
   * @param {string} id
   * @param {AbortSignal} [signal]
   */
  async delete(id, signal) {
    await deleteVideo(id, signal);
    this.#deleted.add(id);
    this.#ids.delete(id);
    this.emit("removed", id);
  }

  /**
   * @param {Query} query
   * @param {AbortSignal} [signal]
   */
  async #replace(query, signal) {
    try {
      const { videos, next } = await listVideos({ limit: PAGE_SIZE, ...query }, signal);
      if (this.#wanted !== query) return;
      const present = videos.filter(({ id }) => !this.#deleted.has(id));
      this.#query = query;
      this.#next = next;
      this.#ids = new Set(present.map(({ id }) => id));
      this.emit("replaced", present);
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
      if (problemOfError(error).retryable) this.#lookAgain(expected);
      else for (const id of expected) this.#expected.add(id);
      throw error;
    }
  }

  /** @param {Set<string>} expected */
  #lookAgain(expected) {
    for (const id of expected) this.#expected.add(id);
    this.refresh().catch(() => {});
  }

  /**
   * The videos from the first one on, as far as new ones may be among those that are loaded.
   * @param {Query} query
   * @param {Set<string>} expected
   */
  async #videosUpToKnown(query, expected) {
    const waitedFor = new Set(expected);
    const most = this.size + expected.size;
    const found = await this.#list(query, (videos, soFar) => {
      for (const { id } of videos) waitedFor.delete(id);
      return !this.#mayHaveNewAfter(soFar, waitedFor, most);
    });
    return this.hasMore ? upToLastKnown(found, this.#ids) : found;
  }

  /**
   * Newest first, new videos end at the first known one. One that is waited for may be below it all the same: of videos
   * that are published at the same moment, the older may show up later. A search may keep it out for good. In other
   * orders new ones may be anywhere, and only those among the loaded ones are wanted. `most` ends the look where known
   * ones have been deleted elsewhere.
   * @param {Api.Video[]} found
   * @param {Set<string>} waitedFor
   * @param {number} most
   */
  #mayHaveNewAfter(found, waitedFor, most) {
    const known = found.filter(({ id }) => this.#ids.has(id)).length;
    if (this.sort === NEWEST && known === 0) return true;
    if (this.sort !== NEWEST && !this.hasMore) return true;
    if (found.length >= most) return false;
    return this.sort === NEWEST ? waitedFor.size > 0 && !this.search : known < this.size;
  }

  /**
   * The videos of a list from the first one on, page by page until `isEnough(page, found)` or another list is shown.
   * @param {Query} query
   * @param {(page: Api.Video[], found: Api.Video[]) => boolean} isEnough
   */
  async #list(query, isEnough) {
    /** @type {Api.Video[]} */
    const found = [];
    /** @type {string | null} */
    let cursor = null;
    do {
      const { videos, next } = await listVideos({ limit: LARGEST_PAGE, cursor, ...query });
      found.push(...videos);
      cursor = isEnough(videos, found) || this.#query !== query ? null : next;
    } while (cursor);
    return found;
  }

  /** @param {Api.Video[]} found */
  #insert(found) {
    /** @type {string | null} */
    let before = null;
    const unseen = [];
    for (const video of found.toReversed()) {
      if (this.#ids.has(video.id)) before = video.id;
      else if (this.#isNew(video)) unseen.push({ video, before });
    }
    for (const { video } of unseen) this.#ids.add(video.id);
    if (unseen.length > 0) this.emit("inserted", unseen.reverse());
  }

  /**
   * Moves a renamed video to where the server lists it now, or takes it off the list.
   * @param {string} id
   */
  async #place(id) {
    const query = this.#query;
    const isOther = (/** @type {Api.Video | undefined} */ video) => video && video.id !== id && this.#ids.has(video.id);
    const placeIn = (/** @type {Api.Video[]} */ videos) => videos.findIndex((video) => video.id === id);
    const nextOf = (/** @type {Api.Video[]} */ videos) => videos.slice(placeIn(videos) + 1).find(isOther);
    const found = await this.#list(query, (_, soFar) => {
      return placeIn(soFar) < 0 ? this.hasMore && soFar.length >= this.size : Boolean(nextOf(soFar));
    });
    if (this.#query !== query || !this.#ids.has(id)) return;
    const index = placeIn(found);
    const next = nextOf(found);
    // At the very end it belongs to what is loaded only if nothing that is not loaded comes before it.
    if (index === 0 || (index > 0 && (next || !this.hasMore || isOther(found[index - 1])))) {
      this.emit("moved", { id, before: next?.id ?? null });
    } else {
      this.#ids.delete(id);
      this.emit("left", id);
    }
  }

  /** @param {AbortSignal} [signal] */
  async #loadPage(signal) {
    if (!this.hasMore) return;
    const query = this.#query;
    const cursor = this.#next;
    const { videos, next } = await listVideos({ limit: PAGE_SIZE, cursor, ...query }, signal);
    if (this.#query !== query || this.#next !== cursor) return;
    this.#next = next;
    const unseen = videos.filter((video) => this.#isNew(video));
    for (const { id } of unseen) this.#ids.add(id);
    this.emit("appended", unseen);
  }

  /** @param {{ id: string }} video */
  #isNew({ id }) {
    return !this.#ids.has(id) && !this.#deleted.has(id);
  }
}

/**
 * Up to the last loaded video: what follows is loaded at the end of the list.
 * @param {Api.Video[]} videos
 * @param {Set<string>} ids
 */
function upToLastKnown(videos, ids) {
  const last = videos.findLastIndex(({ id }) => ids.has(id));
  return last < 0 ? videos : videos.slice(0, last + 1);
}

/** The videos that are selected; all of them are in the list. Emits `change`. */
export class Selection extends EventTarget {
  /** @type {Map<string, number>} */
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

  /** @param {string} id */
  has(id) {
    return this.#lengths.has(id);
  }

  /**
   * Selects videos (`{ id, length }`, length in bytes), or deselects them.
   * @param {{ id: string, length: number }[]} videos
   * @param {boolean} isSelected
   */
  set(videos, isSelected) {
    for (const { id, length } of videos) {
      if (isSelected) this.#lengths.set(id, length);
      else this.#lengths.delete(id);
    }
    this.#tell();
  }

  /** @param {string} id */
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

/**
 * Items from one to the other, both included, in either order.
 * @template Item
 * @param {Item[]} items
 * @param {Item} one
 * @param {Item} other
 */
export function rangeBetween(items, one, other) {
  const [first, last] = [items.indexOf(one), items.indexOf(other)].sort((a, b) => a - b);
  return first < 0 ? [items[last]] : items.slice(first, last + 1);
}
