/** Plays one file, or a playlist in browsers that play HLS by themselves. */

export class FileSource {
  #video;

  /** Begins at `start` seconds. */
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

/** Apple's browsers play HLS well. Others claim to, but neither follow a growing playlist nor change audio tracks. */
export function playsHls(video) {
  const isApple = "ManagedMediaSource" in window || !("MediaSource" in window);
  return isApple && video.canPlayType("application/vnd.apple.mpegurl") !== "";
}
