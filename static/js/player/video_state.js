/** A video as the server knows it, followed while its state changes. */

import { uploadState, video as videoState, videoAt } from "../uploads/api.js";
import { coveredBytes } from "../uploads/chunk_plan.js";
import { problemOfError } from "../uploads/problem.js";
import { sleep } from "../uploads/retry.js";
import { isChanging, UNKNOWN_PLAYBACK } from "./playback.js";

/**
 * @import { WatchedVideo } from "./playback.js"
 *
 * @typedef {object} OpenedVideo what a page knows of a video before the server has said anything
 * @property {string} id
 * @property {string} filename
 * @property {string | null} media
 * @property {boolean} inline
 * @property {boolean} [isArriving]
 * @property {string | null} [stateUrl]
 */

/** Time until the next look after something has changed, milliseconds; grows while nothing does. */
const PAUSE = 1_000;
const GROWTH = 1.5;
/** The longest while something is being made. */
const BUSY_PAUSE = 5_000;
/** The longest while nothing is: others may choose a quality too. */
const IDLE_PAUSE = 30_000;

/** Emits `change`, and `arrived` once an upload is complete. */
export class VideoState extends EventTarget {
  /** @type {string} */
  #id;
  /** @type {string | null} */
  #stateUrl;
  /** @type {WatchedVideo} */
  #state;
  #isKnown = false;
  #pause = PAUSE;
  #wake = () => {};

  /**
   * `isArriving` says that the upload is not complete yet; `stateUrl` is where a link user finds out about the video.
   * @param {OpenedVideo} video
   */
  constructor({ id, media, inline, filename, isArriving = false, stateUrl = null }) {
    super();
    this.#id = id;
    this.#stateUrl = stateUrl;
    this.#state = { id, media, inline, filename, isArriving, share: 0, length: 0, playback: UNKNOWN_PLAYBACK };
  }

  get id() {
    return this.#id;
  }

  /** `{ id, filename, length, media, inline, playback, isArriving, share }`; share of the bytes that have arrived. */
  get current() {
    return this.#state;
  }

  /** Whether the server has said anything about it yet. */
  get isKnown() {
    return this.#isKnown;
  }

  /**
   * Loads the state, and again as long as it may change; returns when it is aborted or the video is gone.
   * @param {AbortSignal} signal
   */
  async follow(signal) {
    while (!signal.aborted) {
      try {
        await this.#load(signal);
      } catch (error) {
        if (signal.aborted || problemOfError(error).isAbsence) return;
      }
      await this.#rest(signal);
    }
  }

  /**
   * Resolves when a link user has URLs that work again; those of others always do.
   * @param {AbortSignal} signal
   */
  async renew(signal) {
    if (this.#stateUrl) await this.#load(signal);
  }

  /** Looks again at once, because something was asked for. */
  refresh() {
    this.#pause = PAUSE;
    this.#wake();
  }

  /** @param {AbortSignal} signal */
  async #load(signal) {
    const next = this.#state.isArriving ? await this.#loadUpload(signal) : await this.#loadVideo(signal);
    const state = { ...this.#state, ...next, playback: { ...UNKNOWN_PLAYBACK, ...next.playback } };
    const hasArrived = this.#state.isArriving && !state.isArriving;
    const hasChanged = !this.#isKnown || JSON.stringify(state) !== JSON.stringify(this.#state);
    const isBusy = state.isArriving || isChanging(state.playback);
    this.#pause = hasChanged ? PAUSE : Math.min(this.#pause * GROWTH, isBusy ? BUSY_PAUSE : IDLE_PAUSE);
    this.#state = state;
    this.#isKnown = true;
    if (hasChanged) this.dispatchEvent(new Event("change"));
    if (hasArrived) this.dispatchEvent(new Event("arrived"));
  }

  /** @param {AbortSignal} signal */
  #loadVideo(signal) {
    return this.#stateUrl ? videoAt(this.#stateUrl, signal) : videoState(this.#id, signal);
  }

  /**
   * The upload until it is complete, and from then on the video of the same id.
   * @param {AbortSignal} signal
   */
  async #loadUpload(signal) {
    const upload = await uploadState(this.#id, signal);
    if (upload.state === "complete") return { ...(await videoState(this.#id, signal)), isArriving: false, share: 1 };
    const { filename, length, playback } = upload;
    return { filename, length: length ?? 0, playback, share: length ? coveredBytes(upload.received) / length : 0 };
  }

  /**
   * Waits, and longer while the page is hidden.
   * @param {AbortSignal} signal
   */
  async #rest(signal) {
    /** @type {Promise<void>} */
    const woken = new Promise((resolve) => (this.#wake = resolve));
    const pause = document.hidden ? IDLE_PAUSE : this.#pause;
    await Promise.race([woken, sleep(pause, signal).catch(() => {})]);
  }
}
