/** When to try again, and when to give up. All durations are milliseconds. */

import { Problem } from "./problem.js";

/** @import { Connection } from "./connection.js" */

const FIRST_DELAY = 1_000;
const LONGEST_DELAY = 30_000;
/** Refusals in a row after which we stop retrying although the server says "try again": about two minutes. */
const REFUSALS_IN_A_ROW = 8;
/** If connections break this often while the server can be reached, something in between is breaking them. */
const LOSSES_IN_A_ROW = 12;

/**
 * Exponential backoff with full jitter: a random time up to 1, 2, 4 ... 30 s, so that many waiting chunks do not
 * return at once.
 * @param {number} attempt
 */
export function jitteredDelay(attempt, random = Math.random) {
  const ceiling = Math.min(LONGEST_DELAY, FIRST_DELAY * 2 ** Math.max(0, attempt));
  return Math.round(random() * ceiling);
}

/**
 * Resolves after `milliseconds`; rejects at once with the signal's reason when it is aborted.
 * @param {number} milliseconds
 * @param {AbortSignal | null} [signal]
 * @returns {Promise<void>}
 */
export function sleep(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, milliseconds);
    signal?.addEventListener("abort", stop, { once: true });
  });
}

/** Waits between the attempts of one call or chunk, and gives up where waiting does not help. */
export class RetrySchedule {
  /** @type {Connection} */
  #connection;
  /** @type {() => number} */
  #random;
  #losses = 0;
  #refusals = 0;

  /** @param {{ connection: Connection, random?: () => number }} options */
  constructor({ connection, random = Math.random }) {
    this.#connection = connection;
    this.#random = random;
  }

  /**
   * Resolves when the next attempt should be made; throws the problem when none should.
   * @param {Problem} problem
   * @param {AbortSignal} [signal]
   */
  async untilNextAttempt(problem, signal) {
    if (!problem.retryable) throw problem;
    if (problem.isConnectionLost) await this.#afterLoss(signal);
    else if (problem.isSignedOut) await this.#afterSignOut(problem, signal);
    else await this.#afterRefusal(problem, signal);
  }

  /** @param {AbortSignal} [signal] */
  async #afterLoss(signal) {
    this.#losses += 1;
    if (this.#losses > LOSSES_IN_A_ROW) throw new Problem({ code: "connection_unstable" });
    this.#connection.reportLoss();
    await this.#connection.whenReachable(signal);
    await sleep(jitteredDelay(this.#losses - 2, this.#random), signal);
  }

  /**
   * @param {Problem} problem
   * @param {AbortSignal} [signal]
   */
  async #afterSignOut(problem, signal) {
    this.#refusals += 1;
    if (this.#refusals > REFUSALS_IN_A_ROW || !this.#connection.reportSignOut()) throw problem;
    await this.#connection.whenReachable(signal);
  }

  /**
   * @param {Problem} problem
   * @param {AbortSignal} [signal]
   */
  async #afterRefusal(problem, signal) {
    this.#refusals += 1;
    // A busy server says so on purpose: that does not count as a failure.
    if (this.#refusals > REFUSALS_IN_A_ROW && problem.code !== "server_busy") throw problem;
    const jitter = jitteredDelay(this.#refusals - 1, this.#random);
    await sleep(problem.retryAfter + jitter, signal);
    await this.#connection.whenReachable(signal);
  }
}

/**
 * Calls `attempt()` until it succeeds or its problem is final; `onWait` and `onProceed` frame each wait.
 * @template Result
 * @param {() => Promise<Result>} attempt
 * @param {{
 *   connection: Connection,
 *   signal?: AbortSignal,
 *   onWait?: (problem: Problem) => void,
 *   onProceed?: () => void,
 *   random?: () => number,
 * }} options
 */
export async function withRetries(attempt, { connection, signal, onWait, onProceed, random }) {
  const schedule = new RetrySchedule({ connection, random });
  for (;;) {
    try {
      return await attempt();
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      onWait?.(error);
      await schedule.untilNextAttempt(error, signal);
      onProceed?.();
    }
  }
}
