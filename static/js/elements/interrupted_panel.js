/** <interrupted-panel>: uploads whose file has to be chosen again. Emits `files-chosen` (detail: files). */

import { formatBytes, formatUntil, isolated } from "../page/format.js";
import { drawMeter, nameMeter } from "../page/meter.js";
import { copyOfTemplate, keepFocus, partsOf } from "../page/parts.js";
import { wordsForRequest } from "../words.js";

export class InterruptedPanel extends HTMLElement {
  #parts;

  /** `interrupted` is shown; `confirm` asks a question before anything is deleted. */
  connect({ interrupted, confirm }) {
    Object.assign(this, { interrupted, confirm });
    this.#parts = partsOf(this);
    interrupted.addEventListener("change", () => this.#draw());
    this.addEventListener("click", (event) => this.#act(event));
  }

  #draw() {
    const { panel, list } = this.#parts;
    const old = [...list.children];
    const rows = this.interrupted.list.map(rowOf);
    list.append(...rows);
    panel.hidden = rows.length === 0;
    for (const row of old) {
      const same = rows.find(({ interrupted }) => interrupted.id === row.interrupted.id);
      keepFocus(row, () => row.remove(), [same, rows[0], this.querySelector("h2")]);
    }
  }

  #act({ target }) {
    const button = target.closest("[data-action]");
    if (!button) return;
    const row = button.closest("[role=listitem]");
    if (button.dataset.action === "choose") this.#choose(row);
    else this.#discard(row);
  }

  #choose(row) {
    const input = document.createElement("input");
    input.type = "file";
    input.addEventListener("change", () => this.#take(row, input.files[0]));
    input.click();
  }

  #take(row, file) {
    const { name, size } = row.interrupted;
    if (file.name === name.split("/").at(-1) && file.size === size) {
      this.dispatchEvent(new CustomEvent("files-chosen", { detail: [file] }));
      return;
    }
    this.#say(row, `That is a different file: this upload belongs to ${isolated(name)}, ${formatBytes(size)}.`);
  }

  async #discard(row) {
    const { id, name, received } = row.interrupted;
    const isAgreed = await this.confirm({
      title: "Discard this upload?",
      text: `${formatBytes(received)} of ${isolated(name)} are on the server and would be deleted.`,
      yes: "Discard",
      no: "Keep",
    });
    if (!isAgreed) return;
    try {
      await this.interrupted.discard(id);
    } catch (problem) {
      this.#say(row, wordsForRequest("discard the upload", problem));
    }
  }

  #say(row, text) {
    const { status } = partsOf(row);
    status.setAttribute("role", "alert");
    status.textContent = text;
  }
}

function rowOf(interrupted) {
  const row = document.createElement("div");
  row.className = "upload-row";
  row.setAttribute("role", "listitem");
  row.dataset.state = "interrupted";
  row.interrupted = interrupted;
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
