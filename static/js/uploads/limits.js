/** How much the page sends at once: slots for requests, the speed limit, and what the server advises. */

import { sleep } from "./retry.js";

/** A number of slots, granted in the order they were requested. */
export class Slots {
  #most;
  /** @type {Map<string, number>} */
  #allowed = new Map();
  #taken = 0;
  /** @type {(() => void)[]} */
  #queue = [];

  /** @param {number} count */
  constructor(count) {
    this.#most = count;
  }

  /**
   * Grants no more at once than this, and than there are; those taken stay so until they are returned. Of the counts for
   * different reasons the least holds.
   * @param {number} count
   */
  allow(count, reason = "server") {
    this.#allowed.set(reason, count);
    this.#grant();
  }

  get #count() {
    return Math.min(this.#most, ...this.#allowed.values());
  }

  /**
   * Resolves to a function that returns the slot; rejects when `signal` is aborted while waiting.
   * @param {AbortSignal} [signal]
   */
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

  /**
   * @param {AbortSignal} [signal]
   * @returns {Promise<void>}
   */
  #wait(signal) {
    return new Promise((resolve, reject) => {
      const stop = () => {
        this.#queue.splice(this.#queue.indexOf(enter), 1);
        reject(signal?.reason);
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
      this.#queue.shift()?.();
    }
  }
}

/** A limit on the bytes per second of everything that the page sends. */
export class RateLimit {
  /** Bytes per second; 0 for no limit. */
  #rate = 0;
  #freeAt = 0;
  #now;
  #sleep;
  #changing = new AbortController();

  /** @param {{ now?: () => number, wait?: typeof sleep }} [options] */
  constructor({ now = () => performance.now(), wait = sleep } = {}) {
    this.#now = now;
    this.#sleep = wait;
  }

  get bytesPerSecond() {
    return this.#rate;
  }

  /** What is waiting already waits again, by the new limit. */
  set bytesPerSecond(rate) {
    this.#rate = rate;
    this.#freeAt = this.#now();
    this.#changing.abort();
    this.#changing = new AbortController();
  }

  /**
   * Resolves when so many bytes may leave, which they do at the speed of the line; rejects with the signal's reason.
   * @param {number} bytes
   * @param {AbortSignal | null} [signal]
   */
  async take(bytes, signal = null) {
    while (this.#rate > 0) {
      const now = this.#now();
      const beginsAt = Math.max(now, this.#freeAt);
      this.#freeAt = beginsAt + (bytes / this.#rate) * 1_000;
      if (await this.#waited(beginsAt - now, signal)) return;
    }
  }

  /**
   * Resolves to false if the limit has changed while it waited.
   * @param {number} milliseconds
   * @param {AbortSignal | null} signal
   */
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

/** Time between two questions to the server, milliseconds. */
const EVERY = 60_000;

/** Uses no more connections than the server wants: asks it when a file is begun, and regularly while they are sent. */
export class ConnectionAdvice {
  /** @type {() => Promise<number | null>} */
  #ask;
  /** @type {Slots} */
  #slots;
  /** @type {{ allow(count: number): void } | null} */
  #lanes;
  /** @type {() => boolean} */
  #isBusy;
  /** @type {number | undefined} */
  #timer;

  /**
   * `ask()` resolves to a number, or null for no wish; `lanes` is null where there are none.
   * @param {{
   *   ask: () => Promise<number | null>,
   *   slots: Slots,
   *   lanes: { allow(count: number): void } | null,
   *   isBusy: () => boolean,
   * }} options
   */
  constructor({ ask, slots, lanes, isBusy }) {
    this.#ask = ask;
    this.#slots = slots;
    this.#lanes = lanes;
    this.#isBusy = isBusy;
  }

  /** A file is about to be sent. */
  begin() {
    if (this.#timer !== undefined) return;
    this.#timer = setInterval(() => this.#look(), EVERY);
    this.#follow();
  }

  #look() {
    if (this.#isBusy()) return this.#follow();
    clearInterval(this.#timer);
    this.#timer = undefined;
    return undefined;
  }

  async #follow() {
    const most = (await this.#ask().catch(() => null)) ?? Infinity;
    this.#slots.allow(most);
    this.#lanes?.allow(most);
  }
}
