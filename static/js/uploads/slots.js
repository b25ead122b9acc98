/** A fixed number of slots, granted in the order they were requested. */
export class Slots {
  #free;
  #queue = [];

  constructor(count) {
    this.#free = count;
  }

  /** Resolves to a function that returns the slot; rejects when `signal` is aborted while waiting. */
  async take(signal) {
    signal?.throwIfAborted();
    if (this.#free > 0) this.#free -= 1;
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
    const next = this.#queue.shift();
    if (next) next();
    else this.#free += 1;
  }
}
