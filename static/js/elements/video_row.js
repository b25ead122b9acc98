/** Rows of the library for videos that were not in the page at first. */

import { formatBytes, formatDate } from "../helpers/format.js";
import { copyOfTemplate, partsOf } from "../helpers/template.js";

/**
 * The row of a video: only its name, until `fill()` adds the rest, and again after `empty()`.
 * `isSelected(id)` says whether its box is ticked.
 */
export function videoRow(video, isSelected) {
  const row = document.createElement("div");
  row.className = "video-row";
  row.setAttribute("role", "listitem");
  const { id, media, inline, length } = video;
  Object.assign(row.dataset, { id, media, inline: String(inline), length });
  row.textContent = video.filename;
  row.fill = () => row.childElementCount === 0 && fill(row, video, isSelected(id));
  row.empty = () => {
    if (!isInUse(row)) row.textContent = video.filename;
  };
  row.rename = (renamed) => Object.assign(video, renamed);
  return row;
}

/** Whether somebody is in the row: the focus is there, or a new name that is not saved yet. */
export function isInUse(row) {
  return row.contains(document.activeElement) || row.querySelector("form") !== null;
}

/** Writes a video's new name into its row, whether the server drew it or this page. */
export function showNewName(row, video) {
  row.rename?.(video);
  row.dataset.inline = String(video.inline);
  if (row.childElementCount > 0) showName(partsOf(row), video);
  else row.textContent = video.filename;
}

function fill(row, video, isSelected) {
  const { id, length, published, media } = video;
  row.replaceChildren(...copyOfTemplate("video-row").querySelector(".video-row").children);
  const parts = partsOf(row);
  parts.name.href = parts.play.href = `/watch/${id}`;
  parts.size.textContent = formatBytes(length);
  parts.date.textContent = published ? formatDate(published) : "";
  if (published) parts.date.dateTime = published;
  parts.download.href = `${media}?download`;
  parts.select.checked = isSelected;
  showName(parts, video);
}

function showName(parts, { filename, inline }) {
  parts.name.textContent = filename;
  parts.select.setAttribute("aria-label", `Select ${filename}`);
  parts.rename.setAttribute("aria-label", `Rename ${filename}`);
  parts.download.setAttribute("aria-label", `Download ${filename}`);
  parts.delete.setAttribute("aria-label", `Delete ${filename}`);
  parts.mark.dataset.icon = inline ? "play" : "file";
}
