/** The requests that carry bytes: one chunk of a file, a bundle of small files, or a cell for the bucket. */

import { chunkQuery } from "./chunk_plan.js";
import { connectionLost, problemOfAnswer } from "./problem.js";

/**
 * @import { Parcel, Receipt } from "./bundles.js"
 * @import { Checksums } from "./checksums.js"
 * @import { Chunk } from "./chunk_plan.js"
 * @import { RateLimit, Slots } from "./limits.js"
 * @import { Problem } from "./problem.js"
 *
 * Of one chunk of `file`, of the upload with that id; `onProgress(share)` tells how much of it has left, from 0 to 1.
 * @typedef {{ file: File, id: string, signal: AbortSignal, onProgress: (share: number) => void }} ChunkOptions
 * @typedef {(chunk: Chunk, options: ChunkOptions) => Promise<Api.ChunkReceipt>} ChunkPost
 *
 * @typedef {{ signal: AbortSignal, onProgress: (share: number) => void }} SendOptions
 * @typedef {{ url: string, method?: string, headers?: Record<string, string> }} Target
 * @typedef {(target: Target, blob: Blob, options: SendOptions) => Promise<void>} CellPut
 * @typedef {(parcels: Parcel[], options: SendOptions) => Promise<Receipt[]>} BatchPost
 */

/**
 * Recognizes the answer of our server; null where none is expected.
 * @template Answer
 * @typedef {((answer: Answer) => boolean) | null} IsAnswer
 */

/** @type {IsAnswer<Api.ChunkReceipt>} */
const isChunkReceipt = ({ received }) => Number.isFinite(received);

/** @type {IsAnswer<{ files: Receipt[] }>} */
const isBatchReceipt = ({ files }) => Array.isArray(files);

/**
 * After this long without a byte in either direction a connection counts as dead, as after a laptop's sleep,
 * milliseconds. Longer than the server waits for an idle sender; covers its answer after the last byte, too.
 */
const LONGEST_SILENCE = 90_000;
/** The same for the bucket, in whose place the server can take the bytes. */
const LONGEST_SILENCE_OF_BUCKET = 30_000;

const JSON_WANTED = { Accept: "application/json" };

/**
 * The URL with more parameters.
 * @param {string} url
 * @param {URLSearchParams} query
 */
export function withQuery(url, query) {
  return `${url}${url.includes("?") ? "&" : "?"}${query}`;
}

/**
 * Makes the `post` of a ChunkSender; `limit`, a RateLimit, says when a body may leave, `checksums`, Checksums, its digest.
 * @param {{ url: string, limit: RateLimit, checksums: Checksums }} options
 * @returns {ChunkPost}
 */
export function chunkPost({ url, limit, checksums }) {
  return async (chunk, { file, id, signal, onProgress }) => {
    const query = chunkQuery(chunk, { id, size: file.size });
    const body = file.slice(chunk.start, chunk.end);
    // The bare chunk as the body: in a form it costs the browser a tenth more CPU time: `python -m bench browser`.
    /** @type {Record<string, string>} */
    const headers = { ...JSON_WANTED, "Content-Type": "application/octet-stream" };
    const digest = await checksums.contentDigest(body);
    if (digest) headers["Content-Digest"] = digest;
    await limit.take(body.size, signal);
    return sendBody({ url: withQuery(url, query), headers }, body, { isAnswer: isChunkReceipt, signal, onProgress });
  };
}

/**
 * Makes the `put` of DirectCells: `target` is what the server has offered, `{ url, method, headers }`.
 * @param {{ limit: RateLimit }} options
 * @returns {CellPut}
 */
export function cellPut({ limit }) {
  return async (target, blob, { signal, onProgress }) => {
    const silence = LONGEST_SILENCE_OF_BUCKET;
    await limit.take(blob.size, signal);
    await sendBody(target, blob, { isAnswer: null, silence, signal, onProgress });
  };
}

/**
 * Makes the `post` of a BundleSender; `slots` limits it together with the page's other requests.
 * @param {{ url: string, slots: Slots, limit: RateLimit }} options
 * @returns {BatchPost}
 */
export function batchPost({ url, slots, limit }) {
  return async (parcels, { signal, onProgress }) => {
    const release = await slots.take(signal);
    try {
      const target = { url, headers: JSON_WANTED };
      await limit.take(bytesOf(parcels), signal);
      return (await sendBody(target, formOf(parcels), { isAnswer: isBatchReceipt, signal, onProgress })).files;
    } finally {
      release();
    }
  };
}

/** @param {Parcel[]} parcels */
function bytesOf(parcels) {
  return parcels.reduce((sum, { file }) => sum + file.size, 0);
}

/** @param {Parcel[]} parcels */
function formOf(parcels) {
  const form = new FormData();
  for (const { file, name, fingerprint } of parcels) {
    form.append("fingerprint", fingerprint);
    form.append("length", String(file.size));
    form.append("file", file, name);
  }
  return form;
}

/**
 * Resolves to the answer's JSON, or to null without an `isAnswer` that recognizes it; rejects with a Problem or the
 * signal's reason. `onProgress(share)` reports how much of the body has left, from 0 to 1: XMLHttpRequest, because
 * fetch does not report it.
 * @template Answer
 * @param {Target} target
 * @param {Blob | FormData} body
 * @param {SendOptions & { isAnswer: IsAnswer<Answer>, silence?: number }} options
 * @returns {Promise<Answer>}
 */
function sendBody({ url, method = "POST", headers }, body, { isAnswer, silence, signal, onProgress }) {
  return new Promise((resolve, reject) => {
    signal.throwIfAborted();
    const xhr = new XMLHttpRequest();
    const stop = (/** @type {unknown} */ reason) => {
      xhr.abort();
      reject(reason);
    };
    const abort = () => stop(signal.reason);
    signal.addEventListener("abort", abort, { once: true });
    // Also at "load": the answer may end the upload, and so abort the signal, before "loadend".
    for (const end of ["load", "loadend"]) xhr.addEventListener(end, () => signal.removeEventListener("abort", abort));
    xhr.addEventListener("load", () => settle(xhr, isAnswer, resolve, reject));
    xhr.addEventListener("error", () => reject(connectionLost()));
    xhr.upload.addEventListener("progress", ({ loaded, total }) => onProgress(total > 0 ? loaded / total : 0));
    callWhenSilent(xhr, silence ?? LONGEST_SILENCE, () => stop(connectionLost()));
    xhr.open(method, url);
    for (const [name, value] of Object.entries(headers ?? {})) xhr.setRequestHeader(name, value);
    xhr.send(body);
  });
}

/**
 * @param {XMLHttpRequest} xhr
 * @param {number} milliseconds
 * @param {() => void} onSilence
 */
function callWhenSilent(xhr, milliseconds, onSilence) {
  let timer = setTimeout(onSilence, milliseconds);
  const restart = () => {
    clearTimeout(timer);
    timer = setTimeout(onSilence, milliseconds);
  };
  xhr.upload.addEventListener("progress", restart);
  xhr.addEventListener("loadend", () => clearTimeout(timer));
}

/**
 * @template Answer
 * @param {XMLHttpRequest} xhr
 * @param {IsAnswer<Answer>} isAnswer
 * @param {(answer: Answer) => void} resolve
 * @param {(problem: Problem) => void} reject
 */
function settle(xhr, isAnswer, resolve, reject) {
  const { status, responseText } = xhr;
  if (status < 200 || status >= 300) {
    // A bucket shows this header to no script, and the browser complains about the question.
    const retryAfter = isAnswer ? xhr.getResponseHeader("Retry-After") : null;
    return reject(problemOfAnswer(status, responseText, retryAfter));
  }
  if (!isAnswer) return resolve(/** @type {Answer} */ (null));
  const answer = parsed(responseText);
  // Anything else is not from our server, such as the login page of some network in between.
  return answer && isAnswer(answer) ? resolve(answer) : reject(connectionLost());
}

/** @param {string} text */
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
