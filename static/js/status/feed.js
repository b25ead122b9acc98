/** Asks for the server's figures once a second while someone can see them. Emits `figures` (detail) and `state`. */

const URL = "/api/status";
const INTERVAL_MILLISECONDS = 1000;
const TIMEOUT_MILLISECONDS = 10_000;

export class Feed extends EventTarget {
  #timer = null;
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
    if (figures) this.dispatchEvent(new CustomEvent("figures", { detail: figures }));
    this.#timer = setTimeout(() => this.#ask(), INTERVAL_MILLISECONDS);
  }

  #tell() {
    this.dispatchEvent(new Event("state"));
  }
}

async function fetchFigures(signal) {
  try {
    const response = await fetch(URL, { signal, headers: { Accept: "application/json" } });
    return response.ok ? await response.json() : null;
  } catch {
    return null;
  }
}
