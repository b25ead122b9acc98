/** Where people stopped watching, so that a video goes on there. Seconds. */

const KEY = "sluice.positions";
/** The oldest ones are forgotten. */
const MOST_VIDEOS = 200;
/** Who has seen less than this, or has less than this left, starts at the beginning. */
const START = 5;
const END = 15;
/** Near the end is also the last part of a short video. */
const END_SHARE = 0.05;

export class Positions {
  #storage;

  constructor(storage) {
    this.#storage = storage;
  }

  /** Where to go on; 0 for the beginning. */
  of(id) {
    return this.#read()[id] ?? 0;
  }

  /** Remembers a position, or forgets it at both ends of the video. */
  keep(id, seconds, duration) {
    const { [id]: before, ...others } = this.#read();
    const isWorthIt = seconds >= START && seconds < endOf(duration);
    if (!isWorthIt && before === undefined) return;
    const newest = Object.entries(others).slice(-(MOST_VIDEOS - 1));
    this.#write(Object.fromEntries(isWorthIt ? [...newest, [id, Math.floor(seconds)]] : newest));
  }

  #read() {
    try {
      const positions = JSON.parse(this.#storage.getItem(KEY) ?? "{}");
      return positions && typeof positions === "object" ? positions : {};
    } catch {
      return {};
    }
  }

  /** A browser may refuse to store anything; then every video starts at its beginning. */
  #write(positions) {
    try {
      this.#storage.setItem(KEY, JSON.stringify(positions));
    } catch {
      // Nothing depends on it.
    }
  }
}

function endOf(duration) {
  if (!Number.isFinite(duration)) return Infinity;
  return duration - Math.max(Math.min(END, duration / 4), duration * END_SHARE);
}
