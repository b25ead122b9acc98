/** What pages with forms need of scripts: dates in the local time zone, and <copy-text>. Without scripts, forms work as well. */

import { localiseDates, partsOf, setText } from "./page/parts.js";

/** How long the button says that the text was copied, milliseconds. */
const SHOWN = 10_000;

/** A read-only field with a button that copies it, or the button alone, for the text in `data-value`. */
export class CopyText extends HTMLElement {
  connectedCallback() {
    const { copy } = partsOf(this);
    const value = this.#field;
    copy.addEventListener("click", () => this.#copy());
    if (!value) return;
    value.addEventListener("focus", () => value.select());
    // Firefox does not let a field grow with its text by itself.
    if (!CSS.supports("field-sizing", "content")) value.style.height = `${value.scrollHeight + 2}px`;
  }

  /** @returns {HTMLTextAreaElement | null} */
  get #field() {
    return this.querySelector("[data-part=value]");
  }

  async #copy() {
    const value = this.#field;
    value?.select();
    const isCopied = await copied(this.dataset.value ?? "");
    if (!isCopied) value?.select();
    this.#say(isCopied ? "Copied" : "Press Ctrl+C");
  }

  /** @param {string} text */
  #say(text) {
    const { label, said } = partsOf(this);
    setText(label, text);
    setText(said, text);
    setTimeout(() => {
      setText(label, "Copy");
      setText(said, "");
    }, SHOWN);
  }
}

/**
 * Whether the browser has copied the text: without HTTPS there is no clipboard, but what is selected can be copied.
 * @param {string} text
 */
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copiedFromField(text);
  }
}

/** @param {string} text */
function copiedFromField(text) {
  const field = document.createElement("textarea");
  const focused = /** @type {HTMLElement | null} */ (document.activeElement);
  field.value = text;
  field.className = "visually-hidden";
  document.body.append(field);
  field.select();
  const isCopied = document.execCommand("copy");
  field.remove();
  focused?.focus();
  return isCopied;
}

customElements.define("copy-text", CopyText);

localiseDates(document);
