/**
 * <upload-drop>: the area that takes files in, with Dropzone, which no other file touches. Our code does the sending,
 * because Dropzone's chunks have one fixed size. Written for 6.3.5, whose underscored methods are the only hooks.
 */

import { Dropzone } from "../../vendor/dropzone/dropzone.mjs";
import { nextTask, SlicedWork } from "../page/sliced_work.js";
import { walkFolder } from "../uploads/local_files.js";

/**
 * @import { DropzoneFile } from "dropzone"
 * @import { Upload } from "../uploads/upload.js"
 */

/** Emits `files-chosen` (detail: files); drops go to Dropzone directly. */
export class UploadDrop extends HTMLElement {
  #listening = new AbortController();

  connectedCallback() {
    this.setAttribute("ready", "");
    const { signal } = this.#listening;
    const folderButton = /** @type {HTMLElement} */ (this.querySelector('[data-action="folder"]'));
    folderButton.hidden = !("webkitdirectory" in HTMLInputElement.prototype);
    folderButton.addEventListener("click", (event) => this.#chooseFolder(event), { signal });
  }

  disconnectedCallback() {
    this.#listening.abort();
  }

  /** The element Dropzone works on. */
  get area() {
    return /** @type {HTMLElement} */ (this.querySelector(".dropzone"));
  }

  /**
   * Accepts drops anywhere on the page; otherwise a file dropped beside the area would replace the page.
   * @param {(event: DragEvent) => void} takeDrop
   */
  takeDropsOnPage(takeDrop) {
    const { signal } = this.#listening;
    const isFiles = (/** @type {DragEvent} */ event) => event.dataTransfer?.types.includes("Files");
    const light = (/** @type {boolean} */ isOver) => this.area.classList.toggle("dz-drag-hover", isOver);
    const over = (/** @type {DragEvent} */ event) => {
      if (!isFiles(event)) return;
      event.preventDefault();
      light(true);
    };
    const leave = (/** @type {DragEvent} */ event) => event.relatedTarget === null && light(false);
    const drop = (/** @type {DragEvent} */ event) => {
      if (!isFiles(event) || event.defaultPrevented) return;
      event.preventDefault();
      light(false);
      takeDrop(event);
    };
    window.addEventListener("dragover", over, { signal });
    window.addEventListener("dragenter", over, { signal });
    window.addEventListener("dragleave", leave, { signal });
    window.addEventListener("drop", drop, { signal });
  }

  /**
   * The input is created each time and stays out of the page, where it would look like another file chooser.
   * @param {Event} event
   */
  #chooseFolder(event) {
    event.stopPropagation();
    const input = document.createElement("input");
    input.type = "file";
    input.webkitdirectory = true;
    input.addEventListener("change", () => {
      const files = [...(input.files ?? [])].filter((file) => !file.name.startsWith("."));
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
  /** @type {{ file: File, name: string }[]} */
  #gathered = [];
  /** @type {number | undefined} */
  #handingOn;
  #onFiles;

  /**
   * `url` is never requested, but Dropzone does not start without one.
   * @param {HTMLElement} element
   * @param {{ url: string, onFiles: (files: { file: File, name: string }[]) => void }} options
   */
  constructor(element, { url, onFiles }) {
    this.#onFiles = onFiles;
    this.#dropzone = new SlicedDropzone(element, {
      url,
      autoQueue: false,
      autoProcessQueue: false,
      maxFilesize: Infinity,
      createImageThumbnails: false,
      addedfile: (file) => this.#takeIn(file),
    });
  }

  /**
   * Adds files that were chosen or dropped outside Dropzone's own element.
   * @param {Iterable<File>} files
   */
  addFiles(files) {
    this.#dropzone.handleFiles(/** @type {DropzoneFile[]} */ ([...files]));
  }

  /**
   * Takes over a drop that landed elsewhere on the page.
   * @param {DragEvent} event
   */
  takeDrop(event) {
    this.#dropzone.drop(event);
  }

  /**
   * Ties an upload to its row, which then carries Dropzone's classes; the row may come after the end.
   * @param {Upload} upload
   * @param {HTMLElement} row
   */
  show(upload, row) {
    const file = fileOf(upload);
    file.previewElement = row;
    row.classList.toggle("dz-success", file.status === Dropzone.SUCCESS);
    row.classList.toggle("dz-error", file.status === Dropzone.ERROR);
  }

  /**
   * Reports the success of an upload.
   * @param {Upload} upload
   */
  succeed(upload) {
    this.#dropzone._finished([fileOf(upload)], JSON.stringify({ id: upload.id }), null);
  }

  /**
   * Marks an upload as failed.
   * @param {Upload} upload
   */
  fail(upload) {
    this.#dropzone._errorProcessing([fileOf(upload)], upload.problem?.message ?? "");
  }

  /**
   * Clears the marks of a failure before another attempt.
   * @param {Upload} upload
   */
  restart(upload) {
    const file = fileOf(upload);
    file.status = Dropzone.ADDED;
    file.previewElement?.classList.remove("dz-error", "dz-complete");
  }

  /**
   * Forgets a file and removes its row from the page.
   * @param {Upload} upload
   */
  remove(upload) {
    this.#dropzone.removeFile(fileOf(upload));
  }

  /** @param {DropzoneFile} file */
  #takeIn(file) {
    this.#handingOn ??= setTimeout(() => this.#handOn(), GATHERING);
    this.#gathered.push({ file, name: file.fullPath || file.webkitRelativePath || file.name });
  }

  #handOn() {
    const files = this.#gathered;
    this.#gathered = [];
    this.#handingOn = undefined;
    this.#onFiles(files);
  }
}

/**
 * The file of an upload, on which Dropzone has noted its own state.
 * @param {Upload} upload
 */
function fileOf({ file }) {
  return /** @type {DropzoneFile} */ (file);
}

/** Dropzone that accepts thousands of files without freezing the page. */
class SlicedDropzone extends Dropzone {
  /** @type {SlicedWork<DropzoneFile>} */
  #adding = new SlicedWork((file) => this.#add(file), { schedule: nextTask });

  /**
   * Reading a file's size makes the browser access the disk: thousands at once would freeze the page for a second.
   * @override
   * @param {DropzoneFile} file
   */
  addFile(file) {
    this.#adding.add(file);
  }

  /**
   * Dropzone would search its own list for each of thousands of files; the queue has all of them.
   * @param {DropzoneFile} file
   */
  #add(file) {
    super.addFile(file);
    this.files.length = 0;
  }

  /**
   * Returns none: they are added as they come.
   * @override
   * @param {FileSystemDirectoryEntry} directory
   */
  async _addFilesFromDirectory(directory) {
    await walkFolder(directory, (file, path) => {
      const taken = /** @type {DropzoneFile} */ (file);
      taken.fullPath = path;
      this.addFile(taken);
    });
    return [];
  }
}
