/** <selection-bar>: how many videos are selected, and what can be done with all of them. */

import { countOf, formatBytes } from "../page/format.js";
import { actionOf, keepFocus, partsOf, setText } from "../page/parts.js";
import { Problem, problemOfError } from "../uploads/problem.js";
import { announce, confirm } from "./notices.js";

/**
 * @import { Library, Selection } from "../library/library.js"
 * @import { VideoLibrary } from "./video_library.js"
 *
 * `share` is only there for people who may share.
 * @typedef {object} Parts
 * @property {HTMLElement} text
 * @property {HTMLButtonElement} download
 * @property {HTMLAnchorElement} [share]
 * @property {HTMLIFrameElement} frame
 */

/** Most videos in one ZIP file; the server refuses more. */
const LARGEST_ARCHIVE = 1000;
/** Most videos whose ids fit into the URL of the form for a link to them; the API takes more. */
const MOST_SHARED = 100;
/** Videos deleted in parallel: running uploads need connections too. */
const LANES = 2;

export class SelectionBar extends HTMLElement {
  /** @type {Parts} */
  #parts;
  /** @type {Library} */
  #library;
  /** @type {Selection} */
  #selection;
  /** @type {VideoLibrary} */
  #list;
  #isDeleting = false;

  /**
   * `list` shows failures, and gets the focus when nothing is selected any more.
   * @param {{ library: Library, selection: Selection, list: VideoLibrary }} options
   */
  connect({ library, selection, list }) {
    this.#library = library;
    this.#selection = selection;
    this.#list = list;
    this.#parts = /** @type {Parts} */ (partsOf(this));
    selection.addEventListener("change", () => this.#isDeleting || this.#show());
    this.addEventListener("click", ({ target }) => {
      const action = actionOf(target)?.dataset.action;
      if (action === "download") this.#download();
      if (action === "delete") this.#delete();
      if (action === "clear") selection.clear();
    });
  }

  get #words() {
    const words = `${countOf(this.#selection.size, "video")} selected, ${formatBytes(this.#selection.bytes)}`;
    return this.#isTooMany ? `${words}. One download can have ${countOf(LARGEST_ARCHIVE, "video")} at most.` : words;
  }

  get #isTooMany() {
    return this.#selection.size > LARGEST_ARCHIVE;
  }

  #show() {
    const { size } = this.#selection;
    keepFocus(this, () => (this.hidden = size === 0), [this.#list.querySelector("h2")]);
    this.#parts.download.disabled = this.#isTooMany;
    this.#offerToShare(size);
    if (size > 0) setText(this.#parts.text, this.#words);
    announce(size > 0 ? this.#words : "Nothing is selected.");
  }

  /** @param {number} size */
  #offerToShare(size) {
    const { share } = this.#parts;
    if (!share) return; // The role does not allow it.
    share.hidden = size > MOST_SHARED;
    share.search = String(new URLSearchParams({ videos: String(this.#selection.ids) }));
  }

  /** Downloads one file as it is, several as a ZIP file, in a frame, so that the page and its uploads stay. */
  #download() {
    const { ids } = this.#selection;
    if (ids.length === 1) {
      const link = Object.assign(document.createElement("a"), { href: `/media/${ids[0]}?download`, download: "" });
      link.click();
      return;
    }
    // A download loads nothing into the frame; a refusal does.
    this.#parts.frame.onload = () => this.#list.complain("download the videos", new Problem({ code: "not_downloaded" }));
    const form = document.createElement("form");
    Object.assign(form, { method: "post", action: this.dataset.archiveUrl, target: this.#parts.frame.name });
    form.append(...ids.map((value) => Object.assign(document.createElement("input"), { name: "id", value })));
    form.hidden = true;
    this.append(form);
    form.submit();
    form.remove();
    announce(`The download of ${countOf(ids.length, "video")} begins.`);
  }

  async #delete() {
    const count = countOf(this.#selection.size, "video");
    const isAgreed = await confirm({
      title: `Delete ${count}?`,
      text: `${formatBytes(this.#selection.bytes)} will be deleted from the server. This cannot be undone.`,
      yes: `Delete ${count}`,
      no: "Keep",
    });
    if (!isAgreed) return;
    this.#setDeleting(true);
    const failure = await this.#deleteAll(this.#selection.ids);
    this.#setDeleting(false);
    if (failure) this.#list.complain("delete all of the videos", failure);
    else announce(`${count} deleted.`);
  }

  /**
   * Resolves to the first failure, if any: what could not be deleted stays selected.
   * @param {string[]} ids
   */
  async #deleteAll(ids) {
    const left = ids[Symbol.iterator]();
    let ended = 0;
    /** @type {Problem | null} */
    let failure = null;
    const lane = async () => {
      for (const id of left) {
        await this.#library.delete(id).catch((error) => (failure ??= problemOfError(error)));
        if (failure?.isConnectionLost) return;
        ended += 1;
        setText(this.#parts.text, `Deleting ${ended} of ${countOf(ids.length, "video")}`);
      }
    };
    await Promise.all(Array.from({ length: LANES }, lane));
    return failure;
  }

  /** @param {boolean} isDeleting */
  #setDeleting(isDeleting) {
    this.#isDeleting = isDeleting;
    this.setAttribute("aria-busy", String(isDeleting));
    for (const button of this.querySelectorAll("button")) button.disabled = isDeleting;
    if (isDeleting) return;
    this.#show();
    // A disabled button loses the focus.
    if (document.activeElement === document.body) this.#list.querySelector("h2")?.focus({ preventScroll: true });
  }
}

customElements.define("selection-bar", SelectionBar);
