/** <upload-row>: one upload. Shows what its `upload` says each time `render()` is called. */

import { formatBytes, formatSpeed, formatTimeLeft, percentage } from "../helpers/format.js";
import { keepFocus } from "../helpers/focus.js";
import { copyOfTemplate, partsOf, setText } from "../helpers/template.js";
import { wordsForProblem, wordsForWaiting } from "../helpers/words.js";

const MARKS = { complete: "check", failed: "alert", waiting: "wait", paused: "pause" };

export class UploadRow extends HTMLElement {
  #parts;

  /** Gives the row its upload and its contents; `limit` is the largest upload in bytes. */
  show(upload, { limit }) {
    this.upload = upload;
    this.limit = limit;
    this.className = "upload-row dz-preview dz-file-preview";
    this.setAttribute("role", "listitem");
    this.append(copyOfTemplate("upload-row"));
    this.#parts = partsOf(this);
    this.#name();
    this.render();
  }

  render() {
    const { upload } = this;
    const parts = this.#parts;
    if (this.dataset.state !== upload.state) keepFocus(this, () => this.#renderState());
    parts.progress.value = percentage(upload.received, upload.size);
    setText(parts.status, this.#status());
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
    this.dataset.state = upload.state;
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
    const speed = speedometer.bytesPerSecond();
    if (speed === null) return [];
    return [formatSpeed(speed), `${formatTimeLeft(speedometer.secondsLeft(size - received))} left`];
  }
}

customElements.define("upload-row", UploadRow);
