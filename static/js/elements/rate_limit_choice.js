/** <rate-limit-choice>: how fast this browser may send, so that others on the line get their share; it is remembered. */

import { partsOf } from "../helpers/template.js";

const KEY = "sluice.rate-limit";

export class RateLimitChoice extends HTMLElement {
  /** `limit`, a RateLimit, follows the choice, that of other tabs too. */
  connect({ limit }) {
    const { choice } = partsOf(this);
    const follow = () => {
      choice.value = localStorage.getItem(KEY);
      if (choice.selectedIndex < 0) choice.value = "0"; // No choice yet, or one of another version of the page.
      limit.bytesPerSecond = Number(choice.value);
    };
    choice.addEventListener("change", () => {
      localStorage.setItem(KEY, choice.value);
      follow();
    });
    window.addEventListener("storage", ({ key }) => key === KEY && follow());
    follow();
  }
}

customElements.define("rate-limit-choice", RateLimitChoice);
