/** <video-library>: the list of videos. The server draws the first page; this adds, plays, renames and deletes. */

import { rangeBetween } from "../library/library.js";
import { isolated } from "../page/format.js";
import { keepFocus, localiseDates, partsOf } from "../page/parts.js";
import { RowGroups } from "../page/row_groups.js";
import { wordsForRequest } from "../words.js";
import { isInUse, openRenameForm, showChange, videoRow } from "./video_row.js";

/** The next page is loaded when its button is this close. */
const LOAD_AHEAD = "600px";

export class VideoLibrary extends HTMLElement {
  #parts;
  #groups;
  #lastTicked = null;

  /** The videos that the page came with, for the model. */
  get initial() {
    const { next = null, search, sort } = this.dataset;
    return { ids: this.#rows.map((row) => row.dataset.id), next, search, sort };
  }

  /** Those of them that the server is still preparing, as their documents would say it. */
  get initialVideos() {
    return this.#rows.map(({ dataset: { id, state } }) => ({ id, playback: { state } }));
  }

  /** `library` is shown; `play` opens a video; `confirm` asks before a video is deleted. */
  connect({ library, selection, play, confirm, announce }) {
    Object.assign(this, { library, selection, play, confirm, announce });
    this.#parts = partsOf(this.querySelector("section"));
    this.#groups = new RowGroups(this.#parts.list);
    localiseDates(this);
    this.#followLibrary();
    selection.addEventListener("change", () => this.#showTicks());
    this.addEventListener("click", (event) => this.#act(event));
    this.addEventListener("keydown", (event) => {
      const row = event.target.closest("[data-id]");
      if (event.key === "F2" && row) this.#rename(row);
    });
    this.#loadAhead();
    this.#showTicks(); // A browser that goes back ticks boxes again.
  }

  /** Says above the list that something failed. */
  complain(action, error) {
    this.#parts.problem.textContent = wordsForRequest(action, error);
    this.#parts.problem.hidden = false;
  }

  /** Hides the last failure once people do something else. */
  clearProblem() {
    this.#parts.problem.hidden = true;
  }

  get #rows() {
    return [...this.querySelectorAll("[data-id]")];
  }

  #followLibrary() {
    const { library } = this;
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
    for (const type of ["left", "removed"]) library.addEventListener(type, ({ detail }) => this.#remove(detail));
  }

  #newRow(video) {
    return videoRow(video, (id) => this.selection.has(id));
  }

  #rowOf(id) {
    return this.querySelector(`[data-id="${CSS.escape(id)}"]`);
  }

  /** While a list loads, people go on in the old one: a row in use moves to the new list if its video is there. */
  #replace(videos) {
    const inUse = new Map(this.#rows.filter(isInUse).map((row) => [row.dataset.id, row]));
    const rowOf = (video) => {
      const row = inUse.get(video.id);
      if (row) showChange(row, video);
      return row ?? this.#newRow(video);
    };
    const draw = () => {
      this.#groups.clear();
      for (const video of videos) this.#groups.append(rowOf(video));
    };
    this.selection.clear();
    keepFocus(this.#parts.list, draw, [this.querySelector("h2")]);
    this.#showState();
  }

  #insert(places) {
    for (const { video, before } of places) {
      const row = this.#newRow(video);
      row.classList.add("video-row--new");
      this.#groups.insert(row, before && this.#rowOf(before));
    }
    this.#showState();
  }

  /** The focus stays in the row, and the page follows it. */
  #move({ id, before }) {
    const row = this.#rowOf(id);
    keepFocus(row, () => {
      this.#groups.remove(row);
      this.#groups.insert(row, before && this.#rowOf(before));
    });
  }

  #remove(id) {
    this.selection.remove(id);
    const row = this.#rowOf(id);
    if (row) keepFocus(row, () => this.#groups.remove(row), [this.querySelector("h2")]);
    this.#showState();
  }

  #showState() {
    const { size, search, hasMore } = this.library;
    this.#parts.empty.hidden = size > 0 || search !== "";
    this.#parts.notFound.hidden = size > 0 || search === "";
    this.#parts.searched.textContent = `“${isolated(search)}”`;
    this.#parts.more.parentElement.hidden = !hasMore;
    this.#showTicks();
  }

  #showTicks() {
    const { selection, library } = this;
    const boxes = this.querySelectorAll('[data-part="select"]');
    for (const box of boxes) box.checked = selection.has(box.closest("[data-id]").dataset.id);
    const { selectAll, selectAllLine } = this.#parts;
    selectAll.checked = selection.size > 0 && selection.size === library.size;
    selectAll.indeterminate = selection.size > 0 && !selectAll.checked;
    selectAllLine.hidden = library.size < 2;
  }

  #loadAhead() {
    const { more } = this.#parts;
    const load = ([entry]) => entry.isIntersecting && this.#loadMore();
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
      await this.library.loadMore();
    } catch (error) {
      this.complain("load more videos", error);
    }
    more.removeAttribute("aria-busy");
  }

  #act(event) {
    if (event.target === this.#parts.selectAll) this.selection.set(this.#rows.map(videoOf), event.target.checked);
    const action = event.target.closest("[data-action]")?.dataset.action;
    if (action) this.clearProblem();
    if (action === "clear-search") {
      event.preventDefault();
      this.querySelector("library-search").clear();
    }
    const row = event.target.closest("[data-id]");
    if (!action || !row) return;
    if (action === "select") this.#tick(row, event);
    if (action === "rename") this.#rename(row);
    if (action === "delete") this.#delete(row);
    if (action === "play" && isPlainClick(event) && "watchable" in row.dataset) {
      event.preventDefault();
      const { id, media, inline } = row.dataset;
      this.play({ id, media, filename: nameOf(row), inline: inline === "true" });
    }
  }

  /** With the shift key, all rows from the last ticked one are ticked or cleared alike. */
  #tick(row, { target, shiftKey }) {
    const last = shiftKey && this.#lastTicked?.isConnected ? this.#lastTicked : row;
    this.#lastTicked = row;
    this.selection.set(rangeBetween(this.#rows, last, row).map(videoOf), target.checked);
  }

  #rename(row) {
    const { id } = row.dataset;
    const before = nameOf(row);
    this.clearProblem();
    openRenameForm(row, async (entered) => {
      try {
        const { filename } = await this.library.rename(id, entered);
        const place = this.#rowOf(id) ? "" : " It is not in the list shown.";
        this.announce(`${before} is now called ${filename}.${place}`);
      } catch (error) {
        if (row.isConnected) throw error;
        this.complain(`rename ${isolated(before)}`, error); // Another list has taken the form's place.
      }
    });
  }

  async #delete(row) {
    const name = nameOf(row);
    const isAgreed = await this.confirm({
      title: "Delete this video?",
      text: `${isolated(name)} will be deleted from the server. This cannot be undone.`,
      yes: "Delete",
      no: "Keep",
    });
    if (!isAgreed) return;
    const rows = this.#rows;
    const neighbour = rows[rows.indexOf(row) + 1] ?? rows.at(-2);
    try {
      await this.library.delete(row.dataset.id);
      this.announce(`${name} has been deleted.`);
      (neighbour?.querySelector(".video-row__name") ?? this.querySelector("h2")).focus();
    } catch (error) {
      this.complain("delete the video", error);
    }
  }
}

function videoOf({ dataset }) {
  return { id: dataset.id, length: Number(dataset.length) };
}

function nameOf(row) {
  return partsOf(row).name.textContent.trim();
}

/** Clicks that should open a new tab or window are left to the browser. */
function isPlainClick({ button, metaKey, ctrlKey, shiftKey }) {
  return button === 0 && !metaKey && !ctrlKey && !shiftKey;
}

customElements.define("video-library", VideoLibrary);
