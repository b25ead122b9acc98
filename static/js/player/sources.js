/** What a <video> plays: one file, or HLS with hls.js, which no other module knows. */

import { ORIGINAL } from "./playback.js";

/**
 * @import { ErrorData, Fragment, HlsConfig, LoadPolicy } from "hls.js"
 * @import { Wanted } from "./playback.js"
 *
 * "unmakeable" where the server cannot make this quality, else "lost". `end` is where the part that is missing ends, in
 * seconds; null if nothing can be played after it. `hasRoom` is false if the disk has none.
 * @typedef {{ reason: "unmakeable" | "lost", end?: number | null, hasRoom?: boolean }} SourceFailure
 * @typedef {(failure: SourceFailure) => void} OnFailure
 *
 * @typedef {{ start: number, wanted: Wanted, onFailure: OnFailure }} Opening
 */

/** Plays one file, or a playlist in browsers that play HLS by themselves. */
export class FileSource {
  #video;

  /**
   * Begins at `start` seconds.
   * @param {HTMLVideoElement} video
   * @param {string} url
   * @param {{ start: number }} options
   */
  constructor(video, url, { start }) {
    this.#video = video;
    if (video.getAttribute("src") !== url) video.src = url;
    if (video.currentTime !== start) video.currentTime = start; // Even a seek to the same place interrupts playback.
  }

  /** A browser that plays by itself chooses by itself. */
  choose() {}

  /** A video that is no longer shown would keep loading. */
  stop() {
    this.#video.removeAttribute("src");
    this.#video.load();
  }
}

/**
 * Apple's browsers play HLS well. Others claim to, but neither follow a growing playlist nor change audio tracks.
 * @param {HTMLVideoElement} video
 */
export function playsHls(video) {
  const isApple = "ManagedMediaSource" in window || !("MediaSource" in window);
  return isApple && video.canPlayType("application/vnd.apple.mpegurl") !== "";
}

/** Longest time until a segment that has to be made begins to arrive, and until it is here, milliseconds. */
const FIRST_BYTE_TIMEOUT = 60_000;
const SEGMENT_TIMEOUT = 180_000;
/** A server that is still making a segment answers 503 after 8 seconds; this is a quarter of an hour of them. */
const MOST_RETRIES = 100;
const RETRY_PAUSE = 1_000;
/** The server's answers where a segment cannot be made, and where the disk has no room for it. */
const UNPROCESSABLE = 422;
const NO_ROOM = 507;
/** Seconds before a missing segment in which a browser may already stop, for want of sound. */
const NEARLY = 0.5;

/** @type {LoadPolicy} */
const SEGMENT_POLICY = {
  default: {
    maxTimeToFirstByteMs: FIRST_BYTE_TIMEOUT,
    maxLoadTimeMs: SEGMENT_TIMEOUT,
    timeoutRetry: { maxNumRetry: 4, retryDelayMs: 0, maxRetryDelayMs: 0 },
    errorRetry: {
      maxNumRetry: MOST_RETRIES,
      retryDelayMs: RETRY_PAUSE,
      maxRetryDelayMs: RETRY_PAUSE,
      shouldRetry: (policy, count, isTimeout, response, isUsual) => isUsual && response?.code !== NO_ROOM,
    },
  },
};

/** @type {Partial<HlsConfig>} */
const OPTIONS = {
  enableWorker: false, // Its worker is a blob:, which our policy forbids; fMP4 needs next to no work.
  fragLoadPolicy: SEGMENT_POLICY,
  // Subtitles are <track> elements, with each kind of source.
  subtitleStreamController: undefined,
  subtitleTrackController: undefined,
  timelineController: undefined,
};

/** Plays HLS with hls.js, which is loaded when it is first needed. */
export class HlsSource {
  /** @type {import("hls.js").default} */
  #hls;
  #wanted;
  #hasRecovered = false;
  /** Ends the wait for a part that is missing. */
  #arrived = new AbortController();

  /**
   * Begins at `start` seconds with what is `wanted`. Calls `onFailure` when it cannot go on. Rejects if hls.js cannot be
   * loaded, or cannot play in this browser.
   * @param {HTMLVideoElement} video
   * @param {string} url
   * @param {Opening} options
   */
  static async open(video, url, { start, wanted, onFailure }) {
    const { default: Hls } = await import("../../vendor/hls.js/hls.min.mjs");
    if (!Hls.isSupported()) throw new Error("hls.js cannot play in this browser");
    return new HlsSource(Hls, video, url, { start, wanted, onFailure });
  }

  /**
   * @param {typeof import("hls.js").default} Hls
   * @param {HTMLVideoElement} video
   * @param {string} url
   * @param {Opening} options
   */
  constructor(Hls, video, url, { start, wanted, onFailure }) {
    this.#wanted = wanted;
    // Without a start, a video that is still being uploaded would begin at its newest part, like a broadcast.
    this.#hls = new Hls({ ...OPTIONS, startPosition: start });
    // hls.js seeks only once it has loaded something: a slow browser would first show the beginning of the video.
    this.#hls.once(Hls.Events.MEDIA_ATTACHED, () => start > 0 && (video.currentTime = start));
    this.#hls.on(Hls.Events.MANIFEST_PARSED, () => this.choose(this.#wanted));
    this.#hls.on(Hls.Events.AUDIO_TRACKS_UPDATED, () => this.#chooseAudio());
    this.#hls.on(Hls.Events.ERROR, (_, error) => this.#handle(Hls, error, onFailure));
    this.#hls.loadSource(url);
    this.#hls.attachMedia(video);
  }

  /**
   * Goes on in another quality, or with another audio track: at once, or while it plays with the next segment.
   * @param {Wanted} wanted
   */
  choose(wanted) {
    this.#wanted = wanted;
    const level = Math.max(0, this.#hls.levels.findIndex(({ url }) => isLevel(url, wanted.quality)));
    // Fixed: choosing by the speed of the line would make the server encode what was not asked for.
    if (level !== this.#hls.manualLevel) this.#goTo(level);
    this.#chooseAudio();
  }

  /** @param {number} level */
  #goTo(level) {
    const { media } = this.#hls;
    const hasFrame = media !== null && media.readyState >= HTMLMediaElement.HAVE_FUTURE_DATA;
    if (hasFrame && !media.paused) {
      this.#hls.nextLevel = level;
      return;
    }
    this.#hls.currentLevel = level;
    if (hasFrame) media.currentTime = media.currentTime; // Otherwise a paused video keeps the frame it has.
  }

  stop() {
    this.#arrived.abort();
    this.#hls.destroy();
  }

  #chooseAudio() {
    const { audioTracks, audioTrack } = this.#hls;
    const { audio } = this.#wanted;
    if (audio < audioTracks.length && audio !== audioTrack) this.#hls.audioTrack = audio;
  }

  /**
   * @param {typeof import("hls.js").default} Hls
   * @param {ErrorData} error
   * @param {OnFailure} onFailure
   */
  #handle(Hls, error, onFailure) {
    const code = error.response?.code;
    // Not always fatal: hls.js would go on in a quality that was not chosen.
    if (error.frag && (code === UNPROCESSABLE || code === NO_ROOM)) this.#miss(error.frag, code === NO_ROOM, onFailure);
    else if (error.fatal) this.#recover(Hls, error, onFailure);
  }

  /**
   * Plays what is here already; the failure comes when the video reaches what is not.
   * @param {Fragment} fragment
   * @param {boolean} isFull
   * @param {OnFailure} onFailure
   */
  #miss({ sn, start, duration, endList }, isFull, onFailure) {
    const { media } = this.#hls;
    if (!media) return;
    const end = Number.isInteger(sn) && !endList && !isFull ? start + duration : null;
    this.#hls.stopLoad();
    this.#arrived.abort();
    this.#arrived = new AbortController();
    const { signal } = this.#arrived;
    const look = () => {
      const isHere = media.currentTime >= start - NEARLY && media.currentTime < start + duration;
      if (!isHere && media.readyState >= HTMLMediaElement.HAVE_FUTURE_DATA) return;
      this.#arrived.abort();
      onFailure({ reason: "unmakeable", end, hasRoom: !isFull });
    };
    const goOn = () => {
      this.#arrived.abort();
      this.choose(this.#wanted);
      this.#hls.startLoad(media.currentTime);
    };
    for (const event of ["timeupdate", "waiting"]) media.addEventListener(event, look, { signal });
    media.addEventListener("seeking", goOn, { signal });
    look();
  }

  /**
   * @param {typeof import("hls.js").default} Hls
   * @param {ErrorData} error
   * @param {OnFailure} onFailure
   */
  #recover(Hls, { type }, onFailure) {
    if (this.#hls.media?.error) return; // Its listeners know what to do.
    if (type !== Hls.ErrorTypes.MEDIA_ERROR || this.#hasRecovered) {
      onFailure({ reason: "lost" });
      return;
    }
    this.#hasRecovered = true;
    this.#hls.recoverMediaError();
  }
}

/**
 * Playlists are at .../hls/source/index.m3u8 and .../hls/720/index.m3u8.
 * @param {string | string[]} url
 * @param {string} quality
 */
function isLevel(url, quality) {
  const [address] = [url].flat();
  return new URL(address, location.href).pathname.split("/").at(-2) === (quality || ORIGINAL);
}
