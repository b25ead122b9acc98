/** Recognises a file that was chosen before, in this browser or another, without reading all of it. */

import { digest53 } from "./digest53.js";
import { fileUnreadable } from "./problem.js";

/** Bytes read from either end: containers keep what tells recordings apart there. */
const EDGE_BYTES = 64 * 1024;

/** A text that is the same for the same file: name, size, time of change, and its first and last 64 KiB. */
export async function fingerprint(file, { subtle = globalThis.crypto?.subtle, signal } = {}) {
  const bytes = await identifyingBytes(file);
  signal?.throwIfAborted();
  if (!subtle) return `sluice1-digest53-${digest53(bytes)}${digest53(bytes, 1)}`;
  return `sluice1-sha256-${hex(await subtle.digest("SHA-256", bytes))}`;
}

async function identifyingBytes(file) {
  // The folder is left out on purpose: a file is found again when it is chosen without its folder.
  const name = file.name.split("/").at(-1);
  const about = new TextEncoder().encode(`${name}\0${file.size}\0${file.lastModified}\0`);
  const edges = file.size <= EDGE_BYTES ? [file] : edgesOf(file);
  try {
    return joined([about, ...(await Promise.all(edges.map((edge) => edge.arrayBuffer())))]);
  } catch {
    throw fileUnreadable();
  }
}

function edgesOf(file) {
  return [file.slice(0, EDGE_BYTES), file.slice(Math.max(EDGE_BYTES, file.size - EDGE_BYTES))];
}

function joined(pieces) {
  const bytes = new Uint8Array(pieces.reduce((sum, { byteLength }) => sum + byteLength, 0));
  let position = 0;
  for (const piece of pieces) {
    bytes.set(new Uint8Array(piece), position);
    position += piece.byteLength;
  }
  return bytes;
}

function hex(buffer) {
  return Array.from(new Uint8Array(buffer), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
