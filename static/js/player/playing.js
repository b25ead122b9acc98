/** Plays a film in a <video> element, and changes quality and audio track while it plays. */

import { FileSource, playsHls } from "./file_source.js";
import { HlsSource } from "./hls_source.js";
import { isAudioOnly, ORIGINAL, substituteFor, wayToPlay } from "./playback.js";

/**
 * Emits `change` when what is wanted changes, and `failed` (detail: "undecodable" or "lost") when it cannot go on.
 */
export class Playing extends EventTarget {
  #video;
  #film;
  #wanted = { quality: ORIGINAL, audio: 0 };
  #way = null;
  #source = null;
  #changing = Promise.resolve();

  constructor(video, film) {
    super();
    this.#video = video;
    this.#film = film;
    video.addEventListener("error", () => video.error && this.#source && this.#replaceOriginal());
    video.addEventListener("loadeddata", () => this.#isWithoutPicture && this.#replaceOriginal());
  }

  /** `{ quality, audio }`: ORIGINAL or a height, and the number of the audio track. */
  get wanted() {
    return this.#wanted;
  }

  /** Whether there is a way to play the film now. */
  get isPossible() {
    return wayToPlay(this.#film.state, this.#wanted) !== null;
  }

  get isStarted() {
    return this.#way !== null;
  }

  /** Begins at `position` seconds, if there is a way to play the film yet. */
  start(position) {
    if (!this.isStarted && this.isPossible) this.#follow({ position });
  }

  /** Goes on with another quality or audio track. */
  choose(wanted) {
    this.#wanted = { ...this.#wanted, ...wanted };
    this.dispatchEvent(new Event("change"));
    if (this.isStarted) this.#follow();
  }

  /** Tries again where it stopped. */
  retry() {
    this.#way = null;
    this.#follow();
  }

  stop() {
    this.#changing = this.#changing.then(() => {
      this.#source?.stop();
      this.#source = null;
    });
  }

  /** Changes take their turn: the second of two quick choices waits for the first one's script. */
  #follow({ position } = {}) {
    const way = wayToPlay(this.#film.state, this.#wanted);
    const isSame = way?.url === this.#way?.url;
    this.#way = way;
    this.#changing = this.#changing
      .then(() => this.#change(way, { isSame, position }))
      .catch((error) => {
        this.#fail("lost");
        reportError(error);
      });
  }

  async #change(way, { isSame, position }) {
    if (isSame && this.#source) {
      this.#source.choose(this.#wanted);
      return;
    }
    const { currentTime, paused, playbackRate, autoplay } = this.#video;
    const start = position ?? currentTime;
    const isPlaying = !paused || (this.#source === null && autoplay);
    if (this.#source) this.#source.stop();
    this.#video.defaultPlaybackRate = playbackRate; // A new source resets the rate to this.
    this.#source = await this.#open(way, start);
    if (isPlaying) await this.#video.play().catch(() => {}); // A browser may want a click first.
  }

  #open({ kind, url }, start) {
    if (kind === "file" || (this.#isOriginal && playsHls(this.#video))) return new FileSource(this.#video, url, { start });
    const onFailure = () => this.#fail("lost");
    return HlsSource.open(this.#video, url, { start, wanted: this.#wanted, onFailure });
  }

  get #isOriginal() {
    return this.#wanted.quality === ORIGINAL && this.#wanted.audio === 0;
  }

  /** Browsers play the sound of a film whose picture they cannot decode. */
  get #isWithoutPicture() {
    const { playback } = this.#film.state;
    const hasPicture = playback.width > 0 && !isAudioOnly(playback);
    return hasPicture && this.#video.videoWidth === 0 && this.#wanted.quality === ORIGINAL;
  }

  /** The browser cannot decode the original: another quality is made for it, if there is one. */
  #replaceOriginal() {
    const quality = this.#wanted.quality === ORIGINAL ? substituteFor(this.#film.state.playback) : null;
    if (quality) this.choose({ quality });
    else this.#fail("undecodable");
  }

  #fail(reason) {
    this.dispatchEvent(new CustomEvent("failed", { detail: reason }));
  }
}
