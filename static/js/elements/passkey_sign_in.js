/** <passkey-sign-in>: signs in with a passkey, by its button or in the browser's list below the e-mail address. */

import { canOfferPasskeys, hasPasskeys, signInWithPasskey, wordsForPasskey } from "../account/passkeys.js";
import { partsOf, setText } from "../helpers/template.js";

/** The server's question is renewed this often, milliseconds: its answer is accepted for ten minutes. */
const RENEWED_AFTER = 8 * 60_000;

export class PasskeySignIn extends HTMLElement {
  #offer = new AbortController();

  connectedCallback() {
    this.hidden = !hasPasskeys();
    if (this.hidden) return;
    const { button, problem } = partsOf(this);
    button.addEventListener("click", () => this.#ask(button, problem));
    this.#offerInField(problem);
  }

  disconnectedCallback() {
    this.#offer.abort();
  }

  async #ask(button, problem) {
    this.#offer.abort(); // A page has one question to the device at a time.
    button.disabled = true;
    setText(problem, "");
    if (await this.#signIn({}, problem)) return;
    button.disabled = false;
    button.focus();
    this.#offerInField(problem);
  }

  async #offerInField(problem) {
    this.#offer = new AbortController();
    const { signal } = this.#offer;
    if (!(await canOfferPasskeys())) return;
    while (!signal.aborted) {
      const renewal = AbortSignal.timeout(RENEWED_AFTER);
      const how = { mediation: "conditional", signal: AbortSignal.any([signal, renewal]) };
      if ((await this.#signIn(how, problem)) || !renewal.aborted) return;
    }
  }

  /** Whether somebody is signed in; the browser is on its way to the next page then. */
  async #signIn(how, problem) {
    const { optionsUrl, url, next } = this.dataset;
    try {
      location.assign(await signInWithPasskey({ optionsUrl, url, next, ...how }));
      return true;
    } catch (error) {
      // Nobody has asked for what the browser offers by itself, until one of its passkeys is chosen.
      const isAsked = !how.mediation || error.code === "sign_in_refused";
      if (isAsked) setText(problem, wordsForPasskey(error));
      return false;
    }
  }
}

customElements.define("passkey-sign-in", PasskeySignIn);
