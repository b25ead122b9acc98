/**
 * Keeps the keyboard focus in place when the focused element goes away; it would jump to the start of the page.
 */

const CONTROL = ":is(a[href], button):not([hidden])";

/**
 * Calls `change()`, which hides or removes things in `area`. Where the focus was on one of them, it moves to the first
 * of `places` that can take it, or to the first control in one; otherwise to the main part of the page.
 */
export function keepFocus(area, change, places = [area]) {
  const focused = area.contains(document.activeElement) ? document.activeElement : null;
  change();
  if (!focused || (focused.isConnected && !focused.closest("[hidden]"))) return;
  const next = places.map(controlOf).find(Boolean) ?? document.getElementById("main");
  next.focus({ preventScroll: true });
}

function controlOf(place) {
  if (!place || place.closest("[hidden]")) return null;
  return place.matches("[tabindex]") ? place : place.querySelector(CONTROL);
}
