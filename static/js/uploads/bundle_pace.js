/** How much goes in one bundle, and how many bundles at once: learned from earlier bundles. Sizes are bytes. */

const MIB = 1024 * 1024;

/** Larger files gain nothing from a bundle, and start over when the request breaks. */
const SMALL_FILE = 4 * MIB;
/** Fewer files than this are quick enough one by one, and each then shows its own progress. */
export const FEWEST_FILES = 8;

const SMALLEST_BUNDLE = 256 * 1024;
const FIRST_BUNDLE = MIB;
const LARGEST_BUNDLE = 16 * MIB;
const FILES_PER_BUNDLE = 100;

/** A bundle is answered at its end, and a dropped connection costs all of it: a few seconds of work, milliseconds. */
const FAST = 1_000;
const SLOW = 4_000;

const FIRST_LANES = 2;
/** A place below the requests that the page allows itself, for chunks of large files beside them. */
const MOST_LANES = 4;
/** One more lane must raise the rate by a tenth; otherwise it is dropped for this many bundles. */
const WORTHWHILE_GAIN = 1.1;
const BUNDLES_TO_SETTLE = 24;
/** What even the smallest file costs the server, in bytes. */
const COST_OF_FILE = 32 * 1024;

/** Whether a file may go in a bundle; never one that would be cut into chunks. */
export function isSmall(size, chunkBytes) {
  return size <= Math.min(SMALL_FILE, chunkBytes);
}

export class BundlePace {
  bytes = FIRST_BUNDLE;
  lanes = FIRST_LANES;
  #limit = LARGEST_BUNDLE;
  #bestRate = 0;
  #isTrial = false;
  #settled = 0;
  #window = null;

  /** Whether a bundle of `count` files and `bytes` takes one more file; the first one always fits. */
  hasRoom({ count, bytes }, fileBytes) {
    return count === 0 || (count < FILES_PER_BUNDLE && bytes + fileBytes <= this.bytes);
  }

  /** A bundle got through, in that many milliseconds. */
  sent({ count, bytes, duration, now = performance.now() }) {
    if (duration > SLOW) this.#resize(this.bytes / 2);
    else if (duration < FAST && bytes >= this.bytes / 2) this.#resize(this.bytes * 2);
    this.#measure(bytes + count * COST_OF_FILE, now, duration);
  }

  /** A bundle was lost with its connection, or refused for now. */
  failed() {
    this.#resize(this.bytes / 2);
    this.#settle(this.lanes - 1);
  }

  /** Something in between refuses requests of this size. */
  wasTooLarge(bytes) {
    this.#limit = Math.max(SMALLEST_BUNDLE, Math.min(this.#limit, bytes / 2));
    this.#resize(this.bytes);
  }

  #resize(bytes) {
    this.bytes = Math.min(this.#limit, Math.max(SMALLEST_BUNDLE, bytes));
  }

  /** Climbs to the number of lanes beyond which no more gets through. */
  #measure(cost, now, duration) {
    this.#window ??= { began: now - duration, cost: 0, bundles: 0 };
    this.#window.cost += cost;
    this.#window.bundles += 1;
    this.#settled -= 1;
    if (this.#window.bundles < 2 * this.lanes) return;
    const rate = this.#window.cost / Math.max(1, now - this.#window.began);
    this.#window = null;
    if (this.#isTrial && rate < this.#bestRate * WORTHWHILE_GAIN) return this.#settle(this.lanes - 1);
    this.#bestRate = rate;
    this.#isTrial = this.#settled <= 0 && this.lanes < MOST_LANES;
    if (this.#isTrial) this.lanes += 1;
  }

  #settle(lanes) {
    this.lanes = Math.max(1, lanes);
    this.#isTrial = false;
    this.#bestRate = 0;
    this.#window = null;
    this.#settled = BUNDLES_TO_SETTLE;
  }
}
