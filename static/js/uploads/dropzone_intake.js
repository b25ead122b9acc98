/**
 * The only file that touches Dropzone: it takes files in, and carries the marks of how each of them ended. Sending is
 * left to ours: its chunks have one fixed size. Written against 6.3.5, whose underscored methods are the only place to
 * hook in.
 */

import { Dropzone } from "../../vendor/dropzone/dropzone.mjs";
import { nextTask, SlicedWork } from "../helpers/sliced_work.js";
import { walkFolder } from "./folder_walk.js";

/** A folder is read in parts: what arrives within this time is handed on together, milliseconds. */
const GATHERING = 100;

/** Takes files from the page: `onFiles` gets lists of `{ file, name }`. Shows the end of each upload on its row. */
export class DropzoneIntake {
  #dropzone;
  #gathered = [];
  #handingOn = null;
  #onFiles;

  /** `url` is never asked; Dropzone does not start without one. */
  constructor(element, { url, onFiles }) {
    this.#onFiles = onFiles;
    this.#dropzone = new PatientDropzone(element, {
      url,
      autoQueue: false,
      autoProcessQueue: false,
      maxFilesize: null,
      createImageThumbnails: false,
      addedfile: (file) => this.#takeIn(file),
    });
  }

  /** Adds files that were chosen or dropped outside Dropzone's own element. */
  addFiles(files) {
    this.#dropzone.handleFiles([...files]);
  }

  /** Takes over a drop that landed elsewhere on the page. */
  takeDrop(event) {
    this.#dropzone.drop(event);
  }

  /** Ties an upload to its row, which then carries Dropzone's classes; the row may come after the end. */
  show({ file }, row) {
    file.previewElement = row;
    row.classList.toggle("dz-success", file.status === Dropzone.SUCCESS);
    row.classList.toggle("dz-error", file.status === Dropzone.ERROR);
  }

  /** Reports the good end of an upload. */
  succeed({ file, id }) {
    this.#dropzone._finished([file], JSON.stringify({ id }), null);
  }

  /** Reports the failure of an upload. */
  fail({ file, problem }) {
    this.#dropzone._errorProcessing([file], problem.message);
  }

  /** Takes the marks of a failure away before another attempt. */
  restart({ file }) {
    file.status = Dropzone.ADDED;
    file.previewElement?.classList.remove("dz-error", "dz-complete");
  }

  /** Forgets a file and takes its row off the page. */
  remove({ file }) {
    this.#dropzone.removeFile(file);
  }

  #takeIn(file) {
    this.#handingOn ??= setTimeout(() => this.#handOn(), GATHERING);
    this.#gathered.push({ file, name: file.fullPath || file.webkitRelativePath || file.name });
  }

  #handOn() {
    const files = this.#gathered;
    this.#gathered = [];
    this.#handingOn = null;
    this.#onFiles(files);
  }
}

/** Dropzone that takes thousands of files without stopping the page. */
class PatientDropzone extends Dropzone {
  #adding = new SlicedWork((file) => this.#add(file), { schedule: nextTask });

  /** Asking for a file's size makes the browser go to the disk: thousands at once would stop the page for a second. */
  addFile(file) {
    this.#adding.add(file);
  }

  /** Dropzone's own list would be gone through for each of thousands; the queue has all of them. */
  #add(file) {
    super.addFile(file);
    this.files.length = 0;
  }

  /** Returns none: they are added as they come. */
  async _addFilesFromDirectory(directory) {
    await walkFolder(directory, (file, path) => {
      file.fullPath = path;
      this.addFile(file);
    });
    return [];
  }
}
