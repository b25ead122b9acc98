/** <upload-panel>: the list of this page's uploads with its totals and the buttons for all of them. */

import { countOf, formatBytes, isolated } from "../page/format.js";
import { drawMeter, progressWords, setLine } from "../page/meter.js";
import { actionOf, keepFocus, partsOf } from "../page/parts.js";
import { RowGroups } from "../page/row_groups.js";
import { aFewTimesASecond, SlicedWork, soon } from "../page/sliced_work.js";
import { totalsOf, TotalSpeed } from "../uploads/progress.js";
import { confirm } from "./notices.js";
import { UploadRow } from "./upload_row.js";

/**
 * @import { Connection } from "../uploads/connection.js"
 * @import { Totals } from "../uploads/progress.js"
 * @import { State, Upload } from "../uploads/upload.js"
 * @import { UploadQueue } from "../uploads/upload_queue.js"
 * @import { DropzoneIntake } from "./upload_drop.js"
 *
 * @typedef {Totals & { isHeldUp: boolean, text: string }} PanelTotals
 */

/** Speed and time left change even while nothing moves, milliseconds. */
const REFRESH_INTERVAL = 1_000;
/**
 * Going through thousands of uploads for the totals is worth it a few times a second, not every frame, milliseconds.
 */
const TOTALS_INTERVAL = 200;
/** Cancelling asks first from this many bytes on. */
const WORTH_ASKING = 1024 * 1024;

/** Emits `totals` (detail: totals with their `text`) whenever it shows new ones. */
export class UploadPanel extends HTMLElement {
  /** @type {Record<string, HTMLElement>} */
  #parts;
  /** @type {UploadQueue} */
  #queue;
  /** @type {DropzoneIntake} */
  #intake;
  /** @type {Connection} */
  #connection;
  /** The largest upload, bytes. */
  #limit = Infinity;
  /** @type {Map<Upload, UploadRow>} */
  #rows = new Map();
  #speed = new TotalSpeed();
  /** @type {RowGroups} */
  #groups;
  /**
   * Separate, so that existing rows keep up while thousands are being added.
   * @type {SlicedWork<Upload>}
   */
  #adding = new SlicedWork((upload) => this.#addRow(upload), { schedule: soon });
  /** @type {SlicedWork<Upload>} */
  #drawing = new SlicedWork((upload) => this.#rows.get(upload)?.render(), {
    schedule: aFewTimesASecond,
    afterSlice: () => this.#drawTotalsSoon(),
  });
  /** @type {number | undefined} */
  #totalsTimer;

  /**
   * `queue` is shown and acted on; `intake` ties rows to files; `limit` is the largest upload in bytes.
   * @param {{ queue: UploadQueue, intake: DropzoneIntake, connection: Connection, limit: number }} options
   */
  connect({ queue, intake, connection, limit }) {
    this.#queue = queue;
    this.#intake = intake;
    this.#connection = connection;
    this.#limit = limit;
    this.#parts = partsOf(this);
    this.#groups = new RowGroups(this.#parts.list, { isScroller: true });
    queue.addEventListener("added", ({ detail }) => detail.forEach((upload) => this.#adding.add(upload)));
    queue.addEventListener("changed", ({ detail }) => this.#note(detail));
    queue.addEventListener("removed", ({ detail }) => this.#forget(detail));
    connection.addEventListener("change", () => {
      this.#refresh();
      this.#drawTotals(); // At once: the notice about the connection is drawn at once, too.
    });
    this.addEventListener("click", (event) => this.#act(event));
    setInterval(() => this.#refresh(), REFRESH_INTERVAL);
  }

  /** @param {Upload} upload */
  #note(upload) {
    this.#speed.note(upload);
    this.#drawing.add(upload);
  }

  /** @param {Upload} upload */
  #addRow(upload) {
    if (!this.#queue.has(upload)) return;
    const row = new UploadRow();
    row.show(upload, { limit: this.#limit, connection: this.#connection, arrived: this.dataset.arrived });
    this.#rows.set(upload, row);
    this.#intake.show(upload, row);
    this.#groups.append(row);
    this.#parts.panel.hidden = false;
  }

  /** @param {Upload} upload */
  #forget(upload) {
    const row = this.#rows.get(upload);
    this.#rows.delete(upload);
    if (row) this.#removeRow(row);
    this.#drawTotalsSoon();
  }

  /** @param {UploadRow} row */
  #removeRow(row) {
    const rest = this.#rows.size > 0 ? [row.nextElementSibling, row.previousElementSibling, this.#heading] : [];
    keepFocus(row, () => this.#groups.remove(row), rest);
  }

  get #heading() {
    return this.querySelector("h2");
  }

  #refresh() {
    if (document.hidden || !this.#queue.isBusy) return;
    for (const [upload, row] of this.#rows) if (upload.state === "sending" || row.isOutdated) row.render();
    this.#drawTotalsSoon();
  }

  #drawTotalsSoon() {
    this.#totalsTimer ??= setTimeout(() => {
      this.#totalsTimer = undefined;
      this.#drawTotals();
    }, TOTALS_INTERVAL);
  }

  #drawTotals() {
    keepFocus(this, () => this.#putTotals(), [this.#parts.clear.parentElement, this.#heading]);
  }

  #putTotals() {
    const totals = { ...totalsOf(this.#queue.uploads), isHeldUp: false, text: "" };
    const { panel, totals: area, meter, text } = this.#parts;
    panel.hidden = totals.count === 0;
    area.hidden = totals.count < 2; // A single file tells it all in its own row.
    drawMeter(meter, totals);
    totals.isHeldUp = this.#queue.isBusy && this.#connection.holdsUp(this.#speed.acknowledgedAt);
    const isMoving = Boolean(totals.states.sending) && !totals.isHeldUp;
    if (!isMoving) this.#speed.restart();
    setLine(text, this.#totalsParts(totals, isMoving ? this.#speed : null));
    totals.text = text.textContent;
    this.#drawButtons(totals);
    this.dispatchEvent(new CustomEvent("totals", { detail: totals }));
  }

  /**
   * @param {PanelTotals} totals
   * @param {TotalSpeed | null} speed
   */
  #totalsParts(totals, speed) {
    const { count, states, isHeldUp } = totals;
    const done = states.complete ?? 0;
    const files = countOf(count, "file");
    return [
      done === count ? `${files} uploaded` : `${done.toLocaleString("en")} of ${files}`,
      states.failed && `${countOf(states.failed, "file")} failed`,
      ...progressWords(totals, speed),
      isHeldUp && "waiting for the connection",
    ];
  }

  /** @param {Totals} totals */
  #drawButtons({ states, worthRetrying }) {
    const { pauseAll, resumeAll, retryAll, cancelAll, clear, legend } = this.#parts;
    const count = (/** @type {State[]} */ ...names) => names.reduce((sum, name) => sum + (states[name] ?? 0), 0);
    pauseAll.hidden = count("queued", "preparing", "sending", "waiting") === 0;
    resumeAll.hidden = count("paused") === 0;
    retryAll.hidden = worthRetrying < 2;
    cancelAll.hidden = count("queued", "preparing", "sending", "waiting", "paused") < 2;
    clear.hidden = count("complete") === 0;
    legend.hidden = count("queued", "preparing", "sending", "waiting", "paused") === 0;
  }

  /** @param {Event} event */
  async #act({ target }) {
    const button = actionOf(target);
    const upload = button?.closest("upload-row")?.upload;
    switch (button?.dataset.action) {
      case "pause-all": return this.#queue.forAll("pause");
      case "resume-all": return this.#queue.forAll("resume");
      case "retry-all": return this.#queue.forAll("retry");
      case "cancel-all": return this.#cancelAll();
      case "clear": return this.#queue.dismissCompleted();
      case "pause": return upload?.can("pause") && this.#queue.pause(upload);
      case "resume": return upload?.can("resume") && this.#queue.resume(upload);
      case "retry": return upload?.can("retry") && this.#queue.retry(upload);
      case "cancel": return upload && this.#cancel(upload);
      default: return undefined;
    }
  }

  /** @param {Upload} upload */
  async #cancel(upload) {
    const isComplete = () => upload.state === "complete";
    if (!isComplete() && upload.received >= WORTH_ASKING && !(await this.#agrees(upload))) return;
    if (upload.can("cancel")) await this.#queue.cancel(upload);
    else if (isComplete()) this.#queue.dismiss(upload); // Perhaps since it was asked about.
  }

  /** @param {Upload} upload */
  #agrees(upload) {
    return confirm({
      title: "Cancel this upload?",
      text: `${formatBytes(upload.received)} of ${isolated(upload.name)} are on the server already and would be deleted.`,
      yes: "Cancel the upload",
      no: "Keep it",
    });
  }

  async #cancelAll() {
    const isAgreed = await confirm({
      title: "Cancel all uploads?",
      text: "What has arrived of unfinished files is deleted from the server. Finished files stay.",
      yes: "Cancel all",
      no: "Keep uploading",
    });
    if (isAgreed) await this.#queue.forAll("cancel");
  }
}

customElements.define("upload-panel", UploadPanel);
