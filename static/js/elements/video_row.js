/** Rows of the library for videos that the page did not come with. */

import { formatBytes, formatDate } from "../helpers/format.js";
import { copyOfTemplate, partsOf } from "../helpers/template.js";

/** The row of a video: no more than its name, until `fill()` puts the rest in and after `empty()` took it out. */
export function videoRow(video) {
  const row = document.createElement("div");
  row.className = "video-row";
  row.setAttribute("role", "listitem");
  Object.assign(row.dataset, { id: video.id, media: video.media, inline: String(video.inline) });
  row.textContent = video.filename;
  row.fill = () => row.childElementCount === 0 && fill(row, video);
  row.empty = () => {
    if (!row.contains(document.activeElement)) row.textContent = video.filename;
  };
  return row;
}

function fill(row, { id, filename, length, published, media, inline }) {
  row.replaceChildren(...copyOfTemplate("video-row").querySelector(".video-row").children);
  const parts = partsOf(row);
  parts.name.textContent = filename;
  parts.name.href = parts.play.href = `/watch/${id}`;
  parts.size.textContent = formatBytes(length);
  parts.date.textContent = published ? formatDate(published) : "";
  if (published) parts.date.dateTime = published;
  parts.download.href = `${media}?download`;
  parts.download.setAttribute("aria-label", `Download ${filename}`);
  parts.delete.setAttribute("aria-label", `Delete ${filename}`);
  if (!inline) parts.mark.dataset.icon = "file";
}
