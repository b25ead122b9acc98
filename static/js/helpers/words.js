/** What the page says about problems. Every code has words; unknown codes get general ones. */

import { formatBytes } from "./format.js";

const WORDS = {
  too_large: ({ limit }) => `This file is too large. The limit here is ${formatBytes(limit)}.`,
  no_room: () => "The server does not have enough space for this file. Try again once space has been freed.",
  quota_exceeded: ({ detail }) => detail,
  larger_than_quota: ({ detail }) => detail,
  too_much_reserved: ({ detail }) => detail,
  link_full: () => "This link does not have enough space left for this file. Ask the person who sent it to you for another.",
  link_closed: () => "This link has been closed. What has arrived is safe; ask the person who sent it to you for another.",
  upload_gone: () => "This upload has expired or was cancelled elsewhere. It can be started again.",
  upload_not_found: () => "The server no longer knows this upload. It can be started again.",
  upload_conflict: () => "The server has different contents for this upload. Cancel it and choose the file again.",
  chunk_mismatch: () => "What the server received does not match this file. Has the file changed since you chose it?",
  type_not_allowed: () => "Files of this type are not accepted here.",
  malformed_request: () => "The server did not understand this page. Reload the page and try again.",
  file_unreadable: () =>
    "This file can no longer be read: it may have been changed, moved or removed. Choose it again.",
  already_here: () => "This file is already being uploaded, in another row of this list.",
  bytes_missing: () => "Some bytes did not reach the server. Try again: only those will be sent.",
  connection_unstable: () => "The connection keeps breaking while sending. What has arrived is safe; try again later.",
  not_signed_in: () => "You are no longer signed in. What has arrived is safe; sign in and try again.",
  storage_failed: () => "The server could not write to its disk. What has arrived is safe; try again later.",
  internal_server_error: () => "Something went wrong on the server. What has arrived is safe; try again later.",
};

/** A sentence or two about a failure; `limit` is the largest upload in bytes. */
export function wordsForProblem(problem, { limit }) {
  const words = WORDS[problem.code];
  if (words) return words({ limit, detail: problem.detail });
  return "Something unexpected went wrong. What has arrived is safe; try again.";
}

/** What an upload is waiting for. */
export function wordsForWaiting(problem) {
  if (problem?.isConnectionLost) return "Waiting for the connection. Resumes automatically.";
  if (problem?.isSignedOut) return "Waiting for you to sign in. What has arrived is safe.";
  if (problem?.code === "server_busy") return "The server is busy. Resumes automatically.";
  return "The server asked to retry later. Resumes automatically.";
}

/** What the page says about a new name that the server refuses. */
export function wordsForName(problem) {
  if (problem.status === 404 || problem.status === 410) return "This video has been deleted in the meantime.";
  if (problem.code === "type_not_allowed") return "This server does not accept files with this extension.";
  if (problem.code === "malformed_request") return "The server refused this name. Try a shorter or simpler one.";
  return wordsForRequest("rename the video", problem);
}

/** What the page says when a request outside an upload fails, such as deleting or listing. */
export function wordsForRequest(action, problem) {
  if (problem.isConnectionLost) return `Could not ${action}: the server cannot be reached. Try again in a moment.`;
  if (problem.isSignedOut) return `Could not ${action}: you are no longer signed in.`;
  return `Could not ${action}: the server refused. Try again, or reload the page.`;
}

/** What people call the sender of an upload, an object of the API; null where nobody has a name. */
export function senderName(sender) {
  if (!sender) return null;
  if (sender.kind !== "upload_link") return sender.name;
  return sender.name ?? `Someone via ${sender.link ?? "an upload link"}`;
}

/** Who sent a file, as "from Aunt Rosa via Wedding films"; empty if that is not known. */
export function senderWords(sender) {
  if (!sender) return "";
  const name = sender.name ? `from ${sender.name}` : "";
  return sender.kind === "upload_link" ? `${name} via ${sender.link ?? "an upload link"}`.trim() : name;
}
