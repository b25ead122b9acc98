/**
 * <video-player>: plays one video, says how it is doing, and shows what is in the file. Emits `arrived` once an upload
 * that it plays is complete.
 */

import { copyOfTemplate, partsOf, setText } from "../page/parts.js";
import { addControls, addTextTracks, drawMenus } from "../player/controls.js";
import { VideoState } from "../player/video_state.js";
import { isAudioOnly, isChanging, tracksOf } from "../player/playback.js";
import { Playing } from "../player/playing.js";
import { Positions } from "../player/positions.js";
import { drawWaveform } from "../player/waveform.js";
import { codecName, detailsOf, wordsForChange, wordsForState, wordsForUnmakeable, wordsForUnplayable } from "../words.js";
import "./video_renditions.js";

/**
 * @import { Controls } from "../player/controls.js"
 * @import { WatchedVideo } from "../player/playback.js"
 * @import { Failure } from "../player/playing.js"
 * @import { OpenedVideo } from "../player/video_state.js"
 * @import { VideoRenditions } from "./video_renditions.js"
 *
 * Link users have no `renditions`.
 * @typedef {Record<"stage" | "none" | "reason" | "notice" | "state" | "again" | "about" | "details", HTMLElement>
 *   & { video: HTMLVideoElement, renditions?: VideoRenditions }} Parts
 *
 * @typedef {{ title: HTMLElement, stage: HTMLElement, page: HTMLAnchorElement, download: HTMLAnchorElement }} DialogParts
 */

const LOST = "The connection was lost.";
/** Seconds of watching after which the position is kept. */
const KEEP_EVERY = 5;

export class VideoPlayer extends HTMLElement {
  /** @type {Parts} */
  #parts;
  /** @type {Controls | null} */
  #controls = null;
  /** @type {VideoState} */
  #state;
  /** @type {Playing} */
  #playing;
  #positions = new Positions(localStorage);
  #end = new AbortController();
  /** @type {Failure | null} */
  #failure = null;
  #kept = 0;
  #hasWaveform = false;

  /**
   * Shows a video, as a page knows it; `autoplay` if a person has just asked to watch it.
   * @param {OpenedVideo} video
   * @param {{ autoplay?: boolean }} [options]
   */
  async show(video, { autoplay = false } = {}) {
    this.#parts = /** @type {Parts} */ (partsOf(this));
    this.#state = new VideoState(video);
    this.#playing = new Playing(this.#video, this.#state);
    Object.assign(this.#video, { autoplay });
    this.#video.setAttribute("aria-label", video.filename);
    this.#shape(this.#video);
    this.#connect();
    this.#state.follow(this.#end.signal);
    try {
      this.#controls = await addControls(this.#video);
    } catch {
      return; // The browser's own controls play it too.
    }
    this.#connectMenus(this.#controls);
    this.#draw();
    if (autoplay) this.#controls.play.focus();
  }

  disconnectedCallback() {
    if (!this.#state) return;
    this.#keepPosition();
    this.#end.abort();
    this.#playing.stop();
  }

  get #video() {
    return this.#parts.video;
  }

  #connect() {
    const { signal } = this.#end;
    this.#state.addEventListener("change", () => this.#draw());
    this.#state.addEventListener("arrived", () => this.dispatchEvent(new Event("arrived")));
    this.#playing.addEventListener("change", () => {
      this.#drawControls();
      this.#drawNotice(this.#state.current);
    });
    this.#playing.addEventListener("failed", ({ detail }) => this.#fail(detail));
    this.#video.addEventListener("timeupdate", () => this.#isTimeToKeep && this.#keepPosition());
    for (const event of ["pause", "seeked", "ended"]) this.#video.addEventListener(event, () => this.#keepPosition());
    this.#video.addEventListener("playing", () => this.#recover());
    this.#parts.renditions?.show(this.#state, signal);
    window.addEventListener("pagehide", () => this.#keepPosition(), { signal });
    this.#parts.again.addEventListener("click", () => {
      this.#recover();
      this.#playing.retry();
    });
  }

  /** @param {Controls} controls */
  #connectMenus({ quality, audio, chapters }) {
    quality.addEventListener("change", () => {
      this.#failure = null;
      this.#playing.choose({ quality: quality.value });
      this.#state.refresh();
    });
    audio.addEventListener("change", () => this.#playing.choose({ audio: Number(audio.value) }));
    chapters.addEventListener("change", () => {
      if (chapters.value !== "") this.#video.currentTime = Number(chapters.value);
    });
  }

  #draw() {
    if (!this.#state.isKnown) return;
    const { current } = this.#state;
    this.#start();
    this.#drawStage(current);
    this.#drawNotice(current);
    this.#drawDetails(current);
    this.#drawControls();
  }

  #start() {
    if (this.#playing.isStarted) this.#playing.improve();
    else if (this.#playing.isPossible) this.#playing.start(this.#positions.of(this.#state.id));
  }

  /** @param {WatchedVideo} current */
  #drawStage({ playback }) {
    const { stage, none, reason } = this.#parts;
    const isNone = this.#failure?.reason === "undecodable" || !this.#playing.isPossible;
    stage.hidden = isNone;
    none.hidden = !isNone;
    if (isNone) setText(reason, this.#reason);
    const { poster } = playback;
    this.#shape(playback);
    stage.classList.toggle("player--sound", isAudioOnly(playback));
    if (poster && this.#video.getAttribute("poster") !== poster) this.#video.poster = poster;
    else if (isAudioOnly(playback) && playback.waveform && !poster) this.#drawWaveform(playback.waveform);
  }

  /**
   * The controls are as large as the video before it is there.
   * @param {{ width: number | null, height: number | null }} size
   */
  #shape({ width, height }) {
    if (width && height) this.#parts.stage.style.setProperty("--ratio", `${width} / ${height}`);
  }

  get #reason() {
    const { playback } = this.#state.current;
    if (this.#failure?.reason !== "undecodable") {
      return isChanging(playback) ? wordsForState(this.#state.current) : wordsForUnplayable(playback.problem);
    }
    const [track] = tracksOf(playback, "video");
    const format = track ? `${codecName(track.codec)} video` : "this file";
    return wordsForUnplayable({ detail: `This browser cannot play ${format}.` });
  }

  /** @param {WatchedVideo} current */
  #drawNotice(current) {
    const { notice, state: words, again } = this.#parts;
    again.hidden = this.#failure?.reason !== "lost";
    setText(words, this.#parts.none.hidden ? this.#noticeWords(current) : "");
    notice.hidden = words.textContent === "";
  }

  /** @param {WatchedVideo} current */
  #noticeWords(current) {
    if (this.#failure?.reason === "lost") return this.#failure.detail || LOST;
    if (this.#playing.isPreparing) return wordsForChange(this.#playing.wanted.quality);
    if (this.#failure?.reason === "damaged") return this.#failure.detail;
    return this.#failure ? wordsForUnmakeable(this.#failure) : wordsForState(current);
  }

  /** @param {WatchedVideo} current */
  #drawDetails(current) {
    const { about, details } = this.#parts;
    const isKnown = tracksOf(current.playback, "video").length > 0 || tracksOf(current.playback, "audio").length > 0;
    about.hidden = !isKnown;
    if (isKnown) details.replaceChildren(...detailsOf(current).flatMap(detailElements));
  }

  #drawControls() {
    if (!this.#controls) return;
    drawMenus(this.#controls, this.#state.current, this.#playing.wanted);
    addTextTracks(this.#video, this.#state.current.playback);
  }

  /** @param {string} url */
  async #drawWaveform(url) {
    if (this.#hasWaveform) return;
    this.#hasWaveform = true;
    const answer = await fetch(url, { signal: this.#end.signal }).catch(() => null);
    if (answer?.ok) this.#video.poster = await drawWaveform((await answer.json()).peaks);
  }

  /** @param {Failure} failure */
  #fail(failure) {
    this.#failure = failure;
    this.#draw();
  }

  #recover() {
    if (this.#failure?.reason !== "lost") return;
    this.#failure = null;
    this.#draw();
  }

  get #isTimeToKeep() {
    return Math.abs(this.#video.currentTime - this.#kept) >= KEEP_EVERY;
  }

  #keepPosition() {
    const { currentTime, duration, readyState } = this.#video;
    if (readyState === HTMLMediaElement.HAVE_NOTHING) return;
    this.#kept = currentTime;
    this.#positions.keep(this.#state.id, currentTime, this.#state.current.playback.duration ?? duration);
  }
}

/** @param {[term: string, text: string]} detail */
function detailElements([term, text]) {
  const [name, value] = ["dt", "dd"].map((tag) => document.createElement(tag));
  name.textContent = term;
  value.textContent = text;
  return [name, value];
}

customElements.define("video-player", VideoPlayer);

/** <player-dialog>: plays a video over the page, so that uploads continue behind it. */
export class PlayerDialog extends HTMLElement {
  /**
   * Opens the player for a video of the library, or for an upload that is still arriving.
   * @param {OpenedVideo} video
   */
  open(video) {
    const dialog = /** @type {HTMLDialogElement} */ (this.querySelector("dialog"));
    const parts = /** @type {DialogParts} */ (partsOf(dialog));
    parts.title.textContent = video.filename;
    parts.page.href = `/watch/${video.id}`;
    parts.download.href = `${video.media}?download`;
    parts.download.hidden = Boolean(video.isArriving);
    const player = document.createElement("video-player");
    player.append(copyOfTemplate("video-player"));
    parts.stage.replaceChildren(player);
    player.addEventListener("arrived", () => (parts.download.hidden = false), { once: true });
    dialog.addEventListener("close", () => player.remove(), { once: true });
    dialog.showModal();
    player.show(video, { autoplay: true });
  }
}

customElements.define("player-dialog", PlayerDialog);
