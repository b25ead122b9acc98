/**
 * <upload-row>: one upload. Shows what its `upload` says each time `render()` is called; out of sight, no more of it
 * than its name is in the page.
 */

import { formatBytes, formatSpeed, formatTimeLeft, percentage } from "../helpers/format.js";
import { keepFocus } from "../helpers/focus.js";
import { copyOfTemplate, partsOf, setText } from "../helpers/template.js";
import { wordsForProblem, wordsForWaiting } from "../helpers/words.js";

const MARKS = { complete: "check", failed: "alert", waiting: "wait", paused: "pause" };

export class UploadRow extends HTMLElement {
  #parts = null;

  /** Gives the row its upload; `limit` is the largest upload in bytes, `connection` tells whether it moves. */
  show(upload, { limit, connection }) {
    Object.assign(this, { upload, limit, connection });
    this.className = "upload-row dz-preview dz-file-preview";
    this.setAttribute("role", "listitem");
    this.textContent = upload.name;
    this.render();
  }

  /** Puts the contents in, as the row comes into sight. */
  fill() {
    if (this.#parts) return;
    this.replaceChildren(copyOfTemplate("upload-row"));
    this.#parts = partsOf(this);
    this.#name();
    this.#renderState();
    this.render();
  }

  /** Takes the contents out again, unless the keyboard is in them. */
  empty() {
    if (!this.#parts || this.contains(document.activeElement)) return;
    this.#parts = null;
    this.textContent = this.upload.name;
  }

  render() {
    const { upload } = this;
    const hasMoved = this.dataset.state !== upload.state;
    this.dataset.state = upload.state;
    if (!this.#parts) return;
    if (hasMoved) keepFocus(this, () => this.#renderState());
    this.#parts.progress.value = percentage(upload.received, upload.size);
    setText(this.#parts.status, this.#status());
  }

  #name() {
    const { folder, name, progress, pause, resume, cancel, retry } = this.#parts;
    const path = this.upload.name.split("/");
    name.textContent = path.pop();
    folder.textContent = path.length > 0 ? `${path.join("/")}/` : "";
    progress.setAttribute("aria-label", `Progress of ${name.textContent}`);
    for (const [button, verb] of [[pause, "Pause"], [resume, "Resume"], [cancel, "Cancel"], [retry, "Try again:"]]) {
      button.title = verb.replace(":", "");
      button.setAttribute("aria-label", `${verb} ${name.textContent}`);
    }
  }

  #renderState() {
    const { upload } = this;
    const { pause, resume, retry, cancel, open, progress, mark } = this.#parts;
    pause.hidden = !upload.can("pause");
    resume.hidden = !upload.can("resume");
    retry.hidden = !upload.isWorthRetrying;
    progress.hidden = upload.state === "complete" || (upload.state === "failed" && upload.received === 0);
    mark.dataset.icon = MARKS[upload.state] ?? "film";
    if (upload.state === "complete") this.#renderCompletion(open, cancel);
  }

  #renderCompletion(open, cancel) {
    open.hidden = false;
    open.href = `/watch/${this.upload.id}`;
    open.setAttribute("aria-label", `Open ${this.#parts.name.textContent}`);
    cancel.title = "Remove from this list";
    cancel.setAttribute("aria-label", `Remove ${this.#parts.name.textContent} from this list`);
  }

  #status() {
    const { upload } = this;
    const size = formatBytes(upload.size);
    const share = `${formatBytes(upload.received)} of ${size}`;
    switch (upload.state) {
      case "queued": return upload.received > 0 ? `${share} · in the queue` : `${size} · in the queue`;
      case "preparing": return `${size} · getting ready`;
      case "sending": return [share, ...this.#pace()].join(" · ");
      case "verifying": return `${size} · the server is checking the file`;
      case "waiting": return `${share} · ${wordsForWaiting(upload.problem)}`;
      case "paused": return `${share} · paused`;
      case "failed": return wordsForProblem(upload.problem, { limit: this.limit });
      default: return upload.wasCompleteBefore ? `${size} · in the library already` : `${size} · in the library`;
    }
  }

  #pace() {
    const { speedometer, size, received } = this.upload;
    if (this.connection.holdsUp(speedometer)) return ["waiting for the connection"];
    const speed = speedometer.bytesPerSecond();
    if (speed === null) return [];
    return [formatSpeed(speed), `${formatTimeLeft(speedometer.secondsLeft(size - received))} left`];
  }
}

customElements.define("upload-row", UploadRow);
