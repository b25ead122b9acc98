/** <rate-limit-choice>: how fast this browser may send, so that others on the line get their share; it is remembered. */

import { partsOf } from "../page/parts.js";

/** @import { RateLimit } from "../uploads/limits.js" */

const KEY = "sluice.rate-limit";

export class RateLimitChoice extends HTMLElement {
  /**
   * `limit` follows the choice, that of other tabs too.
   * @param {{ limit: RateLimit }} options
   */
  connect({ limit }) {
    const { choice } = /** @type {{ choice: HTMLSelectElement }} */ (partsOf(this));
    const follow = (/** @type {string | null} */ value) => {
      choice.value = value ?? "";
      if (choice.selectedIndex < 0) choice.value = "0"; // No choice yet, or one of another version of the page.
      limit.bytesPerSecond = Number(choice.value);
    };
    choice.addEventListener("change", () => {
      remember(choice.value);
      follow(choice.value);
    });
    window.addEventListener("storage", ({ key, newValue }) => key === KEY && follow(newValue));
    follow(remembered());
  }
}

/** Null without a choice, and where the browser blocks the data of sites: `localStorage` itself throws then. */
function remembered() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}

/** @param {string} choice */
function remember(choice) {
  try {
    localStorage.setItem(KEY, choice);
  } catch {
    // Blocked, or full: it holds until the page is left.
  }
}

customElements.define("rate-limit-choice", RateLimitChoice);
