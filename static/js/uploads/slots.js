/** A number of slots, granted in the order they were requested. */
export class Slots {
  #most;
  #allowed = new Map();
  #taken = 0;
  #queue = [];

  constructor(count) {
    this.#most = count;
  }

  /**
   * Grants no more at once than this, and than there are; those taken stay so until they are returned. Of the counts for
   * different reasons the least holds.
   */
  allow(count, reason = "server") {
    this.#allowed.set(reason, count);
    this.#grant();
  }

  get #count() {
    return Math.min(this.#most, ...this.#allowed.values());
  }

  /** Resolves to a function that returns the slot; rejects when `signal` is aborted while waiting. */
  async take(signal) {
    signal?.throwIfAborted();
    if (this.#taken < this.#count) this.#taken += 1;
    else await this.#wait(signal);
    let isHeld = true;
    return () => {
      if (isHeld) this.#release();
      isHeld = false;
    };
  }

  #wait(signal) {
    return new Promise((resolve, reject) => {
      const stop = () => {
        this.#queue.splice(this.#queue.indexOf(enter), 1);
        reject(signal.reason);
      };
      const enter = () => {
        signal?.removeEventListener("abort", stop);
        resolve();
      };
      this.#queue.push(enter);
      signal?.addEventListener("abort", stop, { once: true });
    });
  }

  #release() {
    this.#taken -= 1;
    this.#grant();
  }

  #grant() {
    while (this.#taken < this.#count && this.#queue.length > 0) {
      this.#taken += 1;
      this.#queue.shift()();
    }
  }
}
