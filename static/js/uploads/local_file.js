/** What the page reads from a file itself: enough to recognise it later, and whether it is still readable. */

import { fileUnreadable } from "./problem.js";

/** Bytes read from either end, where containers differ from one recording to the next. */
const EDGE_BYTES = 64 * 1024;

/** Throws if the browser can no longer read `blob`: in a request that looks like a lost connection. */
export async function checkReadable(blob) {
  try {
    await blob.slice(0, 1).arrayBuffer();
  } catch {
    throw fileUnreadable();
  }
}

/** A fingerprint of a file: its name, size, modification time, and its first and last 64 KiB. */
export async function fingerprint(file, { subtle = globalThis.crypto?.subtle, signal } = {}) {
  const bytes = await identifyingBytes(file);
  signal?.throwIfAborted();
  if (!subtle) return `sluice1-digest53-${digest53(bytes)}${digest53(bytes, 1)}`;
  return `sluice1-sha256-${hex(await subtle.digest("SHA-256", bytes))}`;
}

async function identifyingBytes(file) {
  // Without the folder, so that the file is recognised when it is chosen without it.
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

/**
 * A 53-bit digest in plain JavaScript (cyrb53, public domain), for pages served over plain http: browsers keep
 * `crypto.subtle` for secure origins. Not for security.
 */
export function digest53(bytes, seed = 0) {
  let high = 0xdeadbeef ^ seed;
  let low = 0x41c6ce57 ^ seed;
  for (const byte of bytes) {
    high = Math.imul(high ^ byte, 2654435761);
    low = Math.imul(low ^ byte, 1597334677);
  }
  high = Math.imul(high ^ (high >>> 16), 2246822507) ^ Math.imul(low ^ (low >>> 13), 3266489909);
  low = Math.imul(low ^ (low >>> 16), 2246822507) ^ Math.imul(high ^ (high >>> 13), 3266489909);
  return (4294967296 * (2097151 & low) + (high >>> 0)).toString(16).padStart(14, "0");
}
