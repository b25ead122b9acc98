/** CRC32Cs of parts of files, computed by one worker of the page. */

import { fileUnreadable, Problem } from "./problem.js";

/** Longer chunks the server writes as they arrive, and does not hold until it has checked them; bytes. */
const LONGEST_HELD = 1024 * 1024;

const startWorker = () => new Worker(new URL("./crc32c_worker.js", import.meta.url), { type: "module" });

export class Checksums {
  #start;
  /** @type {Worker | null} */
  #worker = null;
  /** @type {Map<number, { resolve: (checksum: string) => void, reject: (error: Error) => void }>} */
  #waiting = new Map();
  #number = 0;
  #hasFailed = false;

  /**
   * `start()` starts the worker; it is called when there is something to compute.
   * @param {{ start?: () => Worker }} [options]
   */
  constructor({ start = startWorker } = {}) {
    this.#start = start;
  }

  /**
   * Resolves to the CRC32C of `blob` in base64; rejects with a Problem if the browser cannot read it.
   * @param {Blob} blob
   * @returns {Promise<string>}
   */
  of(blob) {
    const worker = (this.#worker ??= this.#started());
    const number = this.#number++;
    return new Promise((resolve, reject) => {
      this.#waiting.set(number, { resolve, reject });
      worker.postMessage({ number, blob });
    });
  }

  /**
   * Resolves to the Content-Digest of a chunk, or to null for a long one, and where the worker has failed; rejects like
   * `of`. The server takes a short one that has it from two connections at once, and the first does not end the second.
   * @param {Blob} blob
   */
  async contentDigest(blob) {
    if (blob.size > LONGEST_HELD || this.#hasFailed) return null;
    try {
      return `crc32c=:${await this.of(blob)}:`;
    } catch (error) {
      if (error instanceof Problem) throw error;
      return null;
    }
  }

  #started() {
    const worker = this.#start();
    worker.addEventListener("message", ({ data: { number, checksum } }) => {
      const asked = this.#waiting.get(number);
      this.#waiting.delete(number);
      if (checksum === null) asked?.reject(fileUnreadable());
      else asked?.resolve(checksum);
    });
    worker.addEventListener("error", (event) => this.#fail(event));
    return worker;
  }

  /**
   * Without its worker, such as behind a proxy that refuses the script, the page has no checksums.
   * @param {Event} event
   */
  #fail(event) {
    event.preventDefault();
    this.#worker = null;
    this.#hasFailed = true;
    for (const { reject } of this.#waiting.values()) reject(new Error("the worker for checksums has failed"));
    this.#waiting.clear();
  }
}
