/** What the user of an upload link has sent: <sent-files>, the receipt, and <link-limits>, what the link still takes. */

import { countOf, formatBytes, formatDate } from "../page/format.js";
import { partsOf, setText } from "../page/parts.js";
import { sentFiles } from "../uploads/api.js";
import { sleep } from "../uploads/retry.js";
import { receipt } from "../words.js";

/**
 * @import { UploadQueue } from "../uploads/upload_queue.js"
 *
 * @typedef {Api.SentFiles & { isBusy: boolean }} Sent
 */

/** Thousands of small files may arrive in a minute: the server is asked no more often than this, milliseconds. */
const PAUSE = 1_000;

/**
 * Emits `change` after each answer of the server, which is then in `sent`: `{ files, count, bytes, unfinished, link }`,
 * as the API has it, without the files that are rows of the queue.
 */
export class SentFiles extends EventTarget {
  /** @type {Sent | null} */
  sent = null;
  #queue;
  #isRunning = false;
  #isOutdated = false;

  /** @param {UploadQueue} queue */
  constructor(queue) {
    super();
    this.#queue = queue;
    queue.addEventListener("completed", () => this.refresh());
    queue.addEventListener("removed", ({ detail }) => detail.state === "complete" && this.refresh());
    queue.addEventListener("changed", ({ detail }) => detail.state === "failed" && this.refresh());
  }

  /** Asks the server soon; several calls in a row are one. */
  async refresh() {
    this.#isOutdated = true;
    if (this.#isRunning) return;
    this.#isRunning = true;
    while (this.#isOutdated) {
      this.#isOutdated = false;
      // The list is optional: the rows of the uploads say as much.
      await this.#look().catch(() => {});
      await sleep(PAUSE);
    }
    this.#isRunning = false;
  }

  async #look() {
    const sent = await sentFiles();
    const here = new Set(this.#queue.uploads.map(({ id }) => id));
    this.sent = { ...sent, files: sent.files.filter(({ id }) => !here.has(id)), isBusy: this.#queue.isBusy };
    this.dispatchEvent(new Event("change"));
  }
}

/** The receipt, drawn by the server at first. */
export class SentFilesPanel extends HTMLElement {
  /**
   * `sent` is shown after each change; until then there is what the server has drawn.
   * @param {{ sent: SentFiles }} options
   */
  connect({ sent }) {
    sent.addEventListener("change", () => sent.sent && this.#draw(sent.sent));
  }

  /** @param {Sent} sent */
  #draw(sent) {
    const { panel, total, list } = partsOf(this);
    panel.hidden = sent.count === 0;
    setText(total, sent.count ? receipt(sent, formatBytes(sent.bytes)) : "");
    list.replaceChildren(...sent.files.map(rowOf));
  }
}

export class LinkLimits extends HTMLElement {
  /**
   * `sent` tells what the link still takes.
   * @param {{ sent: SentFiles }} options
   */
  connect({ sent }) {
    sent.addEventListener("change", () => sent.sent?.link && this.#draw(sent.sent.link));
  }

  /** @param {NonNullable<Api.SentFiles["link"]>} link */
  #draw(link) {
    const { filesLeft, bytesLeft } = partsOf(this);
    if (filesLeft && link.files_left !== null) setText(filesLeft, countOf(link.files_left, "more file"));
    if (bytesLeft && link.bytes_left !== null) setText(bytesLeft, `${formatBytes(link.bytes_left)} more in all`);
  }
}

/** @param {Api.SentFiles["files"][number]} file */
function rowOf({ filename, length, arrived }) {
  const row = document.createElement("li");
  const [title, text, time] = ["p", "p", "time"].map((name) => document.createElement(name));
  row.className = "row";
  Object.assign(title, { className: "row__title", textContent: filename });
  Object.assign(time, { dateTime: arrived, textContent: formatDate(arrived) });
  text.className = "row__text";
  text.append(`${formatBytes(length)} · `, time);
  row.append(title, text);
  return row;
}

customElements.define("sent-files", SentFilesPanel);
customElements.define("link-limits", LinkLimits);
