/** Figures in words. */

import { formatBytes, formatSpeed } from "../helpers/format.js";

const MISSING = "–";

/** Seconds of a stage as "0.42 ms", "63 ms", "1.2 s". */
export function formatDuration(seconds) {
  if (seconds < 0.01) return `${(seconds * 1000).toFixed(2)} ms`;
  return seconds < 1 ? `${Math.round(seconds * 1000)} ms` : `${seconds.toFixed(1)} s`;
}

/** Seconds since the start as "42 s", "5 min", "3 h 20 min", "12 days 4 h". */
export function formatUptime(seconds) {
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} days ${hours % 24} h`;
}

/** A job as "index", "rendition 720 40 %". */
export function formatJob({ step, argument, state, progress }) {
  const share = state === "running" ? `${Math.round(progress * 100)} %` : "";
  return [step, argument, share].filter(Boolean).join(" ");
}

/** What a server of a fleet does, in the order of the table's columns after its name. */
export function nodeFigures(node) {
  return [
    node.state,
    inWords(node.received_bytes_per_second, "speed"),
    inWords(node.sent_bytes_per_second, "speed"),
    inWords(node.requests_now, "count"),
    inWords(node.free_bytes, "bytes"),
    inWords(node.uptime_seconds, "uptime"),
  ];
}

const FORMATS = {
  count: (value) => value.toLocaleString("en"),
  bytes: formatBytes,
  speed: (value) => formatSpeed(Math.round(value)),
  duration: formatDuration,
  uptime: formatUptime,
};

/** A figure in the named format; a dash if there is none. */
export function inWords(value, format) {
  return value === null || value === undefined ? MISSING : FORMATS[format](value);
}
