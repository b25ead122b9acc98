/** All uploads of this page: decides which run, and takes each from its file to a complete upload. */

import { Emitter } from "../events.js";
import { FEWEST_FILES, isSmall } from "./bundles.js";
import { chunkCount } from "./chunk_plan.js";
import { Problem, problemOfError } from "./problem.js";
import { Upload } from "./upload.js";

/**
 * @import { Answer, UploadSteps } from "./upload_steps.js"
 *
 * Where the end of an upload is shown.
 * @typedef {object} View
 * @property {(upload: Upload) => void} succeed
 * @property {(upload: Upload) => void} fail
 * @property {(upload: Upload) => void} restart
 * @property {(upload: Upload) => void} remove
 */

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
 * @extends {Emitter<{
 *   added: Upload[], started: Upload, changed: Upload, removed: Upload, completed: Upload, cancelled: Upload,
 *   "discard-failed": Upload,
 * }>}
 */
export class UploadQueue extends Emitter {
  #steps;
  #view;
  #chunkBytes;
  /** @type {Map<Upload, AbortController>} */
  #controls = new Map();
  /** @type {Set<Upload>} */
  #uploads = new Set();
  /** @type {Set<Upload>} */
  #waiting = new Set();
  /** @type {Set<Upload>} */
  #open = new Set();
  /** @type {Map<string | null, Upload>} */
  #claims = new Map();
  #runningWeight = 0;

  /** @param {{ steps: UploadSteps, view: View, chunkBytes: number, maxUploadBytes?: number }} options */
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
    return [...this.#open].map((upload) => upload.id).filter((id) => id !== null);
  }

  /** How many uploads are on the list. */
  get size() {
    return this.#uploads.size;
  }

  /** @param {Upload} upload */
  has(upload) {
    return this.#uploads.has(upload);
  }

  /**
   * Adds files, in order; each starts when there is room for it. Returns their uploads.
   * @param {{ file: File, name: string }[]} files
   */
  add(files) {
    const added = files.map(({ file, name }) => new Upload(file, { name, onChange: this.#changed }));
    for (const upload of added) {
      this.#uploads.add(upload);
      this.#open.add(upload);
    }
    this.emit("added", added);
    for (const upload of added) this.#admit(upload);
    this.#bundleSmall(added);
    this.#startNext();
    return added;
  }

  /**
   * Stops sending; what the server has acknowledged stays there.
   * @param {Upload} upload
   */
  pause(upload) {
    upload.step("pause");
    this.#stop(upload);
  }

  /**
   * Resumes a paused upload.
   * @param {Upload} upload
   */
  resume(upload) {
    upload.step("resume");
    this.#enqueue(upload);
  }

  /**
   * Tries a failed upload again, from what the server has of it.
   * @param {Upload} upload
   */
  retry(upload) {
    upload.step("retry");
    this.#view.restart(upload);
    this.#enqueue(upload);
  }

  /**
   * Cancels an upload, here and on the server.
   * @param {Upload} upload
   */
  async cancel(upload) {
    upload.step("cancel");
    this.#stop(upload);
    this.dismiss(upload);
    if (!upload.id) return;
    this.emit("cancelled", upload);
    await this.#steps.discard(upload).catch(() => this.emit("discard-failed", upload));
  }

  /**
   * Removes an upload that has ended from the list; the server keeps what it has.
   * @param {Upload} upload
   */
  dismiss(upload) {
    if (upload.isOpen) throw new Error("an unfinished upload cannot be dismissed");
    this.#uploads.delete(upload);
    this.#waiting.delete(upload);
    this.emit("removed", upload);
    this.#view.remove(upload);
  }

  /**
   * Applies `pause`, `resume`, `retry` or `cancel` to every upload that allows it.
   * @param {"pause" | "resume" | "retry" | "cancel"} step
   */
  async forAll(step) {
    const isMeant = (/** @type {Upload} */ upload) => upload.can(step) && (step !== "retry" || upload.isWorthRetrying);
    const allowed = this.uploads.filter(isMeant);
    await Promise.allSettled(allowed.map((upload) => this[step](upload)));
  }

  /**
   * Removes completed uploads from the list, all or those for which `isMeant(upload)`.
   * @param {(upload: Upload) => boolean} [isMeant]
   */
  dismissCompleted(isMeant = () => true) {
    for (const upload of this.uploads) if (upload.state === "complete" && isMeant(upload)) this.dismiss(upload);
  }

  /** @param {Upload} upload */
  #admit(upload) {
    if (upload.size > this.maxUploadBytes) this.#fail(upload, new Problem({ code: "too_large" }));
    else this.#waiting.add(upload);
  }

  /**
   * Many small files share requests; those of one drop may come in several calls.
   * @param {Upload[]} added
   */
  #bundleSmall(added) {
    const small = added.filter(({ size }) => isSmall(size, this.#chunkBytes));
    const hasCompany = () => [...this.#open].some((upload) => upload.isBundled);
    if (small.length < FEWEST_FILES && (small.length === 0 || !hasCompany())) return;
    for (const upload of small) upload.isBundled = true;
  }

  /** @param {Upload} upload */
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

  /** @param {Upload} upload */
  #weight(upload) {
    if (upload.isBundled) return WEIGHT_IN_BUNDLE;
    return Math.min(MOST_WEIGHT, WEIGHT_OF_CHUNK * chunkCount(upload.size, this.#chunkBytes));
  }

  /**
   * @param {Upload} upload
   * @param {number} weight
   */
  async #run(upload, weight) {
    const control = new AbortController();
    this.#controls.set(upload, control);
    this.#runningWeight += weight;
    this.emit("started", upload);
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

  /**
   * @param {Upload} upload
   * @param {AbortSignal} signal
   */
  async #work(upload, signal) {
    upload.step("prepare");
    const plan = await this.#steps.prepare(upload, signal);
    /** @type {Answer} */
    let answer = plan;
    if (plan.state === "receiving") {
      if (upload.id) this.#claim(upload);
      upload.step("send");
      answer = await this.#steps.send(upload, plan, signal);
    }
    if (!answer.media) {
      upload.step("verify");
      answer = await this.#steps.verify(upload, signal);
    }
    this.#complete(upload, answer);
  }

  /**
   * @param {Upload} upload
   * @param {Answer} answer
   */
  #complete(upload, answer) {
    upload.media = answer.media ?? null;
    upload.progress({ received: upload.size });
    upload.step("complete");
    this.#view.succeed(upload);
    this.emit("completed", upload);
  }

  /**
   * A file chosen twice is one upload on the server, and both rows would send all of it.
   * @param {Upload} upload
   */
  #claim(upload) {
    if (this.#claims.has(upload.id)) throw new Problem({ code: "already_here" });
    this.#claims.set(upload.id, upload);
  }

  /**
   * @param {Upload} upload
   * @param {unknown} error
   */
  #fail(upload, error) {
    if (!(error instanceof Problem)) console.error(error);
    upload.step("fail", problemOfError(error));
    this.#view.fail(upload);
  }

  /** @param {Upload} upload */
  #stop(upload) {
    this.#waiting.delete(upload);
    this.#controls.get(upload)?.abort(STOPPED);
  }

  /** @param {Upload} upload */
  #changed = (upload) => {
    if (upload.isOpen) this.#open.add(upload);
    else this.#open.delete(upload);
    this.emit("changed", upload);
  };
}
