/** Follows the videos of the list that the server is preparing, until they can be watched. */

import { isChanging } from "../player/playback.js";
import { video as videoState } from "../uploads/api.js";
import { sleep } from "../uploads/retry.js";

/** Time between two looks, milliseconds; grows while nothing changes. */
const PAUSE = 1_000;
const LONGEST_PAUSE = 15_000;
const GROWTH = 1.5;
/** Videos asked about at once: the newest ones; the others' turn comes when these are ready. */
const MOST_AT_ONCE = 10;

/** Tells the library what has changed. */
export class Preparation {
  #library;
  #ids = new Set();
  #pause = PAUSE;
  #isLooking = false;
  #wait;

  /** `films` are in the list already. `wait(milliseconds)` resolves when it is time to look. */
  constructor(library, { films = [], wait = waitInSight } = {}) {
    this.#library = library;
    this.#wait = wait;
    library.addEventListener("replaced", ({ detail }) => this.#note(detail));
    library.addEventListener("appended", ({ detail }) => this.#note(detail));
    library.addEventListener("inserted", ({ detail }) => this.#note(detail.map(({ video }) => video)));
    for (const event of ["left", "removed"]) library.addEventListener(event, ({ detail }) => this.#ids.delete(detail));
    this.#note(films);
  }

  #note(videos) {
    const pending = videos.filter(({ playback }) => playback && isChanging(playback));
    for (const { id } of pending) this.#ids.add(id);
    if (pending.length > 0) this.#pause = PAUSE;
    if (!this.#isLooking && this.#ids.size > 0) this.#follow();
  }

  async #follow() {
    this.#isLooking = true;
    while (this.#ids.size > 0) {
      await this.#wait(this.#pause);
      this.#pause = Math.min(this.#pause * GROWTH, LONGEST_PAUSE);
      const newest = [...this.#ids].slice(-MOST_AT_ONCE);
      await Promise.all(newest.map((id) => this.#look(id)));
    }
    this.#isLooking = false;
  }

  async #look(id) {
    try {
      const video = await videoState(id);
      if (isChanging(video.playback)) return;
      this.#ids.delete(id);
      this.#pause = PAUSE;
      this.#library.change(video);
    } catch (error) {
      if (!error.retryable) this.#ids.delete(id);
    }
  }
}

/** Nobody needs to know while the page is hidden. */
async function waitInSight(milliseconds) {
  await sleep(milliseconds);
  if (!document.hidden) return;
  await new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));
}
