/** Parts of the page: repeated pieces are in <template> elements, with their parts marked by data-part. */

import { formatDate } from "./format.js";

/**
 * A copy of the content of the template with this id.
 * @param {string} id
 */
export function copyOfTemplate(id) {
  const template = /** @type {HTMLTemplateElement} */ (document.getElementById(id));
  return /** @type {DocumentFragment} */ (template.content.cloneNode(true));
}

/**
 * The one element of this name; throws if the page has none.
 * @template {keyof HTMLElementTagNameMap} Name
 * @param {Name} name
 */
export function find(name) {
  const element = document.querySelector(name);
  if (!element) throw new Error(`the page has no <${name}>`);
  return element;
}

/**
 * The elements with a data-part inside `root`, by that name.
 * @param {ParentNode} root
 */
export function partsOf(root) {
  /** @type {Record<string, HTMLElement>} */
  const parts = {};
  const elements = /** @type {NodeListOf<HTMLElement>} */ (root.querySelectorAll("[data-part]"));
  for (const element of elements) parts[element.dataset.part ?? ""] = element;
  return parts;
}

/**
 * The button or link with a `data-action` that an event came from, if there is one.
 * @param {EventTarget | null} target
 * @returns {HTMLElement | null}
 */
export function actionOf(target) {
  return target instanceof Element ? target.closest("[data-action]") : null;
}

/**
 * Writes a text only if it differs: setting equal text would still cost a layout and wake screen readers.
 * @param {Element} element
 * @param {string} text
 */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * Rewrites every <time datetime> inside `root`: the server writes dates in UTC, people read them in their own zone.
 * @param {ParentNode} root
 */
export function localiseDates(root) {
  const times = /** @type {NodeListOf<HTMLTimeElement>} */ (root.querySelectorAll("time[datetime]"));
  for (const time of times) time.textContent = formatDate(time.dateTime);
}

const CONTROL = ":is(a[href], button):not([hidden])";

/**
 * Calls `change()`, which moves, hides or removes things in `area`. Where the focus was on one of them, it stays there
 * if that is still in sight, and otherwise goes to the first of `places` that can take it, or to the first control in
 * one, or to the main part of the page.
 * @param {Element} area
 * @param {() => void} change
 * @param {(Element | null | undefined)[]} [places]
 */
export function keepFocus(area, change, places = [area]) {
  const focused = area.contains(document.activeElement) ? /** @type {HTMLElement} */ (document.activeElement) : null;
  change();
  if (!focused) return;
  if (focused.isConnected && !focused.closest("[hidden]")) {
    if (document.activeElement !== focused) focused.focus(); // Being moved took it away.
    return;
  }
  const next = places.map(controlOf).find(Boolean) ?? document.getElementById("main");
  next?.focus({ preventScroll: true });
}

/**
 * @param {Element | null | undefined} place
 * @returns {HTMLElement | null}
 */
function controlOf(place) {
  if (!place || place.closest("[hidden]")) return null;
  return /** @type {HTMLElement | null} */ (place.matches("[tabindex]") ? place : place.querySelector(CONTROL));
}
