/** Tabs of one browser tell each other what they are sending, so that none shows it as interrupted. */

import { sleep } from "./retry.js";

/** A background tab answers within this time, or counts as closed, milliseconds. */
const ANSWER_TIME = 250;

/** Answers other tabs with `idsHere()`, and asks them. */
export class TabPresence {
  #channel;
  #heard = new Set();

  constructor({ idsHere, channel = new BroadcastChannel("sluice-uploads") }) {
    this.#channel = channel;
    channel.addEventListener("message", ({ data }) => {
      if (data.question) channel.postMessage({ ids: idsHere() });
      else for (const id of data.ids) this.#heard.add(id);
    });
  }

  /** The ids that other tabs are sending, as a Set. */
  async idsElsewhere() {
    this.#heard.clear();
    this.#channel.postMessage({ question: true });
    await sleep(ANSWER_TIME);
    return new Set(this.#heard);
  }
}
