/** Unfinished uploads of this person on the server for which no file was chosen on this page yet. */

import { Emitter } from "../events.js";
import { cancelUpload, unfinishedUploads } from "./api.js";
import { coveredBytes } from "./chunk_plan.js";
import { sleep } from "./retry.js";

/**
 * @import { UploadQueue } from "./upload_queue.js"
 *
 * Sizes are bytes.
 * @typedef {object} InterruptedUpload
 * @property {string} id
 * @property {string} name
 * @property {number} size
 * @property {number} received
 * @property {string | null} fingerprint
 * @property {string | null} expires
 * @property {boolean} isOwn whether it was begun by this person
 */

/**
 * Emits `change` when its `list` does: `{ id, name, size, received, fingerprint, expires }`, sizes in bytes; and
 * `discarded` (detail: id).
 * @extends {Emitter<{ change: void, discarded: string }>}
 */
export class InterruptedUploads extends Emitter {
  /** @type {UploadQueue} */
  #queue;
  #idsElsewhere;
  /** @type {InterruptedUpload[]} */
  #known = [];
  #shownCount = 0;

  /**
   * `idsElsewhere()` resolves to the ids that other tabs are sending now.
   * @param {UploadQueue} queue
   * @param {{ idsElsewhere?: () => Promise<Set<string>> }} [options]
   */
  constructor(queue, { idsElsewhere = async () => new Set() } = {}) {
    super();
    this.#queue = queue;
    this.#idsElsewhere = idsElsewhere;
    queue.addEventListener("changed", ({ detail }) => this.#recheck(detail));
    queue.addEventListener("removed", ({ detail }) => this.#recheck(detail));
  }

  get list() {
    const here = new Set(this.#queue.uploads.map((upload) => upload.id));
    return this.#known.filter((known) => known.isOwn && !here.has(known.id));
  }

  /**
   * Whether the server is waiting for the rest of the file with this fingerprint, begun by any client.
   * @param {string} fingerprint
   */
  hasFile(fingerprint) {
    return this.#known.some((known) => known.fingerprint === fingerprint);
  }

  /**
   * Asks the server again.
   * @param {AbortSignal} [signal]
   */
  async refresh(signal) {
    const [uploads, elsewhere] = await Promise.all([unfinishedUploads(signal), this.#idsElsewhere()]);
    const isInterrupted = (/** @type {Api.Upload} */ { id, state }) => state === "receiving" && !elsewhere.has(id);
    this.#known = uploads.filter(isInterrupted).map(fromAnswer);
    this.#changed();
  }

  /**
   * Deletes one of them from the server.
   * @param {string} id
   * @param {AbortSignal} [signal]
   */
  async discard(id, signal) {
    await cancelUpload(id, signal);
    this.forget(id);
    this.emit("discarded", id);
  }

  /**
   * Removes one from the list because it has ended or was cancelled on this page.
   * @param {string | null} id
   */
  forget(id) {
    if (!this.#known.some((known) => known.id === id)) return;
    this.#known = this.#known.filter((known) => known.id !== id);
    this.#changed();
  }

  /**
   * The queue changes many times a second, this list rarely.
   * @param {{ id: string | null }} upload
   */
  #recheck({ id }) {
    if (this.#known.some((known) => known.id === id) && this.list.length !== this.#shownCount) this.#changed();
  }

  #changed() {
    this.#shownCount = this.list.length;
    this.dispatchEvent(new Event("change"));
  }
}

/**
 * @param {Api.Upload} upload
 * @returns {InterruptedUpload}
 */
function fromAnswer({ id, filename, length, received, fingerprint, expires, yours }) {
  return { id, name: filename, size: length ?? 0, received: coveredBytes(received), fingerprint, expires, isOwn: yours };
}

/** A background tab answers within this time, or counts as closed, milliseconds. */
const ANSWER_TIME = 250;

/**
 * Tabs of one browser tell each other what they are sending, so that none shows it as interrupted. Answers other tabs with
 * `idsHere()`, and asks them.
 */
export class TabPresence {
  #channel;
  /** @type {Set<string>} */
  #heard = new Set();

  /** @param {{ idsHere: () => string[], channel?: BroadcastChannel }} options */
  constructor({ idsHere, channel = new BroadcastChannel("sluice-uploads") }) {
    this.#channel = channel;
    channel.addEventListener("message", ({ data }) => {
      if (data.question) channel.postMessage({ ids: idsHere() });
      else for (const id of data.ids) this.#heard.add(id);
    });
  }

  /** The ids that other tabs are sending, as a Set. */
  async idsElsewhere() {
    this.#heard.clear();
    this.#channel.postMessage({ question: true });
    await sleep(ANSWER_TIME);
    return new Set(this.#heard);
  }
}
