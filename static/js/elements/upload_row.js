/**
 * <upload-row>: one upload. Shows the state of its `upload` each time `render()` is called; out of sight, the page
 * holds only its name.
 */

import { formatBytes } from "../page/format.js";
import { drawMeter, nameMeter, progressWords, setLine } from "../page/meter.js";
import { copyOfTemplate, keepFocus, partsOf } from "../page/parts.js";
import { wordsForProblem, wordsForWaiting } from "../words.js";

/**
 * @import { Connection } from "../uploads/connection.js"
 * @import { Upload } from "../uploads/upload.js"
 *
 * @typedef {Record<"folder" | "name" | "meter" | "status" | "retry" | "pause" | "resume" | "cancel" | "mark", HTMLElement>
 *   & { open: HTMLAnchorElement }} Parts
 */

/** @type {Record<string, string>} */
const MARKS = { complete: "check", failed: "alert", waiting: "wait", paused: "pause" };

export class UploadRow extends HTMLElement {
  /** @type {Parts | null} */
  #parts = null;
  /** @type {Upload} */
  #upload;
  /** @type {Connection} */
  #connection;
  #limit = Infinity;
  /** @type {string | undefined} */
  #arrived;

  /**
   * Gives the row its upload; `limit` is the largest upload in bytes, `connection` says whether bytes get through.
   * `arrived` replaces the words for where the video is, for people who may not see the library.
   * @param {Upload} upload
   * @param {{ limit: number, connection: Connection, arrived?: string }} options
   */
  show(upload, { limit, connection, arrived }) {
    this.#upload = upload;
    this.#limit = limit;
    this.#connection = connection;
    this.#arrived = arrived;
    this.className = "upload-row dz-preview dz-file-preview";
    this.setAttribute("role", "listitem");
    this.textContent = upload.name;
    this.render();
  }

  get upload() {
    return this.#upload;
  }

  /** Adds the contents when the row comes into sight. */
  fill() {
    if (this.#parts) return;
    this.replaceChildren(copyOfTemplate("upload-row"));
    this.#parts = /** @type {Parts} */ (partsOf(this));
    this.#name(this.#parts);
    this.#renderState(this.#parts);
    this.render();
  }

  /** Removes the contents again, unless they have the focus. */
  empty() {
    if (!this.#parts || this.contains(document.activeElement)) return;
    this.#parts = null;
    this.textContent = this.upload.name;
  }

  /** Whether the upload's state has changed since the row was drawn. */
  get isOutdated() {
    return this.dataset.state !== this.upload.state;
  }

  render() {
    const { upload } = this;
    const hasMoved = this.isOutdated;
    this.dataset.state = upload.state;
    const parts = this.#parts;
    if (!parts) return;
    if (hasMoved) keepFocus(this, () => this.#renderState(parts));
    drawMeter(parts.meter, upload);
    setLine(parts.status, this.#status());
  }

  /** @param {Parts} parts */
  #name({ folder, name, meter, pause, resume, cancel, retry }) {
    const path = this.upload.name.split("/");
    const file = path.pop() ?? "";
    name.textContent = file;
    folder.textContent = path.length > 0 ? `${path.join("/")}/` : "";
    nameMeter(meter, `Progress of ${file}`);
    const label = (/** @type {HTMLElement} */ button, /** @type {string} */ verb) => {
      button.title = verb.replace(":", "");
      button.setAttribute("aria-label", `${verb} ${file}`);
    };
    label(pause, "Pause");
    label(resume, "Resume");
    label(cancel, "Cancel");
    label(retry, "Try again:");
  }

  /** @param {Parts} parts */
  #renderState(parts) {
    const { upload } = this;
    const { pause, resume, retry, meter, mark } = parts;
    pause.hidden = !upload.can("pause");
    resume.hidden = !upload.can("resume");
    retry.hidden = !upload.isWorthRetrying;
    meter.hidden = upload.state === "complete" || (upload.state === "failed" && upload.received === 0);
    mark.dataset.icon = MARKS[upload.state] ?? "video";
    if (upload.state === "complete") this.#renderCompletion(parts);
  }

  /** @param {Parts} parts */
  #renderCompletion({ name, open, cancel }) {
    open.hidden = Boolean(this.#arrived);
    open.href = `/watch/${this.upload.id}`;
    open.setAttribute("aria-label", `Open ${name.textContent}`);
    cancel.title = "Remove from this list";
    cancel.setAttribute("aria-label", `Remove ${name.textContent} from this list`);
  }

  #status() {
    const { upload } = this;
    const size = formatBytes(upload.size);
    const safe = `${formatBytes(upload.received)} of ${size} safe`;
    switch (upload.state) {
      case "queued": return [upload.received > 0 ? safe : size, "in the queue"];
      case "preparing": return [size, "getting ready"];
      case "sending": return this.#sendingWords();
      case "verifying": return [size, "the server is checking the file"];
      case "waiting": return [safe, wordsForWaiting(upload.problem)];
      case "paused": return [safe, "paused"];
      case "failed": return [wordsForProblem(upload.problem, { limit: this.#limit })];
      default: return [size, this.#arrived ?? this.#place];
    }
  }

  get #place() {
    return this.upload.wasCompleteBefore ? "already in the library" : "in the library";
  }

  #sendingWords() {
    const { upload } = this;
    const isHeldUp = this.#connection.holdsUp(upload.acknowledgedAt);
    if (isHeldUp) return [...progressWords(upload), "waiting for the connection"];
    return progressWords(upload, upload.speedometer);
  }
}

customElements.define("upload-row", UploadRow);
