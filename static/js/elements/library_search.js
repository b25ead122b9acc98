/** <library-search>: what the library shows, and in what order. */

import { NEWEST } from "../library/library.js";
import { announce } from "./notices.js";
import { countOf } from "../page/format.js";
import { partsOf } from "../page/parts.js";

/**
 * @import { Library, Query } from "../library/library.js"
 * @import { VideoLibrary } from "./video_library.js"
 *
 * @typedef {{ search: HTMLInputElement, sort: HTMLSelectElement, found: HTMLElement }} Parts
 */

/** Delay between the last key and the search, milliseconds. */
const TYPING_PAUSE = 250;

export class LibrarySearch extends HTMLElement {
  /** @type {Parts} */
  #parts;
  /** @type {Library} */
  #library;
  /** @type {VideoLibrary} */
  #list;
  /** @type {number | undefined} */
  #typing;
  #request = new AbortController();

  /**
   * Changes what `library` shows; `list` says what went wrong.
   * @param {{ library: Library, list: VideoLibrary }} options
   */
  connect({ library, list }) {
    this.#library = library;
    this.#list = list;
    this.#parts = /** @type {Parts} */ (partsOf(this));
    this.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#show();
    });
    this.#parts.search.addEventListener("input", () => this.#showSoon());
    this.#parts.sort.addEventListener("change", () => this.#show());
    for (const type of /** @type {const} */ (["replaced", "inserted", "appended", "left", "removed"])) {
      library.addEventListener(type, () => this.#showCount());
    }
    this.#showCount();
  }

  /** Back to all videos, with the focus in the field. */
  clear() {
    this.#parts.search.value = "";
    this.#parts.search.focus();
    this.#show();
  }

  #showSoon() {
    clearTimeout(this.#typing);
    this.#typing = setTimeout(() => this.#show(), TYPING_PAUSE);
  }

  async #show() {
    clearTimeout(this.#typing);
    const wanted = { search: this.#parts.search.value.trim(), sort: this.#parts.sort.value };
    if (this.#library.wants(wanted)) return;
    this.#request.abort();
    this.#request = new AbortController();
    const { signal } = this.#request;
    this.#list.clearProblem();
    try {
      await this.#library.show(wanted, signal);
      keepInAddress(wanted);
      if (wanted.search) announce(this.#found);
    } catch (error) {
      if (!signal.aborted) this.#list.complain("search the library", error);
    }
  }

  get #found() {
    const count = countOf(this.#library.size, "video");
    return this.#library.hasMore ? `More than ${count} found` : `${count} found`;
  }

  #showCount() {
    const { size, search } = this.#library;
    this.hidden = size === 0 && search === "";
    this.#parts.found.hidden = search === "" || size === 0;
    this.#parts.found.textContent = this.#found;
  }
}

/**
 * A page that is reloaded or shared shows the same list.
 * @param {Query} query
 */
function keepInAddress({ search, sort }) {
  const url = new URL(location.href);
  for (const name of ["q", "sort", "cursor"]) url.searchParams.delete(name);
  if (search) url.searchParams.set("q", search);
  if (sort !== NEWEST) url.searchParams.set("sort", sort);
  history.replaceState(history.state, "", url);
}

customElements.define("library-search", LibrarySearch);
