/** Repeated pieces of the page are in <template> elements, with their parts marked by data-part. */

import { formatDate } from "./format.js";

/** A copy of the content of the template with this id. */
export function copyOfTemplate(id) {
  return document.getElementById(id).content.cloneNode(true);
}

/** The elements with a data-part inside `root`, by that name. */
export function partsOf(root) {
  const parts = {};
  for (const element of root.querySelectorAll("[data-part]")) parts[element.dataset.part] = element;
  return parts;
}

/** Writes a text only if it differs: setting equal text would still cost a layout and wake screen readers. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Rewrites every <time datetime> inside `root`: the server writes dates in UTC, people read them in their own zone. */
export function localiseDates(root) {
  for (const time of root.querySelectorAll("time[datetime]")) time.textContent = formatDate(time.dateTime);
}
