/** Unfinished uploads of this person on the server for which no file was chosen on this page yet. */

import { cancelUpload, unfinishedUploads } from "./api.js";
import { coveredBytes } from "./chunk_plan.js";
import { sleep } from "./retry.js";

/**
 * Emits `change` when its `list` does: `{ id, name, size, received, fingerprint, expires }`, sizes in bytes; and
 * `discarded` (detail: id).
 */
export class InterruptedUploads extends EventTarget {
  #queue;
  #idsElsewhere;
  #known = [];
  #shownCount = 0;

  /** `idsElsewhere()` resolves to the ids that other tabs are sending now. */
  constructor(queue, { idsElsewhere = async () => new Set() } = {}) {
    super();
    this.#queue = queue;
    this.#idsElsewhere = idsElsewhere;
    for (const event of ["changed", "removed"]) queue.addEventListener(event, ({ detail }) => this.#recheck(detail));
  }

  get list() {
    const here = new Set(this.#queue.uploads.map((upload) => upload.id));
    return this.#known.filter((known) => known.isOwn && !here.has(known.id));
  }

  /** Whether the server is waiting for the rest of the file with this fingerprint, whoever began to send it. */
  hasFile(fingerprint) {
    return this.#known.some((known) => known.fingerprint === fingerprint);
  }

  /** Asks the server again. */
  async refresh(signal) {
    const [uploads, elsewhere] = await Promise.all([unfinishedUploads(signal), this.#idsElsewhere()]);
    const isInterrupted = ({ id, state }) => state === "receiving" && !elsewhere.has(id);
    this.#known = uploads.filter(isInterrupted).map(fromAnswer);
    this.#changed();
  }

  /** Deletes one of them from the server. */
  async discard(id, signal) {
    await cancelUpload(id, signal);
    this.forget(id);
    this.dispatchEvent(new CustomEvent("discarded", { detail: id }));
  }

  /** Removes one from the list because it has ended or was cancelled on this page. */
  forget(id) {
    if (!this.#known.some((known) => known.id === id)) return;
    this.#known = this.#known.filter((known) => known.id !== id);
    this.#changed();
  }

  /** The queue changes many times a second, this list rarely. */
  #recheck({ id }) {
    if (this.#known.some((known) => known.id === id) && this.list.length !== this.#shownCount) this.#changed();
  }

  #changed() {
    this.#shownCount = this.list.length;
    this.dispatchEvent(new Event("change"));
  }
}

function fromAnswer({ id, filename, length, received, fingerprint, expires, yours }) {
  return { id, name: filename, size: length, received: coveredBytes(received), fingerprint, expires, isOwn: yours };
}

/** A background tab answers within this time, or counts as closed, milliseconds. */
const ANSWER_TIME = 250;

/** Tabs of one browser tell each other what they are sending, so that none shows it as interrupted. Answers other tabs with `idsHere()`, and asks them. */
export class TabPresence {
  #channel;
  #heard = new Set();

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
