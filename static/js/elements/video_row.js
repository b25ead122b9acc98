/** Rows of the library for videos that were not in the page at first. */

import { formatBytes, formatDate, formatDuration, formatUntil } from "../helpers/format.js";
import { copyOfTemplate, partsOf, setText } from "../helpers/template.js";
import { senderWords } from "../helpers/words.js";
import { canBeWatched } from "../player/playback.js";
import { wordsInList } from "../player/words.js";

const WARNED_BEFORE = 7 * 24 * 3_600_000;

/**
 * The row of a video: only its name, until `fill()` adds the rest, and again after `empty()`.
 * `isSelected(id)` says whether its box is ticked.
 */
export function videoRow(video, isSelected) {
  const row = document.createElement("div");
  row.className = "video-row";
  row.setAttribute("role", "listitem");
  const { id, media, length } = video;
  Object.assign(row.dataset, { id, media, length });
  noteFilm(row, video);
  row.textContent = video.filename;
  row.fill = () => row.childElementCount === 0 && fill(row, video, isSelected(id));
  row.empty = () => {
    if (!isInUse(row)) row.textContent = video.filename;
  };
  row.change = (changed) => Object.assign(video, changed);
  return row;
}

/** Whether somebody is in the row: the focus is there, or a new name that is not saved yet. */
export function isInUse(row) {
  return row.contains(document.activeElement) || row.querySelector("form") !== null;
}

/** Writes what has changed about a video into its row, whether the server drew it or this page. */
export function showChange(row, video) {
  row.change?.(video);
  noteFilm(row, video);
  if (row.childElementCount === 0) {
    row.textContent = video.filename;
    return;
  }
  const parts = partsOf(row);
  showName(parts, video);
  showFilm(parts, video);
}

/** What the list needs to know of a row without contents; rows with a poster are higher. */
function noteFilm(row, video) {
  Object.assign(row.dataset, { inline: String(video.inline), state: video.playback?.state ?? "" });
  row.toggleAttribute("data-watchable", canBeWatched(video));
  row.toggleAttribute("data-poster", Boolean(video.playback?.poster));
}

function fill(row, video, isSelected) {
  const { id, length, published, media } = video;
  row.replaceChildren(...copyOfTemplate("video-row").querySelector(".video-row").children);
  const parts = partsOf(row);
  parts.name.href = parts.play.href = `/watch/${id}`;
  parts.size.textContent = formatBytes(length);
  parts.date.textContent = published ? formatDate(published) : "";
  if (published) parts.date.dateTime = published;
  parts.sender.textContent = senderWords(video.sender);
  parts.expires.textContent = warning(video.expires);
  parts.download.href = `${media}?download`;
  parts.select.checked = isSelected;
  showName(parts, video);
  showFilm(parts, video);
}

/** Says shortly before that a video will be deleted; the server does so in the rows that it draws. */
function warning(expires, now = Date.now()) {
  const left = expires ? new Date(expires) - now : Infinity;
  return left < WARNED_BEFORE ? `will be deleted in ${formatUntil(expires, now)}` : "";
}

function showFilm(parts, video) {
  const { poster: picture, duration, state, mark } = parts;
  const { playback } = video;
  const { poster = null, duration: seconds = null } = playback ?? {};
  picture.hidden = !poster;
  if (poster && picture.getAttribute("src") !== poster) picture.src = poster;
  setText(duration, seconds ? formatDuration(seconds) : "");
  setText(state, wordsInList(playback));
  mark.dataset.icon = canBeWatched(video) ? "play" : "file";
}

function showName(parts, { filename }) {
  parts.name.textContent = filename;
  parts.select.setAttribute("aria-label", `Select ${filename}`);
  parts.rename.setAttribute("aria-label", `Rename ${filename}`);
  parts.download.setAttribute("aria-label", `Download ${filename}`);
  parts.delete.setAttribute("aria-label", `Delete ${filename}`);
}
