/** <upload-drop>: the area that takes files in. Emits `files-chosen` (detail: files); drops go to Dropzone directly. */
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
