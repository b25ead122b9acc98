/** <patient-form>: sends the form in it, and sends it again while the server is busy. Without scripts, the form works as well. */

import { partsOf, setText } from "../page/parts.js";
import { retryAfterDelay } from "../uploads/problem.js";

const BUSY = 503;

/** Pause before the next attempt if the server names none, milliseconds. */
const PAUSE = 2_000;

const WAITING = "Many people are signing in at the moment. You are in line: this page goes on by itself.";

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

export class PatientForm extends HTMLElement {
  #sending = new AbortController();

  connectedCallback() {
    this.#sending = new AbortController();
    const { signal } = this.#sending;
    this.addEventListener("submit", (event) => this.#send(event), { signal });
  }

  disconnectedCallback() {
    this.#sending.abort();
  }

  async #send(event) {
    event.preventDefault();
    const form = event.target;
    const button = form.querySelector("button[type=submit]");
    const body = new URLSearchParams(new FormData(form));
    button.disabled = true;
    try {
      const response = await this.#answer(form.action, body);
      if (response.redirected) location.assign(response.url);
      else this.#show(await response.text());
    } catch {
      if (!this.#sending.signal.aborted) form.submit(); // The browser says what is wrong.
    }
  }

  /** The first response that is not "busy". Behind a redirect the form has done its work, however busy that page is. */
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

  /** Replace the content of this page by that of another one. */
  #show(text) {
    const main = new DOMParser().parseFromString(text, "text/html").querySelector("main");
    document.querySelector("main").replaceWith(document.adoptNode(main));
    document.querySelector("main [autofocus]")?.focus();
  }
}

customElements.define("patient-form", PatientForm);
