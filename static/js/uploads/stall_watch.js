/** Ends requests on connections that died without a word, as they do while a laptop sleeps. */

/**
 * Longer than the server itself waits for a silent sender, milliseconds; also covers the answer after the last byte.
 */
const LONGEST_SILENCE = 90_000;

export class StallWatch {
  #timers = new WeakMap();
  #longestSilence;

  constructor(longestSilence = LONGEST_SILENCE) {
    this.#longestSilence = longestSilence;
  }

  /** Aborts `xhr` and calls `onStall` when nothing is heard of it for too long. */
  watch(xhr, onStall) {
    const expire = () => {
      this.#timers.delete(xhr);
      xhr.abort();
      onStall();
    };
    const restart = () => {
      clearTimeout(this.#timers.get(xhr)?.timer);
      this.#timers.set(xhr, { timer: setTimeout(expire, this.#longestSilence), restart });
    };
    xhr.addEventListener("loadend", () => this.#forget(xhr), { once: true });
    restart();
  }

  /** Notes a sign of life. */
  sawProgress(xhr) {
    this.#timers.get(xhr)?.restart();
  }

  #forget(xhr) {
    clearTimeout(this.#timers.get(xhr)?.timer);
    this.#timers.delete(xhr);
  }
}
