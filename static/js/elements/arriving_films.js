/** <arriving-films>: what is still being uploaded, of others and of films that can be watched already. */

import { formatBytes } from "../page/format.js";
import { copyOfTemplate, keepFocus, partsOf, setText } from "../page/parts.js";
import { percentOf } from "../player/playback.js";
import { sleep } from "../uploads/retry.js";

/** Time until the next look after a change, and at first; it grows to the longest while nothing moves. Milliseconds. */
const PAUSE = 3_000;
const GROWTH = 1.3;
const LONGEST_PAUSE = 15_000;

export class ArrivingFilmsList extends HTMLElement {
  #rows = new Map();

  /** `films` is shown and kept up to date; `play` opens one. */
  connect({ films, play }) {
    this.films = films;
    films.addEventListener("change", () => this.#draw());
    this.addEventListener("click", (event) => {
      const row = event.target.closest("[data-action]")?.closest(".video-row");
      if (row) play(row.film);
    });
    this.#follow();
  }

  async #follow() {
    let pause = PAUSE;
    this.films.addEventListener("change", () => (pause = PAUSE));
    for (;;) {
      // The list is optional: once a film is complete, the library shows it anyway.
      if (!document.hidden) await this.films.refresh().catch(() => {});
      await sleep(pause);
      pause = Math.min(pause * GROWTH, LONGEST_PAUSE);
    }
  }

  #draw() {
    const { list } = this.films;
    for (const [id, row] of this.#rows) {
      if (list.some((film) => film.id === id)) continue;
      this.#rows.delete(id);
      keepFocus(row, () => row.remove(), [document.querySelector("#library-title")]);
    }
    for (const film of list) this.#drawRow(film);
    this.hidden = list.length === 0;
  }

  #drawRow(film) {
    const row = this.#rows.get(film.id) ?? this.#addRow(film);
    const { name, state, poster, watch } = partsOf(row);
    setText(name, film.sender ? `${film.sender} is sending ${film.filename}` : film.filename);
    setText(state, progressOf(film));
    watch.hidden = !film.isWatchable;
    if (film.isWatchable) name.href = `/watch/${film.id}`;
    row.toggleAttribute("data-poster", Boolean(film.poster));
    poster.hidden = !film.poster;
    if (film.poster && poster.getAttribute("src") !== film.poster) poster.src = film.poster;
  }

  #addRow(film) {
    const row = copyOfTemplate("arriving-row").firstElementChild;
    row.film = { id: film.id, filename: film.filename, media: `/media/${film.id}`, inline: true, isArriving: true };
    const { size, watch } = partsOf(row);
    size.textContent = film.length === null ? "" : formatBytes(film.length);
    watch.setAttribute("aria-label", `Watch ${film.filename}`);
    this.#rows.set(film.id, row);
    this.append(row);
    return row;
  }
}

function progressOf({ share, sender, stopped }) {
  const percent = share === null ? "" : `, ${percentOf(share)}`;
  if (stopped) return `interrupted${percent}, last bytes ${stopped} ago`;
  return sender ? `on its way${percent}` : `arriving${percent}`;
}

customElements.define("arriving-films", ArrivingFilmsList);
