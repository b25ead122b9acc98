/** When a failed request is worth repeating. One schedule belongs to one chunk or one call. */

import { jitteredDelay, sleep } from "./backoff.js";
import { Problem } from "./problem.js";

/** Refusals in a row after which a "try again" of the server is no longer believed: about two minutes. */
const REFUSALS_IN_A_ROW = 8;
/** A connection that breaks so often while the server is there is broken by something in between. */
const LOSSES_IN_A_ROW = 12;

/** Waits between attempts, and gives up where waiting does not help. */
export class RetrySchedule {
  #connection;
  #random;
  #losses = 0;
  #refusals = 0;

  constructor({ connection, random = Math.random }) {
    this.#connection = connection;
    this.#random = random;
  }

  /** Resolves when the next attempt should be made; throws the problem when none should. */
  async untilNextAttempt(problem, signal) {
    if (!problem.retryable) throw problem;
    if (problem.isConnectionLost) await this.#afterLoss(signal);
    else await this.#afterRefusal(problem, signal);
  }

  async #afterLoss(signal) {
    this.#losses += 1;
    if (this.#losses > LOSSES_IN_A_ROW) throw new Problem({ code: "connection_unstable" });
    this.#connection.reportLoss();
    await this.#connection.whenReachable(signal);
    await sleep(jitteredDelay(this.#losses - 2, this.#random), signal);
  }

  async #afterRefusal(problem, signal) {
    this.#refusals += 1;
    // A busy server says so on purpose and means it: that is no failure to count.
    if (this.#refusals > REFUSALS_IN_A_ROW && problem.code !== "server_busy") throw problem;
    const jitter = jitteredDelay(this.#refusals - 1, this.#random);
    await sleep(problem.retryAfter + jitter, signal);
    await this.#connection.whenReachable(signal);
  }
}

/** Calls `attempt()` until it succeeds or its problem is final; `onWait` and `onProceed` frame every wait. */
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
