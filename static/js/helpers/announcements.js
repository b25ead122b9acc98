/** What screen readers hear while uploads run: starts, ends and failures, and progress now and then. */

import { countOf } from "./format.js";

/** Shortest time between two announcements of progress, milliseconds. */
const PROGRESS_PAUSE = 20_000;
/** Up to this many files, the end of each is announced. */
const FEW_FILES = 5;

/** Connects the events of `queue`, `panel` and `connection` to `announce(text)`. */
export function announceProgress({ queue, panel, connection, announce }) {
  let lastProgress = performance.now();
  queue.addEventListener("added", ({ detail }) => {
    lastProgress = performance.now();
    announce(detail.length === 1 ? `${detail[0].name} added.` : `${countOf(detail.length, "file")} added.`);
  });
  queue.addEventListener("completed", ({ detail }) => {
    const text = completionText(queue, detail);
    if (text) announce(text);
  });
  queue.addEventListener("changed", ({ detail }) => {
    if (detail.state === "failed") announce(`${detail.name} could not be uploaded.`);
  });
  panel.addEventListener("totals", ({ detail }) => {
    if (!queue.isBusy || performance.now() - lastProgress < PROGRESS_PAUSE) return;
    lastProgress = performance.now();
    announce(detail.text.replaceAll(" · ", ", "));
  });
  connection.addEventListener("change", () => {
    if (connection.isSignedOut) announce("You are no longer signed in. Uploads wait until you sign in again.");
    else if (connection.isReachable && queue.isBusy) announce("The connection is back. Uploads continue.");
  });
}

/** With many files, only the end of all is announced; progress covers the rest. */
function completionText(queue, upload) {
  if (queue.size > 1 && !queue.isBusy) return "All uploads have ended.";
  return queue.size <= FEW_FILES ? `${upload.name} has been uploaded.` : null;
}
