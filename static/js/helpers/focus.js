/**
 * Keeps the keyboard focus in place when the focused element goes away; it would jump to the start of the page.
 */

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
