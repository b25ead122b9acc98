/** The server's JSON API. Every call takes an AbortSignal and throws a Problem. */

import { withQuery } from "./body_request.js";
import { connectionLost, Problem, problemOfAnswer } from "./problem.js";

/** These requests are answered within seconds; a connection that died during a sleep never answers. */
const ANSWER_TIMEOUT = 30_000;
/** What the paths of this page begin with: on the page of an upload link, that of the link. */
const ROOT = globalThis.document?.documentElement.dataset.root ?? "";

/** The project this page was opened in, for people who are in several; another tab may choose another. */
const PROJECT = globalThis.document?.documentElement.dataset.project;

/** @param {string} path */
const inProject = (path) => (PROJECT ? withQuery(path, new URLSearchParams({ project: PROJECT })) : path);

/** Event of the window: a request was refused because the session has ended. */
export const SIGNED_OUT = "signed-out";

/**
 * The answer of the server to one request; throws a Problem.
 * @param {string} path
 * @param {{ method?: string, json?: object, signal?: AbortSignal }} [options]
 */
export async function request(path, { method = "GET", json, signal } = {}) {
  const timeout = AbortSignal.timeout(ANSWER_TIMEOUT);
  try {
    const response = await fetch(ROOT + path, {
      method,
      cache: "no-store",
      headers: { Accept: "application/json", ...(json && { "Content-Type": "application/json" }) },
      body: json && JSON.stringify(json),
      signal: signal ? AbortSignal.any([signal, timeout]) : timeout,
    });
    return await answerOf(response);
  } catch (error) {
    signal?.throwIfAborted();
    if (!(error instanceof Problem)) throw connectionLost();
    if (error.isSignedOut) globalThis.dispatchEvent?.(new Event(SIGNED_OUT));
    throw error;
  }
}

/** @param {Response} response */
async function answerOf(response) {
  const text = await response.text();
  if (!response.ok) throw problemOfAnswer(response.status, text, response.headers.get("Retry-After"));
  if (response.status === 204) return null;
  try {
    return JSON.parse(text);
  } catch {
    throw new Problem({ code: "unexpected_answer", status: response.status });
  }
}

/** @param {string} id */
const uploadPath = (id) => `/api/uploads/${encodeURIComponent(id)}`;
/** @param {string} id */
const videoPath = (id) => `/api/videos/${encodeURIComponent(id)}`;

/**
 * Creates an upload, or finds the one with the same fingerprint and size (bytes).
 * @param {{ name: string, size: number, fingerprint: string }} file
 * @param {AbortSignal} [signal]
 * @returns {Promise<Api.Upload>}
 */
export function createUpload({ name, size, fingerprint }, signal) {
  return request(inProject("/api/uploads"), { method: "POST", json: { name, size, fingerprint }, signal });
}

/**
 * The state of one upload, with its received and missing ranges.
 * @param {string} id
 * @param {AbortSignal} [signal]
 * @returns {Promise<Api.Upload>}
 */
export function uploadState(id, signal) {
  return request(uploadPath(id), { signal });
}

/**
 * The unfinished uploads on the server.
 * @param {AbortSignal} [signal]
 * @returns {Promise<Api.Upload[]>}
 */
export async function unfinishedUploads(signal) {
  return (await request(inProject("/api/uploads"), { signal })).uploads;
}

/**
 * What this sender has sent: `{ files, count, bytes, unfinished, link: { files_left, bytes_left } }`.
 * @param {AbortSignal} [signal]
 * @returns {Promise<Api.SentFiles>}
 */
export function sentFiles(signal) {
  return request("/api/uploads/sent", { signal });
}

/**
 * Asks where to store a cell `{ start, length, crc32c }` of an upload: `{ url, method, headers }`, or `{ stored: true }`.
 * @param {string} id
 * @param {Api.Cell} cell
 * @param {AbortSignal} [signal]
 * @returns {Promise<Api.CellTarget>}
 */
export async function offerCell(id, cell, signal) {
  const answer = await request(`${uploadPath(id)}/cells`, { method: "POST", json: { cells: [cell] }, signal });
  return answer.cells[0];
}

/**
 * Tells that a cell is stored where `offerCell` said; resolves to the state of the upload.
 * @param {string} id
 * @param {Api.Cell} cell
 * @param {AbortSignal} [signal]
 * @returns {Promise<Api.Upload>}
 */
export function confirmCell(id, cell, signal) {
  return request(`${uploadPath(id)}/cells/stored`, { method: "POST", json: { cells: [cell] }, signal });
}

/**
 * Deletes an upload and its bytes; fine if it is gone, or has just become a video.
 * @param {string} id
 * @param {AbortSignal} [signal]
 */
export async function cancelUpload(id, signal) {
  try {
    await ignoringAbsence(request(uploadPath(id), { method: "DELETE", signal }));
  } catch (error) {
    if (!(error instanceof Problem) || error.code !== "upload_complete") throw error;
  }
}

/**
 * One page of the videos with `search` in their names, in the order `sort`: `{ videos, next }`.
 * @param {{ limit: number, cursor?: string | null, search: string, sort: string }} list
 * @param {AbortSignal} [signal]
 * @returns {Promise<Api.Videos>}
 */
export function listVideos({ limit, cursor, search, sort }, signal) {
  const query = new URLSearchParams({ limit: String(limit), ...(cursor && { cursor }), ...(search && { q: search }), sort });
  return request(inProject(`/api/videos?${query}`), { signal });
}

/**
 * One video, with all that is known about playing it.
 * @param {string} id
 * @param {AbortSignal} [signal]
 * @returns {Promise<Api.Video>}
 */
export function video(id, signal) {
  return request(videoPath(id), { signal });
}

/**
 * The same at a URL for link users.
 * @param {string} url
 * @param {AbortSignal} [signal]
 * @returns {Promise<Api.Video>}
 */
export function videoAt(url, signal) {
  return request(url, { signal });
}

/**
 * Renames a video; resolves to it.
 * @param {string} id
 * @param {string} filename
 * @param {AbortSignal} [signal]
 * @returns {Promise<Api.Video>}
 */
export function renameVideo(id, filename, signal) {
  return request(videoPath(id), { method: "PATCH", json: { filename }, signal });
}

/**
 * Deletes a video; no error if it is already gone.
 * @param {string} id
 * @param {AbortSignal} [signal]
 */
export async function deleteVideo(id, signal) {
  await ignoringAbsence(request(videoPath(id), { method: "DELETE", signal }));
}

/**
 * Has a video made in another quality, as a file to download.
 * @param {string} id
 * @param {number} height
 * @param {AbortSignal} [signal]
 */
export function orderRendition(id, height, signal) {
  return request(`${videoPath(id)}/renditions/${height}`, { method: "POST", signal });
}

/**
 * Stops making it, and removes what was made.
 * @param {string} id
 * @param {number} height
 * @param {AbortSignal} [signal]
 */
export function removeRendition(id, height, signal) {
  return request(`${videoPath(id)}/renditions/${height}`, { method: "DELETE", signal });
}

/**
 * The most connections that the server wants of a sender now; null for no wish.
 * @param {AbortSignal} [signal]
 * @returns {Promise<number | null>}
 */
export async function advisedConnections(signal) {
  return (await request("/api/server", { signal })).connections ?? null;
}

/**
 * Whether the server answers at all; a full or refusing server is still there.
 * @param {AbortSignal} [signal]
 */
export async function isServerThere(signal) {
  try {
    await request("/healthz", { signal });
    return true;
  } catch (error) {
    signal?.throwIfAborted();
    return !(error instanceof Problem && error.isConnectionLost);
  }
}

/**
 * Whether the session is signed in; true where the server does not say.
 * @param {AbortSignal} [signal]
 * @returns {Promise<boolean>}
 */
export async function isSignedIn(signal) {
  try {
    return (await request("/api/session", { signal })).signed_in;
  } catch {
    signal?.throwIfAborted();
    return true;
  }
}

/** @param {Promise<unknown>} promise */
async function ignoringAbsence(promise) {
  try {
    await promise;
  } catch (error) {
    if (!(error instanceof Problem && error.isAbsence)) throw error;
  }
}
