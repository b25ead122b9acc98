/** Text that belongs to moments of a film: subtitles, chapters, and the pictures that are shown while seeking. */

import { languageName } from "./words.js";

/** Counted from the bottom. */
const LINE_ABOVE_CONTROLS = -4;

/** Adds what `playback` has and `video` has not yet; more may come while the film is being processed. */
export function addTextTracks(video, playback) {
  const { subtitles = [], thumbnails } = playback;
  subtitles.forEach(({ language, title, url }, index) => {
    const label = title || languageName(language) || `Subtitles ${index + 1}`;
    addTrack(video, { kind: "subtitles", src: url, srclang: language ?? "und", label });
  });
  // The controls know the pictures by this label. A track is only loaded when it is the default of its kind.
  if (thumbnails) addTrack(video, { kind: "metadata", src: thumbnails, label: "thumbnails", default: true });
  addChapters(video, playback);
}

function addTrack(video, attributes) {
  const isThere = [...video.querySelectorAll("track")].some((track) => track.getAttribute("src") === attributes.src);
  if (isThere) return;
  const element = Object.assign(document.createElement("track"), attributes);
  if (attributes.kind === "subtitles") element.addEventListener("load", () => raise(element.track.cues));
  video.append(element);
}

/** Cues without a place of their own would be under the controls. */
function raise(cues) {
  for (const cue of cues) if (cue.line === "auto") cue.line = LINE_ABOVE_CONTROLS;
}

function addChapters(video, { chapters = [], duration }) {
  const isThere = [...video.textTracks].some(({ kind }) => kind === "chapters");
  if (isThere || chapters.length === 0) return;
  const track = video.addTextTrack("chapters", "Chapters");
  track.mode = "hidden";
  chapters.forEach(({ start, title }, index) => {
    const end = chapters[index + 1]?.start ?? duration;
    if (end > start) track.addCue(new VTTCue(start, end, escaped(title)));
  });
}

/** A cue's text is markup. */
function escaped(text) {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
}
