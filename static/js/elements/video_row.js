/** Rows of the library for videos that were not in the page at first, and the form in them that renames a video. */

import { formatBytes, formatDate, formatDuration, formatUntil } from "../page/format.js";
import { copyOfTemplate, partsOf, setText } from "../page/parts.js";
import { canBeWatched } from "../player/playback.js";
import { senderWords, wordsForName, wordsInList } from "../words.js";

/**
 * A row of this page's, or of the server's, which never empties itself.
 * @typedef {HTMLElement & { fill?: () => void, empty?: () => void, change?: (video: Api.Video) => void }} VideoRow
 *
 * @typedef {Record<"play" | "name" | "download", HTMLAnchorElement>} Links
 * @typedef {Record<"mark" | "duration" | "size" | "sender" | "state" | "expires", HTMLElement>} Texts
 * @typedef {Links & Texts & { select: HTMLInputElement, poster: HTMLImageElement, date: HTMLTimeElement }} Parts
 *
 * @typedef {Record<"save" | "cancel", HTMLButtonElement>} RenameButtons
 * @typedef {RenameButtons & { input: HTMLInputElement, extension: HTMLElement, problem: HTMLElement }} RenameParts
 *
 * @typedef {{ stem: string, extension: string, save: (filename: string) => Promise<void>, close: () => void }} Renaming
 */

const WARNED_BEFORE = 7 * 24 * 3_600_000;

/**
 * The row of a video: only its name, until `fill()` adds the rest, and again after `empty()`.
 * `isSelected(id)` says whether its box is ticked.
 * @param {Api.Video} video
 * @param {(id: string) => boolean} isSelected
 */
export function videoRow(video, isSelected) {
  /** @type {VideoRow} */
  const row = document.createElement("div");
  row.className = "video-row";
  row.setAttribute("role", "listitem");
  const { id, media, length } = video;
  Object.assign(row.dataset, { id, media, length: String(length) });
  noteState(row, video);
  row.textContent = video.filename;
  row.fill = () => {
    if (row.childElementCount === 0) fill(row, video, isSelected(id));
  };
  row.empty = () => {
    if (!isInUse(row)) row.textContent = video.filename;
  };
  row.change = (changed) => Object.assign(video, changed);
  return row;
}

/**
 * Whether the row is in use: it has the focus, or a new name that is not saved yet.
 * @param {HTMLElement} row
 */
export function isInUse(row) {
  return row.contains(document.activeElement) || row.querySelector("form") !== null;
}

/**
 * Writes what has changed about a video into its row, whether the server drew it or this page.
 * @param {VideoRow} row
 * @param {Api.Video} video
 */
export function showChange(row, video) {
  row.change?.(video);
  noteState(row, video);
  if (row.childElementCount === 0) {
    row.textContent = video.filename;
    return;
  }
  showName(row, video);
  showPlayback(/** @type {Parts} */ (partsOf(row)), video);
}

/**
 * What the list needs to know of a row without contents; rows with a poster are higher.
 * @param {HTMLElement} row
 * @param {Api.Video} video
 */
function noteState(row, video) {
  Object.assign(row.dataset, { inline: String(video.inline), state: video.playback?.state ?? "" });
  row.toggleAttribute("data-watchable", canBeWatched(video));
  row.toggleAttribute("data-poster", Boolean(video.playback?.poster));
}

/**
 * @param {HTMLElement} row
 * @param {Api.Video} video
 * @param {boolean} isSelected
 */
function fill(row, video, isSelected) {
  const { id, length, published, media } = video;
  row.replaceChildren(...(copyOfTemplate("video-row").firstElementChild?.children ?? []));
  const parts = /** @type {Parts} */ (partsOf(row));
  parts.name.href = parts.play.href = `/watch/${id}`;
  parts.size.textContent = formatBytes(length);
  parts.date.textContent = published ? formatDate(published) : "";
  if (published) parts.date.dateTime = published;
  parts.sender.textContent = senderWords(video.sender);
  parts.expires.textContent = warning(video.expires);
  parts.download.href = `${media}?download`;
  parts.select.checked = isSelected;
  showName(row, video);
  showPlayback(parts, video);
}

/**
 * Says shortly before that a video will be deleted; the server does so in the rows that it draws.
 * @param {string | null} expires
 */
function warning(expires, now = Date.now()) {
  return expires && Date.parse(expires) - now < WARNED_BEFORE ? `will be deleted in ${formatUntil(expires, now)}` : "";
}

/**
 * @param {Parts} parts
 * @param {Api.Video} video
 */
function showPlayback(parts, video) {
  const { duration, state, mark } = parts;
  const { playback } = video;
  const { poster = null, duration: seconds = null } = playback ?? {};
  showPoster(parts, poster);
  setText(duration, seconds ? formatDuration(seconds) : "");
  setText(state, wordsInList(playback));
  mark.dataset.icon = canBeWatched(video) ? "play" : "file";
}

/**
 * @param {HTMLElement} row
 * @param {Api.Video} video
 */
function showName(row, { filename }) {
  partsOf(row).name.textContent = filename;
  nameControls(row, filename);
}

/**
 * Shows the poster at this URL; null for none.
 * @param {{ poster: HTMLImageElement }} parts
 * @param {string | null} poster
 */
export function showPoster({ poster: image }, poster) {
  image.hidden = !poster;
  if (poster && image.getAttribute("src") !== poster) image.src = poster;
}

/**
 * Tells screen readers which file the controls of a row are for.
 * @param {HTMLElement} row
 * @param {string} filename
 */
export function nameControls(row, filename) {
  const controls = /** @type {NodeListOf<HTMLElement>} */ (row.querySelectorAll("[data-label]"));
  for (const control of controls) {
    control.setAttribute("aria-label", `${control.dataset.label} ${filename}`);
  }
}

// ---- renaming ----------------------------------------------------------------------------------------------------

/**
 * Replaces the name with a field: Enter saves, Escape leaves the name as it is; `save(filename)` resolves once the server
 * has the new one.
 * @param {HTMLElement} row
 * @param {(filename: string) => Promise<void>} save
 */
export function openRenameForm(row, save) {
  if (row.querySelector("form")) return;
  const { name } = partsOf(row);
  const present = name.textContent.trim();
  const { stem, extension } = splitName(present);
  const form = /** @type {HTMLFormElement} */ (copyOfTemplate("rename-form").firstElementChild);
  const parts = /** @type {RenameParts} */ (partsOf(form));
  parts.input.value = stem;
  parts.input.setAttribute("aria-label", `New name of ${present}`);
  parts.extension.textContent = extension;
  parts.problem.id = `rename-problem-${row.dataset.id}`;
  parts.input.setAttribute("aria-describedby", parts.problem.id);

  const close = () => {
    const hadFocus = form.contains(document.activeElement);
    form.remove();
    name.hidden = false;
    if (hadFocus) name.focus();
  };
  const cancel = () => parts.cancel.disabled || close();
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    submit(parts, { stem, extension, save, close });
  });
  form.addEventListener("keydown", (event) => event.key === "Escape" && !event.isComposing && cancel());
  parts.cancel.addEventListener("click", cancel);
  parts.input.addEventListener("input", () => complain(parts, ""));

  name.hidden = true;
  name.after(form);
  parts.input.select();
}

/**
 * @param {RenameParts} parts
 * @param {Renaming} renaming
 */
async function submit(parts, { stem, extension, save, close }) {
  const entered = parts.input.value.trim();
  if (entered === "") {
    complain(parts, "Enter a name.");
    return;
  }
  if (entered === stem) {
    close();
    return;
  }
  setSaving(parts, true);
  try {
    await save(entered + extension);
    close();
  } catch (error) {
    setSaving(parts, false);
    complain(parts, wordsForName(error));
  }
}

/**
 * What has been sent cannot be taken back: until the server answers, nothing can be cancelled.
 * @param {RenameParts} parts
 * @param {boolean} isSaving
 */
function setSaving({ input, save, cancel }, isSaving) {
  // A button that is disabled loses the focus.
  if (document.activeElement === save) input.focus();
  input.readOnly = save.disabled = cancel.disabled = isSaving;
  input.form?.setAttribute("aria-busy", String(isSaving));
}

/**
 * @param {RenameParts} parts
 * @param {string} text
 */
function complain({ input, problem }, text) {
  problem.textContent = text;
  problem.hidden = text === "";
  input.setAttribute("aria-invalid", String(text !== ""));
  if (!text) return;
  if (document.activeElement === document.body || input.form?.contains(document.activeElement)) input.focus();
  problem.scrollIntoView({ block: "nearest" });
}

/** People change names without the extension, which says what a browser can do with the file. */
const EXTENSION = /(?<=[^/.])\.[A-Za-z0-9]{1,8}$/;

/**
 * A name as `{ stem, extension }`; the extension has its dot, and is empty where there is none.
 * @param {string} filename
 */
export function splitName(filename) {
  const extension = EXTENSION.exec(filename)?.[0] ?? "";
  return { stem: filename.slice(0, filename.length - extension.length), extension };
}
