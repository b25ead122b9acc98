/** Numbers in words for people. */

const UNITS = ["bytes", "KB", "MB", "GB", "TB", "PB"];
const STEP = 1000;

/**
 * A size in bytes as "20 MB", "1.4 GB"; decimal units, as disks and other programs count.
 * @param {number} bytes
 */
export function formatBytes(bytes) {
  let value = bytes;
  let unit = 0;
  while (value >= 999.5 && unit < UNITS.length - 1) {
    value /= STEP;
    unit += 1;
  }
  if (unit === 0 && bytes === 1) return "1 byte";
  const digits = unit > 0 && value < 9.95 ? 1 : 0;
  return `${value.toFixed(digits).replace(/\.0$/, "")} ${UNITS[unit]}`;
}

/**
 * A speed in bytes per second as "12 MB/s".
 * @param {number} bytesPerSecond
 */
export function formatSpeed(bytesPerSecond) {
  return `${formatBytes(bytesPerSecond)}/s`;
}

/**
 * Seconds as "a few seconds", "5 min", "2 h 10 min", "3 days"; coarse, because it is an estimate.
 * @param {number} seconds
 */
export function formatTimeLeft(seconds) {
  if (seconds < 10) return "a few seconds";
  if (seconds < 55) return `${Math.ceil(seconds / 5) * 5} s`;
  const minutes = Math.ceil(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  return `${Math.round(hours / 24)} days`;
}

/**
 * The length of a video in seconds as "0:05", "12:34" or "1:02:03".
 * @param {number} seconds
 */
export function formatDuration(seconds) {
  const whole = Math.round(seconds);
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60];
  const parts = hours > 0 ? [String(hours), String(minutes).padStart(2, "0")] : [String(minutes)];
  return [...parts, String(whole % 60).padStart(2, "0")].join(":");
}

/**
 * A whole percentage that reaches 100 only at the end.
 * @param {number} part
 * @param {number} whole
 */
export function percentage(part, whole) {
  if (whole === 0) return part >= whole ? 100 : 0;
  return Math.min(100, Math.floor((100 * part) / whole));
}

/**
 * "1 file", "12 files".
 * @param {number} count
 * @param {string} singular
 */
export function countOf(count, singular, plural = `${singular}s`) {
  return `${count.toLocaleString("en")} ${count === 1 ? singular : plural}`;
}

const DATE = new Intl.DateTimeFormat("en-GB", {
  day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit",
});

/**
 * An ISO time as "24 Dec 2026, 02:18" in the person's own time zone; the server writes them so too, in UTC.
 * @param {string} iso
 */
export function formatDate(iso) {
  return DATE.format(new Date(iso));
}

/** Characters that change the direction of the text after them. */
const DIRECTIONS = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/**
 * A file name inside a sentence: it may be written right to left without reordering the words around it.
 * @param {string} name
 */
export function isolated(name) {
  return `\u2068${name.replace(DIRECTIONS, "")}\u2069`;
}

/**
 * The time until an ISO time as "6 days".
 * @param {string} iso
 */
export function formatUntil(iso, now = Date.now()) {
  return formatSpan(Date.parse(iso) - now);
}

/**
 * A time in milliseconds as "6 days", "3 hours".
 * @param {number} milliseconds
 */
export function formatSpan(milliseconds) {
  const hours = milliseconds / 3_600_000;
  if (hours < 1) return "less than an hour";
  return hours < 48 ? countOf(Math.round(hours), "hour") : `${Math.round(hours / 24)} days`;
}
