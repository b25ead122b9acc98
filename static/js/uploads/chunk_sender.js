/** Sends the missing bytes of a file in chunks, several at once, until the server has acknowledged them all. */

import { ChunkPlan, coveredBytes } from "./chunk_plan.js";
import { NOT_DIRECT, NOT_TAKEN } from "./direct_cells.js";
import { checkReadable } from "./local_file.js";
import { neededFirst } from "./play_order.js";
import { Problem } from "./problem.js";
import { RetrySchedule } from "./retry.js";

/** Chunks of one file in flight at once. */
export const CHUNKS_AT_ONCE = 3;

/**
 * `post(chunk, { file, id, signal, onProgress })` sends one chunk and resolves to the server's answer; `slots` bounds
 * the requests of the whole page, `pace` says how large a chunk is, `connection` when the server can be reached.
 * `direct`, a DirectCells, posts chunks that are whole cells of a bucket.
 */
export class ChunkSender {
  #tools;

  constructor({ post, slots, sizes, pace, connection, direct = null, random = Math.random }) {
    this.#tools = { post, slots, sizes, pace, connection, direct, random };
  }

  /**
   * Sends the `missing` ranges of an upload `{ id, file, size, received }`, of a film those first without which none of
   * it can be played. Resolves to the answer that tells of the finished file, or to the first one; rejects with a
   * Problem, or with the signal's reason. With `cellBytes`, missing cells of that size go straight to the bucket.
   *
   * `onProgress({ received, inFlight })` gets bytes that are safe, and bytes that have left without an answer yet;
   * `onWait(problem)` tells that nothing moves, `onProceed()` that something does again.
   */
  async send(upload, { missing, cellBytes = 0, signal, onProgress, onWait, onProceed }) {
    const first = await neededFirst(upload.file);
    const { sizes, direct } = this.#tools;
    const maySend = (start) => Boolean(direct?.maySend(upload.id, start));
    const plan = new ChunkPlan({ sizes, size: upload.size, missing, first, cellBytes, maySend });
    return new Transfer(upload, plan, this.#tools, { onProgress, onWait, onProceed }).run(signal);
  }
}

/** One pass over the missing bytes of one file. A failed chunk becomes missing again, and may be cut differently. */
class Transfer {
  #upload;
  #plan;
  #tools;
  #view;
  #received;
  /** The server's own count, which includes what other tabs and clients have sent of the same file. */
  #stored = 0;
  #answer = {};
  #allAcknowledged;
  /** Chunk -> bytes of it that have left. */
  #inFlight = new Map();

  constructor(upload, plan, tools, view) {
    this.#upload = upload;
    this.#plan = plan;
    this.#tools = tools;
    this.#view = view;
    this.#received = upload.received;
  }

  async run(signal) {
    const stop = new AbortController();
    const either = AbortSignal.any([signal, stop.signal]);
    const lanes = Array.from({ length: CHUNKS_AT_ONCE }, () => this.#sendUntilEmpty(either));
    const acknowledged = new Promise((resolve) => (this.#allAcknowledged = resolve));
    try {
      await Promise.race([Promise.all(lanes), acknowledged]);
    } finally {
      stop.abort(); // After a final refusal the file's other chunks have no use, and after the last answer no lane has.
    }
    return this.#answer;
  }

  async #sendUntilEmpty(signal) {
    let schedule = null;
    while (!this.#plan.isEmpty) {
      const problem = await this.#sendNext(signal);
      schedule = problem && (schedule ?? this.#newSchedule());
      await schedule?.untilNextAttempt(problem, signal);
    }
  }

  #newSchedule() {
    return new RetrySchedule({ connection: this.#tools.connection, random: this.#tools.random });
  }

  async #sendNext(signal) {
    if (this.#plan.hasCell) return this.#sendInSlot(signal);
    const leave = await this.#tools.pace.enter(signal);
    return this.#sendInSlot(signal).finally(leave);
  }

  /** Cuts the chunk when it has its slot: by then the pace knows more. Resolves to the problem to wait for, or null. */
  async #sendInSlot(signal) {
    const release = await this.#tools.slots.take(signal);
    const chunk = this.#plan.hasCell ? this.#plan.takeCell() : this.#plan.take(this.#tools.pace.chunkBytes);
    try {
      if (chunk) await this.#deliver(chunk, signal);
      return null;
    } catch (error) {
      signal.throwIfAborted();
      this.#plan.putBack(chunk);
      return await this.#judge(error, chunk);
    } finally {
      release();
    }
  }

  async #deliver(chunk, signal) {
    const { file, id } = this.#upload;
    const bytes = coveredBytes(chunk.missing);
    const onProgress = (share) => this.#show(chunk, share * bytes);
    const began = performance.now();
    this.#view.onProceed();
    this.#inFlight.set(chunk, 0);
    try {
      const answer = await this.#post(chunk, { file, id, signal, onProgress });
      this.#received += bytes;
      this.#stored = Math.max(this.#stored, answer.received ?? 0);
      if (!this.#answer.media) this.#answer = answer;
    } finally {
      this.#show(chunk, null);
    }
    if (!chunk.isCell) this.#tools.pace.sent(chunk, performance.now() - began);
    if (this.#answer.media || (this.#plan.isEmpty && this.#inFlight.size === 0)) this.#allAcknowledged();
  }

  #post(chunk, options) {
    const { post, direct } = this.#tools;
    return chunk.isCell ? direct.post(chunk, options) : post(chunk, options);
  }

  /** `inFlight` is null for a chunk that is no longer in flight. */
  #show(chunk, inFlight) {
    if (inFlight === null) this.#inFlight.delete(chunk);
    else this.#inFlight.set(chunk, inFlight);
    const sum = [...this.#inFlight.values()].reduce((total, bytes) => total + bytes, 0);
    const received = Math.max(this.#received, this.#stored);
    this.#view.onProgress({ received, inFlight: Math.min(Math.floor(sum), this.#upload.size - received) });
  }

  /** Resolves to the problem if waiting may help, to null if other chunks do; throws what ends the upload. */
  async #judge(error, chunk) {
    const { pace } = this.#tools;
    if (!(error instanceof Problem)) throw error;
    if (error.code === NOT_DIRECT) this.#plan.refuseCells();
    if ([NOT_DIRECT, NOT_TAKEN].includes(error.code)) return null;
    if (error.status === 413 && pace.wasTooLarge(chunk)) return null;
    if (error.isConnectionLost) {
      if (!chunk.isCell) pace.failed(chunk);
      await checkReadable(this.#upload.file.slice(chunk.start, chunk.end));
    }
    if (this.#inFlight.size === 0) this.#view.onWait(error);
    return error;
  }
}
