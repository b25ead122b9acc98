/** What screen readers hear while uploads run: beginnings, ends and failures, and the progress now and then. */

import { countOf } from "./format.js";

/** Progress is said this often at most, milliseconds. */
const PROGRESS_PAUSE = 20_000;

/** Connects the events of `queue`, `panel` and `connection` to `announce(text)`. */
export function announceProgress({ queue, panel, connection, announce }) {
  let lastProgress = performance.now();
  queue.addEventListener("added", ({ detail }) => {
    lastProgress = performance.now();
    announce(detail.length === 1 ? `${detail[0].name} added.` : `${countOf(detail.length, "file")} added.`);
  });
  queue.addEventListener("completed", ({ detail }) => announce(completionText(queue, detail)));
  queue.addEventListener("changed", ({ detail }) => {
    if (detail.state === "failed") announce(`${detail.name} failed.`);
  });
  panel.addEventListener("totals", ({ detail }) => {
    if (!queue.isBusy || performance.now() - lastProgress < PROGRESS_PAUSE) return;
    lastProgress = performance.now();
    announce(detail.text.replaceAll(" · ", ", "));
  });
  connection.addEventListener("change", () => {
    if (connection.isReachable && queue.isBusy) announce("The connection is back. Uploads go on.");
  });
}

function completionText(queue, upload) {
  if (queue.uploads.length === 1) return `${upload.name} is uploaded.`;
  const open = queue.uploads.filter((other) => other.isOpen).length;
  return open === 0 ? "All uploads have ended." : `${upload.name} is uploaded, ${open} to go.`;
}
