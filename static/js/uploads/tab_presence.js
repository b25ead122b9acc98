/** Tabs of one browser tell each other what they are sending: none of it is interrupted, wherever one looks. */

import { sleep } from "./retry.js";

/** A tab in the background answers within this time or is not there, milliseconds. */
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
