/** Speed from bytes that the server has acknowledged. Times are milliseconds, speeds bytes per second. */

/** Long enough to smooth over chunks that are acknowledged in steps, short enough to follow the line. */
const WINDOW = 10_000;
/** On a slow line fewer acknowledgements than this fit into the window: then it reaches further back. */
const FEWEST_SAMPLES = 4;

/** A moving average over several seconds which falls when nothing arrives. */
export class Speedometer {
  #samples = [];

  /** Begins at `total` bytes, which were there before and are no part of the speed. */
  start(total, now = performance.now()) {
    this.#samples = [{ total, now }];
  }

  /** Records that `total` bytes have been acknowledged by now. */
  record(total, now = performance.now()) {
    this.#samples.push({ total, now });
    while (this.#samples.length > FEWEST_SAMPLES && this.#samples[1].now < now - WINDOW) this.#samples.shift();
  }

  /** Whether anything was acknowledged after `time`. */
  hasGrownSince(time) {
    return this.#samples.length > 1 && this.#samples.at(-1).now > time;
  }

  /** The present speed, or null while it cannot be told yet. */
  bytesPerSecond(now = performance.now()) {
    const [first] = this.#samples;
    const last = this.#samples.at(-1);
    if (!first || last.total <= first.total || now - first.now < 250) return null;
    return ((last.total - first.total) * 1_000) / (now - first.now);
  }

  /** Seconds until `remaining` bytes have arrived at the present speed, or null while it cannot be told. */
  secondsLeft(remaining, now = performance.now()) {
    const speed = this.bytesPerSecond(now);
    return speed ? remaining / speed : null;
  }
}
