/** <confirm-dialog>: a question with two answers; the harmless answer has the focus. */

import { partsOf } from "../helpers/template.js";

export class ConfirmDialog extends HTMLElement {
  /** Resolves to whether the person agreed; closing the dialog in any other way means no. */
  ask({ title, text, yes, no }) {
    const dialog = this.querySelector("dialog");
    const parts = partsOf(dialog);
    parts.title.textContent = title;
    parts.text.textContent = text;
    parts.yes.textContent = yes;
    parts.no.textContent = no;
    dialog.returnValue = "no";
    dialog.showModal();
    return new Promise((resolve) => {
      dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
    });
  }
}

customElements.define("confirm-dialog", ConfirmDialog);
