/** Computes rates from totals: bytes received and sent over the last minute. */

/** Rates are averaged over this time: a download counts at its end, which would otherwise be a sharp peak. */
const WINDOW_MILLISECONDS = 3000;

const HISTORY_MILLISECONDS = 60_000;

export class Rates {
  #samples = [];
  #history = [];

  /** Totals in bytes at a moment in milliseconds. Totals that decreased are from a restarted server. */
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
    if (!first || last.at <= first.at) return null;
    const seconds = (last.at - first.at) / 1000;
    return { received: (last.received - first.received) / seconds, sent: (last.sent - first.sent) / seconds };
  }

  /** The largest rate of the last minute in either direction. */
  get peak() {
    return this.#history.reduce((most, { received, sent }) => Math.max(most, received, sent), 0);
  }

  /** The last minute as points of a polyline: `kind` is "received" or "sent", now is at the right. */
  points(kind, { width, height }) {
    const end = this.#history.at(-1)?.at ?? 0;
    const top = Math.max(this.peak, 1);
    const place = ({ at, [kind]: rate }) => {
      const x = width * (1 - (end - at) / HISTORY_MILLISECONDS);
      return `${x.toFixed(1)},${(height * (1 - rate / top)).toFixed(1)}`;
    };
    return this.#history.map(place).join(" ");
  }
}
