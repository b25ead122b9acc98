/** Parts of the page: repeated pieces are in <template> elements, with their parts marked by data-part. */

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

const CONTROL = ":is(a[href], button):not([hidden])";

/**
 * Calls `change()`, which moves, hides or removes things in `area`. Where the focus was on one of them, it stays there
 * if that is still in sight, and otherwise goes to the first of `places` that can take it, or to the first control in
 * one, or to the main part of the page.
 */
export function keepFocus(area, change, places = [area]) {
  const focused = area.contains(document.activeElement) ? document.activeElement : null;
  change();
  if (!focused) return;
  if (focused.isConnected && !focused.closest("[hidden]")) {
    if (document.activeElement !== focused) focused.focus(); // Being moved took it away.
    return;
  }
  const next = places.map(controlOf).find(Boolean) ?? document.getElementById("main");
  next.focus({ preventScroll: true });
}

function controlOf(place) {
  if (!place || place.closest("[hidden]")) return null;
  return place.matches("[tabindex]") ? place : place.querySelector(CONTROL);
}
