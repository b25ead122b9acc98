/** The network requests of one upload, as the steps that the queue runs. */

import { cancelUpload, createUpload, deleteVideo, uploadState } from "./api.js";
import { NOT_IN_BUNDLE } from "./bundles.js";
import { coveredBytes } from "./chunk_plan.js";
import { Slots } from "./limits.js";
import { fingerprint as fingerprintOf } from "./local_files.js";
import { Problem } from "./problem.js";
import { sleep, withRetries } from "./retry.js";

/**
 * @import { BundleSender, Parcel } from "./bundles.js"
 * @import { ChunkSender } from "./chunk_sender.js"
 * @import { Connection } from "./connection.js"
 * @import { Upload } from "./upload.js"
 *
 * What `prepare` finds out: the upload on the server, or the receipt of a file in a bundle.
 * @typedef {(Api.Upload & { receipt?: undefined }) | PlanOfBundle} Plan
 * @typedef {Answer & { state: "receiving", receipt: Promise<Api.FileReceipt> }} PlanOfBundle
 *
 * The server's last answer; with `media` once the file is complete.
 * @typedef {{ media?: string }} Answer
 */

/** Time between two polls for the server's check of a file, milliseconds; grows to the longer one. */
const FIRST_POLL = 400;
const SLOWEST_POLL = 5_000;

/** Files read in parallel to recognise them: with a folder, hundreds are prepared together. */
const READERS = 8;

const GONE_STATES = new Set(["cancelled", "expired"]);

/**
 * `chunks` is a ChunkSender, `bundles` a BundleSender; `connection` says when the server can be reached,
 * `isInterrupted(fingerprint)` whether it waits for the rest of such a file.
 */
export class UploadSteps {
  #chunks;
  #connection;
  #bundles;
  #isInterrupted;
  #readers = new Slots(READERS);

  /**
   * @param {{
   *   chunks: ChunkSender,
   *   connection: Connection,
   *   bundles?: BundleSender | null,
   *   isInterrupted?: (fingerprint: string) => boolean,
   * }} options
   */
  constructor({ chunks, connection, bundles = null, isInterrupted = () => false }) {
    this.#bundles = bundles;
    this.#isInterrupted = isInterrupted;
    this.#chunks = chunks;
    this.#connection = connection;
  }

  /**
   * Creates or finds the file's upload on the server and resolves to its state; a bundled file resolves to its receipt
   * once the bundle leaves.
   * @param {Upload} upload
   * @param {AbortSignal} signal
   * @returns {Promise<Plan>}
   */
  async prepare(upload, signal) {
    const fingerprint = (upload.fingerprint ??= await this.#fingerprint(upload.file, signal));
    if (this.#isInterrupted(fingerprint)) upload.isBundled = false;
    if (!upload.isBundled || !this.#bundles) return this.#create(upload, fingerprint, signal);
    return { state: "receiving", ...(await this.#bundles.join(this.#parcel(upload, fingerprint, signal))) };
  }

  /**
   * @param {File} file
   * @param {AbortSignal} signal
   */
  async #fingerprint(file, signal) {
    const release = await this.#readers.take(signal);
    return fingerprintOf(file, { signal }).finally(release);
  }

  /**
   * @param {Upload} upload
   * @param {string} fingerprint
   * @param {AbortSignal} signal
   */
  async #create(upload, fingerprint, signal) {
    const { name, size } = upload;
    const ask = () => createUpload({ name, size, fingerprint }, signal);
    const answer = await this.#retried(upload, ask, signal);
    const isComplete = answer.state === "complete";
    const received = isComplete ? size : coveredBytes(answer.received);
    upload.identify({ id: answer.id, received, isComplete });
    return answer;
  }

  /**
   * Sends what is missing; resolves to the server's last answer. `plan` is what `prepare` has resolved to.
   * @param {Upload} upload
   * @param {Plan} plan
   * @param {AbortSignal} signal
   * @returns {Promise<Answer>}
   */
  async send(upload, plan, signal) {
    return plan.receipt ? this.#sendBundled(upload, plan.receipt, signal) : this.#sendChunks(upload, plan, signal);
  }

  /**
   * @param {Upload} upload
   * @param {Promise<Api.FileReceipt>} receipt
   * @param {AbortSignal} signal
   * @returns {Promise<Answer>}
   */
  async #sendBundled(upload, receipt, signal) {
    try {
      const answer = await receipt;
      upload.identify({ id: answer.id, received: upload.size, isComplete: Boolean(answer.known) });
      return answer;
    } catch (error) {
      if (!(error instanceof Problem) || error.code !== NOT_IN_BUNDLE) throw error;
      upload.isBundled = false;
      const answer = await this.prepare(upload, signal);
      return answer.state === "receiving" ? this.send(upload, answer, signal) : answer;
    }
  }

  /**
   * @param {Upload} upload
   * @param {string} fingerprint
   * @param {AbortSignal} signal
   * @returns {Parcel}
   */
  #parcel(upload, fingerprint, signal) {
    const { file, name, size } = upload;
    return {
      file,
      name,
      size,
      fingerprint,
      signal,
      isUnwanted: () => upload.state === "cancelled",
      onSent: (bytes) => upload.progress({ inFlight: bytes }),
      onUnwanted: (receipt) => this.#takeOff(receipt),
      ...this.#waitingSteps(upload),
    };
  }

  /**
   * Deletes a file that was cancelled after its bytes had left, unless the server had it before.
   * @param {Api.FileReceipt} receipt
   */
  #takeOff({ id, known }) {
    if (known) return;
    withRetries(() => deleteVideo(id), { connection: this.#connection }).catch(() => {});
  }

  /**
   * @param {Upload} upload
   * @param {Api.Upload} plan
   * @param {AbortSignal} signal
   */
  #sendChunks(upload, { missing, direct }, signal) {
    const onProgress = (/** @type {{ received: number, inFlight: number }} */ progress) => upload.progress(progress);
    const plan = { missing, cellBytes: direct?.cell_bytes };
    return this.#chunks.send(identified(upload), { ...plan, signal, onProgress, ...this.#waitingSteps(upload) });
  }

  /**
   * Waits until the server has checked all bytes.
   * @param {Upload} upload
   * @param {AbortSignal} signal
   * @returns {Promise<Answer>}
   */
  async verify(upload, signal) {
    for (let pause = FIRST_POLL; ; pause = Math.min(pause * 1.5, SLOWEST_POLL)) {
      const answer = await this.#retried(upload, () => uploadState(identified(upload).id, signal), signal);
      if (answer.state === "complete") return answer;
      if (GONE_STATES.has(answer.state)) throw new Problem({ code: "upload_gone" });
      if (answer.state === "receiving") throw new Problem({ code: "bytes_missing", retryable: true });
      await sleep(pause, signal);
    }
  }

  /**
   * Deletes the upload on the server, now or when it can be reached again.
   * @param {Upload} upload
   */
  discard(upload) {
    return withRetries(() => cancelUpload(identified(upload).id), { connection: this.#connection });
  }

  /**
   * @template Result
   * @param {Upload} upload
   * @param {() => Promise<Result>} attempt
   * @param {AbortSignal} signal
   */
  #retried(upload, attempt, signal) {
    return withRetries(attempt, { connection: this.#connection, signal, ...this.#waitingSteps(upload) });
  }

  /** @param {Upload} upload */
  #waitingSteps(upload) {
    return {
      onWait: (/** @type {Problem} */ problem) => upload.can("wait") && upload.step("wait", problem),
      onProceed: () => upload.can("proceed") && upload.step("proceed"),
    };
  }
}

/**
 * The upload, which the server has given an id.
 * @param {Upload} upload
 */
function identified(upload) {
  return /** @type {Upload & { id: string }} */ (upload);
}
