/** <upload-panel>: the list of this page's uploads with its totals and the buttons for all of them. */

import { countOf, formatBytes, isolated } from "../page/format.js";
import { drawMeter, progressWords, setLine } from "../page/meter.js";
import { keepFocus, partsOf } from "../page/parts.js";
import { RowGroups } from "../page/row_groups.js";
import { aFewTimesASecond, SlicedWork, soon } from "../page/sliced_work.js";
import { totalsOf, TotalSpeed } from "../uploads/progress.js";
import { UploadRow } from "./upload_row.js";

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
  #parts;
  #rows = new Map();
  #speed = new TotalSpeed();
  #groups;
  /** Separate, so that existing rows keep up while thousands are being added. */
  #adding = new SlicedWork((upload) => this.#addRow(upload), { schedule: soon });
  #drawing = new SlicedWork((upload) => this.#rows.get(upload)?.render(), {
    schedule: aFewTimesASecond,
    afterSlice: () => this.#drawTotalsSoon(),
  });
  #totalsTimer = null;

  /** `queue` is shown and acted on; `intake` ties rows to files; `confirm` asks a question. */
  connect({ queue, intake, connection, confirm, limit }) {
    Object.assign(this, { queue, intake, connection, confirm, limit });
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

  #note(upload) {
    this.#speed.note(upload);
    this.#drawing.add(upload);
  }

  #addRow(upload) {
    if (!this.queue.has(upload)) return;
    const row = new UploadRow();
    row.show(upload, { limit: this.limit, connection: this.connection, arrived: this.dataset.arrived });
    this.#rows.set(upload, row);
    this.intake.show(upload, row);
    this.#groups.append(row);
    this.#parts.panel.hidden = false;
  }

  #forget(upload) {
    const row = this.#rows.get(upload);
    this.#rows.delete(upload);
    if (row) this.#removeRow(row);
    this.#drawTotalsSoon();
  }

  #removeRow(row) {
    const rest = this.#rows.size > 0 ? [row.nextElementSibling, row.previousElementSibling, this.#heading] : [];
    keepFocus(row, () => this.#groups.remove(row), rest);
  }

  get #heading() {
    return this.querySelector("h2");
  }

  #refresh() {
    if (document.hidden || !this.queue.isBusy) return;
    for (const [upload, row] of this.#rows) if (upload.state === "sending" || row.isOutdated) row.render();
    this.#drawTotalsSoon();
  }

  #drawTotalsSoon() {
    this.#totalsTimer ??= setTimeout(() => {
      this.#totalsTimer = null;
      this.#drawTotals();
    }, TOTALS_INTERVAL);
  }

  #drawTotals() {
    keepFocus(this, () => this.#putTotals(), [this.#parts.clear.parentElement, this.#heading]);
  }

  #putTotals() {
    const totals = totalsOf(this.queue.uploads);
    const { panel, totals: area, meter, text } = this.#parts;
    panel.hidden = totals.count === 0;
    area.hidden = totals.count < 2; // A single file tells it all in its own row.
    drawMeter(meter, totals);
    totals.isHeldUp = this.queue.isBusy && this.connection.holdsUp(this.#speed.acknowledgedAt);
    const isMoving = Boolean(totals.states.sending) && !totals.isHeldUp;
    if (!isMoving) this.#speed.restart();
    setLine(text, this.#totalsParts(totals, isMoving ? this.#speed : null));
    totals.text = text.textContent;
    this.#drawButtons(totals);
    this.dispatchEvent(new CustomEvent("totals", { detail: totals }));
  }

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

  #drawButtons({ states, worthRetrying }) {
    const { pauseAll, resumeAll, retryAll, cancelAll, clear, legend } = this.#parts;
    const count = (...names) => names.reduce((sum, name) => sum + (states[name] ?? 0), 0);
    pauseAll.hidden = count("queued", "preparing", "sending", "waiting") === 0;
    resumeAll.hidden = count("paused") === 0;
    retryAll.hidden = worthRetrying < 2;
    cancelAll.hidden = count("queued", "preparing", "sending", "waiting", "paused") < 2;
    clear.hidden = count("complete") === 0;
    legend.hidden = count("queued", "preparing", "sending", "waiting", "paused") === 0;
  }

  async #act({ target }) {
    const button = target.closest("[data-action]");
    if (!button) return;
    const { upload } = button.closest("upload-row") ?? {};
    const all = { "pause-all": "pause", "resume-all": "resume", "retry-all": "retry" }[button.dataset.action];
    if (all) this.queue.forAll(all);
    else if (button.dataset.action === "cancel-all") await this.#cancelAll();
    else if (button.dataset.action === "clear") this.queue.dismissCompleted();
    else await this.#actOn(upload, button.dataset.action);
  }

  async #actOn(upload, action) {
    if (action !== "cancel") return upload.can(action) && this.queue[action](upload);
    if (upload.state === "complete") return this.queue.dismiss(upload);
    if (upload.received >= WORTH_ASKING && !(await this.#agrees(upload))) return;
    if (upload.can("cancel")) await this.queue.cancel(upload);
    else if (upload.state === "complete") this.queue.dismiss(upload);
  }

  #agrees(upload) {
    return this.confirm({
      title: "Cancel this upload?",
      text: `${formatBytes(upload.received)} of ${isolated(upload.name)} are on the server already and would be deleted.`,
      yes: "Cancel the upload",
      no: "Keep it",
    });
  }

  async #cancelAll() {
    const isAgreed = await this.confirm({
      title: "Cancel all uploads?",
      text: "What has arrived of unfinished files is deleted from the server. Finished files stay.",
      yes: "Cancel all",
      no: "Keep uploading",
    });
    if (isAgreed) await this.queue.forAll("cancel");
  }
}

customElements.define("upload-panel", UploadPanel);
