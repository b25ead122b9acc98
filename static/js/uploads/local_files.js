/** What the page reads from files itself: fingerprints, dropped folders, and which bytes a player needs first. */

import { fileUnreadable } from "./problem.js";

// ---- recognising a file, and reading it --------------------------------------------------------------------------

/** Bytes read from either end, where containers differ from one recording to the next. */
const EDGE_BYTES = 64 * 1024;

/**
 * Throws if the browser can no longer read `blob`: in a request that looks like a lost connection.
 * @param {Blob} blob
 */
export async function checkReadable(blob) {
  try {
    await blob.slice(0, 1).arrayBuffer();
  } catch {
    throw fileUnreadable();
  }
}

/**
 * A fingerprint of a file: its name, size, modification time, and its first and last 64 KiB.
 * @param {File} file
 * @param {{ subtle?: SubtleCrypto, signal?: AbortSignal }} [options]
 */
export async function fingerprint(file, { subtle = globalThis.crypto?.subtle, signal } = {}) {
  const bytes = await identifyingBytes(file);
  signal?.throwIfAborted();
  if (!subtle) return `sluice1-digest53-${digest53(bytes)}${digest53(bytes, 1)}`;
  return `sluice1-sha256-${hex(await subtle.digest("SHA-256", bytes))}`;
}

/** @param {File} file */
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

/** @param {File} file */
function edgesOf(file) {
  return [file.slice(0, EDGE_BYTES), file.slice(Math.max(EDGE_BYTES, file.size - EDGE_BYTES))];
}

/** @param {(ArrayBuffer | Uint8Array<ArrayBuffer>)[]} pieces */
function joined(pieces) {
  const bytes = new Uint8Array(pieces.reduce((sum, { byteLength }) => sum + byteLength, 0));
  let position = 0;
  for (const piece of pieces) {
    bytes.set(new Uint8Array(piece), position);
    position += piece.byteLength;
  }
  return bytes;
}

/** @param {ArrayBuffer} buffer */
function hex(buffer) {
  return Array.from(new Uint8Array(buffer), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * A 53-bit digest in plain JavaScript (cyrb53, public domain), for pages served over plain http: browsers keep
 * `crypto.subtle` for secure origins. Not for security.
 * @param {Uint8Array} bytes
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

// ---- folders -----------------------------------------------------------------------------------------------------

/** Files of a dropped folder that are read together: thousands at once would freeze the page. */
const AT_ONCE = 20;

/** As people see a folder: "clip 9" before "clip 10". */
const { compare } = new Intl.Collator("en", { numeric: true });
/**
 * @param {FileSystemEntry} one
 * @param {FileSystemEntry} other
 */
const byName = (one, other) => compare(one.name, other.name);

/**
 * Calls `take(file, path)` for each file in `directory` (a FileSystemDirectoryEntry) and below, in order of name, the path
 * beginning with the folder's own name. Leaves out hidden files and those that cannot be read.
 * @param {FileSystemDirectoryEntry} directory
 * @param {(file: File, path: string) => void} take
 */
export async function walkFolder(directory, take, path = directory.name) {
  const entries = (await entriesOf(directory)).sort(byName);
  for (let start = 0; start < entries.length; start += AT_ONCE) {
    const some = entries.slice(start, start + AT_ONCE);
    const files = await Promise.all(some.map((entry) => (isWanted(entry) ? fileOf(entry) : null)));
    for (const [index, entry] of some.entries()) {
      if (files[index]) take(files[index], `${path}/${entry.name}`);
      if (entry.isDirectory) await walkFolder(entry, take, `${path}/${entry.name}`);
    }
  }
}

/**
 * The browser returns some at a time, until there are none.
 * @param {FileSystemDirectoryEntry} directory
 */
async function entriesOf(directory) {
  const reader = directory.createReader();
  const all = [];
  for (;;) {
    const some = await resultOf((resolve, reject) => reader.readEntries(resolve, reject), []);
    if (some.length === 0) return all;
    all.push(...some);
  }
}

/** @param {FileSystemEntry} entry */
function isWanted({ isFile, name }) {
  return isFile && !name.startsWith(".");
}

/**
 * @param {FileSystemFileEntry} entry
 * @returns {Promise<File | null>}
 */
function fileOf(entry) {
  return resultOf((resolve, reject) => entry.file(resolve, reject), null);
}

/**
 * @template Result, Otherwise
 * @param {(resolve: (result: Result) => void, reject: (error: Error) => void) => void} call
 * @param {Otherwise} otherwise
 * @returns {Promise<Result | Otherwise>}
 */
async function resultOf(call, otherwise) {
  try {
    return await new Promise(call);
  } catch {
    return otherwise;
  }
}

// ---- play order --------------------------------------------------------------------------------------------------

/** Box header with a 64-bit size, bytes (ISO/IEC 14496-12, 4.2). */
const HEADER_BYTES = 16;

/** A video has a handful of boxes at its top level before `moov`; beyond this many it is sent in order. */
const MOST_BOXES = 64;

/** What an MP4 begins with, or a QuickTime file from before `ftyp`. */
const FIRST_BOXES = new Set(["ftyp", "moov", "mdat", "wide", "free"]);

/** Boxes that a player needs whole. */
const NEEDED_WHOLE = new Set(["ftyp", "moov"]);

/**
 * Which bytes of a video a player needs before any others. An MP4 or MOV can be played while it arrives once its index,
 * the `moov` box, is there, and most cameras and phones write that at the end.
 *
 * Resolves to the ranges [start, end) to send first: the `moov` box, and before it the headers of the boxes that a
 * reader passes on its way there. To none for any other file, and for one that is damaged or cannot be read.
 * @param {Blob} file
 * @returns {Promise<Api.Range[]>}
 */
export async function neededFirst(file) {
  try {
    const boxes = await boxesUpToIndex(file);
    return boxes.map(({ type, start, end }) => [start, NEEDED_WHOLE.has(type) ? end : Math.min(end, start + HEADER_BYTES)]);
  } catch {
    return []; // The first chunk finds out whether the file is readable, and says so.
  }
}

/**
 * Reads headers only; resolves to no box at all if `moov` is not among the first ones.
 * @param {Blob} file
 */
async function boxesUpToIndex(file) {
  const boxes = [];
  for (let start = 0; boxes.length < MOST_BOXES; start = boxes[boxes.length - 1].end) {
    const box = await boxAt(file, start);
    if (!box || (start === 0 && !FIRST_BOXES.has(box.type))) break;
    boxes.push(box);
    if (box.type === "moov") return boxes;
  }
  return [];
}

/**
 * Resolves to the box at `start`, or to null where there is none that fits the file.
 * @param {Blob} file
 * @param {number} start
 */
async function boxAt(file, start) {
  const header = new DataView(await file.slice(start, start + HEADER_BYTES).arrayBuffer());
  if (header.byteLength < 8) return null;
  const size = sizeIn(header, file.size - start);
  const type = String.fromCharCode(...new Uint8Array(header.buffer, 4, 4));
  return size >= 8 && start + size <= file.size ? { type, start, end: start + size } : null;
}

/**
 * 0 stands for "to the end of the file", 1 for a size of 64 bits after the type.
 * @param {DataView} header
 * @param {number} left
 */
function sizeIn(header, left) {
  const size = header.getUint32(0);
  if (size === 0) return left;
  if (size !== 1) return size;
  return header.byteLength < HEADER_BYTES ? 0 : Number(header.getBigUint64(8));
}
