/** Puts the page together: models from uploads/, elements from elements/, and what is announced between them. */

import "./elements/arriving_films.js";
import "./elements/confirm_dialog.js";
import "./elements/connection_notice.js";
import "./elements/interrupted_panel.js";
import "./elements/library_search.js";
import "./elements/live_announcer.js";
import "./elements/player_dialog.js";
import "./elements/selection_bar.js";
import "./elements/upload_drop.js";
import "./elements/upload_panel.js";
import "./elements/video_library.js";
import { announceProgress } from "./helpers/announcements.js";
import { ArrivingFilms } from "./library/arriving_films.js";
import { Library } from "./library/library.js";
import { Preparation } from "./library/preparation.js";
import { Selection } from "./library/selection.js";
import { isServerThere } from "./uploads/api.js";
import { batchPost, chunkPost } from "./uploads/body_request.js";
import { BundleSender } from "./uploads/bundle_sender.js";
import { ChunkPace } from "./uploads/chunk_pace.js";
import { ChunkSizes } from "./uploads/chunk_plan.js";
import { ChunkSender } from "./uploads/chunk_sender.js";
import { Connection } from "./uploads/connection.js";
import { DropzoneIntake } from "./uploads/dropzone_intake.js";
import { InterruptedUploads } from "./uploads/interrupted_uploads.js";
import { Slots } from "./uploads/slots.js";
import { TabPresence } from "./uploads/tab_presence.js";
import { UploadQueue } from "./uploads/upload_queue.js";
import { UploadSteps } from "./uploads/upload_steps.js";

/** Browsers open six connections to a host over HTTP/1.1; one stays free for the library and for cancelling. */
const REQUESTS_AT_ONCE = 5;

const find = (selector) => document.querySelector(selector);

function buildUploads(drop, isInterrupted) {
  const { uploadUrl, batchUrl } = drop.dataset;
  const chunkBytes = Number(drop.dataset.chunkBytes);
  const maxUploadBytes = Number(drop.dataset.maxUploadBytes);
  const connection = new Connection({ probe: isServerThere });
  const slots = new Slots(REQUESTS_AT_ONCE);
  const sizes = new ChunkSizes(chunkBytes);
  const pace = new ChunkPace(sizes);
  const chunks = new ChunkSender({ post: chunkPost({ url: uploadUrl }), slots, sizes, pace, connection });
  const bundles = new BundleSender({ post: batchPost({ url: batchUrl, slots }), connection });
  const intake = new DropzoneIntake(drop.area, { url: uploadUrl, onFiles: (files) => queue.add(files) });
  const steps = new UploadSteps({ chunks, bundles, connection, isInterrupted });
  const queue = new UploadQueue({ steps, view: intake, chunkBytes, maxUploadBytes });
  return { queue, intake, connection };
}

function connectIntake(drop, interruptedPanel, intake) {
  drop.takeDropsOnPage((event) => intake.takeDrop(event));
  for (const source of [drop, interruptedPanel]) {
    source.addEventListener("files-chosen", ({ detail }) => intake.addFiles(detail));
  }
}

function keepInterruptedFresh(interrupted) {
  // The list is optional: without it, dropping the file again still finds its upload.
  const refresh = () => interrupted.refresh().catch(() => {});
  document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && refresh());
  refresh();
}

function connectLibrary(library, { confirm, announce }) {
  const list = find("video-library");
  const selection = new Selection();
  const play = (video) => find("player-dialog").open(video);
  list.connect({ library, selection, confirm, announce, play });
  new Preparation(library, { films: list.initialFilms });
  find("library-search").connect({ library, list, announce });
  find("selection-bar").connect({ library, selection, list, confirm, announce });
  const films = new ArrivingFilms();
  find("arriving-films").connect({ films, play });
  return films;
}

function warnBeforeLeaving(queue) {
  window.addEventListener("beforeunload", (event) => {
    if (queue.isSending) event.preventDefault();
  });
}

function start() {
  const drop = find("upload-drop");
  const announcer = find("live-announcer");
  const { queue, intake, connection } = buildUploads(drop, (fingerprint) => interrupted.hasFile(fingerprint));
  const library = new Library(find("video-library").initial);
  const presence = new TabPresence({ idsHere: () => queue.openIds });
  const interrupted = new InterruptedUploads(queue, { idsElsewhere: () => presence.idsElsewhere() });
  const confirm = (question) => find("confirm-dialog").ask(question);
  const announce = (text) => announcer.say(text);

  find("upload-panel").connect({ queue, intake, connection, confirm, limit: queue.maxUploadBytes });
  find("interrupted-panel").connect({ interrupted, confirm });
  const arriving = connectLibrary(library, { confirm, announce });
  arriving.addEventListener("left", ({ detail }) => {
    interrupted.forget(detail);
    library.refresh().catch(() => {});
  });
  find("connection-notice").connect({ connection, isBusy: () => queue.isBusy });
  connectIntake(drop, find("interrupted-panel"), intake);
  announceProgress({ queue, panel: find("upload-panel"), connection, announce });
  queue.addEventListener("completed", ({ detail }) => {
    interrupted.forget(detail.id);
    library.refresh(detail.id).catch(() => {});
  });
  find("upload-panel").addEventListener("totals", ({ detail }) => drop.toggleAttribute("compact", detail.count > 0));
  queue.addEventListener("discard-failed", () => interrupted.refresh().catch(() => {}));
  library.addEventListener("removed", ({ detail }) => queue.dismissCompleted((upload) => upload.id === detail));
  keepInterruptedFresh(interrupted);
  warnBeforeLeaving(queue);
}

start();
