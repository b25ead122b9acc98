/** <live-announcer>: speaks to screen readers, rarely enough to be heard out. */

/** The shortest time between two announcements, milliseconds. */
const PAUSE = 2_000;

export class LiveAnnouncer extends HTMLElement {
  #pending = null;
  #timer = null;

  /** Announces a text soon; of several in a row, only the last. */
  say(text) {
    this.#pending = text;
    if (this.#timer) return;
    this.#speak();
    this.#timer = setTimeout(() => this.#afterPause(), PAUSE);
  }

  #speak() {
    this.textContent = this.#pending;
    this.#pending = null;
  }

  #afterPause() {
    this.#timer = null;
    if (this.#pending !== null) this.say(this.#pending);
  }
}

customElements.define("live-announcer", LiveAnnouncer);
