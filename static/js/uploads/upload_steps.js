/** What has to be done for one upload, in network terms: the steps that the queue runs. */

import { cancelUpload, createUpload, uploadState } from "./api.js";
import { sleep } from "./backoff.js";
import { chunksToSkip, coveredBytes } from "./chunk_plan.js";
import { fingerprint } from "./fingerprint.js";
import { Problem } from "./problem.js";
import { withRetries } from "./retry.js";

/** Time between two questions whether the server has checked a file, milliseconds; grows to the longer one. */
const FIRST_POLL = 400;
const SLOWEST_POLL = 5_000;

const GONE_STATES = new Set(["cancelled", "expired"]);

/**
 * `transport.send(upload, { skip, signal, ... })` sends the chunks; `connection` tells when the server can be reached.
 */
export class UploadSteps {
  #transport;
  #connection;
  #chunkBytes;

  constructor({ transport, connection, chunkBytes }) {
    this.#transport = transport;
    this.#connection = connection;
    this.#chunkBytes = chunkBytes;
  }

  /** The server's knowledge of the file, under an upload which it made or found. */
  async prepare(upload, signal) {
    upload.fingerprint ??= await fingerprint(upload.file, { signal });
    const { name, size } = upload;
    const ask = () => createUpload({ name, size, fingerprint: upload.fingerprint }, signal);
    const answer = await this.#patiently(upload, ask, signal);
    const isComplete = answer.state === "complete";
    const received = isComplete ? size : coveredBytes(answer.received);
    upload.identify({ id: answer.id, received, isComplete });
    return answer;
  }

  /** Sends the chunks that touch a missing range; resolves to the server's last answer. */
  async send(upload, { missing }, signal) {
    return this.#transport.send(upload, {
      skip: chunksToSkip(missing, upload.size, this.#chunkBytes),
      signal,
      onAcknowledged: (received) => upload.acknowledge(received),
      ...this.#waitingSteps(upload),
    });
  }

  /** Waits until the server has checked all bytes. */
  async verify(upload, signal) {
    for (let pause = FIRST_POLL; ; pause = Math.min(pause * 1.5, SLOWEST_POLL)) {
      const answer = await this.#patiently(upload, () => uploadState(upload.id, signal), signal);
      if (answer.state === "complete") return answer;
      if (GONE_STATES.has(answer.state)) throw new Problem({ code: "upload_gone" });
      if (answer.state === "receiving") throw new Problem({ code: "bytes_missing", retryable: true });
      await sleep(pause, signal);
    }
  }

  /** Makes the server forget the upload, now or when it can be reached again. */
  discard(upload) {
    return withRetries(() => cancelUpload(upload.id), { connection: this.#connection });
  }

  #patiently(upload, attempt, signal) {
    return withRetries(attempt, { connection: this.#connection, signal, ...this.#waitingSteps(upload) });
  }

  #waitingSteps(upload) {
    return {
      onWait: (problem) => upload.can("wait") && upload.step("wait", problem),
      onProceed: () => upload.can("proceed") && upload.step("proceed"),
    };
  }
}
