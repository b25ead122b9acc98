/** <video-renditions>: the qualities of a video that can be downloaded, each with what can be done about it. */

import { copyOfTemplate, partsOf, setText } from "../page/parts.js";
import { renditionsOf } from "../player/playback.js";
import { orderRendition, removeRendition } from "../uploads/api.js";
import { Problem } from "../uploads/problem.js";
import { orderFor } from "../words.js";

/**
 * @import { VideoState } from "../player/video_state.js"
 *
 * @typedef {{ download: HTMLAnchorElement, progress: HTMLProgressElement }
 *   & Record<"name" | "words" | "action" | "downloadWords", HTMLElement>} Parts
 * @typedef {Parts & { element: Element, isBusy: boolean }} Row
 */

const REFUSED = "The server did not accept this. Try again in a moment.";

export class VideoRenditions extends HTMLElement {
  /** @type {VideoState} */
  #state;
  /** @type {AbortSignal} */
  #signal;
  /**
   * The row of each quality, by height.
   * @type {Map<number, Row>}
   */
  #rows = new Map();

  /**
   * Follows a video until `signal`.
   * @param {VideoState} state
   * @param {AbortSignal} signal
   */
  show(state, signal) {
    this.#state = state;
    this.#signal = signal;
    state.addEventListener("change", () => this.#draw(), { signal });
    this.#draw();
  }

  #draw() {
    const { playback, isArriving } = this.#state.current;
    const renditions = isArriving ? [] : renditionsOf(playback);
    this.hidden = renditions.length === 0;
    for (const [height, row] of this.#rows) {
      if (!renditions.some((rendition) => rendition.height === height)) this.#drop(height, row);
    }
    for (const rendition of renditions) {
      this.#write(rendition, this.#rows.get(rendition.height) ?? this.#newRow(rendition.height));
    }
  }

  /** @param {number} height */
  #newRow(height) {
    const fragment = copyOfTemplate("video-rendition");
    const parts = /** @type {Parts} */ (partsOf(fragment));
    const row = { ...parts, element: /** @type {Element} */ (fragment.firstElementChild), isBusy: false };
    this.#rows.set(height, row);
    // The second click of a double one would cancel what the first has ordered.
    row.action.addEventListener("click", ({ detail }) => detail < 2 && this.#act(height, row));
    row.progress.setAttribute("aria-label", `${height}p`);
    this.querySelector("ul")?.append(row.element);
    return row;
  }

  /**
   * @param {number} height
   * @param {Row} row
   */
  #drop(height, row) {
    row.element.remove();
    this.#rows.delete(height);
  }

  /**
   * @param {Api.Rendition} rendition
   * @param {Row} row
   */
  #write({ height, state, progress, mp4, problem }, row) {
    const { words, action } = orderFor({ height, state, progress, problem });
    setText(row.name, `${height}p`);
    setText(row.words, words);
    setText(row.action, action);
    row.progress.hidden = state !== "making";
    row.progress.value = progress;
    row.download.hidden = !mp4;
    if (!mp4) return;
    row.download.href = mp4;
    setText(row.downloadWords, `Download ${height}p`);
  }

  /**
   * One button orders, cancels and deletes: it keeps the focus when its meaning changes.
   * @param {number} height
   * @param {Row} row
   */
  async #act(height, row) {
    if (row.isBusy) return;
    row.isBusy = true;
    const state = renditionsOf(this.#state.current.playback).find((rendition) => rendition.height === height)?.state;
    const isThere = state === "making" || state === "ready";
    try {
      await (isThere ? removeRendition : orderRendition)(this.#state.id, height, this.#signal);
      this.#state.refresh();
    } catch (error) {
      if (!this.#signal.aborted) setText(row.words, (error instanceof Problem && error.detail) || REFUSED);
    } finally {
      row.isBusy = false;
    }
  }
}

customElements.define("video-renditions", VideoRenditions);
