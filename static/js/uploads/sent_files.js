/** What the visitor of an upload link has sent, as the server knows it: it is still there after a reload. */

import { sentFiles } from "./api.js";
import { sleep } from "./retry.js";

/** Thousands of small files may arrive in a minute: the server is asked no more often than this, milliseconds. */
const PAUSE = 1_000;

/**
 * Emits `change` after each answer of the server, which is then in `sent`: `{ files, count, bytes, unfinished, link }`,
 * as the API has it, without the files that are rows of the queue.
 */
export class SentFiles extends EventTarget {
  sent = null;
  #queue;
  #isRunning = false;
  #isOutdated = false;

  constructor(queue) {
    super();
    this.#queue = queue;
    queue.addEventListener("completed", () => this.refresh());
    queue.addEventListener("removed", ({ detail }) => detail.state === "complete" && this.refresh());
    queue.addEventListener("changed", ({ detail }) => detail.state === "failed" && this.refresh());
  }

  /** Asks the server, soon; of several calls meanwhile the last one counts. */
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

/** The receipt in a sentence: "All 3 files have arrived", with their size. */
export function receipt({ count, unfinished, isBusy }, size) {
  if (isBusy || unfinished > 0) return `${count} of ${count + Math.max(unfinished, 1)} files have arrived, ${size}`;
  return count === 1 ? `Your file has arrived, ${size}` : `All ${count.toLocaleString("en")} files have arrived, ${size}`;
}
