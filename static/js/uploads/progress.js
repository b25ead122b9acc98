/** How fast bytes leave, and how far all uploads of the page are. Times are milliseconds, speeds bytes per second. */

/**
 * @import { State, Upload } from "./upload.js"
 *
 * @typedef {object} Totals sizes in bytes
 * @property {number} size
 * @property {number} received
 * @property {number} sent
 * @property {number} count
 * @property {Partial<Record<State, number>>} states how many uploads are in each state
 * @property {number} worthRetrying
 */

/** Long enough to smooth over bursts, short enough to follow the line. */
const WINDOW = 10_000;
/** On a stuttering line fewer samples than this fit the window; it then reaches further back. */
const FEWEST_SAMPLES = 4;
/** Progress arrives up to twenty times a second for each request; one sample covers this time. */
const SAMPLE_INTERVAL = 200;
/** Before this the speed would be a guess. */
const FIRST_SPEED = 250;

const COUNTED_OUT = new Set(["failed", "cancelled"]);

/** A moving average over several seconds, which falls while nothing moves. */
export class Speedometer {
  #position = 0;
  #moved = 0;
  /** @type {{ moved: number, now: number }[]} */
  #samples = [];

  /**
   * Begins at `position` bytes, which do not count towards the speed.
   * @param {number} position
   */
  start(position, now = performance.now()) {
    this.#position = position;
    this.#moved = 0;
    this.#samples = [{ moved: 0, now }];
  }

  /**
   * Records the present position. It falls when a request breaks: those bytes did move, and will move again.
   * @param {number} position
   */
  record(position, now = performance.now()) {
    const growth = position - this.#position;
    this.#position = position;
    if (growth <= 0) return;
    this.#moved += growth;
    const before = this.#samples.at(-2);
    if (before && now - before.now < SAMPLE_INTERVAL) this.#samples.pop();
    this.#samples.push({ moved: this.#moved, now });
    while (this.#samples.length > FEWEST_SAMPLES && this.#samples[1].now < now - WINDOW) this.#samples.shift();
  }

  /** The current speed, or null while it is unknown. */
  bytesPerSecond(now = performance.now()) {
    const [first] = this.#samples;
    if (!first || this.#moved <= first.moved || now - first.now < FIRST_SPEED) return null;
    return ((this.#moved - first.moved) * 1_000) / (now - first.now);
  }

  /**
   * Seconds until `remaining` bytes have moved at the current speed, or null while that is unknown.
   * @param {number} remaining
   */
  secondsLeft(remaining, now = performance.now()) {
    const speed = this.bytesPerSecond(now);
    return speed ? remaining / speed : null;
  }
}

/**
 * Sums up a list of uploads: sizes in bytes, and how many are in which state.
 * @param {Upload[]} uploads
 */
export function totalsOf(uploads) {
  /** @type {Totals} */
  const totals = { size: 0, received: 0, sent: 0, count: uploads.length, states: {}, worthRetrying: 0 };
  for (const upload of uploads) {
    totals.states[upload.state] = (totals.states[upload.state] ?? 0) + 1;
    if (upload.isWorthRetrying) totals.worthRetrying += 1;
    if (COUNTED_OUT.has(upload.state)) continue;
    totals.size += upload.size;
    totals.received += upload.received;
    totals.sent += upload.sent;
  }
  return totals;
}

/** Speed of all uploads together. Only growth of known uploads counts, not what the server had before. */
export class TotalSpeed {
  #speedometer = new Speedometer();
  /** @type {WeakMap<Upload, number>} */
  #seen = new WeakMap();
  #sent = 0;
  #isStarted = false;
  /** When the server last acknowledged bytes of any upload. */
  acknowledgedAt = -Infinity;

  /**
   * Notes the present state of one upload.
   * @param {Upload} upload
   */
  note(upload, now = performance.now()) {
    if (!this.#isStarted) this.restart(now);
    this.#isStarted = true;
    this.acknowledgedAt = Math.max(this.acknowledgedAt, upload.acknowledgedAt);
    const before = this.#seen.get(upload);
    this.#seen.set(upload, upload.sent);
    if (before === undefined || upload.state === "preparing" || upload.sent <= before) return;
    this.#sent += upload.sent - before;
    this.#speedometer.record(this.#sent, now);
  }

  /** Starts again, as after a pause. */
  restart(now = performance.now()) {
    this.#speedometer.start(this.#sent, now);
  }

  /** Bytes per second, or null while unknown. */
  bytesPerSecond(now = performance.now()) {
    return this.#speedometer.bytesPerSecond(now);
  }

  /**
   * Seconds until `remaining` bytes have left, or null while unknown.
   * @param {number} remaining
   */
  secondsLeft(remaining, now = performance.now()) {
    return this.#speedometer.secondsLeft(remaining, now);
  }
}
