/** A limit on the bytes per second of everything that the page sends. */

import { sleep } from "./retry.js";

export class RateLimit {
  /** Bytes per second; 0 for no limit. */
  #rate = 0;
  #freeAt = 0;
  #now;
  #sleep;
  #changing = new AbortController();

  constructor({ now = () => performance.now(), wait = sleep } = {}) {
    this.#now = now;
    this.#sleep = wait;
  }

  get bytesPerSecond() {
    return this.#rate;
  }

  /** What waits already waits anew, by the new limit. */
  set bytesPerSecond(rate) {
    this.#rate = rate;
    this.#freeAt = this.#now();
    this.#changing.abort();
    this.#changing = new AbortController();
  }

  /** Resolves when so many bytes may leave, which they do at the speed of the line; rejects with the signal's reason. */
  async take(bytes, signal = null) {
    while (this.#rate > 0) {
      const now = this.#now();
      const beginsAt = Math.max(now, this.#freeAt);
      this.#freeAt = beginsAt + (bytes / this.#rate) * 1_000;
      if (await this.#waited(beginsAt - now, signal)) return;
    }
  }

  /** Resolves to false if the limit has changed meanwhile. */
  async #waited(milliseconds, signal) {
    const changed = this.#changing.signal;
    try {
      if (milliseconds > 0) await this.#sleep(milliseconds, signal ? AbortSignal.any([signal, changed]) : changed);
      return true;
    } catch (error) {
      signal?.throwIfAborted();
      if (!changed.aborted) throw error;
      return false;
    }
  }
}
