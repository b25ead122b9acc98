/** Uses no more connections than the server wants: asks it when a file is begun, and every minute while they are sent. */

/** Milliseconds. */
const EVERY = 60_000;

export class ConnectionAdvice {
  #ask;
  #slots;
  #lanes;
  #isBusy;
  #timer = null;

  /** `ask()` resolves to a number, or null for no wish; `lanes` is null where there are none. */
  constructor({ ask, slots, lanes, isBusy }) {
    this.#ask = ask;
    this.#slots = slots;
    this.#lanes = lanes;
    this.#isBusy = isBusy;
  }

  /** A file is about to be sent. */
  begin() {
    if (this.#timer !== null) return;
    this.#timer = setInterval(() => this.#look(), EVERY);
    this.#follow();
  }

  #look() {
    if (this.#isBusy()) return this.#follow();
    clearInterval(this.#timer);
    this.#timer = null;
    return undefined;
  }

  async #follow() {
    const most = (await this.#ask().catch(() => null)) ?? Infinity;
    this.#slots.allow(most);
    this.#lanes?.allow(most);
  }
}
