/** One WebSocket to the server whose messages are chunks: see the docs of the HTTP API, "Lanes". */

import { chunkQuery } from "./chunk_plan.js";
import { connectionLost, problemOfAnswer } from "./problem.js";

/**
 * @import { Checksums } from "./checksums.js"
 * @import { RateLimit } from "./limits.js"
 * @import { Problem } from "./problem.js"
 */

const SUBPROTOCOL = "sluice-lane-1";

/** The most that the server takes in a message, bytes; a message has some hundred bytes more. */
export const MOST_BYTES = 256 * 1024;

/** A lane that answers nothing for so long is dead, milliseconds. */
const LONGEST_SILENCE = 30_000;

const NO_BYTES = new Uint8Array(0);

/**
 * Opens the WebSockets of `url`; resolves to a Lane, or rejects with a Problem. `limit` is a RateLimit, `checksums` Checksums.
 * @param {{ url: string, limit: RateLimit, checksums: Checksums, WebSocket?: typeof globalThis.WebSocket }} options
 * @returns {(signal: AbortSignal) => Promise<Lane>}
 */
export function laneOpener({ url, limit, checksums, WebSocket = globalThis.WebSocket }) {
  return (signal) =>
    new Promise((resolve, reject) => {
      const socket = new WebSocket(url, SUBPROTOCOL);
      const timer = setTimeout(() => socket.close(), LONGEST_SILENCE);
      const end = () => socket.close();
      signal.addEventListener("abort", end, { once: true });
      socket.addEventListener("open", () => {
        clearTimeout(timer);
        resolve(new Lane(socket, limit, checksums));
      });
      socket.addEventListener("close", () => {
        clearTimeout(timer);
        signal.removeEventListener("abort", end);
        reject(connectionLost());
      });
    });
}

/**
 * The URL of the lanes beside the one that chunks are posted to, which may be relative.
 * @param {string} uploadUrl
 */
export function lanesUrl(uploadUrl, base = globalThis.location?.href) {
  const url = new URL(uploadUrl, base);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  url.pathname = url.pathname.replace(/\/upload$/, "/lanes");
  return url.href;
}

/** Its messages are answered in order. */
export class Lane {
  #socket;
  #limit;
  #checksums;
  /** @type {{ resolve: (answer: Api.ChunkReceipt) => void, reject: (problem: Problem) => void }[]} */
  #waiting = [];
  /** @type {number | undefined} */
  #timer;

  /**
   * @param {WebSocket} socket
   * @param {RateLimit} limit
   * @param {Checksums} checksums
   */
  constructor(socket, limit, checksums) {
    this.#socket = socket;
    this.#limit = limit;
    this.#checksums = checksums;
    socket.binaryType = "arraybuffer";
    socket.addEventListener("message", ({ data }) => this.#answered(data));
    socket.addEventListener("close", () => this.#lost());
  }

  get isOpen() {
    return this.#socket.readyState === 1;
  }

  /** Messages that are not answered yet. */
  get underWay() {
    return this.#waiting.length;
  }

  /**
   * Sends a chunk; resolves to the server's answer, rejects with a Problem, or if the file cannot be read. Aborted before
   * it leaves, it does not leave; later it is answered all the same.
   * @param {{ start: number, end: number, chunkBytes: number }} chunk
   * @param {{ file: File, id: string, signal: AbortSignal }} options
   */
  async post(chunk, { file, id, signal }) {
    const query = String(chunkQuery(chunk, { id, size: file.size }));
    const blob = file.slice(chunk.start, chunk.end);
    const [digest, buffer] = await Promise.all([this.#checksums.contentDigest(blob), blob.arrayBuffer()]);
    const head = new TextEncoder().encode(JSON.stringify(digest ? { query, digest } : { query }));
    const bytes = new Uint8Array(buffer);
    const message = new Uint8Array(2 + head.length + bytes.length);
    new DataView(message.buffer).setUint16(0, head.length);
    message.set(head, 2);
    message.set(bytes, 2 + head.length);
    await this.#limit.take(bytes.length, signal);
    signal.throwIfAborted();
    return this.#ask(message);
  }

  /** Resolves to how long an empty message takes there and back, milliseconds. */
  async roundTrip(now = () => performance.now()) {
    const began = now();
    await this.#ask(NO_BYTES);
    return now() - began;
  }

  close() {
    this.#socket.close();
  }

  /**
   * @param {Uint8Array<ArrayBuffer>} message
   * @returns {Promise<Api.ChunkReceipt>}
   */
  #ask(message) {
    return new Promise((resolve, reject) => {
      if (!this.isOpen) return reject(connectionLost());
      this.#waiting.push({ resolve, reject });
      this.#socket.send(message);
      this.#watch();
    });
  }

  /** A browser does not say when a connection has died. */
  #watch() {
    clearTimeout(this.#timer);
    this.#timer = this.#waiting.length > 0 ? setTimeout(() => this.#lost(), LONGEST_SILENCE) : undefined;
  }

  /** @param {string} text */
  #answered(text) {
    const asked = this.#waiting.shift();
    this.#watch();
    const { status, body, retry_after: retryAfter } = JSON.parse(text);
    if (status === 200) asked?.resolve(body);
    else asked?.reject(problemOfAnswer(status, JSON.stringify(body), retryAfter));
  }

  #lost() {
    clearTimeout(this.#timer);
    this.close();
    for (const { reject } of this.#waiting.splice(0)) reject(connectionLost());
  }
}
