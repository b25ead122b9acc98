/**
 * <upload-drop>: the area that takes files in, with Dropzone, which no other file touches. Our code does the sending,
 * because Dropzone's chunks have one fixed size. Written for 6.3.5, whose underscored methods are the only hooks.
 */

import { Dropzone } from "../../vendor/dropzone/dropzone.mjs";
import { nextTask, SlicedWork } from "../page/sliced_work.js";
import { walkFolder } from "../uploads/local_files.js";

/** Emits `files-chosen` (detail: files); drops go to Dropzone directly. */
export class UploadDrop extends HTMLElement {
  #listening = new AbortController();

  connectedCallback() {
    this.setAttribute("ready", "");
    const { signal } = this.#listening;
    const folderButton = this.querySelector('[data-action="folder"]');
    folderButton.hidden = !("webkitdirectory" in HTMLInputElement.prototype);
    folderButton.addEventListener("click", (event) => this.#chooseFolder(event), { signal });
  }

  disconnectedCallback() {
    this.#listening.abort();
  }

  /** The element Dropzone works on. */
  get area() {
    return this.querySelector(".dropzone");
  }

  /** Accepts drops anywhere on the page; otherwise a file dropped beside the area would replace the page. */
  takeDropsOnPage(takeDrop) {
    const { signal } = this.#listening;
    const isFiles = (event) => event.dataTransfer?.types.includes("Files");
    const light = (isOver) => this.area.classList.toggle("dz-drag-hover", isOver);
    const over = (event) => {
      if (!isFiles(event)) return;
      event.preventDefault();
      light(true);
    };
    const leave = (event) => event.relatedTarget === null && light(false);
    const drop = (event) => {
      if (!isFiles(event) || event.defaultPrevented) return;
      event.preventDefault();
      light(false);
      takeDrop(event);
    };
    for (const [name, listener] of Object.entries({ dragover: over, dragenter: over, dragleave: leave, drop })) {
      window.addEventListener(name, listener, { signal });
    }
  }

  /** The input is created each time and stays out of the page, where it would look like another file chooser. */
  #chooseFolder(event) {
    event.stopPropagation();
    const input = document.createElement("input");
    input.type = "file";
    input.webkitdirectory = true;
    input.addEventListener("change", () => {
      const files = [...input.files].filter((file) => !file.name.startsWith("."));
      this.dispatchEvent(new CustomEvent("files-chosen", { detail: files }));
    });
    input.click();
  }
}

customElements.define("upload-drop", UploadDrop);

/** A folder is read in parts: files that arrive within this time are passed on together, milliseconds. */
const GATHERING = 100;

/** Accepts files from the page: `onFiles` gets lists of `{ file, name }`. Shows the end of each upload on its row. */
export class DropzoneIntake {
  #dropzone;
  #gathered = [];
  #handingOn = null;
  #onFiles;

  /** `url` is never requested, but Dropzone does not start without one. */
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

  /** Reports the success of an upload. */
  succeed({ file, id }) {
    this.#dropzone._finished([file], JSON.stringify({ id }), null);
  }

  /** Marks an upload as failed. */
  fail({ file, problem }) {
    this.#dropzone._errorProcessing([file], problem.message);
  }

  /** Clears the marks of a failure before another attempt. */
  restart({ file }) {
    file.status = Dropzone.ADDED;
    file.previewElement?.classList.remove("dz-error", "dz-complete");
  }

  /** Forgets a file and removes its row from the page. */
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

/** Dropzone that accepts thousands of files without freezing the page. */
class PatientDropzone extends Dropzone {
  #adding = new SlicedWork((file) => this.#add(file), { schedule: nextTask });

  /** Reading a file's size makes the browser access the disk: thousands at once would freeze the page for a second. */
  addFile(file) {
    this.#adding.add(file);
  }

  /** Dropzone would search its own list for each of thousands of files; the queue has all of them. */
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
