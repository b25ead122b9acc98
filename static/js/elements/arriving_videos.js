/** <arriving-videos>: what is still being uploaded, of others and of videos that can be watched already. */

import { formatBytes } from "../page/format.js";
import { actionOf, copyOfTemplate, keepFocus, partsOf, setText } from "../page/parts.js";
import { percentOf } from "../player/playback.js";
import { sleep } from "../uploads/retry.js";
import { nameControls, showPoster } from "./video_row.js";

/**
 * @import { ArrivingVideo, ArrivingVideos } from "../library/arriving_videos.js"
 * @import { OpenedVideo } from "../player/video_state.js"
 *
 * @typedef {HTMLElement & { video: OpenedVideo }} Row
 * @typedef {{ name: HTMLAnchorElement, state: HTMLElement, watch: HTMLElement, poster: HTMLImageElement }} Parts
 */

/** Time until the next look after a change, and at first; it grows to the longest while nothing moves. Milliseconds. */
const PAUSE = 3_000;
const GROWTH = 1.3;
const LONGEST_PAUSE = 15_000;

export class ArrivingVideosList extends HTMLElement {
  /** @type {Map<string, Row>} */
  #rows = new Map();
  /** @type {ArrivingVideos} */
  #videos;

  /**
   * `videos` is shown and kept up to date; `play` opens one.
   * @param {{ videos: ArrivingVideos, play: (video: OpenedVideo) => void }} options
   */
  connect({ videos, play }) {
    this.#videos = videos;
    videos.addEventListener("change", () => this.#draw());
    this.addEventListener("click", (event) => {
      const row = /** @type {Row | null | undefined} */ (actionOf(event.target)?.closest(".video-row"));
      if (row) play(row.video);
    });
    this.#follow();
  }

  async #follow() {
    let pause = PAUSE;
    this.#videos.addEventListener("change", () => (pause = PAUSE));
    for (;;) {
      // The list is optional: once a video is complete, the library shows it anyway.
      if (!document.hidden) await this.#videos.refresh().catch(() => {});
      await sleep(pause);
      pause = Math.min(pause * GROWTH, LONGEST_PAUSE);
    }
  }

  #draw() {
    const { list } = this.#videos;
    for (const [id, row] of this.#rows) {
      if (list.some((video) => video.id === id)) continue;
      this.#rows.delete(id);
      keepFocus(row, () => row.remove(), [document.querySelector("#library-title")]);
    }
    for (const video of list) this.#drawRow(video);
    this.hidden = list.length === 0;
  }

  /** @param {ArrivingVideo} video */
  #drawRow(video) {
    const row = this.#rows.get(video.id) ?? this.#addRow(video);
    const parts = /** @type {Parts} */ (partsOf(row));
    const { name, state, watch } = parts;
    setText(name, video.sender ? `${video.sender} is sending ${video.filename}` : video.filename);
    setText(state, progressOf(video));
    watch.hidden = !video.isWatchable;
    if (video.isWatchable) name.href = `/watch/${video.id}`;
    row.toggleAttribute("data-poster", Boolean(video.poster));
    showPoster(parts, video.poster);
  }

  /** @param {ArrivingVideo} video */
  #addRow(video) {
    const element = /** @type {HTMLElement} */ (copyOfTemplate("arriving-row").firstElementChild);
    const opened = { id: video.id, filename: video.filename, media: `/media/${video.id}`, inline: true, isArriving: true };
    const row = Object.assign(element, { video: opened });
    partsOf(row).size.textContent = video.length === null ? "" : formatBytes(video.length);
    nameControls(row, video.filename);
    this.#rows.set(video.id, row);
    this.append(row);
    return row;
  }
}

/** @param {ArrivingVideo} video */
function progressOf({ share, sender, stopped }) {
  const percent = share === null ? "" : `, ${percentOf(share)}`;
  if (stopped) return `interrupted${percent}, last bytes ${stopped} ago`;
  return sender ? `on its way${percent}` : `arriving${percent}`;
}

customElements.define("arriving-videos", ArrivingVideosList);
