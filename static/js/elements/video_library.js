/** <video-library>: the list of videos. The server draws the first page; this adds, plays and deletes. */

import { isolated } from "../helpers/format.js";
import { localiseDates } from "../helpers/local_dates.js";
import { RowGroups } from "../helpers/row_groups.js";
import { partsOf } from "../helpers/template.js";
import { wordsForRequest } from "../helpers/words.js";
import { videoRow } from "./video_row.js";

/** The next page is loaded when its button is as close as this. */
const LOAD_AHEAD = "600px";

export class VideoLibrary extends HTMLElement {
  #parts;
  #groups;

  /** The videos that the page came with, for the model. */
  get initial() {
    const ids = [...this.querySelectorAll("[data-id]")].map((row) => row.dataset.id);
    return { ids, next: this.dataset.next ?? null };
  }

  /** `library` is shown; `play` opens a video; `confirm` asks before a video is deleted. */
  connect({ library, play, confirm, announce }) {
    Object.assign(this, { library, play, confirm, announce });
    this.#parts = partsOf(this.querySelector("section"));
    this.#groups = new RowGroups(this.#parts.list);
    localiseDates(this);
    library.addEventListener("appended", ({ detail }) => detail.forEach((video) => this.#groups.append(videoRow(video))));
    library.addEventListener("prepended", ({ detail }) => this.#prepend(detail));
    library.addEventListener("removed", ({ detail }) => this.#remove(detail));
    this.addEventListener("click", (event) => this.#act(event));
    this.#loadAhead();
  }

  /** Puts rows of fresh videos in at the top, and says that there is something now. */
  #prepend(videos) {
    for (const video of videos.toReversed()) {
      const row = videoRow(video);
      row.classList.add("video-row--new");
      this.#groups.prepend(row);
    }
    this.#showEmptiness();
  }

  #remove(id) {
    const row = this.querySelector(`[data-id="${CSS.escape(id)}"]`);
    if (row) this.#groups.remove(row);
    this.#showEmptiness();
  }

  #showEmptiness() {
    this.querySelector('[data-part="empty"]').hidden = this.library.size > 0;
  }

  #loadAhead() {
    const more = this.querySelector('[data-part="more"]');
    if (!more) return;
    const load = ([entry]) => entry.isIntersecting && this.#loadMore(more);
    new IntersectionObserver(load, { rootMargin: LOAD_AHEAD }).observe(more);
    more.addEventListener("click", (event) => {
      event.preventDefault();
      this.#loadMore(more);
    });
  }

  async #loadMore(more) {
    const problem = this.querySelector('[data-part="problem"]');
    more.setAttribute("aria-busy", "true");
    try {
      await this.library.loadMore();
      problem.hidden = true;
      more.hidden = !this.library.hasMore;
    } catch (error) {
      this.#complain("load more videos", error);
    }
    more.removeAttribute("aria-busy");
  }

  #act(event) {
    const target = event.target.closest("[data-action]");
    const row = event.target.closest("[data-id]");
    if (!target || !row) return;
    if (target.dataset.action === "delete") this.#delete(row);
    else if (isPlainClick(event) && row.dataset.inline === "true") {
      event.preventDefault();
      this.play({ id: row.dataset.id, media: row.dataset.media, name: partsOf(row).name.textContent.trim() });
    }
  }

  async #delete(row) {
    const name = partsOf(row).name.textContent.trim();
    const isAgreed = await this.confirm({
      title: "Delete this video?",
      text: `${isolated(name)} will be deleted from the server. This cannot be undone.`,
      yes: "Delete",
      no: "Keep",
    });
    if (!isAgreed) return;
    const rows = [...this.querySelectorAll("[data-id]")];
    const neighbour = rows[rows.indexOf(row) + 1] ?? rows.at(-2);
    try {
      await this.library.delete(row.dataset.id);
      this.announce(`${name} has been deleted.`);
      (neighbour?.querySelector(".video-row__name") ?? this.querySelector("h2")).focus();
    } catch (error) {
      this.#complain("delete the video", error);
    }
  }

  #complain(action, error) {
    const problem = this.querySelector('[data-part="problem"]');
    problem.textContent = wordsForRequest(action, error);
    problem.hidden = false;
  }
}

/** A click that should open a new tab or window is the browser's. */
function isPlainClick({ button, metaKey, ctrlKey, shiftKey }) {
  return button === 0 && !metaKey && !ctrlKey && !shiftKey;
}

customElements.define("video-library", VideoLibrary);
