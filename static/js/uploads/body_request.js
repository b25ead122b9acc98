/** The requests that carry bytes: one chunk of a file, a bundle of small files, or a cell for the bucket. */

import { chunkFields } from "./chunk_plan.js";
import { connectionLost, problemOfAnswer } from "./problem.js";

/**
 * After this long without a byte in either direction a connection counts as dead, as after a laptop's sleep,
 * milliseconds. Longer than the server waits for an idle sender; covers its answer after the last byte, too.
 */
const LONGEST_SILENCE = 90_000;
/** The same for the bucket, in whose place the server can take the bytes. */
const LONGEST_SILENCE_OF_BUCKET = 30_000;

const JSON_WANTED = { Accept: "application/json" };

/** The URL with more parameters. */
export function withQuery(url, query) {
  return `${url}${url.includes("?") ? "&" : "?"}${query}`;
}

/** Makes the `post` of a ChunkSender; `limit`, a RateLimit, says when a body may leave, `checksums`, Checksums, its digest. */
export function chunkPost({ url, limit, checksums }) {
  return async (chunk, { file, id, signal, onProgress }) => {
    const query = new URLSearchParams(chunkFields(chunk, { id, size: file.size }));
    const body = file.slice(chunk.start, chunk.end);
    const isAnswer = ({ received }) => Number.isFinite(received);
    // The bare chunk as the body: in a form it costs the browser a tenth more CPU time: `python -m bench browser`.
    const headers = { ...JSON_WANTED, "Content-Type": "application/octet-stream" };
    const digest = await checksums.contentDigest(body);
    if (digest) headers["Content-Digest"] = digest;
    await limit.take(body.size, signal);
    return sendBody({ url: withQuery(url, query), headers }, body, { isAnswer, signal, onProgress });
  };
}

/** Makes the `put` of DirectCells: `target` is what the server has offered, `{ url, method, headers }`. */
export function cellPut({ limit }) {
  return async (target, blob, { signal, onProgress }) => {
    const silence = LONGEST_SILENCE_OF_BUCKET;
    await limit.take(blob.size, signal);
    await sendBody(target, blob, { isAnswer: null, silence, signal, onProgress });
  };
}

/** Makes the `post` of a BundleSender; `slots` limits it together with the page's other requests. */
export function batchPost({ url, slots, limit }) {
  return async (parcels, { signal, onProgress }) => {
    const release = await slots.take(signal);
    try {
      const isAnswer = ({ files }) => Array.isArray(files);
      const target = { url, headers: JSON_WANTED };
      await limit.take(bytesOf(parcels), signal);
      return (await sendBody(target, formOf(parcels), { isAnswer, signal, onProgress })).files;
    } finally {
      release();
    }
  };
}

function bytesOf(parcels) {
  return parcels.reduce((sum, { file }) => sum + file.size, 0);
}

function formOf(parcels) {
  const form = new FormData();
  for (const { file, name, fingerprint } of parcels) {
    form.append("fingerprint", fingerprint);
    form.append("length", file.size);
    form.append("file", file, name);
  }
  return form;
}

/**
 * Resolves to the answer's JSON, or to null without an `isAnswer` that recognizes it; rejects with a Problem or the
 * signal's reason. `onProgress(share)` reports how much of the body has left, from 0 to 1: XMLHttpRequest, because
 * fetch does not report it.
 */
function sendBody({ url, method = "POST", headers }, body, { isAnswer, silence, signal, onProgress }) {
  return new Promise((resolve, reject) => {
    signal.throwIfAborted();
    const xhr = new XMLHttpRequest();
    const stop = (reason) => {
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
    for (const [name, value] of Object.entries(headers)) xhr.setRequestHeader(name, value);
    xhr.send(body);
  });
}

function callWhenSilent(xhr, milliseconds, onSilence) {
  let timer = setTimeout(onSilence, milliseconds);
  const restart = () => {
    clearTimeout(timer);
    timer = setTimeout(onSilence, milliseconds);
  };
  xhr.upload.addEventListener("progress", restart);
  xhr.addEventListener("loadend", () => clearTimeout(timer));
}

function settle(xhr, isAnswer, resolve, reject) {
  const { status, responseText } = xhr;
  if (status < 200 || status >= 300) {
    // A bucket shows this header to no script, and the browser complains about the question.
    const retryAfter = isAnswer ? xhr.getResponseHeader("Retry-After") : null;
    return reject(problemOfAnswer(status, responseText, retryAfter));
  }
  if (!isAnswer) return resolve(null);
  const answer = parsed(responseText);
  // Anything else is not from our server, such as the login page of some network in between.
  return answer && isAnswer(answer) ? resolve(answer) : reject(connectionLost());
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
