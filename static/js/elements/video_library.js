/** <video-library>: the list of videos. The server draws the first page; this adds, plays, renames and deletes. */

import { rangeBetween } from "../library/library.js";
import { isolated } from "../page/format.js";
import { actionOf, find, keepFocus, localiseDates, partsOf } from "../page/parts.js";
import { RowGroups } from "../page/row_groups.js";
import { wordsForRequest } from "../words.js";
import { announce, confirm } from "./notices.js";
import { isInUse, openRenameForm, showChange, videoRow } from "./video_row.js";

/**
 * @import { Library, Selection } from "../library/library.js"
 * @import { Prepared, State } from "../library/preparation.js"
 * @import { OpenedVideo } from "../player/video_state.js"
 * @import { VideoRow } from "./video_row.js"
 *
 * @typedef {Record<"problem" | "list" | "empty" | "notFound" | "searched" | "more" | "selectAllLine", HTMLElement>
 *   & { selectAll: HTMLInputElement }} Parts
 */

/** The next page is loaded when its button is this close. */
const LOAD_AHEAD = "600px";

export class VideoLibrary extends HTMLElement {
  /** @type {Parts} */
  #parts;
  /** @type {RowGroups} */
  #groups;
  /** @type {Library} */
  #library;
  /** @type {Selection} */
  #selection;
  /** @type {(video: OpenedVideo) => void} */
  #play;
  /** @type {HTMLElement | null} */
  #lastTicked = null;

  /** The videos that the page came with, for the model. */
  get initial() {
    const { next = null, search, sort } = this.dataset;
    return { ids: this.#rows.map(idOf), next, search, sort };
  }

  /**
   * Their states, as their documents would say them.
   * @returns {Prepared[]}
   */
  get initialVideos() {
    return this.#rows.map((row) => ({ id: idOf(row), playback: { state: /** @type {State} */ (row.dataset.state) } }));
  }

  /**
   * `library` is shown; `play` opens a video.
   * @param {{ library: Library, selection: Selection, play: (video: OpenedVideo) => void }} options
   */
  connect({ library, selection, play }) {
    this.#library = library;
    this.#selection = selection;
    this.#play = play;
    this.#parts = /** @type {Parts} */ (partsOf(this));
    this.#groups = new RowGroups(this.#parts.list);
    localiseDates(this);
    this.#followLibrary();
    selection.addEventListener("change", () => this.#showTicks());
    this.addEventListener("click", (event) => this.#act(event));
    this.addEventListener("keydown", (event) => {
      const row = rowOf(event.target);
      if (event.key === "F2" && row) this.#rename(row);
    });
    this.#loadAhead();
    this.#showTicks(); // A browser that goes back ticks boxes again.
  }

  /**
   * Says above the list that something failed.
   * @param {string} action
   * @param {unknown} error
   */
  complain(action, error) {
    this.#parts.problem.textContent = wordsForRequest(action, error);
    this.#parts.problem.hidden = false;
  }

  /** Hides the last failure once people do something else. */
  clearProblem() {
    this.#parts.problem.hidden = true;
  }

  get #rows() {
    return /** @type {VideoRow[]} */ ([...this.querySelectorAll("[data-id]")]);
  }

  #followLibrary() {
    const library = this.#library;
    library.addEventListener("replaced", ({ detail }) => this.#replace(detail));
    library.addEventListener("appended", ({ detail }) => {
      detail.forEach((video) => this.#groups.append(this.#newRow(video)));
      this.#showState();
    });
    library.addEventListener("inserted", ({ detail }) => this.#insert(detail));
    library.addEventListener("changed", ({ detail }) => {
      const row = this.#rowOf(detail.id);
      if (row) showChange(row, detail);
    });
    library.addEventListener("moved", ({ detail }) => this.#move(detail));
    library.addEventListener("left", ({ detail }) => this.#remove(detail));
    library.addEventListener("removed", ({ detail }) => this.#remove(detail));
  }

  /** @param {Api.Video} video */
  #newRow(video) {
    return videoRow(video, (id) => this.#selection.has(id));
  }

  /**
   * @param {string} id
   * @returns {VideoRow | null}
   */
  #rowOf(id) {
    return this.querySelector(`[data-id="${CSS.escape(id)}"]`);
  }

  /**
   * While a list loads, people go on in the old one: a row in use moves to the new list if its video is there.
   * @param {Api.Video[]} videos
   */
  #replace(videos) {
    const inUse = new Map(this.#rows.filter(isInUse).map((row) => [idOf(row), row]));
    const present = (/** @type {Api.Video} */ video) => {
      const row = inUse.get(video.id);
      if (row) showChange(row, video);
      return row ?? this.#newRow(video);
    };
    const draw = () => {
      this.#groups.clear();
      for (const video of videos) this.#groups.append(present(video));
    };
    this.#selection.clear();
    keepFocus(this.#parts.list, draw, [this.querySelector("h2")]);
    this.#showState();
  }

  /** @param {{ video: Api.Video, before: string | null }[]} places */
  #insert(places) {
    for (const { video, before } of places) {
      const row = this.#newRow(video);
      row.classList.add("video-row--new");
      this.#groups.insert(row, before === null ? null : this.#rowOf(before));
    }
    this.#showState();
  }

  /**
   * The focus stays in the row, and the page follows it.
   * @param {{ id: string, before: string | null }} place
   */
  #move({ id, before }) {
    const row = this.#rowOf(id);
    if (!row) return;
    keepFocus(row, () => {
      this.#groups.remove(row);
      this.#groups.insert(row, before === null ? null : this.#rowOf(before));
    });
  }

  /** @param {string} id */
  #remove(id) {
    this.#selection.remove(id);
    const row = this.#rowOf(id);
    if (row) keepFocus(row, () => this.#groups.remove(row), [this.querySelector("h2")]);
    this.#showState();
  }

  #showState() {
    const { size, search, hasMore } = this.#library;
    this.#parts.empty.hidden = size > 0 || search !== "";
    this.#parts.notFound.hidden = size > 0 || search === "";
    this.#parts.searched.textContent = `“${isolated(search)}”`;
    /** @type {HTMLElement} */ (this.#parts.more.parentElement).hidden = !hasMore;
    this.#showTicks();
  }

  #showTicks() {
    const [selection, library] = [this.#selection, this.#library];
    const boxes = /** @type {NodeListOf<HTMLInputElement>} */ (this.querySelectorAll('[data-part="select"]'));
    for (const box of boxes) {
      const row = rowOf(box);
      box.checked = row !== null && selection.has(idOf(row));
    }
    const { selectAll, selectAllLine } = this.#parts;
    selectAll.checked = selection.size > 0 && selection.size === library.size;
    selectAll.indeterminate = selection.size > 0 && !selectAll.checked;
    selectAllLine.hidden = library.size < 2;
  }

  #loadAhead() {
    const { more } = this.#parts;
    const load = (/** @type {IntersectionObserverEntry[]} */ entries) => entries[0].isIntersecting && this.#loadMore();
    new IntersectionObserver(load, { rootMargin: LOAD_AHEAD }).observe(more);
    more.addEventListener("click", (event) => {
      event.preventDefault();
      this.#loadMore();
    });
  }

  async #loadMore() {
    const { more } = this.#parts;
    this.clearProblem();
    more.setAttribute("aria-busy", "true");
    try {
      await this.#library.loadMore();
    } catch (error) {
      this.complain("load more videos", error);
    }
    more.removeAttribute("aria-busy");
  }

  /** @param {MouseEvent} event */
  #act(event) {
    const { selectAll } = this.#parts;
    if (event.target === selectAll) this.#selection.set(this.#rows.map(videoOf), selectAll.checked);
    const action = actionOf(event.target)?.dataset.action;
    if (action) this.clearProblem();
    if (action === "clear-search") {
      event.preventDefault();
      find("library-search").clear();
    }
    const row = rowOf(event.target);
    if (!action || !row) return;
    if (action === "select") this.#tick(row, event);
    if (action === "rename") this.#rename(row);
    if (action === "delete") this.#delete(row);
    if (action === "play" && isPlainClick(event) && "watchable" in row.dataset) {
      event.preventDefault();
      const { media = null, inline } = row.dataset;
      this.#play({ id: idOf(row), media, filename: nameOf(row), inline: inline === "true" });
    }
  }

  /**
   * With the shift key, all rows from the last ticked one are ticked or cleared alike.
   * @param {VideoRow} row
   * @param {MouseEvent} event
   */
  #tick(row, { target, shiftKey }) {
    const last = shiftKey && this.#lastTicked?.isConnected ? this.#lastTicked : row;
    this.#lastTicked = row;
    this.#selection.set(rangeBetween(this.#rows, last, row).map(videoOf), /** @type {HTMLInputElement} */ (target).checked);
  }

  /** @param {VideoRow} row */
  #rename(row) {
    const id = idOf(row);
    const before = nameOf(row);
    this.clearProblem();
    openRenameForm(row, async (entered) => {
      try {
        const { filename } = await this.#library.rename(id, entered);
        const place = this.#rowOf(id) ? "" : " It is not in the list shown.";
        announce(`${before} is now called ${filename}.${place}`);
      } catch (error) {
        if (row.isConnected) throw error;
        this.complain(`rename ${isolated(before)}`, error); // Another list has taken the form's place.
      }
    });
  }

  /** @param {VideoRow} row */
  async #delete(row) {
    const name = nameOf(row);
    const isAgreed = await confirm({
      title: "Delete this video?",
      text: `${isolated(name)} will be deleted from the server. This cannot be undone.`,
      yes: "Delete",
      no: "Keep",
    });
    if (!isAgreed) return;
    const rows = this.#rows;
    const neighbour = rows[rows.indexOf(row) + 1] ?? rows.at(-2);
    try {
      await this.#library.delete(idOf(row));
      announce(`${name} has been deleted.`);
      const next = neighbour?.querySelector(".video-row__name") ?? this.querySelector("h2");
      /** @type {HTMLElement} */ (next).focus();
    } catch (error) {
      this.complain("delete the video", error);
    }
  }
}

/**
 * The row that an event came from.
 * @param {EventTarget | null} target
 * @returns {VideoRow | null}
 */
function rowOf(target) {
  return target instanceof Element ? target.closest("[data-id]") : null;
}

/** @param {HTMLElement} row */
function idOf(row) {
  return row.dataset.id ?? "";
}

/** @param {HTMLElement} row */
function videoOf(row) {
  return { id: idOf(row), length: Number(row.dataset.length) };
}

/** @param {HTMLElement} row */
function nameOf(row) {
  return partsOf(row).name.textContent.trim();
}

/**
 * Clicks that should open a new tab or window are left to the browser.
 * @param {MouseEvent} event
 */
function isPlainClick({ button, metaKey, ctrlKey, shiftKey }) {
  return button === 0 && !metaKey && !ctrlKey && !shiftKey;
}

customElements.define("video-library", VideoLibrary);
