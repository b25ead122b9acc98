/** <copy-text>: a read-only field with a button that copies it. */

import { partsOf, setText } from "../helpers/template.js";

/** How long the button says that the text was copied, milliseconds. */
const SHOWN = 10_000;

export class CopyText extends HTMLElement {
  connectedCallback() {
    const { value, copy } = partsOf(this);
    copy.addEventListener("click", () => this.#copy(value, copy));
    value.addEventListener("focus", () => value.select());
  }

  async #copy(value, button) {
    value.select();
    setText(button, (await copied(value.value)) ? "Copied" : "Press Ctrl+C");
    setTimeout(() => setText(button, "Copy"), SHOWN);
  }
}

/** Whether the browser has copied the text: without HTTPS there is no clipboard. */
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return document.execCommand("copy");
  }
}

customElements.define("copy-text", CopyText);
