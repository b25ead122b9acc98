/** Where a film goes on after a damaged place: a little after it, and further with each attempt that fails. Works without the page. */

/** Seconds that the first attempt leaves out, and by how much each further one leaves out more. */
const FIRST_STEP = 0.5;
const GROWTH = 1.5;
/** Seconds of a film that must have played, so that the browser has shown that it can decode it. */
const PROOF = 0.1;
/** A failure that is so near to where the last attempt began, in seconds, is the same damage. */
const SAME = 1;

export class Damage {
  #start = 0;
  #hasPlayed = false;
  /** Where it began, and where the last attempt did. */
  #at = null;
  #target = 0;
  #step = FIRST_STEP;

  /** A source begins at `seconds`. */
  begin(seconds) {
    this.#start = seconds;
  }

  /** The film plays at `seconds`. */
  notePlayed(seconds) {
    if (seconds > this.#start + PROOF) this.#hasPlayed = true;
  }

  /** Whether anything has played; if not, the browser may be unable to decode any of the film. */
  get hasPlayed() {
    return this.#hasPlayed;
  }

  /** Where the present source began. */
  get start() {
    return this.#start;
  }

  /**
   * What to do about a failure at `seconds`: `{ at, target }`, where the damage begins, and where to go on; `target` is
   * null when no attempt is left before the film's end, at `duration`.
   */
  next(seconds, duration) {
    const isSame = this.#at !== null && seconds >= this.#at && seconds < this.#target + SAME;
    this.#step = isSame ? this.#step * GROWTH : FIRST_STEP;
    if (!isSame) this.#at = seconds;
    this.#target = Math.max(isSame ? this.#target : 0, seconds) + this.#step;
    const isWithin = this.#target < duration;
    const found = { at: this.#at, target: isWithin ? this.#target : null };
    if (!isWithin) this.#at = null;
    return found;
  }
}
