/** Where a video goes on: where people stopped watching, and after a damaged place. Seconds. Works without the page. */

const KEY = "sluice.positions";
/** The oldest ones are forgotten. */
const MOST_VIDEOS = 200;
/** Who has seen less than this, or has less than this left, starts at the beginning. */
const START = 5;
const END = 15;
/** Near the end is also the last part of a short video. */
const END_SHARE = 0.05;

/** Where people stopped watching, so that a video goes on there. */
export class Positions {
  #storage;

  /** @param {Pick<Storage, "getItem" | "setItem">} storage */
  constructor(storage) {
    this.#storage = storage;
  }

  /**
   * Where to go on; 0 for the beginning.
   * @param {string} id
   * @returns {number}
   */
  of(id) {
    return this.#read()[id] ?? 0;
  }

  /**
   * Remembers a position, or forgets it at both ends of the video.
   * @param {string} id
   * @param {number} seconds
   * @param {number} duration
   */
  keep(id, seconds, duration) {
    const { [id]: before, ...others } = this.#read();
    const isWorthIt = seconds >= START && seconds < endOf(duration);
    if (!isWorthIt && before === undefined) return;
    const newest = Object.entries(others).slice(-(MOST_VIDEOS - 1));
    this.#write(Object.fromEntries(isWorthIt ? [...newest, [id, Math.floor(seconds)]] : newest));
  }

  /** @returns {Record<string, number>} */
  #read() {
    try {
      const positions = JSON.parse(this.#storage.getItem(KEY) ?? "{}");
      return positions && typeof positions === "object" ? positions : {};
    } catch {
      return {};
    }
  }

  /**
   * A browser may refuse to store anything; then every video starts at its beginning.
   * @param {Record<string, number>} positions
   */
  #write(positions) {
    try {
      this.#storage.setItem(KEY, JSON.stringify(positions));
    } catch {
      // Nothing depends on it.
    }
  }
}

/** @param {number} duration */
function endOf(duration) {
  if (!Number.isFinite(duration)) return Infinity;
  return duration - Math.max(Math.min(END, duration / 4), duration * END_SHARE);
}

/** Seconds that the first attempt leaves out, and by how much each further one leaves out more. */
const FIRST_STEP = 0.5;
const GROWTH = 1.5;
/** Seconds of a video that must have played, so that the browser has shown that it can decode it. */
const PROOF = 0.1;
/** A failure that is so near to where the last attempt began, in seconds, is the same damage. */
const SAME = 1;

/** Where a video goes on after a damaged place: a little after it, and further with each attempt that fails. */
export class Damage {
  #start = 0;
  #hasPlayed = false;
  /**
   * Where it began, and where the last attempt did.
   * @type {number | null}
   */
  #at = null;
  #target = 0;
  #step = FIRST_STEP;

  /**
   * A source begins at `seconds`.
   * @param {number} seconds
   */
  begin(seconds) {
    this.#start = seconds;
  }

  /**
   * The video plays at `seconds`.
   * @param {number} seconds
   */
  notePlayed(seconds) {
    if (seconds > this.#start + PROOF) this.#hasPlayed = true;
  }

  /** Whether anything has played; if not, the browser may be unable to decode any of the video. */
  get hasPlayed() {
    return this.#hasPlayed;
  }

  /** Where the present source began. */
  get start() {
    return this.#start;
  }

  /**
   * What to do about a failure at `seconds`: `{ at, target }`, where the damage begins, and where to go on; `target` is
   * null when no attempt is left before the video's end, at `duration`.
   * @param {number} seconds
   * @param {number} duration
   */
  next(seconds, duration) {
    const isSame = this.#at !== null && seconds >= this.#at && seconds < this.#target + SAME;
    const at = isSame && this.#at !== null ? this.#at : seconds;
    this.#step = isSame ? this.#step * GROWTH : FIRST_STEP;
    this.#at = at;
    this.#target = Math.max(isSame ? this.#target : 0, seconds) + this.#step;
    const isWithin = this.#target < duration;
    if (!isWithin) this.#at = null;
    return { at, target: isWithin ? this.#target : null };
  }
}
