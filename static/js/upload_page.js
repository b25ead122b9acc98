/** What every page that sends files does: it takes them in, shows how far they are, and goes on after a reload. */

import "./elements/interrupted_panel.js";
import "./elements/rate_limit_choice.js";
import "./elements/upload_panel.js";
import { announceProgress } from "./elements/notices.js";
import { DropzoneIntake } from "./elements/upload_drop.js";
import { find } from "./page/parts.js";
import { advisedConnections, confirmCell, isServerThere, offerCell, SIGNED_OUT } from "./uploads/api.js";
import { batchPost, cellPut, chunkPost } from "./uploads/body_request.js";
import { BundleSender } from "./uploads/bundles.js";
import { Checksums } from "./uploads/checksums.js";
import { ChunkPace, ChunkSizes } from "./uploads/chunk_plan.js";
import { ChunkSender } from "./uploads/chunk_sender.js";
import { Connection } from "./uploads/connection.js";
import { DirectCells } from "./uploads/direct_cells.js";
import { InterruptedUploads, TabPresence } from "./uploads/interrupted_uploads.js";
import { laneOpener, lanesUrl, MOST_BYTES } from "./uploads/lane.js";
import { Lanes, sharesOneConnection, shortestLoad } from "./uploads/lanes.js";
import { ConnectionAdvice, RateLimit, Slots } from "./uploads/limits.js";
import { UploadQueue } from "./uploads/upload_queue.js";
import { UploadSteps } from "./uploads/upload_steps.js";

/** @import { UploadDrop } from "./elements/upload_drop.js" */

/** Browsers open six connections to a host over HTTP/1.1; one stays free for the library and for cancelling. */
const REQUESTS_AT_ONCE = 5;

/**
 * Connects the elements of the page; returns what the rest of it works with. `signedIn()` resolves to whether the
 * server knows who asks, on pages of people who sign in.
 * @param {{ signedIn?: (() => Promise<boolean>) | null }} [options]
 */
export function startUploads({ signedIn = null } = {}) {
  const drop = find("upload-drop");
  const connection = new Connection({ probe: isServerThere, signedIn });
  const isInterrupted = (/** @type {string} */ fingerprint) => interrupted.hasFile(fingerprint);
  const limit = new RateLimit();
  const { queue, intake } = buildUploads(drop, { connection, limit, isInterrupted });
  const presence = new TabPresence({ idsHere: () => queue.openIds });
  const interrupted = new InterruptedUploads(queue, { idsElsewhere: () => presence.idsElsewhere() });
  const panel = find("upload-panel");

  panel.connect({ queue, intake, connection, limit: queue.maxUploadBytes });
  panel.addEventListener("totals", ({ detail }) => drop.toggleAttribute("compact", detail.count > 0));
  find("rate-limit-choice").connect({ limit });
  find("interrupted-panel").connect({ interrupted });
  find("connection-notice").connect({ connection, isBusy: () => queue.isBusy });
  connectIntake(drop, find("interrupted-panel"), intake);
  announceProgress({ queue, panel, connection });
  for (const event of /** @type {const} */ (["completed", "cancelled"])) {
    queue.addEventListener(event, ({ detail }) => interrupted.forget(detail.id));
  }
  queue.addEventListener("discard-failed", () => interrupted.refresh().catch(() => {}));
  keepInterruptedFresh(interrupted);
  warnBeforeLeaving(queue);
  window.addEventListener(SIGNED_OUT, () => connection.reportSignOut());
  return { queue, interrupted, connection };
}

/**
 * @param {UploadDrop} drop
 * @param {{ connection: Connection, limit: RateLimit, isInterrupted: (fingerprint: string) => boolean }} options
 */
function buildUploads(drop, { connection, limit, isInterrupted }) {
  const { uploadUrl = "", batchUrl = "" } = drop.dataset;
  const chunkBytes = Number(drop.dataset.chunkBytes);
  const least = Number(drop.dataset.leastChunkBytes);
  const maxUploadBytes = Number(drop.dataset.maxUploadBytes);
  const slots = new Slots(REQUESTS_AT_ONCE);
  const sizes = new ChunkSizes(chunkBytes);
  const pace = new ChunkPace(sizes, { least });
  const checksums = new Checksums();
  const direct = directCells({ checksums, connection, limit });
  const post = chunkPost({ url: uploadUrl, limit, checksums });
  const lanes = least > MOST_BYTES ? null : lanesOf({ uploadUrl, limit, slots, checksums, connection });
  const chunks = new ChunkSender({ post, slots, sizes, pace, connection, direct, lanes });
  const bundles = new BundleSender({ post: batchPost({ url: batchUrl, slots, limit }), connection });
  const intake = new DropzoneIntake(drop.area, { url: uploadUrl, onFiles: (files) => queue.add(files) });
  const steps = new UploadSteps({ chunks, bundles, connection, isInterrupted });
  const queue = new UploadQueue({ steps, view: intake, chunkBytes, maxUploadBytes });
  const advice = new ConnectionAdvice({ ask: advisedConnections, slots, lanes, isBusy: () => queue.isBusy });
  queue.addEventListener("started", () => advice.begin());
  return { queue, intake };
}

/**
 * Their chunks are small.
 * @param {{ uploadUrl: string, limit: RateLimit, slots: Slots, checksums: Checksums, connection: Connection }} options
 */
function lanesOf({ uploadUrl, limit, slots, checksums, connection }) {
  const open = laneOpener({ url: lanesUrl(uploadUrl), limit, checksums });
  const requests = REQUESTS_AT_ONCE;
  const connections = sharesOneConnection() ? 1 : requests;
  const lanes = new Lanes({ open, limit, slots, requests, connections, knownRoundTrip: shortestLoad });
  connection.addEventListener("change", () => {
    if (connection.isReachable) lanes.forgetLine(); // It was lost.
  });
  return lanes;
}

/** @param {{ checksums: Checksums, connection: Connection, limit: RateLimit }} options */
function directCells({ checksums, connection, limit }) {
  return new DirectCells({ checksums, offer: offerCell, confirm: confirmCell, put: cellPut({ limit }), isServerThere, connection });
}

/**
 * @param {UploadDrop} drop
 * @param {HTMLElement} interruptedPanel
 * @param {DropzoneIntake} intake
 */
function connectIntake(drop, interruptedPanel, intake) {
  drop.takeDropsOnPage((event) => intake.takeDrop(event));
  for (const source of [drop, interruptedPanel]) {
    source.addEventListener("files-chosen", ({ detail }) => intake.addFiles(detail));
  }
}

/** @param {InterruptedUploads} interrupted */
function keepInterruptedFresh(interrupted) {
  // The list is optional: without it, dropping the file again still finds its upload.
  const refresh = () => interrupted.refresh().catch(() => {});
  document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && refresh());
  refresh();
}

/** @param {UploadQueue} queue */
function warnBeforeLeaving(queue) {
  window.addEventListener("beforeunload", (event) => {
    if (queue.isSending) event.preventDefault();
  });
}
