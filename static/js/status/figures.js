/** The server's figures: asked for once a second, and rates computed from its totals. */

import { Emitter } from "../events.js";

/**
 * Bytes, or bytes per second, at a moment in milliseconds.
 * @typedef {{ at: number, received: number, sent: number }} Totals
 */

const FIGURES_URL = "/api/status";
const INTERVAL_MILLISECONDS = 1000;
const TIMEOUT_MILLISECONDS = 10_000;

/**
 * Asks while someone can see the figures. Emits `figures` (detail) and `state`.
 * @extends {Emitter<{ figures: Api.Status, state: void }>}
 */
export class Feed extends Emitter {
  /** @type {number | undefined} */
  #timer;
  /** @type {AbortController | null} */
  #asking = null;
  #isPaused = false;
  #isLost = false;

  /** Ask from now on, whenever the page is visible. */
  start() {
    document.addEventListener("visibilitychange", () => this.#goOn());
    this.#goOn();
  }

  get isPaused() {
    return this.#isPaused;
  }

  set isPaused(isPaused) {
    this.#isPaused = isPaused;
    this.#goOn();
    this.#tell();
  }

  /** "live", "paused", or "lost" while the server does not answer. */
  get state() {
    if (this.#isPaused) return "paused";
    return this.#isLost ? "lost" : "live";
  }

  #goOn() {
    clearTimeout(this.#timer);
    this.#asking?.abort();
    this.#asking = null;
    if (!this.#isPaused && document.visibilityState === "visible") this.#ask();
  }

  async #ask() {
    const asking = new AbortController();
    this.#asking = asking;
    const signal = AbortSignal.any([asking.signal, AbortSignal.timeout(TIMEOUT_MILLISECONDS)]);
    const figures = await fetchFigures(signal);
    if (asking.signal.aborted) return;
    this.#isLost = figures === null;
    this.#tell();
    if (figures) this.emit("figures", figures);
    this.#timer = setTimeout(() => this.#ask(), INTERVAL_MILLISECONDS);
  }

  #tell() {
    this.dispatchEvent(new Event("state"));
  }
}

/**
 * @param {AbortSignal} signal
 * @returns {Promise<Api.Status | null>}
 */
async function fetchFigures(signal) {
  try {
    const response = await fetch(FIGURES_URL, { signal, headers: { Accept: "application/json" } });
    return response.ok ? await response.json() : null;
  } catch {
    return null;
  }
}

/** Rates are averaged over this time: a download counts at its end, which would otherwise be a sharp peak. */
const WINDOW_MILLISECONDS = 3000;

const HISTORY_MILLISECONDS = 60_000;

/** Bytes received and sent over the last minute. */
export class Rates {
  /** @type {Totals[]} */
  #samples = [];
  /** @type {Totals[]} */
  #history = [];

  /**
   * Totals in bytes at a moment in milliseconds. Totals that decreased are from a restarted server.
   * @param {number} at
   * @param {{ received: number, sent: number }} totals
   */
  add(at, { received, sent }) {
    const last = this.#samples.at(-1);
    if (last && (received < last.received || sent < last.sent)) this.forget();
    this.#samples.push({ at, received, sent });
    while (this.#samples.length > 2 && this.#samples[1].at <= at - WINDOW_MILLISECONDS) this.#samples.shift();
    const now = this.now;
    if (now) this.#history.push({ at, ...now });
    while (this.#history.length && this.#history[0].at < at - HISTORY_MILLISECONDS) this.#history.shift();
  }

  /** Starts again, as after a pause without samples. */
  forget() {
    this.#samples = [];
    this.#history = [];
  }

  /** Bytes per second, or null before there are two samples. */
  get now() {
    const first = this.#samples[0];
    const last = this.#samples.at(-1);
    if (!first || !last || last.at <= first.at) return null;
    const seconds = (last.at - first.at) / 1000;
    return { received: (last.received - first.received) / seconds, sent: (last.sent - first.sent) / seconds };
  }

  /** The largest rate of the last minute in either direction. */
  get peak() {
    return this.#history.reduce((most, { received, sent }) => Math.max(most, received, sent), 0);
  }

  /**
   * The last minute as points of a polyline: `kind` is "received" or "sent", now is at the right.
   * @param {"received" | "sent"} kind
   * @param {{ width: number, height: number }} size
   */
  points(kind, { width, height }) {
    const end = this.#history.at(-1)?.at ?? 0;
    const top = Math.max(this.peak, 1);
    const place = (/** @type {Totals} */ { at, [kind]: rate }) => {
      const x = width * (1 - (end - at) / HISTORY_MILLISECONDS);
      return `${x.toFixed(1)},${(height * (1 - rate / top)).toFixed(1)}`;
    };
    return this.#history.map(place).join(" ");
  }
}
