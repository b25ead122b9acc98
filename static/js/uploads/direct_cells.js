/** Sends cells of files straight to the bucket of the server, at URLs that the server signs for them. */

import { coveredBytes } from "./chunk_plan.js";
import { Problem } from "./problem.js";
import { withRetries } from "./retry.js";

/**
 * @import { CellPut, ChunkOptions, Target } from "./body_request.js"
 * @import { Checksums } from "./checksums.js"
 * @import { Connection } from "./connection.js"
 *
 * @typedef {object} Tools
 * @property {Pick<Checksums, "of">} checksums
 * @property {(id: string, cell: Api.Cell, signal: AbortSignal) => Promise<Api.CellTarget>} offer
 * @property {(id: string, cell: Api.Cell, signal: AbortSignal) => Promise<Api.Upload>} confirm
 * @property {CellPut} put
 * @property {(signal: AbortSignal) => Promise<boolean>} isServerThere
 * @property {Connection} connection
 * @property {() => number} clock
 */

/** Code of the problem of a cell that the bucket did not take: it is sent again, some other way. */
export const NOT_TAKEN = "bucket_failed";

/** The server's code for an upload whose bytes it wants itself. */
export const NOT_DIRECT = "not_direct";

/** Cells in a row that the bucket does not take, before everything goes through the server until the page is left. */
const FAILURES_IN_A_ROW = 2;

/**
 * On lines on which a cell takes longer than this, the server gets the bytes, in chunks that fit the line: a cell whose
 * connection breaks is lost whole. Known after the second time, milliseconds.
 */
const LONGEST_CELL = 120_000;
const MEASURING = 10_000;

export class DirectCells {
  #tools;
  #failures = 0;
  /** `id start` of cells that were sent to the bucket, or for which there was no URL. */
  #sent = new Set();

  /**
   * `checksums.of(blob)` resolves to a CRC32C; `offer(id, cell, signal)` and `confirm(id, cell, signal)` ask the server
   * for a URL, and to count what is stored there; `put(target, blob, { signal, onProgress })` sends a cell;
   * `isServerThere(signal)` tells whether the server itself can be reached, and `connection` waits until it can.
   * @param {Omit<Tools, "clock"> & Partial<Tools>} tools
   */
  constructor({ checksums, offer, confirm, put, isServerThere, connection, clock = () => performance.now() }) {
    this.#tools = { checksums, offer, confirm, put, isServerThere, connection, clock };
  }

  /** Whether the bucket seems to be within reach of this browser. */
  get isUsable() {
    return this.#failures < FAILURES_IN_A_ROW;
  }

  /**
   * Whether a cell may be sent. Only once: the bucket keeps nothing of a request that breaks off, and the server keeps what
   * has arrived. So a line that breaks often costs each cell at most once.
   * @param {string} id
   * @param {number} start
   */
  maySend(id, start) {
    return this.isUsable && !this.#sent.has(`${id} ${start}`);
  }

  /**
   * Sends a cell `{ start, end }`; resolves to the server's answer: bytes `received`, and `media` once the file is
   * complete. Rejects with a Problem, NOT_TAKEN if the cell must go to the server, NOT_DIRECT, or with the signal's reason.
   * @param {{ start: number, end: number }} chunk
   * @param {ChunkOptions} options
   * @returns {Promise<Api.ChunkReceipt>}
   */
  async post({ start, end }, { file, id, signal, onProgress }) {
    const blob = file.slice(start, end);
    const cell = { start, length: end - start, crc32c: await this.#checksum(blob) };
    signal.throwIfAborted();
    const target = await this.#tools.offer(id, cell, signal);
    if (!target.stored) {
      this.#sent.add(`${id} ${start}`);
      const { url } = target;
      if (!url) throw new Problem({ code: NOT_TAKEN, retryable: true });
      await this.#put({ ...target, url }, blob, { signal, onProgress });
    }
    const answer = await this.#confirmed(id, cell, signal);
    if (this.isUsable) this.#failures = 0;
    return { ...answer, received: coveredBytes(answer.received) };
  }

  /** @param {Blob} blob */
  async #checksum(blob) {
    try {
      return await this.#tools.checksums.of(blob);
    } catch (error) {
      if (error instanceof Problem) throw error;
      throw this.#giveUp();
    }
  }

  /**
   * @param {Target} target
   * @param {Blob} blob
   * @param {{ signal: AbortSignal, onProgress: (share: number) => void }} options
   */
  async #put(target, blob, { signal, onProgress }) {
    const tooSlow = new AbortController();
    const began = this.#tools.clock();
    const watch = (/** @type {number} */ share) => {
      const elapsed = this.#tools.clock() - began;
      if (elapsed > MEASURING && elapsed > share * LONGEST_CELL) tooSlow.abort();
      onProgress(share);
    };
    try {
      const either = AbortSignal.any([signal, tooSlow.signal]);
      await this.#tools.put(target, blob, { signal: either, onProgress: watch });
    } catch (error) {
      signal.throwIfAborted();
      if (tooSlow.signal.aborted) throw this.#giveUp();
      // Without any network the bucket is not to blame.
      if (error instanceof Problem && error.isConnectionLost && !(await this.#tools.isServerThere(signal))) throw error;
      throw this.#failed();
    }
  }

  /**
   * @param {string} id
   * @param {Api.Cell} cell
   * @param {AbortSignal} signal
   */
  async #confirmed(id, cell, signal) {
    const ask = () => this.#tools.confirm(id, cell, signal);
    try {
      return await withRetries(ask, { connection: this.#tools.connection, signal });
    } catch (error) {
      throw error instanceof Problem && error.code === "cell_not_stored" ? this.#failed() : error;
    }
  }

  #failed() {
    this.#failures += 1;
    return new Problem({ code: NOT_TAKEN, retryable: true });
  }

  #giveUp() {
    this.#failures = FAILURES_IN_A_ROW;
    return this.#failed();
  }
}
