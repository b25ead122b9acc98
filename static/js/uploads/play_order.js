/**
 * Which bytes of a film a player needs before any others. An MP4 or MOV can be played while it arrives once its index,
 * the `moov` box, is there, and most cameras and phones write that at the end.
 */

/** Box header with a 64-bit size, bytes (ISO/IEC 14496-12, 4.2). */
const HEADER_BYTES = 16;

/** A film has a handful of boxes at its top level before `moov`; beyond this many it is sent in order. */
const MOST_BOXES = 64;

/** What an MP4 begins with, or a QuickTime file from before `ftyp`. */
const FIRST_BOXES = new Set(["ftyp", "moov", "mdat", "wide", "free"]);

/** Boxes of which a player needs more than the header. */
const NEEDED_WHOLE = new Set(["ftyp", "moov"]);

/**
 * Resolves to the ranges [start, end) to send first: the `moov` box, and before it the headers of the boxes that a
 * reader passes on its way there. To none for any other file, and for one that is damaged or cannot be read.
 */
export async function neededFirst(file) {
  try {
    const boxes = await boxesUpToIndex(file);
    return boxes.map(({ type, start, end }) => [start, NEEDED_WHOLE.has(type) ? end : Math.min(end, start + HEADER_BYTES)]);
  } catch {
    return []; // The first chunk finds out whether the file is readable, and says so.
  }
}

/** Reads headers only; resolves to no box at all if `moov` is not among the first ones. */
async function boxesUpToIndex(file) {
  const boxes = [];
  for (let start = 0; boxes.length < MOST_BOXES; start = boxes.at(-1).end) {
    const box = await boxAt(file, start);
    if (!box || (start === 0 && !FIRST_BOXES.has(box.type))) break;
    boxes.push(box);
    if (box.type === "moov") return boxes;
  }
  return [];
}

/** Resolves to the box at `start`, or to null where there is none that fits the file. */
async function boxAt(file, start) {
  const header = new DataView(await file.slice(start, start + HEADER_BYTES).arrayBuffer());
  if (header.byteLength < 8) return null;
  const size = sizeIn(header, file.size - start);
  const type = String.fromCharCode(...new Uint8Array(header.buffer, 4, 4));
  return size >= 8 && start + size <= file.size ? { type, start, end: start + size } : null;
}

/** 0 stands for "to the end of the file", 1 for a size of 64 bits after the type. */
function sizeIn(header, left) {
  const size = header.getUint32(0);
  if (size === 0) return left;
  if (size !== 1) return size;
  return header.byteLength < HEADER_BYTES ? 0 : Number(header.getBigUint64(8));
}
