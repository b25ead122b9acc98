/** Plays a video in a <video> element, and changes quality and audio track while it plays. */

import { wordsForDamage } from "../words.js";
import { hasOriginal, isAudioOnly, isSameFile, ORIGINAL, substituteFor, wayToPlay } from "./playback.js";
import { Damage } from "./positions.js";
import { Emitter } from "../events.js";
import { NotMakeable, prepareQuality } from "./preparation.js";
import { FileSource, HlsSource, playsHls } from "./sources.js";

/**
 * @import { Wanted, Way } from "./playback.js"
 * @import { SourceFailure } from "./sources.js"
 * @import { VideoState } from "./video_state.js"
 *
 * Why a video does not go on as wanted, or at all.
 * @typedef {{ reason: "undecodable" | "damaged" | "lost" | "unmakeable", detail: string, quality: string }} Failure
 */

/** Seconds: hls.js may take a position that is nearer to the start of a segment for one of the segment before. */
const WELL_WITHIN = 0.3;
const GOES_ON = "From here on, the video is shown as it was uploaded.";
const SKIPPED = "A part of the video was skipped.";
const CUT_OFF = "It cannot be played from there on.";
const NO_ROOM = "The server has no room for this quality at the moment.";

/**
 * Emits `change` when what is wanted changes, or how far that is, and `failed` when it cannot go on, with
 * `{ reason, detail }`: "undecodable" if nothing of it can be played, "damaged" where a part of it cannot, "lost", or
 * "unmakeable" for a quality that the server cannot make; if there is another way, the video then goes on.
 * @extends {Emitter<{ change: void, failed: Failure }>}
 */
export class Playing extends Emitter {
  #video;
  #state;
  /** @type {Wanted} */
  #wanted = { quality: ORIGINAL, audio: 0 };
  /**
   * What was wanted when the source was last told.
   * @type {Wanted | null}
   */
  #current = null;
  #isStarted = false;
  /** @type {Way | null} */
  #way = null;
  /** @type {FileSource | HlsSource | null} */
  #source = null;
  #changing = Promise.resolve();
  /** Ends the preparation of a quality that is no longer wanted. */
  #superseded = new AbortController();
  #isPreparing = false;
  #isOriginalUndecodable = false;
  #damage = new Damage();
  /** Whether it plays, or did until it failed: Chromium pauses a video that it cannot load any further. */
  #isPlaying;

  /**
   * @param {HTMLVideoElement} video
   * @param {VideoState} state
   */
  constructor(video, state) {
    super();
    this.#video = video;
    this.#state = state;
    this.#isPlaying = !video.paused;
    video.addEventListener("play", () => (this.#isPlaying = true));
    video.addEventListener("pause", () => (this.#isPlaying &&= video.error !== null));
    video.addEventListener("error", () => video.error && this.#source && this.#handleError());
    video.addEventListener("timeupdate", () => !video.paused && !video.seeking && this.#damage.notePlayed(video.currentTime));
    video.addEventListener("seeking", () => this.#damage.begin(video.currentTime));
    video.addEventListener("loadeddata", () => this.#lacksVideoTrack && this.#replaceOriginal());
  }

  /** `{ quality, audio }`: ORIGINAL or a height, and the number of the audio track. */
  get wanted() {
    return this.#wanted;
  }

  /** Whether there is a way to play the video now. */
  get isPossible() {
    return wayToPlay(this.#state.current, this.#wanted) !== null;
  }

  /** Whether the video still plays in another quality than the one that is wanted. */
  get isPreparing() {
    return this.#isPreparing;
  }

  get isStarted() {
    return this.#isStarted;
  }

  /**
   * Starts the video if it can be played yet: at `position` seconds, unless the viewer has already played or sought in the
   * plain <video>.
   * @param {number} position
   */
  start(position) {
    if (this.isStarted || !this.isPossible) return;
    const { playback } = this.#state.current;
    if (!hasOriginal(playback)) this.#want({ quality: substituteFor(playback) ?? ORIGINAL });
    this.#isStarted = true;
    this.#follow(this.#video.currentTime > 0 ? {} : { position });
  }

  /**
   * Goes on by HLS once only that has sound, or a video track, that browsers play; and with a link user's new URLs while
   * the video is paused, when it is not noticed.
   */
  improve() {
    const isForHls = this.#way?.kind === "file" && wayToPlay(this.#state.current, this.#wanted)?.kind === "hls";
    if (isForHls || (this.#hasMoved && this.#video.paused)) this.#follow();
  }

  /** Whether the video is found under another URL now. */
  get #hasMoved() {
    const next = wayToPlay(this.#state.current, this.#wanted);
    return this.#way !== null && next !== null && next.url !== this.#way.url && isSameFile(next.url, this.#way.url);
  }

  /**
   * Goes on with another quality or audio track; a quality that is not made yet is waited for while the video plays.
   * @param {Partial<Wanted>} wanted
   */
  choose(wanted) {
    this.#want(wanted);
    if (this.isStarted) this.#follow({ waits: true });
  }

  /** Tries again where it stopped. */
  retry() {
    this.#way = null;
    this.#follow();
  }

  stop() {
    this.#superseded.abort();
    this.#changing = this.#changing.then(() => {
      this.#source?.stop();
      this.#source = null;
    });
  }

  /** @param {Partial<Wanted>} wanted */
  #want(wanted) {
    this.#wanted = { ...this.#wanted, ...wanted };
    this.dispatchEvent(new Event("change"));
  }

  /**
   * Changes take their turn: the second of two quick choices waits for the first one's script.
   * @param {{ position?: number, waits?: boolean }} [options]
   */
  #follow({ position, waits = false } = {}) {
    this.#superseded.abort();
    this.#superseded = new AbortController();
    const { signal } = this.#superseded;
    this.#changing = this.#changing
      .then(() => this.#change({ position, waits, signal }))
      .catch((error) => {
        if (signal.aborted) return; // The next choice has its turn now.
        this.#fail("lost");
        reportError(error);
      });
  }

  /** @param {{ position?: number, waits: boolean, signal: AbortSignal }} options */
  async #change({ position, waits, signal }) {
    const way = wayToPlay(this.#state.current, this.#wanted);
    if (!way) throw new Error("there is no way to play this video");
    if (waits && !(await this.#prepare(way, signal))) return;
    signal.throwIfAborted();
    const isSame = way.url === this.#way?.url;
    this.#way = way;
    this.#current = this.#wanted;
    if (isSame && this.#source) {
      this.#source.choose(this.#wanted);
      return;
    }
    const { currentTime, paused, playbackRate, autoplay, error } = this.#video;
    const start = position ?? currentTime;
    const isPlaying = !paused || (error !== null && this.#isPlaying) || (this.#source === null && autoplay);
    if (this.#source) this.#source.stop();
    this.#video.defaultPlaybackRate = playbackRate; // A new source resets the rate to this.
    this.#damage.begin(start);
    this.#source = await this.#open(way, start);
    // What the page has loaded before this script could listen.
    if (this.#video.error) this.#handleError();
    else if (this.#video.readyState >= HTMLMediaElement.HAVE_CURRENT_DATA && this.#lacksVideoTrack) this.#replaceOriginal();
    if (isPlaying) await this.#video.play().catch(() => {}); // A browser may want a click first.
  }

  /**
   * Waits for a quality that is made on demand while the video goes on; false if it cannot be played.
   * @param {Way} way
   * @param {AbortSignal} signal
   */
  async #prepare({ kind, url }, signal) {
    const { quality } = this.#wanted;
    if (kind !== "hls" || quality === ORIGINAL || quality === this.#current?.quality) return true;
    this.#notePreparing(true);
    try {
      await prepareQuality(url, quality, { position: () => this.#video.currentTime, signal });
      return true;
    } catch (error) {
      if (!(error instanceof NotMakeable)) throw error;
      this.#fail("unmakeable", error.message);
      this.#want(this.#current ?? {});
      return false;
    } finally {
      this.#notePreparing(false);
    }
  }

  /** @param {boolean} isPreparing */
  #notePreparing(isPreparing) {
    this.#isPreparing = isPreparing;
    this.dispatchEvent(new Event("change"));
  }

  /**
   * @param {Way} way
   * @param {number} start
   */
  #open({ kind, url }, start) {
    if (kind === "file" || (this.#isOriginal && playsHls(this.#video))) return new FileSource(this.#video, url, { start });
    const onFailure = (/** @type {SourceFailure} */ failure) => this.#goOnAfter(failure);
    return HlsSource.open(this.#video, url, { start, wanted: this.#wanted, onFailure });
  }

  /**
   * Where a quality ends, the original takes over, or else the next part that can be made.
   * @param {SourceFailure} failure
   */
  #goOnAfter({ reason, end = null, hasRoom = false }) {
    const isReplaceable = this.#wanted.quality !== ORIGINAL && hasOriginal(this.#state.current.playback) && !this.#isOriginalUndecodable;
    if (reason !== "unmakeable") this.#renewOr(() => this.#fail(reason));
    else if (isReplaceable) {
      this.#fail("unmakeable", hasRoom ? GOES_ON : NO_ROOM);
      this.#want({ quality: ORIGINAL });
      this.retry();
    } else if (!hasRoom) this.#fail("lost", NO_ROOM);
    else if (end === null) this.#fail("unmakeable");
    else {
      this.#fail("unmakeable", SKIPPED);
      this.#reopen(end + WELL_WITHIN);
    }
  }

  /**
   * Goes on with new URLs if those of a link user have expired; otherwise it has failed.
   * @param {() => void} fail
   */
  async #renewOr(fail) {
    await this.#state.renew(this.#superseded.signal).catch(() => {});
    if (this.#hasMoved) this.retry();
    else fail();
  }

  get #isOriginal() {
    return this.#wanted.quality === ORIGINAL && this.#wanted.audio === 0;
  }

  /** Browsers play the sound of a video whose video track they cannot decode. */
  get #lacksVideoTrack() {
    const { playback } = this.#state.current;
    const hasVideoTrack = (playback.width ?? 0) > 0 && !isAudioOnly(playback);
    return hasVideoTrack && this.#video.videoWidth === 0 && this.#wanted.quality === ORIGINAL;
  }

  /** What the browser cannot decode is damaged if it has decoded something before. */
  #handleError() {
    const { error, currentTime, duration } = this.#video;
    const source = this.#source;
    this.#renewOr(() => {
      if (this.#source !== source) return; // Another one was chosen since.
      const isUndecoded = error?.code === MediaError.MEDIA_ERR_DECODE;
      if (this.#damage.hasPlayed) {
        if (isUndecoded) this.#skipDamage(currentTime, this.#state.current.playback.duration ?? duration);
        else this.#fail("lost");
      } else if (isUndecoded && this.#damage.start > 0) this.#reopen(0);
      else this.#replaceOriginal();
    });
  }

  /**
   * Segments of a video are cut where Chromium may not be able to begin: another quality has no such places.
   * @param {number} seconds
   * @param {number} duration
   */
  #skipDamage(seconds, duration) {
    const { at, target } = this.#damage.next(seconds, duration);
    const canBeReplaced = this.#wanted.quality === ORIGINAL && substituteFor(this.#state.current.playback) !== null;
    if (canBeReplaced && (this.#way?.kind === "hls" || target === null)) {
      this.#replaceOriginal();
      return;
    }
    this.#fail("damaged", wordsForDamage(at, target === null ? CUT_OFF : SKIPPED));
    if (target === null) this.#isPlaying = false;
    this.#reopen(target ?? 0);
  }

  /** @param {number} position */
  #reopen(position) {
    this.#way = null;
    this.#follow({ position });
  }

  /** The browser cannot decode the original: another quality is made for it, if there is one. */
  #replaceOriginal() {
    this.#isOriginalUndecodable ||= this.#wanted.quality === ORIGINAL;
    const quality = this.#wanted.quality === ORIGINAL ? substituteFor(this.#state.current.playback) : null;
    if (!quality) {
      this.#fail("undecodable");
      return;
    }
    this.#want({ quality });
    this.#follow();
  }

  /** @param {Failure["reason"]} reason */
  #fail(reason, detail = "") {
    this.emit("failed", { reason, detail, quality: this.#wanted.quality });
  }
}
