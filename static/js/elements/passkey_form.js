/** <passkey-form>: a form that registers a passkey of this device under a name. */

import { hasPasskeys, registerPasskey, wordsForPasskey } from "../account/passkeys.js";
import { partsOf, setText } from "../helpers/template.js";

export class PasskeyForm extends HTMLElement {
  connectedCallback() {
    const { form, missing } = partsOf(this);
    form.hidden = !hasPasskeys();
    missing.hidden = hasPasskeys();
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#register(form);
    });
  }

  async #register(form) {
    const { optionsUrl, url, doneUrl } = this.dataset;
    const { problem } = partsOf(this);
    const button = form.querySelector("button");
    button.disabled = true;
    setText(problem, "");
    try {
      const { passkey_name: name, passkey_password: password } = form.elements;
      await registerPasskey({ optionsUrl, url, name: name.value, password: password?.value });
      location.assign(doneUrl);
    } catch (error) {
      setText(problem, wordsForPasskey(error));
      button.disabled = false;
      button.focus();
    }
  }
}

customElements.define("passkey-form", PasskeyForm);
