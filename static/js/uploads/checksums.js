/** CRC32Cs of parts of files, computed by one worker of the page. */

import { fileUnreadable } from "./problem.js";

const startWorker = () => new Worker(new URL("./crc32c_worker.js", import.meta.url), { type: "module" });

export class Checksums {
  #start;
  #worker = null;
  #waiting = new Map();
  #number = 0;

  /** `start()` starts the worker; it is called when there is something to compute. */
  constructor({ start = startWorker } = {}) {
    this.#start = start;
  }

  /** Resolves to the CRC32C of `blob` in base64; rejects with a Problem if the browser cannot read it. */
  of(blob) {
    this.#worker ??= this.#started();
    const number = this.#number++;
    return new Promise((resolve, reject) => {
      this.#waiting.set(number, { resolve, reject });
      this.#worker.postMessage({ number, blob });
    });
  }

  #started() {
    const worker = this.#start();
    worker.addEventListener("message", ({ data: { number, checksum } }) => {
      const { resolve, reject } = this.#waiting.get(number);
      this.#waiting.delete(number);
      if (checksum === null) reject(fileUnreadable());
      else resolve(checksum);
    });
    worker.addEventListener("error", (event) => this.#fail(event));
    return worker;
  }

  /** Without its worker, such as behind a proxy that refuses the script, the page has no checksums. */
  #fail(event) {
    event.preventDefault();
    this.#worker = null;
    for (const { reject } of this.#waiting.values()) reject(new Error("the worker for checksums has failed"));
    this.#waiting.clear();
  }
}
