/** How progress is shown: a bar with two layers, and the same in words. Sizes are bytes. */

import { formatBytes, formatSpeed, formatTimeLeft, percentage } from "./format.js";

/**
 * @import { Speedometer } from "../uploads/progress.js"
 *
 * Bytes that are safe on the server, that have been sent, and of the whole.
 * @typedef {{ received: number, sent: number, size: number }} Sizes
 *
 * A part of a line; what is not a text is left out.
 * @typedef {string | number | false | null | undefined} Part
 */

/**
 * Gives the bar in `meter` its name for screen readers.
 * @param {HTMLElement} meter
 * @param {string} name
 */
export function nameMeter(meter, name) {
  meter.querySelector("progress")?.setAttribute("aria-label", name);
}

/**
 * Draws what is safe on the server as the bar's value, solid, and what has been sent as a light layer behind it.
 * @param {HTMLElement} meter
 * @param {Sizes} sizes
 */
export function drawMeter(meter, { received, sent, size }) {
  const bar = meter.querySelector("progress");
  if (!bar) return;
  bar.value = percentage(received, size);
  bar.setAttribute("aria-valuetext", valueText({ received, sent, size }));
  meter.style.setProperty("--sent", `${percentage(sent, size)}%`);
}

/** @param {Sizes} sizes */
function valueText({ received, sent, size }) {
  const safe = `${formatBytes(received)} of ${formatBytes(size)} safe on the server`;
  return sent > received ? `${safe}, ${formatBytes(sent)} sent` : safe;
}

/**
 * Joins the parts that are not empty into one line.
 * @param {Part[]} parts
 */
export function lineOf(parts) {
  return parts.filter(Boolean).join(" · ");
}

/**
 * Writes a line that breaks only between its parts.
 * @param {HTMLElement} element
 * @param {Part[]} parts
 */
export function setLine(element, parts) {
  const line = lineOf(parts);
  if (element.textContent === line) return;
  element.replaceChildren(...line.split(/(?<= · )/).map(partOf));
}

/** @param {string} text */
function partOf(text) {
  const part = document.createElement("span");
  part.className = "line__part";
  part.textContent = text;
  return part;
}

/**
 * The parts of a line about progress; `speed` has `bytesPerSecond()` and `secondsLeft(remaining)`, null for uploads
 * that are not moving.
 * @param {Sizes} sizes
 * @param {Pick<Speedometer, "bytesPerSecond" | "secondsLeft"> | null} [speed]
 */
export function progressWords({ received, sent, size }, speed = null) {
  if (received === size) return [formatBytes(size)];
  const isAllSent = sent === size;
  const bytesPerSecond = isAllSent ? null : (speed?.bytesPerSecond() ?? null);
  return [
    `${formatBytes(sent)} of ${formatBytes(size)} sent`,
    `${formatBytes(received)} safe`,
    isAllSent && "waiting for the server",
    bytesPerSecond && formatSpeed(bytesPerSecond),
    bytesPerSecond && `${formatTimeLeft(speed?.secondsLeft(size - sent) ?? 0)} left`,
  ].filter(Boolean);
}
