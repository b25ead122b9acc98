/** <interrupted-panel>: uploads whose file has to be chosen again. Emits `files-chosen` (detail: files). */

import { formatBytes, formatUntil, isolated } from "../page/format.js";
import { drawMeter, nameMeter } from "../page/meter.js";
import { actionOf, copyOfTemplate, keepFocus, partsOf } from "../page/parts.js";
import { confirm } from "./notices.js";
import { wordsForRequest } from "../words.js";

/**
 * @import { InterruptedUpload, InterruptedUploads } from "../uploads/interrupted_uploads.js"
 *
 * @typedef {HTMLElement & { interrupted: InterruptedUpload }} Row
 */

export class InterruptedPanel extends HTMLElement {
  /** @type {Record<string, HTMLElement>} */
  #parts;
  /** @type {InterruptedUploads} */
  #interrupted;

  /** @param {{ interrupted: InterruptedUploads }} options */
  connect({ interrupted }) {
    this.#interrupted = interrupted;
    this.#parts = partsOf(this);
    interrupted.addEventListener("change", () => this.#draw());
    this.addEventListener("click", (event) => this.#act(event));
  }

  #draw() {
    const { panel, list } = this.#parts;
    const old = /** @type {Row[]} */ ([...list.children]);
    const rows = this.#interrupted.list.map(rowOf);
    list.append(...rows);
    panel.hidden = rows.length === 0;
    for (const row of old) {
      const same = rows.find(({ interrupted }) => interrupted.id === row.interrupted.id);
      keepFocus(row, () => row.remove(), [same, rows[0], this.querySelector("h2")]);
    }
  }

  /** @param {Event} event */
  #act({ target }) {
    const button = actionOf(target);
    if (!button) return;
    const row = /** @type {Row} */ (button.closest("[role=listitem]"));
    if (button.dataset.action === "choose") this.#choose(row);
    else this.#discard(row);
  }

  /** @param {Row} row */
  #choose(row) {
    const input = document.createElement("input");
    input.type = "file";
    input.addEventListener("change", () => input.files?.[0] && this.#take(row, input.files[0]));
    input.click();
  }

  /**
   * @param {Row} row
   * @param {File} file
   */
  #take(row, file) {
    const { name, size } = row.interrupted;
    if (file.name === name.split("/").at(-1) && file.size === size) {
      this.dispatchEvent(new CustomEvent("files-chosen", { detail: [file] }));
      return;
    }
    this.#say(row, `That is a different file: this upload belongs to ${isolated(name)}, ${formatBytes(size)}.`);
  }

  /** @param {Row} row */
  async #discard(row) {
    const { id, name, received } = row.interrupted;
    const isAgreed = await confirm({
      title: "Discard this upload?",
      text: `${formatBytes(received)} of ${isolated(name)} are on the server and would be deleted.`,
      yes: "Discard",
      no: "Keep",
    });
    if (!isAgreed) return;
    try {
      await this.#interrupted.discard(id);
    } catch (problem) {
      this.#say(row, wordsForRequest("discard the upload", problem));
    }
  }

  /**
   * @param {Row} row
   * @param {string} text
   */
  #say(row, text) {
    const { status } = partsOf(row);
    status.setAttribute("role", "alert");
    status.textContent = text;
  }
}

/** @param {InterruptedUpload} interrupted */
function rowOf(interrupted) {
  const row = Object.assign(document.createElement("div"), { interrupted });
  row.className = "upload-row";
  row.setAttribute("role", "listitem");
  row.dataset.state = "interrupted";
  row.append(copyOfTemplate("interrupted-row"));
  const { name, meter, status, choose, discard } = partsOf(row);
  name.textContent = interrupted.name;
  nameMeter(meter, `Progress of ${interrupted.name}`);
  drawMeter(meter, { ...interrupted, sent: interrupted.received });
  const safe = `${formatBytes(interrupted.received)} of ${formatBytes(interrupted.size)} safe`;
  status.textContent = interrupted.expires ? `${safe} · kept for ${formatUntil(interrupted.expires)}` : safe;
  choose.setAttribute("aria-label", `Choose the file for ${interrupted.name}`);
  discard.setAttribute("aria-label", `Discard the upload of ${interrupted.name}`);
  discard.title = "Discard";
  return row;
}

customElements.define("interrupted-panel", InterruptedPanel);
