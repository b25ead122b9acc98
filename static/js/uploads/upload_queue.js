/** All uploads of this page: decides which run, and takes each from its file to a complete upload. */

import { FEWEST_FILES, isSmall } from "./bundles.js";
import { chunkCount } from "./chunk_plan.js";
import { Problem } from "./problem.js";
import { Upload } from "./upload.js";

const WEIGHT_OF_CHUNK = 50;
/** For files that go in bundles: enough are prepared together to fill several. */
const WEIGHT_IN_BUNDLE = 1;
/**
 * Room for three large files or nine of a single chunk: small files spend their time in round trips, and more large
 * ones would only share the same line.
 */
const RUNNING_WEIGHT = 9 * WEIGHT_OF_CHUNK;
const MOST_WEIGHT = 3 * WEIGHT_OF_CHUNK;

/** Why an upload was stopped from this page; this is not a failure. */
export const STOPPED = "stopped";

/**
 * Emits `added`, `started`, `changed`, `removed`, `completed`, `cancelled` and `discard-failed`; `detail` is the upload,
 * for `added` a list.
 *
 * `steps` does the work: `prepare(upload, signal)` finds out what is missing, `send(upload, plan, signal)` sends it,
 * `verify(upload, signal)` waits for the server's check and `discard(upload)` deletes it from the server. `view` is
 * told of the end: `succeed(upload)`, `fail(upload)`, `restart(upload)`, `remove(upload)`.
 */
export class UploadQueue extends EventTarget {
  #steps;
  #view;
  #chunkBytes;
  #controls = new Map();
  #uploads = new Set();
  #waiting = new Set();
  #open = new Set();
  #claims = new Map();
  #runningWeight = 0;

  constructor({ steps, view, chunkBytes, maxUploadBytes = Infinity }) {
    super();
    this.#steps = steps;
    this.#view = view;
    this.#chunkBytes = chunkBytes;
    this.maxUploadBytes = maxUploadBytes;
  }

  get uploads() {
    return [...this.#uploads];
  }

  /** Whether leaving the page now would stop something. */
  get isSending() {
    return [...this.#open].some((upload) => upload.isInterruptible);
  }

  /** Whether anything is still to be done, by this page or the server. */
  get isBusy() {
    return this.#open.size > 0;
  }

  /** The server's ids of the uploads that are open here. */
  get openIds() {
    return [...this.#open].map((upload) => upload.id).filter(Boolean);
  }

  /** How many uploads are on the list. */
  get size() {
    return this.#uploads.size;
  }

  has(upload) {
    return this.#uploads.has(upload);
  }

  /** Adds files, in order; each starts when there is room for it. Returns their uploads. */
  add(files) {
    const added = files.map(({ file, name }) => new Upload(file, { name, onChange: this.#changed }));
    for (const upload of added) {
      this.#uploads.add(upload);
      this.#open.add(upload);
    }
    this.#emit("added", added);
    for (const upload of added) this.#admit(upload);
    this.#bundleSmall(added);
    this.#startNext();
    return added;
  }

  /** Stops sending; what the server has acknowledged stays there. */
  pause(upload) {
    upload.step("pause");
    this.#stop(upload);
  }

  /** Resumes a paused upload. */
  resume(upload) {
    upload.step("resume");
    this.#enqueue(upload);
  }

  /** Tries a failed upload again, from what the server has of it. */
  retry(upload) {
    upload.step("retry");
    this.#view.restart(upload);
    this.#enqueue(upload);
  }

  /** Cancels an upload, here and on the server. */
  async cancel(upload) {
    upload.step("cancel");
    this.#stop(upload);
    this.dismiss(upload);
    if (!upload.id) return;
    this.#emit("cancelled", upload);
    await this.#steps.discard(upload).catch(() => this.#emit("discard-failed", upload));
  }

  /** Removes an upload that has ended from the list; the server keeps what it has. */
  dismiss(upload) {
    if (upload.isOpen) throw new Error("an unfinished upload cannot be dismissed");
    this.#uploads.delete(upload);
    this.#waiting.delete(upload);
    this.#emit("removed", upload);
    this.#view.remove(upload);
  }

  /** Applies `pause`, `resume`, `retry` or `cancel` to every upload that allows it. */
  async forAll(step) {
    const isMeant = (upload) => upload.can(step) && (step !== "retry" || upload.isWorthRetrying);
    const allowed = this.uploads.filter(isMeant);
    await Promise.allSettled(allowed.map((upload) => this[step](upload)));
  }

  /** Removes completed uploads from the list, all or those for which `isMeant(upload)`. */
  dismissCompleted(isMeant = () => true) {
    for (const upload of this.uploads) if (upload.state === "complete" && isMeant(upload)) this.dismiss(upload);
  }

  #admit(upload) {
    if (upload.size > this.maxUploadBytes) this.#fail(upload, new Problem({ code: "too_large" }));
    else this.#waiting.add(upload);
  }

  /** Many small files share requests; those of one drop may come in several calls. */
  #bundleSmall(added) {
    const small = added.filter(({ size }) => isSmall(size, this.#chunkBytes));
    const hasCompany = () => [...this.#open].some((upload) => upload.isBundled);
    if (small.length < FEWEST_FILES && (small.length === 0 || !hasCompany())) return;
    for (const upload of small) upload.isBundled = true;
  }

  #enqueue(upload) {
    this.#waiting.add(upload);
    this.#startNext();
  }

  #startNext() {
    for (const upload of this.#waiting) {
      const weight = this.#weight(upload);
      if (this.#runningWeight > 0 && this.#runningWeight + weight > RUNNING_WEIGHT) return;
      this.#waiting.delete(upload);
      this.#run(upload, weight);
    }
  }

  #weight(upload) {
    if (upload.isBundled) return WEIGHT_IN_BUNDLE;
    return Math.min(MOST_WEIGHT, WEIGHT_OF_CHUNK * chunkCount(upload.size, this.#chunkBytes));
  }

  async #run(upload, weight) {
    const control = new AbortController();
    this.#controls.set(upload, control);
    this.#runningWeight += weight;
    this.#emit("started", upload);
    try {
      await this.#work(upload, control.signal);
    } catch (error) {
      if (!control.signal.aborted) this.#fail(upload, error);
    } finally {
      this.#runningWeight -= weight;
      if (this.#controls.get(upload) === control) this.#controls.delete(upload);
      if (this.#claims.get(upload.id) === upload) this.#claims.delete(upload.id);
      this.#startNext();
    }
  }

  async #work(upload, signal) {
    upload.step("prepare");
    let answer = await this.#steps.prepare(upload, signal);
    if (answer.state === "receiving") {
      if (upload.id) this.#claim(upload);
      upload.step("send");
      answer = await this.#steps.send(upload, answer, signal);
    }
    if (!answer.media) {
      upload.step("verify");
      answer = await this.#steps.verify(upload, signal);
    }
    this.#complete(upload, answer);
  }

  #complete(upload, answer) {
    upload.media = answer.media;
    upload.progress({ received: upload.size });
    upload.step("complete");
    this.#view.succeed(upload);
    this.#emit("completed", upload);
  }

  /** A file chosen twice is one upload on the server, and both rows would send all of it. */
  #claim(upload) {
    if (this.#claims.has(upload.id)) throw new Problem({ code: "already_here" });
    this.#claims.set(upload.id, upload);
  }

  #fail(upload, error) {
    if (!(error instanceof Problem)) console.error(error);
    upload.step("fail", error instanceof Problem ? error : new Problem({ code: "page_error", detail: String(error) }));
    this.#view.fail(upload);
  }

  #stop(upload) {
    this.#waiting.delete(upload);
    this.#controls.get(upload)?.abort(STOPPED);
  }

  #changed = (upload) => {
    if (upload.isOpen) this.#open.add(upload);
    else this.#open.delete(upload);
    this.#emit("changed", upload);
  };

  #emit(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}
