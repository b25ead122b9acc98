/** Many small files in few requests: how much goes in one, what became of each file, and sending them. */

import { checkReadable } from "./local_files.js";
import { connectionLost, Problem, problemOfDocument, problemOfError } from "./problem.js";
import { RetrySchedule } from "./retry.js";

/**
 * @import { BatchPost } from "./body_request.js"
 * @import { Connection } from "./connection.js"
 *
 * A small file on its way in a bundle.
 * @typedef {object} Parcel
 * @property {File} file
 * @property {string} name
 * @property {number} size
 * @property {string} fingerprint
 * @property {AbortSignal} signal
 * @property {() => boolean} isUnwanted whether it was cancelled
 * @property {(bytes: number) => void} onSent
 * @property {(problem: Problem) => void} onWait
 * @property {() => void} onProceed
 * @property {(receipt: Api.FileReceipt) => void} onUnwanted
 *
 * @typedef {Api.FileReceipt | Api.RefusedFile} Receipt
 *
 * A parcel in a bundle, with what settles it.
 * @typedef {Parcel & Settlement} HeldParcel
 * @typedef {object} Settlement
 * @property {() => void} leave stops to listen to its signal
 * @property {(receipt: Promise<Api.FileReceipt>) => void} depart
 * @property {(receipt: Api.FileReceipt) => void} resolve
 * @property {(error: unknown) => void} reject
 */

// ---- how much goes in one bundle, and how many bundles at once; sizes are bytes ----------------------------------

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

/**
 * Whether a file may go in a bundle; never one that would be cut into chunks.
 * @param {number} size
 * @param {number} chunkBytes
 */
export function isSmall(size, chunkBytes) {
  return size <= Math.min(SMALL_FILE, chunkBytes);
}

/** Learned from earlier bundles. */
export class BundlePace {
  bytes = FIRST_BUNDLE;
  lanes = FIRST_LANES;
  #limit = LARGEST_BUNDLE;
  #bestRate = 0;
  #isTrial = false;
  #settled = 0;
  /** @type {{ began: number, cost: number, bundles: number } | null} */
  #window = null;

  /**
   * Whether a bundle of `count` files and `bytes` takes one more file; the first one always fits.
   * @param {{ count: number, bytes: number }} bundle
   * @param {number} fileBytes
   */
  hasRoom({ count, bytes }, fileBytes) {
    return count === 0 || (count < FILES_PER_BUNDLE && bytes + fileBytes <= this.bytes);
  }

  /**
   * A bundle got through, in that many milliseconds.
   * @param {{ count: number, bytes: number, duration: number, now?: number }} bundle
   */
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

  /**
   * Something in between refuses requests of this size.
   * @param {number} bytes
   */
  wasTooLarge(bytes) {
    this.#limit = Math.max(SMALLEST_BUNDLE, Math.min(this.#limit, bytes / 2));
    this.#resize(this.bytes);
  }

  /** @param {number} bytes */
  #resize(bytes) {
    this.bytes = Math.min(this.#limit, Math.max(SMALLEST_BUNDLE, bytes));
  }

  /**
   * Climbs to the number of lanes beyond which no more gets through.
   * @param {number} cost
   * @param {number} now
   * @param {number} duration
   */
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

  /** @param {number} lanes */
  #settle(lanes) {
    this.lanes = Math.max(1, lanes);
    this.#isTrial = false;
    this.#bestRate = 0;
    this.#window = null;
    this.#settled = BUNDLES_TO_SETTLE;
  }
}

// ---- one request -------------------------------------------------------------------------------------------------

/** Files in one request: which are still wanted, how far each has come, and what happened to it. */
export class Bundle {
  /** @type {HeldParcel[]} */
  parcels = [];
  bytes = 0;
  #control = new AbortController();
  /** @type {HeldParcel[]} */
  #underWay = [];
  #shownTo = 0;

  get count() {
    return this.parcels.length;
  }

  /** Aborted once no file needs the request. */
  get signal() {
    return this.#control.signal;
  }

  get isWanted() {
    return this.count > 0;
  }

  /**
   * Adds a parcel; its receipt is settled by this bundle or by a half of it.
   * @param {HeldParcel} parcel
   */
  add(parcel) {
    parcel.leave();
    this.#hold(parcel);
    parcel.depart(new Promise((resolve, reject) => Object.assign(parcel, { resolve, reject })));
  }

  /** @param {HeldParcel} parcel */
  #hold(parcel) {
    this.parcels.push(parcel);
    this.bytes += parcel.size;
    parcel.leave = () => parcel.signal.removeEventListener("abort", lose);
    const lose = () => this.#lose(parcel);
    parcel.signal.addEventListener("abort", lose, { once: true });
  }

  /** The parcels of one request, in order; the bundle may lose some of them while it is being sent. */
  begin() {
    this.#underWay = [...this.parcels];
    this.#shownTo = 0;
    return this.#underWay;
  }

  /**
   * Assigns the bytes that have left, a share from 0 to 1, to the files in order.
   * @param {number} share
   */
  showSent(share) {
    const total = this.#underWay.reduce((sum, { size }) => sum + size, 0);
    const position = share * total;
    let start = 0;
    for (const parcel of this.#underWay) {
      const end = start + parcel.size;
      if (end > this.#shownTo && this.#has(parcel)) parcel.onSent(Math.min(parcel.size, Math.floor(position - start)));
      if (end > position) break;
      start = end;
    }
    this.#shownTo = position;
  }

  /** Nothing of a broken request counts as sent. */
  takeBack() {
    for (const parcel of this.#underWay) parcel.onSent(0);
    this.#underWay = [];
  }

  /**
   * Ends each parcel as its receipt says; a cancelled one gets its receipt through `onUnwanted`. Returns the problem of
   * the parcels that stay because they are worth sending again, or null.
   * @param {Receipt[]} receipts
   */
  settle(receipts) {
    if (receipts.length !== this.#underWay.length) throw connectionLost();
    const problems = this.#underWay.map((parcel, index) => this.#settleOne(parcel, receipts[index]));
    this.#underWay = [];
    return problems.find(Boolean) ?? null;
  }

  /**
   * @param {HeldParcel} parcel
   * @param {Receipt} receipt
   */
  #settleOne(parcel, receipt) {
    if (!this.#has(parcel)) {
      if (receipt.id && parcel.isUnwanted()) parcel.onUnwanted(receipt);
      return null;
    }
    if (receipt.error) return this.#refuse(parcel, problemOfDocument(receipt.error));
    this.#release(parcel);
    parcel.resolve(receipt);
    return null;
  }

  /**
   * @param {HeldParcel} parcel
   * @param {Problem} problem
   */
  #refuse(parcel, problem) {
    parcel.onSent(0);
    if (problem.retryable) return problem;
    this.failOne(parcel, problem);
    return null;
  }

  /**
   * @param {HeldParcel} parcel
   * @param {unknown} error
   */
  failOne(parcel, error) {
    if (!this.#has(parcel)) return;
    this.#release(parcel);
    parcel.reject(error);
  }

  /** @param {unknown} error */
  fail(error) {
    for (const parcel of [...this.parcels]) this.failOne(parcel, error);
  }

  /** @param {(parcel: HeldParcel) => void} call */
  eachWanted(call) {
    this.parcels.forEach(call);
  }

  /** Splits this bundle into two, and leaves it empty. */
  halves() {
    const all = [...this.parcels];
    const middle = Math.ceil(all.length / 2);
    return [all.slice(0, middle), all.slice(middle)].map((part) => {
      const half = new Bundle();
      for (const parcel of part) {
        this.#release(parcel);
        half.#hold(parcel);
      }
      return half;
    });
  }

  /** @param {HeldParcel} parcel */
  #has(parcel) {
    return this.parcels.includes(parcel);
  }

  /** @param {HeldParcel} parcel */
  #release(parcel) {
    parcel.leave();
    this.parcels.splice(this.parcels.indexOf(parcel), 1);
    this.bytes -= parcel.size;
  }

  /**
   * A file was paused or cancelled. The request continues for the others, and runs to its end if a file was cancelled:
   * only the receipt tells what to delete on the server.
   * @param {HeldParcel} parcel
   */
  #lose(parcel) {
    this.failOne(parcel, parcel.signal.reason);
    parcel.onSent(0);
    const isAwaited = this.#underWay.some((other) => other.isUnwanted());
    if (!this.isWanted && !isAwaited) this.#control.abort(parcel.signal.reason);
  }
}

// ---- sending -----------------------------------------------------------------------------------------------------

/** How long the first file of a bundle waits for others to be fingerprinted, milliseconds. */
const GATHERING = 100;

/** The problem code of a file that must be sent alone: the server, or a proxy, refuses it in a bundle. */
export const NOT_IN_BUNDLE = "not_in_bundle";

/**
 * Sends many small files in few requests. Each file has its own receipt, also where others fail.
 * `post(parcels, { signal, onProgress })` sends files in one request and resolves to their receipts, in order;
 * `onProgress(share)` reports how much of it has left, from 0 to 1. `connection` says when the server can be reached.
 */
export class BundleSender {
  #post;
  #connection;
  #pace;
  #random;
  #gathering;
  /** @type {Set<HeldParcel>} */
  #waiting = new Set();
  #busyLanes = 0;
  /** @type {number | null} */
  #filling = null;

  /**
   * @param {{
   *   post: BatchPost,
   *   connection: Connection,
   *   pace?: BundlePace,
   *   random?: () => number,
   *   gathering?: number,
   * }} options
   */
  constructor({ post, connection, pace = new BundlePace(), random = Math.random, gathering = GATHERING }) {
    this.#post = post;
    this.#connection = connection;
    this.#pace = pace;
    this.#random = random;
    this.#gathering = gathering;
  }

  /**
   * Takes a parcel `{ file, name, size, fingerprint, signal, isUnwanted(), onSent(bytes), onWait(problem),
   * onProceed(), onUnwanted(receipt) }` along with others. Resolves, when its bundle leaves, to `{ receipt }`, a
   * promise. Where the signal is aborted before its receipt came, `onUnwanted` gets that if `isUnwanted()` by then.
   * @param {Parcel} parcel
   * @returns {Promise<{ receipt: Promise<Api.FileReceipt> }>}
   */
  join(parcel) {
    const held = /** @type {HeldParcel} */ (parcel);
    return new Promise((resolve, reject) => {
      parcel.signal.throwIfAborted();
      const leave = () => {
        this.#waiting.delete(held);
        reject(parcel.signal.reason);
      };
      held.leave = () => parcel.signal.removeEventListener("abort", leave);
      held.depart = (receipt) => resolve({ receipt });
      parcel.signal.addEventListener("abort", leave, { once: true });
      this.#waiting.add(held);
      this.#fillLanesSoon();
    });
  }

  /** Files become ready one by one; those that are ready at the same time go together. */
  #fillLanesSoon() {
    this.#filling ??= setTimeout(() => {
      this.#filling = null;
      this.#fillLanes();
    }, this.#gathering);
  }

  #fillLanes() {
    while (this.#waiting.size > 0 && this.#busyLanes < this.#pace.lanes) this.#run(this.#nextBundle());
  }

  #nextBundle() {
    const bundle = new Bundle();
    for (const parcel of this.#waiting) {
      if (!this.#pace.hasRoom(bundle, parcel.size)) break;
      this.#waiting.delete(parcel);
      bundle.add(parcel);
    }
    return bundle;
  }

  /** @param {Bundle} bundle */
  async #run(bundle) {
    this.#busyLanes += 1;
    try {
      await this.#deliver(bundle);
    } finally {
      this.#busyLanes -= 1;
      this.#fillLanesSoon();
    }
  }

  /**
   * @param {Bundle} bundle
   * @returns {Promise<unknown>}
   */
  async #deliver(bundle) {
    const schedule = new RetrySchedule({ connection: this.#connection, random: this.#random });
    while (bundle.isWanted) {
      const problem = await this.#attempt(bundle);
      if (!problem || !bundle.isWanted) return;
      if (!problem.retryable) return this.#refused(bundle, problem);
      this.#pace.failed();
      await this.#waitFor(bundle, problem, schedule);
    }
  }

  /**
   * Resolves to the problem, if any, that makes it necessary to send the files left in the bundle again.
   * @param {Bundle} bundle
   */
  async #attempt(bundle) {
    const { count, bytes } = bundle;
    const began = performance.now();
    try {
      const receipts = await this.#post(bundle.begin(), {
        signal: bundle.signal,
        onProgress: (share) => bundle.showSent(share),
      });
      this.#pace.sent({ count, bytes, duration: performance.now() - began });
      return bundle.settle(receipts);
    } catch (error) {
      bundle.takeBack();
      if (bundle.signal.aborted) return null;
      if (!(error instanceof Problem)) console.error(error);
      return problemOfError(error);
    }
  }

  /**
   * @param {Bundle} bundle
   * @param {Problem} problem
   * @param {RetrySchedule} schedule
   */
  async #waitFor(bundle, problem, schedule) {
    bundle.eachWanted((parcel) => parcel.onWait(problem));
    try {
      if (problem.isConnectionLost) await this.#dropUnreadable(bundle);
      await schedule.untilNextAttempt(problem, bundle.signal);
      bundle.eachWanted((parcel) => parcel.onProceed());
    } catch (error) {
      bundle.fail(error);
    }
  }

  /**
   * A file that changed on disk breaks the whole request, and looks like a lost connection.
   * @param {Bundle} bundle
   */
  async #dropUnreadable(bundle) {
    const checks = bundle.parcels.map((parcel) => checkReadable(parcel.file).catch((error) => bundle.failOne(parcel, error)));
    await Promise.all(checks);
  }

  /**
   * Splits the bundle in two; a single file goes in chunks, which show better what is wrong.
   * @param {Bundle} bundle
   * @param {Problem} problem
   */
  #refused(bundle, problem) {
    if (problem.status === 413) this.#pace.wasTooLarge(bundle.bytes);
    if (bundle.count === 1 || problem.status !== 413) return bundle.fail(new Problem({ code: NOT_IN_BUNDLE }));
    return Promise.all(bundle.halves().map((half) => this.#deliver(half)));
  }
}
