/** Follows the videos of the list that the server is preparing, until everything is made of them. */

import { video as videoState } from "../uploads/api.js";
import { problemOfError } from "../uploads/problem.js";
import { sleep } from "../uploads/retry.js";

/**
 * @import { Library } from "./library.js"
 *
 * @typedef {Api.Playback["state"]} State
 *
 * A video, or a row of one.
 * @typedef {{ id: string, playback?: { state: State } | null }} Prepared
 */

/** Time between two looks, milliseconds; grows while nothing changes. */
const PAUSE = 1_000;
const LONGEST_PAUSE = 15_000;
const GROWTH = 1.5;
/** Videos asked about at once; they take turns. */
const MOST_AT_ONCE = 10;
const PREPARED = new Set(["ready", "unplayable"]);

/** Tells the library what has changed. */
export class Preparation {
  #library;
  /**
   * The state that the list shows of each, by id.
   * @type {Map<string, State>}
   */
  #shown = new Map();
  #pause = PAUSE;
  #isLooking = false;
  #wait;

  /**
   * `videos` are in the list already. `wait(milliseconds)` resolves when it is time to look.
   * @param {Library} library
   * @param {{ videos?: Prepared[], wait?: (milliseconds: number) => Promise<void> }} [options]
   */
  constructor(library, { videos = [], wait = waitInSight } = {}) {
    this.#library = library;
    this.#wait = wait;
    library.addEventListener("replaced", ({ detail }) => this.#note(detail));
    library.addEventListener("appended", ({ detail }) => this.#note(detail));
    library.addEventListener("inserted", ({ detail }) => this.#note(detail.map(({ video }) => video)));
    library.addEventListener("left", ({ detail }) => this.#shown.delete(detail));
    library.addEventListener("removed", ({ detail }) => this.#shown.delete(detail));
    this.#note(videos);
  }

  /** @param {Prepared[]} videos */
  #note(videos) {
    for (const { id, playback } of videos) {
      if (!playback || PREPARED.has(playback.state)) continue;
      this.#shown.set(id, playback.state);
      this.#pause = PAUSE;
    }
    if (!this.#isLooking && this.#shown.size > 0) this.#follow();
  }

  async #follow() {
    this.#isLooking = true;
    while (this.#shown.size > 0) {
      await this.#wait(this.#pause);
      this.#pause = Math.min(this.#pause * GROWTH, LONGEST_PAUSE);
      const next = [...this.#shown].slice(0, MOST_AT_ONCE);
      for (const [id, state] of next) {
        this.#shown.delete(id); // To the end of the line.
        this.#shown.set(id, state);
      }
      await Promise.all(next.map(([id, state]) => this.#look(id, state)));
    }
    this.#isLooking = false;
  }

  /**
   * @param {string} id
   * @param {State} shown
   */
  async #look(id, shown) {
    try {
      const video = await videoState(id);
      const { state } = video.playback;
      if (!this.#shown.has(id)) return; // It has left the list since.
      if (PREPARED.has(state)) this.#shown.delete(id);
      else this.#shown.set(id, state);
      if (state === shown) return;
      this.#pause = PAUSE;
      this.#library.change(video);
    } catch (error) {
      if (!problemOfError(error).retryable) this.#shown.delete(id);
    }
  }
}

/**
 * A hidden page does not look.
 * @param {number} milliseconds
 */
async function waitInSight(milliseconds) {
  await sleep(milliseconds);
  if (!document.hidden) return;
  await new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));
}
