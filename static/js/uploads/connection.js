/** Whether the server can be reached, and knows who asks. All requests that lost it wait here, for one shared probe. */

import { jitteredDelay, sleep } from "./retry.js";

/**
 * What it needs of a browser.
 * @typedef {Partial<Pick<Window, "addEventListener">> & { navigator?: { onLine: boolean } }} Browser
 */

/** How long to trust the browser's word that it is offline, milliseconds; behind some VPNs it is wrong. */
const OFFLINE_RECHECK = 30_000;

/** Answers this soon after a loss were sent before it, and prove nothing, milliseconds. */
const ON_THEIR_WAY = 1_000;

/** How often to look whether the person has signed in again, milliseconds. */
const SIGN_IN_POLL = 2_000;

/** How long an answer proves that bytes still get through, milliseconds. */
const RECENT = 1_500;

/** Emits `change` whenever `isReachable`, `isOffline` or `isSignedOut` changes. */
export class Connection extends EventTarget {
  #probe;
  #signedIn;
  #isSignedOut = false;
  #random;
  /** @type {Promise<void> | null} */
  #recovery = null;
  #browser;
  #lostAt = 0;

  /**
   * `probe()` resolves to whether the server is there, `signedIn()` to whether it knows who asks, where people can sign
   * in; `browser` has `navigator.onLine` and the online events.
   * @param {{
   *   probe: () => Promise<boolean>,
   *   signedIn?: (() => Promise<boolean>) | null,
   *   browser?: Browser,
   *   random?: () => number,
   * }} options
   */
  constructor({ probe, signedIn = null, browser = globalThis, random = Math.random }) {
    super();
    this.#probe = probe;
    this.#signedIn = signedIn;
    this.#browser = browser;
    this.#random = random;
    browser.addEventListener?.("offline", () => this.reportLoss());
  }

  get isReachable() {
    return this.#recovery === null;
  }

  /**
   * Whether an upload whose bytes were last acknowledged at that time is stalled. One request may be lost, or the
   * browser be wrong about the line, while others are answered.
   * @param {number} acknowledgedAt
   */
  holdsUp(acknowledgedAt, now = performance.now()) {
    return !this.isReachable && acknowledgedAt <= Math.max(this.#lostAt + ON_THEIR_WAY, now - RECENT);
  }

  get isOffline() {
    return this.#browser.navigator?.onLine === false;
  }

  /** Whether the session has ended: the person has to sign in before anything goes on. */
  get isSignedOut() {
    return this.#isSignedOut;
  }

  /** Reports a request that was refused because the session has ended; returns whether waiting can help. */
  reportSignOut() {
    if (!this.#signedIn) return false;
    this.#isSignedOut = true;
    this.reportLoss();
    return true;
  }

  /** Reports a lost request; starts to probe until the server answers. */
  reportLoss() {
    if (this.#recovery) return;
    this.#lostAt = performance.now();
    this.#recovery = this.#recover().then(() => {
      this.#recovery = null;
      this.dispatchEvent(new Event("change"));
    });
    this.dispatchEvent(new Event("change"));
  }

  /**
   * Resolves once the server can be reached; rejects when `signal` is aborted first.
   * @param {AbortSignal} [signal]
   */
  async whenReachable(signal) {
    if (!this.#recovery) return;
    await abortable(this.#recovery, signal);
  }

  async #recover() {
    for (let attempt = 0; ; attempt += 1) {
      if (this.isOffline) await this.#pause(OFFLINE_RECHECK);
      this.dispatchEvent(new Event("change"));
      if ((await this.#probe()) && (await this.#isKnown())) return;
      await this.#pause(this.#isSignedOut ? SIGN_IN_POLL : jitteredDelay(attempt, this.#random));
    }
  }

  /** A server that refuses a large request may close the connection, so that its answer is lost. */
  async #isKnown() {
    const isSignedOut = this.#signedIn !== null && (await this.#signedIn()) === false;
    const hasChanged = isSignedOut !== this.#isSignedOut;
    this.#isSignedOut = isSignedOut;
    if (hasChanged) this.dispatchEvent(new Event("change"));
    return !isSignedOut;
  }

  /**
   * Waits, or until the browser is online.
   * @param {number} milliseconds
   */
  async #pause(milliseconds) {
    const control = new AbortController();
    const online = new Promise((resolve) => {
      this.#browser.addEventListener?.("online", resolve, { once: true, signal: control.signal });
    });
    await Promise.race([online, sleep(milliseconds, control.signal)]).finally(() => control.abort());
  }
}

/**
 * @param {Promise<void>} promise
 * @param {AbortSignal} [signal]
 * @returns {Promise<void>}
 */
function abortable(promise, signal) {
  if (!signal) return promise;
  return new Promise((resolve, reject) => {
    signal.throwIfAborted();
    const stop = () => reject(signal.reason);
    signal.addEventListener("abort", stop, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", stop));
  });
}
