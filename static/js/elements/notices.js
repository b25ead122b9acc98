/** What the page asks and says: <confirm-dialog>, <connection-notice>, <live-announcer>, and what that one reads out. */

import { countOf } from "../page/format.js";
import { find, partsOf } from "../page/parts.js";

/**
 * @import { Connection } from "../uploads/connection.js"
 * @import { Upload } from "../uploads/upload.js"
 * @import { UploadQueue } from "../uploads/upload_queue.js"
 * @import { UploadPanel } from "./upload_panel.js"
 *
 * @typedef {{ title: string, text: string, yes: string, no: string }} Question
 */

/** A question with two answers; the harmless answer has the focus. */
export class ConfirmDialog extends HTMLElement {
  /**
   * Resolves to whether the person agreed; closing the dialog in any other way means no.
   * @param {Question} question
   * @returns {Promise<boolean>}
   */
  ask({ title, text, yes, no }) {
    const dialog = /** @type {HTMLDialogElement} */ (this.querySelector("dialog"));
    const parts = partsOf(dialog);
    parts.title.textContent = title;
    parts.text.textContent = text;
    parts.yes.textContent = yes;
    parts.no.textContent = no;
    dialog.returnValue = "no";
    dialog.showModal();
    return new Promise((resolve) => {
      dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
    });
  }
}

customElements.define("confirm-dialog", ConfirmDialog);

/**
 * Asks with the dialog of this page.
 * @param {Question} question
 */
export function confirm(question) {
  return find("confirm-dialog").ask(question);
}

/** Shown while the server cannot be reached, or waits for the person to sign in. */
export class ConnectionNotice extends HTMLElement {
  /**
   * Follows `connection`; `isBusy()` tells whether anything waits for it. Where people sign in is in `data-sign-in`.
   * @param {{ connection: Connection, isBusy: () => boolean }} options
   */
  connect({ connection, isBusy }) {
    const link = this.#signInLink();
    const draw = () => {
      const { isReachable, isSignedOut } = connection;
      const isNeeded = isSignedOut || (!isReachable && isBusy());
      const text = isNeeded ? noticeWords(connection, isBusy()) : "";
      if (this.dataset.text === text) return; // What has not changed is not read out again.
      this.dataset.text = text;
      this.replaceChildren(text, ...(isSignedOut ? [" ", link] : []));
      this.hidden = !isNeeded;
    };
    connection.addEventListener("change", draw);
  }

  /** Opens another tab: the files that were chosen here would not survive leaving the page. */
  #signInLink() {
    const link = document.createElement("a");
    Object.assign(link, { className: "button", textContent: "Sign in", target: "_blank" });
    link.href = this.dataset.signIn ?? "";
    return link;
  }
}

/**
 * @param {Connection} connection
 * @param {boolean} isBusy
 */
function noticeWords({ isOffline, isSignedOut }, isBusy) {
  if (isSignedOut) return isBusy ? "You are no longer signed in. Your uploads wait and lose nothing." : "You are no longer signed in.";
  const reason = isOffline ? "You are offline." : "The server cannot be reached.";
  return `${reason} Your uploads will resume when the connection is back.`;
}

customElements.define("connection-notice", ConnectionNotice);

/** The shortest time between two announcements, milliseconds. */
const PAUSE = 2_000;

/** Speaks to screen readers, rarely enough to be heard out. */
export class LiveAnnouncer extends HTMLElement {
  /** @type {string | null} */
  #pending = null;
  /** @type {number | undefined} */
  #timer;

  /**
   * Announces a text soon; of several in a row, only the last.
   * @param {string} text
   */
  say(text) {
    this.#pending = text;
    if (this.#timer) return;
    this.#speak();
    this.#timer = setTimeout(() => this.#afterPause(), PAUSE);
  }

  #speak() {
    this.textContent = this.#pending ?? "";
    this.#pending = null;
  }

  #afterPause() {
    this.#timer = undefined;
    if (this.#pending !== null) this.say(this.#pending);
  }
}

customElements.define("live-announcer", LiveAnnouncer);

/**
 * Speaks with the announcer of this page.
 * @param {string} text
 */
export function announce(text) {
  find("live-announcer").say(text);
}

/** Shortest time between two announcements of progress, milliseconds. */
const PROGRESS_PAUSE = 20_000;
/** Up to this many files, the end of each is announced. */
const FEW_FILES = 5;

/**
 * Announces what `queue`, `panel` and `connection` tell: starts, ends and failures, and progress now and then.
 * @param {{ queue: UploadQueue, panel: UploadPanel, connection: Connection }} uploads
 */
export function announceProgress({ queue, panel, connection }) {
  let lastProgress = performance.now();
  queue.addEventListener("added", ({ detail }) => {
    lastProgress = performance.now();
    announce(detail.length === 1 ? `${detail[0].name} added.` : `${countOf(detail.length, "file")} added.`);
  });
  queue.addEventListener("completed", ({ detail }) => {
    const text = completionText(queue, detail);
    if (text) announce(text);
  });
  queue.addEventListener("changed", ({ detail }) => {
    if (detail.state === "failed") announce(`${detail.name} could not be uploaded.`);
  });
  panel.addEventListener("totals", ({ detail }) => {
    if (!queue.isBusy || performance.now() - lastProgress < PROGRESS_PAUSE) return;
    lastProgress = performance.now();
    announce(detail.text.replaceAll(" · ", ", "));
  });
  connection.addEventListener("change", () => {
    if (connection.isSignedOut) announce("You are no longer signed in. Uploads wait until you sign in again.");
    else if (connection.isReachable && queue.isBusy) announce("The connection is back. Uploads continue.");
  });
}

/**
 * With many files, only the end of all is announced; progress covers the rest.
 * @param {UploadQueue} queue
 * @param {Upload} upload
 */
function completionText(queue, upload) {
  if (queue.size > 1 && !queue.isBusy) return "All uploads have ended.";
  return queue.size <= FEW_FILES ? `${upload.name} has been uploaded.` : null;
}
