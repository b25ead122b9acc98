/** Progress of all uploads of the page together, in bytes that the server has acknowledged. */

import { Speedometer } from "./speedometer.js";

const COUNTED_OUT = new Set(["failed", "cancelled"]);

/** Sums up a list of uploads: sizes in bytes, and how many are in which state. */
export function totalsOf(uploads) {
  const totals = { size: 0, received: 0, count: uploads.length, states: {}, worthRetrying: 0 };
  for (const upload of uploads) {
    totals.states[upload.state] = (totals.states[upload.state] ?? 0) + 1;
    if (upload.isWorthRetrying) totals.worthRetrying += 1;
    if (COUNTED_OUT.has(upload.state)) continue;
    totals.size += upload.size;
    totals.received += upload.received;
  }
  return totals;
}

/** Speed of everything together. What was on the server before is no speed: only growth of known uploads counts. */
export class TotalSpeed {
  #speedometer = new Speedometer();
  #seen = new WeakMap();
  #sent = 0;
  #isStarted = false;

  /** Notes the present state of one upload. */
  note(upload, now = performance.now()) {
    if (!this.#isStarted) this.#speedometer.start(0, now);
    this.#isStarted = true;
    if (upload.state === "preparing" || !this.#seen.has(upload)) return void this.#seen.set(upload, upload.received);
    const growth = upload.received - this.#seen.get(upload);
    this.#seen.set(upload, upload.received);
    if (growth <= 0) return;
    this.#sent += growth;
    this.#speedometer.record(this.#sent, now);
  }

  /** Begins anew, as after a pause. */
  restart(now = performance.now()) {
    this.#speedometer.start(this.#sent, now);
  }

  /** Whether anything was acknowledged after `time`. */
  hasGrownSince(time) {
    return this.#speedometer.hasGrownSince(time);
  }

  /** Bytes per second, or null while it cannot be told. */
  bytesPerSecond(now = performance.now()) {
    return this.#speedometer.bytesPerSecond(now);
  }

  /** Seconds until `remaining` bytes have arrived, or null while it cannot be told. */
  secondsLeft(remaining, now = performance.now()) {
    return this.#speedometer.secondsLeft(remaining, now);
  }
}
