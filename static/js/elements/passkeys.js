/** Passkeys (Web Authentication): <passkey-form> registers one, <passkey-sign-in> uses one. */

import { partsOf, setText } from "../page/parts.js";
import { request } from "../uploads/api.js";
import { Problem, problemOfError } from "../uploads/problem.js";

/**
 * @typedef {{ mediation?: CredentialMediationRequirement, signal?: AbortSignal }} SignIn
 */

// ---- what the server, the browser and the device say to each other -----------------------------------------------

/** Whether this browser has passkeys on this page: they need HTTPS, except on the machine itself. */
export const hasPasskeys = () => globalThis.isSecureContext && "PublicKeyCredential" in globalThis;

/** Whether the browser can offer passkeys in the list of a field, without being asked for one. */
export async function canOfferPasskeys() {
  return hasPasskeys() && Boolean(await PublicKeyCredential.isConditionalMediationAvailable?.());
}

/**
 * Lets the device make a passkey, and registers it; `optionsUrl` and `url` are the server's for the two steps.
 * It wants the password some time after signing in.
 * @param {{ optionsUrl: string, url: string, name: string, password?: string, signal?: AbortSignal }} passkey
 */
export async function registerPasskey({ optionsUrl, url, name, password = "", signal }) {
  const { options, token } = await request(optionsUrl, { method: "POST", json: { password }, signal });
  const publicKey = {
    ...options,
    challenge: fromBase64url(options.challenge),
    user: { ...options.user, id: fromBase64url(options.user.id) },
    excludeCredentials: withIds(options.excludeCredentials),
  };
  const made = /** @type {PublicKeyCredential} */ (await navigator.credentials.create({ publicKey, signal }));
  const { clientDataJSON, attestationObject } = /** @type {AuthenticatorAttestationResponse} */ (made.response);
  const credential = answerOf(made, { clientDataJSON, attestationObject });
  return request(url, { method: "POST", json: { name, credential, token }, signal });
}

/**
 * Signs in with a passkey and returns where to go then; with `mediation: "conditional"` when one is chosen in a field.
 * @param {SignIn & { optionsUrl: string, url: string, next?: string }} signIn
 * @returns {Promise<string>}
 */
export async function signInWithPasskey({ optionsUrl, url, next, mediation, signal }) {
  const { options, token } = await request(optionsUrl, { method: "POST", signal });
  const publicKey = { ...options, challenge: fromBase64url(options.challenge), allowCredentials: [] };
  const used = /** @type {PublicKeyCredential} */ (await navigator.credentials.get({ publicKey, mediation, signal }));
  const response = /** @type {AuthenticatorAssertionResponse} */ (used.response);
  const { clientDataJSON, authenticatorData, signature, userHandle } = response;
  const credential = answerOf(used, { clientDataJSON, authenticatorData, signature, userHandle });
  const answer = await request(url, { method: "POST", json: { credential, token, next }, signal });
  return answer.next;
}

/**
 * What the page says when no passkey was made or used; nothing if it was the page that ended it.
 * @param {unknown} error
 */
export function wordsForPasskey(error) {
  if (error instanceof Problem) {
    return error.isConnectionLost ? "The server cannot be reached. Try again in a moment." : error.detail;
  }
  const words = error instanceof DOMException ? WORDS[error.name] : undefined;
  return words ?? "The browser could not use a passkey here. Sign in another way.";
}

/** @type {Record<string, string>} */
const WORDS = {
  AbortError: "",
  // The browser does not tell whether the person has cancelled, waited too long, or has no passkey.
  NotAllowedError: "No passkey was used. Try again whenever you like.",
  InvalidStateError: "This device has a passkey for your account already.",
  SecurityError: "Passkeys work where this server is opened by its name over HTTPS, not by its address.",
};

/**
 * @param {PublicKeyCredential} credential
 * @param {Record<string, ArrayBuffer | null>} response
 */
function answerOf(credential, response) {
  const texts = Object.entries(response).map(([name, bytes]) => [name, bytes && toBase64url(bytes)]);
  const { id, type } = credential;
  return { id, rawId: id, type, response: Object.fromEntries(texts) };
}

/** @param {{ id: string }[]} [credentials] */
function withIds(credentials = []) {
  return credentials.map((each) => ({ ...each, id: fromBase64url(each.id) }));
}

/**
 * Bytes as base64url without padding (RFC 4648, section 5), as the server writes them in JSON.
 * @param {ArrayBuffer} buffer
 */
export function toBase64url(buffer) {
  const text = btoa(String.fromCharCode(...new Uint8Array(buffer)));
  return text.replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

/**
 * The bytes of such a text.
 * @param {string} text
 */
export function fromBase64url(text) {
  const plain = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  return Uint8Array.from(plain, (character) => character.charCodeAt(0));
}

// ---- the elements ------------------------------------------------------------------------------------------------

/** A form that registers a passkey of this device under a name. */
export class PasskeyForm extends HTMLElement {
  connectedCallback() {
    const { form, missing } = /** @type {{ form: HTMLFormElement, missing: HTMLElement }} */ (partsOf(this));
    form.hidden = !hasPasskeys();
    missing.hidden = hasPasskeys();
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#register(form);
    });
  }

  /** @param {HTMLFormElement} form */
  async #register(form) {
    const { optionsUrl = "", url = "", doneUrl = "" } = this.dataset;
    const { problem } = partsOf(this);
    const button = /** @type {HTMLButtonElement} */ (form.querySelector("button"));
    button.disabled = true;
    setText(problem, "");
    try {
      const fields = new FormData(form);
      const name = String(fields.get("passkey_name") ?? "");
      const password = String(fields.get("passkey_password") ?? "");
      await registerPasskey({ optionsUrl, url, name, password });
      location.assign(doneUrl);
    } catch (error) {
      setText(problem, wordsForPasskey(error));
      button.disabled = false;
      button.focus();
    }
  }
}

customElements.define("passkey-form", PasskeyForm);

/** The server's question is renewed this often, milliseconds: its answer is accepted for ten minutes. */
const RENEWED_AFTER = 8 * 60_000;

/** Signs in with a passkey, by its button or in the browser's list below the e-mail address. */
export class PasskeySignIn extends HTMLElement {
  #offer = new AbortController();

  connectedCallback() {
    this.hidden = !hasPasskeys();
    if (this.hidden) return;
    const { button, problem } = /** @type {{ button: HTMLButtonElement, problem: HTMLElement }} */ (partsOf(this));
    button.addEventListener("click", () => this.#ask(button, problem));
    this.#offerInField(problem);
  }

  disconnectedCallback() {
    this.#offer.abort();
  }

  /**
   * @param {HTMLButtonElement} button
   * @param {HTMLElement} problem
   */
  async #ask(button, problem) {
    this.#offer.abort(); // A page has one question to the device at a time.
    button.disabled = true;
    setText(problem, "");
    if (await this.#signIn({}, problem)) return;
    button.disabled = false;
    button.focus();
    this.#offerInField(problem);
  }

  /** @param {HTMLElement} problem */
  async #offerInField(problem) {
    this.#offer = new AbortController();
    const { signal } = this.#offer;
    if (!(await canOfferPasskeys())) return;
    while (!signal.aborted) {
      const renewal = AbortSignal.timeout(RENEWED_AFTER);
      /** @type {SignIn} */
      const how = { mediation: "conditional", signal: AbortSignal.any([signal, renewal]) };
      if ((await this.#signIn(how, problem)) || !renewal.aborted) return;
    }
  }

  /**
   * Whether the sign-in succeeded; the browser is then on its way to the next page.
   * @param {SignIn} how
   * @param {HTMLElement} problem
   */
  async #signIn(how, problem) {
    const { optionsUrl = "", url = "", next } = this.dataset;
    try {
      location.assign(await signInWithPasskey({ optionsUrl, url, next, ...how }));
      return true;
    } catch (error) {
      // What the browser offers by itself was not asked for, until one of its passkeys is chosen.
      const isAsked = !how.mediation || problemOfError(error).code === "sign_in_refused";
      if (isAsked) setText(problem, wordsForPasskey(error));
      return false;
    }
  }
}

customElements.define("passkey-sign-in", PasskeySignIn);
