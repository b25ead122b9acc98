/**
 * The only file that touches Dropzone: it takes files in and sends chunks; what to send, when to repeat it and what it
 * all means is decided elsewhere. Written against 6.3.5, whose underscored methods are the only place to hook in.
 */

import { Dropzone } from "../../vendor/dropzone/dropzone.mjs";
import { nextTask, SlicedWork } from "../helpers/sliced_work.js";
import { acknowledgementOf } from "./api.js";
import { chunkCount, chunkFields, chunkRange } from "./chunk_plan.js";
import { checkReadable } from "./file_check.js";
import { walkFolder } from "./folder_walk.js";
import { connectionLost, problemOfAnswer } from "./problem.js";
import { RetrySchedule } from "./retry.js";
import { StallWatch } from "./stall_watch.js";

const CHUNKS_PER_FILE = 3;
/** A folder is read bit by bit: what comes within this time is handed on together, milliseconds. */
const GATHERING = 100;

/** Takes files from the page and carries their chunks, each in one of `slots`. `onFiles` gets `{ file, name }` lists. */
export class DropzoneAdapter {
  #dropzone;
  #intake = [];
  #handingOn = null;
  #onFiles;

  constructor(element, { url, chunkBytes, connection, slots, onFiles }) {
    this.#onFiles = onFiles;
    this.#dropzone = new ChunkSender(element, {
      url: ([{ size, upload }], [{ chunkIndex }]) =>
        `${url}?${new URLSearchParams(chunkFields(chunkIndex, { id: upload.uuid, size, chunkBytes }))}`,
      // Costs the browser a tenth less CPU time than forms do: docs/performance.md.
      binaryBody: true,
      headers: { "Content-Type": "application/octet-stream" },
      chunkSize: chunkBytes,
      chunking: true,
      forceChunking: true,
      parallelChunkUploads: CHUNKS_PER_FILE,
      autoQueue: false,
      autoProcessQueue: false,
      maxFilesize: null,
      createImageThumbnails: false,
      chunksUploaded: (file) => this.#dropzone.allChunksSent(file),
      addedfile: (file) => this.#takeIn(file),
    });
    Object.assign(this.#dropzone, { connection, slots });
  }

  /** Adds files that were chosen or dropped outside Dropzone's own element. */
  addFiles(files) {
    this.#dropzone.handleFiles([...files]);
  }

  /** Takes over a drop that landed elsewhere on the page. */
  takeDrop(event) {
    this.#dropzone.drop(event);
  }

  /** Sends the chunks not in `skip` as this upload's; resolves to the server's last answer, rejects with a Problem. */
  send(upload, options) {
    upload.file.upload.uuid = upload.id;
    return this.#dropzone.send(upload.file, options);
  }

  /** Ties an upload to its row, which then carries Dropzone's classes; the row may come after the end. */
  show(upload, row) {
    const { file } = upload;
    file.previewElement = row;
    row.classList.toggle("dz-success", file.status === Dropzone.SUCCESS);
    row.classList.toggle("dz-error", file.status === Dropzone.ERROR);
  }

  /** Reports the good end of an upload. */
  succeed(upload) {
    this.#dropzone._finished([upload.file], JSON.stringify({ id: upload.id }), null);
  }

  /** Reports the failure of an upload. */
  fail(upload) {
    this.#dropzone._errorProcessing([upload.file], upload.problem.message);
  }

  /** Takes the marks of a failure away before another attempt. */
  restart(upload) {
    upload.file.status = Dropzone.ADDED;
    upload.file.previewElement?.classList.remove("dz-error", "dz-complete", "dz-processing");
  }

  /** Forgets a file and takes its row off the page. */
  remove(upload) {
    this.#dropzone.removeFile(upload.file);
  }

  #takeIn(file) {
    this.#handingOn ??= setTimeout(() => this.#handOn(), GATHERING);
    this.#intake.push({ file, name: file.fullPath || file.webkitRelativePath || file.name });
  }

  #handOn() {
    const files = this.#intake;
    this.#intake = [];
    this.#handingOn = null;
    this.#onFiles(files);
  }
}

/** Dropzone with our retries, a bound on all requests together, and chunks that the server has already left out. */
class ChunkSender extends Dropzone {
  connection = null;
  slots = null;
  #transfers = new Map();
  #stalls = new StallWatch();
  #intake = new SlicedWork((file) => this.#takeIn(file), { schedule: nextTask });

  /** Asking for a file's size makes the browser go to the disk: thousands at once would stop the page for a second. */
  addFile(file) {
    this.#intake.add(file);
  }

  /** Returns none: they are taken in as they come. */
  async _addFilesFromDirectory(directory) {
    await walkFolder(directory, (file, path) => {
      file.fullPath = path;
      this.addFile(file);
    });
    return [];
  }

  /** Dropzone's own list would be gone through for each of thousands; the queue has all of them. */
  #takeIn(file) {
    super.addFile(file);
    this.files.length = 0;
  }

  send(file, { skip, signal, onAcknowledged, onWait, onProceed }) {
    return new Promise((resolve, reject) => {
      const settle = (end, value) => {
        this.#halt(file);
        end(value);
      };
      const stop = new AbortController();
      const transfer = { onAcknowledged, onWait, onProceed, answer: {}, waiting: new Set(), signal: stop.signal };
      transfer.stop = stop;
      transfer.resolve = (answer) => settle(resolve, answer);
      transfer.reject = (error) => settle(reject, error);
      signal.addEventListener("abort", () => transfer.reject(signal.reason), { once: true, signal: stop.signal });
      this.#transfers.set(file, transfer);
      if (skip.size === chunkCount(file.size, this.options.chunkSize)) return transfer.resolve({});
      leaveOutChunks(file, skip, this.options.chunkSize);
      this.processFile(file);
    });
  }

  allChunksSent(file) {
    const transfer = this.#transfers.get(file);
    transfer?.resolve(transfer.answer);
  }

  /** Stops every request of a file. Dropzone itself would go on, and start new chunks, after one has failed. */
  #halt(file) {
    const transfer = this.#transfers.get(file);
    if (!transfer) return;
    this.#transfers.delete(file);
    transfer.stop.abort();
    for (const chunk of file.upload.chunks ?? []) {
      if (chunk?.status !== Dropzone.UPLOADING) continue;
      chunk.status = Dropzone.CANCELED;
      chunk.xhr?.abort();
    }
    file.status = Dropzone.ADDED;
  }

  submitRequest(xhr, formData, files, dataBlocks) {
    const transfer = this.#transfers.get(files[0]);
    if (!transfer) return;
    const { signal } = transfer;
    this.slots.take(signal).then(
      (release) => {
        if (signal.aborted) return release();
        xhr.addEventListener("loadend", release, { once: true });
        this.#stalls.watch(xhr, () => this._handleUploadError(files, xhr));
        super.submitRequest(xhr, formData, files, dataBlocks);
      },
      () => {},
    );
  }

  /** Bytes on the wire are a sign of life and nothing more: progress is what the server acknowledges. */
  _updateFilesUploadProgress(files, xhr) {
    this.#stalls.sawProgress(xhr);
  }

  _finishedUploading(files, xhr, event) {
    const [file] = files;
    const transfer = this.#transfers.get(file);
    if (!transfer) return;
    if (xhr.status >= 200 && xhr.status < 300) {
      const answer = acknowledgementOf(xhr.responseText);
      if (!answer) return this.#repeat(file, xhr, connectionLost());
      if (!transfer.answer.media) transfer.answer = answer;
      transfer.onAcknowledged(answer.received);
    }
    super._finishedUploading(files, xhr, event);
  }

  _handleUploadError(files, xhr) {
    const problem = xhr.status
      ? problemOfAnswer(xhr.status, xhr.responseText, xhr.getResponseHeader("Retry-After"))
      : connectionLost();
    this.#repeat(files[0], xhr, problem);
  }

  async #repeat(file, xhr, problem) {
    const transfer = this.#transfers.get(file);
    const chunk = transfer && this._getChunk(file, xhr);
    if (!chunk) return;
    chunk.schedule ??= new RetrySchedule({ connection: this.connection });
    this.#beginWaiting(file, transfer, chunk, problem);
    try {
      if (problem.isConnectionLost) await checkReadable(chunk.dataBlock.data);
      await chunk.schedule.untilNextAttempt(problem, transfer.signal);
      transfer.waiting.delete(chunk);
      transfer.onProceed();
      this._uploadData([file], [chunk.dataBlock]);
    } catch (error) {
      if (!transfer.signal.aborted) transfer.reject(error);
    }
  }

  /** The upload as a whole waits only when none of its started chunks is on the way. */
  #beginWaiting(file, transfer, chunk, problem) {
    transfer.waiting.add(chunk);
    const underWay = file.upload.chunks.filter((other) => other.status === Dropzone.UPLOADING);
    if (underWay.every((other) => transfer.waiting.has(other))) transfer.onWait(problem);
  }

  /** Counted at the end of every file, to tell of an end of all that the page tells of itself. */
  getFilesWithStatus() {
    return [];
  }

  updateTotalUploadProgress() {
    // Goes through all files on every event, to count bytes on the wire, which this page does not show.
  }
}

/**
 * Makes Dropzone believe that it has sent the chunks in `skip`. It clears `chunks` and starts the first one in the same
 * breath, so the only moment to fill them in is the assignment itself.
 */
function leaveOutChunks(file, skip, chunkBytes) {
  let chunks;
  Object.defineProperty(file.upload, "chunks", {
    configurable: true,
    get: () => chunks,
    set: (value) => {
      chunks = value;
      for (const index of skip) chunks[index] = sentChunk(file, index, chunkBytes);
    },
  });
}

function sentChunk(file, index, chunkBytes) {
  const [start, end] = chunkRange(index, file.size, chunkBytes);
  const size = end - start;
  const sent = { status: Dropzone.SUCCESS, progress: 100, total: size, bytesSent: size };
  return { file, index, dataBlock: null, xhr: null, ...sent };
}
