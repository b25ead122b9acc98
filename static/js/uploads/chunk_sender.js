/** Sends the missing bytes of a file in chunks, several at once, until the server has acknowledged them all. */

import { ChunkPlan, coveredBytes } from "./chunk_plan.js";
import { NOT_DIRECT, NOT_TAKEN } from "./direct_cells.js";
import { MOST_BYTES } from "./lane.js";
import { checkReadable, neededFirst } from "./local_files.js";
import { Problem, problemOfError } from "./problem.js";
import { RetrySchedule } from "./retry.js";

/**
 * @import { ChunkPost } from "./body_request.js"
 * @import { Chunk, ChunkPace, ChunkSizes } from "./chunk_plan.js"
 * @import { Connection } from "./connection.js"
 * @import { DirectCells } from "./direct_cells.js"
 * @import { Lane } from "./lane.js"
 * @import { Lanes } from "./lanes.js"
 * @import { Slots } from "./limits.js"
 *
 * @typedef {{ id: string, file: File, size: number, received: number }} SentUpload
 * @typedef {Partial<Api.ChunkReceipt>} Answer
 *
 * @typedef {object} Tools
 * @property {ChunkPost} post
 * @property {Slots} slots
 * @property {ChunkSizes} sizes
 * @property {ChunkPace} pace
 * @property {Connection} connection
 * @property {DirectCells | null} direct
 * @property {Lanes | null} lanes
 * @property {() => number} random
 *
 * @typedef {object} View
 * @property {(progress: { received: number, inFlight: number }) => void} onProgress
 * @property {(problem: Problem) => void} onWait
 * @property {() => void} onProceed
 *
 * A chunk on its way: bytes of it that have left, when it did, its lane, if it has one, whether another one has it too, and
 * what ends all that send it.
 * @typedef {{ sent: number, began: number, lane: Lane | null, isRepeated: boolean, stop: AbortController }} Flight
 */

/** Requests for one file at once: all that the page has, since each gets only a share of a bad line. */
export const CHUNKS_AT_ONCE = 5;

/**
 * A small chunk that a lane, or a request, has had for so long is sent on another lane too, once nothing else is left;
 * milliseconds.
 */
const LATE = 500;
const LATE_REQUEST = 3_000;

/** What may be sent twice, of a file. */
const MOST_REPEATED = 0.1;

/**
 * `post(chunk, { file, id, signal, onProgress })` sends one chunk and resolves to the server's answer; `slots` bounds
 * the requests of the whole page, `pace` says how large a chunk is, `connection` when the server can be reached.
 * `direct`, a DirectCells, posts chunks that are whole cells of a bucket; `lanes`, where the page has them, send small
 * chunks beside the requests.
 */
export class ChunkSender {
  #tools;

  /** @param {Omit<Tools, "direct" | "lanes" | "random"> & Partial<Tools>} tools */
  constructor({ post, slots, sizes, pace, connection, direct = null, lanes = null, random = Math.random }) {
    this.#tools = { post, slots, sizes, pace, connection, direct, lanes, random };
  }

  /**
   * Sends the `missing` ranges of an upload `{ id, file, size, received }`, of a video those first without which none of
   * it can be played. Resolves to the answer that tells of the finished file, or to the first one; rejects with a
   * Problem, or with the signal's reason. With `cellBytes`, missing cells of that size go straight to the bucket.
   *
   * `onProgress({ received, inFlight })` gets bytes that are safe, and bytes that have left without an answer yet;
   * `onWait(problem)` tells that nothing moves, `onProceed()` that something does again.
   * @param {SentUpload} upload
   * @param {View & { missing: Api.Range[], cellBytes?: number, signal: AbortSignal }} options
   * @returns {Promise<Answer>}
   */
  async send(upload, { missing, cellBytes = 0, signal, onProgress, onWait, onProceed }) {
    const first = await neededFirst(upload.file);
    const { sizes, direct } = this.#tools;
    const maySend = (/** @type {number} */ start) => Boolean(direct?.maySend(upload.id, start));
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
  /** @type {Answer} */
  #answer = {};
  /** @type {() => void} */
  #allAcknowledged;
  /** @type {(error: unknown) => void} */
  #refuse;
  /** @type {AbortSignal} */
  #signal;
  #requests = 0;
  #repeated = 0;
  /** @type {Map<Chunk, Flight>} */
  #inFlight = new Map();

  /**
   * @param {SentUpload} upload
   * @param {ChunkPlan} plan
   * @param {Tools} tools
   * @param {View} view
   */
  constructor(upload, plan, tools, view) {
    this.#upload = upload;
    this.#plan = plan;
    this.#tools = tools;
    this.#view = view;
    this.#received = upload.received;
  }

  /** @param {AbortSignal} signal */
  async run(signal) {
    if (this.#plan.isEmpty) return this.#answer;
    const stop = new AbortController();
    this.#signal = AbortSignal.any([signal, stop.signal]);
    /** @type {Promise<void>} */
    const ended = new Promise((resolve, reject) => {
      this.#allAcknowledged = resolve;
      this.#refuse = reject;
    });
    while (this.#requests < CHUNKS_AT_ONCE) this.#runRequest();
    this.#tools.lanes?.add(this);
    try {
      await ended;
    } finally {
      this.#tools.lanes?.remove(this);
      stop.abort(); // After a final refusal the file's other chunks have no use, and after the last answer no request has.
      this.#inFlight.clear();
      this.#showSum();
    }
    return this.#answer;
  }

  /** For lanes: bytes that are not acknowledged. */
  get bytesLeft() {
    return this.#upload.size - Math.max(this.#received, this.#stored);
  }

  /**
   * For lanes: sends the next small chunk, or again one that another connection has had for long. Resolves to
   * `{ hasSent, pause }`, the milliseconds that the server asks to wait.
   * @param {Lane} lane
   * @returns {Promise<{ hasSent: boolean, pause: number }>}
   */
  async sendOn(lane) {
    if (this.#plan.hasCell) return { hasSent: false, pause: 0 };
    const chunk = this.#plan.take(Math.min(MOST_BYTES, this.#nextBytes));
    if (!chunk) return this.#repeat(lane);
    try {
      await this.#deliver(chunk, (taken, options) => lane.post(taken, options), lane);
      return { hasSent: true, pause: 0 };
    } catch (error) {
      return { hasSent: false, pause: await this.#afterLane(problemOfError(error), chunk) };
    }
  }

  /**
   * What a lane does not take, a request does.
   * @param {Problem} error
   * @param {Chunk} chunk
   */
  async #afterLane(error, chunk) {
    if (this.#signal.aborted || !this.#takeBack(chunk)) return 0;
    if (this.#inFlight.size === 0) this.#view.onWait(error);
    if (this.#requests < CHUNKS_AT_ONCE) this.#runRequest();
    return error.retryAfter;
  }

  /** @param {Lane} lane */
  async #repeat(lane) {
    const { file, id, size } = this.#upload;
    const most = Math.min(MOST_BYTES, size * MOST_REPEATED - this.#repeated);
    const isLate = (/** @type {[Chunk, Flight]} */ [{ start, end, isCell }, flight]) =>
      !(isCell || flight.isRepeated || flight.lane === lane || end - start > most) &&
      performance.now() - flight.began > (flight.lane ? LATE : LATE_REQUEST);
    const late = [...this.#inFlight].find(isLate);
    if (!late) return { hasSent: false, pause: 0 };
    const [chunk, flight] = late;
    flight.isRepeated = true;
    this.#repeated += chunk.end - chunk.start;
    try {
      this.#acknowledged(chunk, await lane.post(chunk, { file, id, signal: this.#signalOf(flight) }));
      return { hasSent: true, pause: 0 };
    } catch {
      return { hasSent: false, pause: 0 }; // The first one is still under way.
    }
  }

  /** Sends by requests until nothing is left; what is refused for good ends the upload. */
  async #runRequest() {
    this.#requests += 1;
    try {
      await this.#sendUntilEmpty();
    } catch (error) {
      this.#refuse(error);
    } finally {
      this.#requests -= 1;
    }
  }

  async #sendUntilEmpty() {
    const signal = this.#signal;
    /** @type {RetrySchedule | null} */
    let schedule = null;
    while (!this.#plan.isEmpty) {
      const problem = await this.#sendNext(signal);
      schedule = problem && (schedule ?? this.#newSchedule());
      if (problem) await schedule?.untilNextAttempt(problem, signal);
    }
  }

  #newSchedule() {
    return new RetrySchedule({ connection: this.#tools.connection, random: this.#tools.random });
  }

  /**
   * Cuts the chunk when it has its slot: by then the pace knows more. Resolves to the problem to wait for, or null.
   * @param {AbortSignal} signal
   */
  async #sendNext(signal) {
    const release = await this.#tools.slots.take(signal);
    const chunk = this.#plan.hasCell ? this.#plan.takeCell() : this.#plan.take(this.#nextBytes);
    try {
      if (chunk) await this.#deliver(chunk, this.#posterOf(chunk));
      return null;
    } catch (error) {
      signal.throwIfAborted();
      return chunk && this.#takeBack(chunk) ? await this.#judge(error, chunk) : null;
    } finally {
      release();
    }
  }

  get #nextBytes() {
    const { pace, lanes } = this.#tools;
    return pace.chunkBytesOf(this.#plan.bytes / (this.#requests + (lanes?.size ?? 0)));
  }

  /**
   * @param {Chunk} chunk
   * @returns {ChunkPost}
   */
  #posterOf(chunk) {
    const { post, direct } = this.#tools;
    return chunk.isCell && direct ? (...options) => direct.post(...options) : post;
  }

  /**
   * @param {Chunk} chunk
   * @param {ChunkPost} post
   * @param {Lane | null} [lane]
   */
  async #deliver(chunk, post, lane = null) {
    const { file, id } = this.#upload;
    const bytes = coveredBytes(chunk.missing);
    const onProgress = (/** @type {number} */ share) => this.#show(chunk, share * bytes);
    const began = performance.now();
    this.#view.onProceed();
    const flight = { sent: 0, began, lane, isRepeated: false, stop: new AbortController() };
    this.#inFlight.set(chunk, flight);
    const answer = await post(chunk, { file, id, signal: this.#signalOf(flight), onProgress });
    if (!chunk.isCell && !lane) this.#tools.pace.sent(chunk, performance.now() - began);
    this.#acknowledged(chunk, answer);
  }

  /** @param {Flight} flight */
  #signalOf({ stop }) {
    return AbortSignal.any([this.#signal, stop.signal]);
  }

  /**
   * The first answer for a chunk counts; other requests that still send it are aborted.
   * @param {Chunk} chunk
   * @param {Api.ChunkReceipt} answer
   */
  #acknowledged(chunk, answer) {
    const flight = this.#inFlight.get(chunk);
    if (!flight) return;
    this.#inFlight.delete(chunk);
    flight.stop.abort();
    const bytes = coveredBytes(chunk.missing);
    this.#received += bytes;
    this.#stored = Math.max(this.#stored, answer.received ?? 0);
    this.#tools.lanes?.acknowledged(bytes);
    if (!this.#answer.media) this.#answer = answer;
    this.#showSum();
    if (this.#answer.media || (this.#plan.isEmpty && this.#inFlight.size === 0)) this.#allAcknowledged();
  }

  /**
   * Makes a failed chunk missing again; returns false if another lane has delivered it.
   * @param {Chunk} chunk
   */
  #takeBack(chunk) {
    if (!this.#inFlight.delete(chunk)) return false;
    this.#plan.putBack(chunk);
    this.#showSum();
    return true;
  }

  /**
   * @param {Chunk} chunk
   * @param {number} sent
   */
  #show(chunk, sent) {
    const flight = this.#inFlight.get(chunk);
    if (!flight) return;
    flight.sent = sent;
    this.#showSum();
  }

  #showSum() {
    const sum = [...this.#inFlight.values()].reduce((total, { sent }) => total + sent, 0);
    const received = Math.max(this.#received, this.#stored);
    this.#view.onProgress({ received, inFlight: Math.min(Math.floor(sum), this.#upload.size - received) });
  }

  /**
   * Resolves to the problem if waiting may help, to null if other chunks do; throws what ends the upload.
   * @param {unknown} error
   * @param {Chunk} chunk
   */
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
