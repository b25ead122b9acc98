import assert from "node:assert/strict";
import { test } from "node:test";

import { neededFirst } from "../../static/js/uploads/local_files.js";

/** A box of `size` bytes in all; `stated` is what its header says, and `is64` whether it says so in 64 bits. */
function box(type, size, { stated = size, is64 = false } = {}) {
  const bytes = new Uint8Array(size);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, is64 ? 1 : stated);
  bytes.set(new TextEncoder().encode(type), 4);
  if (is64) view.setBigUint64(8, BigInt(stated));
  return bytes;
}

const fileOf = (...boxes) => new File(boxes, "clip.mp4");

test("a film with its index at the end needs its head, the header of its media data, and the index", async () => {
  const film = fileOf(box("ftyp", 32), box("free", 8), box("mdat", 5_000), box("moov", 700));
  assert.deepEqual(await neededFirst(film), [[0, 32], [32, 40], [40, 56], [5_040, 5_740]]);
});

test("a film with its index in front needs nothing out of order", async () => {
  const film = fileOf(box("ftyp", 32), box("moov", 700), box("mdat", 5_000));
  assert.deepEqual(await neededFirst(film), [[0, 32], [32, 732]]);
});

test("media data with a size of 64 bits, and an index that reaches to the end of the file, are found", async () => {
  const film = fileOf(box("wide", 8), box("mdat", 5_000, { is64: true }), box("moov", 700, { stated: 0 }));
  assert.deepEqual(await neededFirst(film), [[0, 8], [8, 24], [5_008, 5_708]]);
});

test("what is no film, and a damaged one, is sent in order", async () => {
  const damaged = {
    empty: fileOf(),
    "a few bytes": fileOf(new Uint8Array(7)),
    text: fileOf(new TextEncoder().encode("ftyp is a box, and so is moov. ".repeat(9))),
    "another kind of file": fileOf(box("RIFF", 100), box("moov", 100)),
    "no index": fileOf(box("ftyp", 32), box("mdat", 5_000)),
    "media data to the end": fileOf(box("ftyp", 32), box("mdat", 5_000, { stated: 0 })),
    "a box that ends after the file": fileOf(box("ftyp", 32), box("mdat", 5_000, { stated: 6_000 }), box("moov", 700)),
    "a huge box": fileOf(box("ftyp", 32), box("mdat", 100, { stated: 2n ** 64n - 1n, is64: true })),
    "a box smaller than its header": fileOf(box("ftyp", 32), box("mdat", 100, { stated: 7 })),
    "a size cut off": fileOf(box("ftyp", 32), box("mdat", 12, { stated: 1 })),
  };
  for (const [kind, file] of Object.entries(damaged)) assert.deepEqual(await neededFirst(file), [], kind);
});

test("only headers are read, and only so many", async () => {
  const boxes = Array.from({ length: 500 }, () => box("free", 50));
  const film = fileOf(box("ftyp", 32), ...boxes, box("moov", 700));
  const reads = [];
  const slice = film.slice.bind(film);
  film.slice = (start, end) => (reads.push(end - start), slice(start, end));
  assert.deepEqual(await neededFirst(film), []);
  assert.deepEqual([reads.length, Math.max(...reads)], [64, 16]);
});

test("a file that cannot be read is no film", async () => {
  const film = fileOf(box("ftyp", 32), box("moov", 700));
  film.slice = () => ({ arrayBuffer: () => Promise.reject(new DOMException("gone", "NotReadableError")) });
  assert.deepEqual(await neededFirst(film), []);
});
