/** <retry-form>: sends the form in it, and sends it again while the server is busy. Without scripts, the form works as well. */

import { find, partsOf, setText } from "../page/parts.js";
import { retryAfterDelay } from "../uploads/problem.js";

const BUSY = 503;

/** Pause before the next attempt if the server names none, milliseconds. */
const PAUSE = 2_000;

const WAITING = "Many people are signing in at the moment. You are in line: this page goes on by itself.";

/** @param {number} milliseconds */
const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

export class RetryForm extends HTMLElement {
  #sending = new AbortController();

  connectedCallback() {
    this.#sending = new AbortController();
    const { signal } = this.#sending;
    this.addEventListener("submit", (event) => this.#send(event), { signal });
  }

  disconnectedCallback() {
    this.#sending.abort();
  }

  /** @param {SubmitEvent} event */
  async #send(event) {
    event.preventDefault();
    const form = /** @type {HTMLFormElement} */ (event.target);
    const button = /** @type {HTMLButtonElement} */ (form.querySelector("button[type=submit]"));
    const fields = /** @type {[name: string, text: string][]} */ ([...new FormData(form)]); // No files.
    const body = new URLSearchParams(fields);
    button.disabled = true;
    try {
      const response = await this.#answer(form.action, body);
      if (response.redirected) location.assign(response.url);
      else this.#show(await response.text());
    } catch {
      if (!this.#sending.signal.aborted) form.submit(); // The browser says what is wrong.
    }
  }

  /**
   * The first response that is not "busy". Behind a redirect the form has done its work, however busy that page is.
   * @param {string} url
   * @param {URLSearchParams} body
   */
  async #answer(url, body) {
    const { signal } = this.#sending;
    const headers = { Accept: "text/html" };
    for (;;) {
      const response = await fetch(url, { method: "POST", body, headers, signal });
      if (response.redirected || response.status !== BUSY) return response;
      setText(partsOf(this).waiting, WAITING);
      // A class that was sent away together does not come back together.
      await pause((retryAfterDelay(response.headers.get("Retry-After")) || PAUSE) * (0.5 + Math.random()));
      signal.throwIfAborted();
    }
  }

  /**
   * Replaces the content of this page by that of another one.
   * @param {string} text
   */
  #show(text) {
    const main = new DOMParser().parseFromString(text, "text/html").querySelector("main");
    if (main) find("main").replaceWith(document.adoptNode(main));
    /** @type {HTMLElement | null} */ (document.querySelector("main [autofocus]"))?.focus();
  }
}

customElements.define("retry-form", RetryForm);
