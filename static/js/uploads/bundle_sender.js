/** Sends many small files in few requests. Each file has its own answer, whatever happens to the others. */

import { BundlePace } from "./bundle_pace.js";
import { Bundle } from "./bundle.js";
import { checkReadable } from "./local_file.js";
import { Problem } from "./problem.js";
import { RetrySchedule } from "./retry.js";

/** How long the first file of a bundle waits for others to be fingerprinted, milliseconds. */
const GATHERING = 100;

/** The problem code of a file that must be sent alone: the server, or a proxy, refuses it in a bundle. */
export const NOT_IN_BUNDLE = "not_in_bundle";

/**
 * `post(parcels, { signal, onProgress })` sends files in one request and resolves to their receipts, in order;
 * `onProgress(share)` reports how much of it has left, from 0 to 1. `connection` says when the server can be reached.
 */
export class BundleSender {
  #post;
  #connection;
  #pace;
  #random;
  #gathering;
  #waiting = new Set();
  #busyLanes = 0;
  #filling = null;

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
   */
  join(parcel) {
    return new Promise((resolve, reject) => {
      parcel.signal.throwIfAborted();
      const leave = () => {
        this.#waiting.delete(parcel);
        reject(parcel.signal.reason);
      };
      parcel.leave = () => parcel.signal.removeEventListener("abort", leave);
      parcel.depart = (receipt) => resolve({ receipt });
      parcel.signal.addEventListener("abort", leave, { once: true });
      this.#waiting.add(parcel);
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

  async #run(bundle) {
    this.#busyLanes += 1;
    try {
      await this.#deliver(bundle);
    } finally {
      this.#busyLanes -= 1;
      this.#fillLanesSoon();
    }
  }

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

  /** Resolves to the problem, if any, because of which the files left in the bundle must be sent again. */
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
      if (error instanceof Problem) return error;
      console.error(error);
      return new Problem({ code: "page_error", detail: String(error) });
    }
  }

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

  /** A file that changed on disk breaks the whole request, and looks like a lost connection. */
  async #dropUnreadable(bundle) {
    const checks = bundle.parcels.map((parcel) => checkReadable(parcel.file).catch((error) => bundle.failOne(parcel, error)));
    await Promise.all(checks);
  }

  /** Splits the bundle in two; a single file goes in chunks, which show better what is wrong. */
  #refused(bundle, problem) {
    if (problem.status === 413) this.#pace.wasTooLarge(bundle.bytes);
    if (bundle.count === 1 || problem.status !== 413) return bundle.fail(new Problem({ code: NOT_IN_BUNDLE }));
    return Promise.all(bundle.halves().map((half) => this.#deliver(half)));
  }
}
