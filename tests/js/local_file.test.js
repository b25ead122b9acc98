import assert from "node:assert/strict";
import { test } from "node:test";

import { digest53, fingerprint } from "../../static/js/uploads/local_files.js";

const EDGE = 64 * 1024;
const fileOf = (bytes, { name = "clip.mp4", lastModified = 1_700_000_000_000 } = {}) => new File([bytes], name, { lastModified });
const large = (change) => {
  const bytes = new Uint8Array(4 * EDGE).fill(7);
  if (change !== undefined) bytes[change] = 8;
  return bytes;
};

test("the same file has the same fingerprint, with or without its folder", async () => {
  const expected = await fingerprint(fileOf(large()));
  assert.match(expected, /^sluice1-sha256-[0-9a-f]{64}$/);
  assert.equal(await fingerprint(fileOf(large(), { name: "holiday/clip.mp4" })), expected);
});

test("name, time, size, head and tail all count", async () => {
  const files = [
    fileOf(large()),
    fileOf(large(), { name: "other.mp4" }),
    fileOf(large(), { lastModified: 1 }),
    fileOf(large().subarray(1)),
    fileOf(large(0)),
    fileOf(large(4 * EDGE - 1)),
  ];
  const prints = await Promise.all(files.map((file) => fingerprint(file)));
  assert.equal(new Set(prints).size, files.length);
});

test("small and empty files have fingerprints too", async () => {
  const sizes = [0, 1, EDGE - 1, EDGE, EDGE + 1, 2 * EDGE];
  const prints = await Promise.all(sizes.map((size) => fingerprint(fileOf(new Uint8Array(size)))));
  assert.equal(new Set(prints).size, sizes.length);
});

test("without crypto.subtle a plain digest names itself as such", async () => {
  const print = await fingerprint(fileOf(large()), { subtle: null });
  assert.match(print, /^sluice1-digest53-[0-9a-f]{28}$/);
  assert.notEqual(print, await fingerprint(fileOf(large(5)), { subtle: null }));
});

test("a file that cannot be read is told as such", async () => {
  const gone = { name: "a", size: 3, lastModified: 0, slice: () => { throw new Error("gone"); } };
  await assert.rejects(fingerprint(gone), (error) => error.code === "file_unreadable");
});

test("the plain digest is stable and spread", () => {
  const digest = (text) => digest53(new TextEncoder().encode(text));
  assert.equal(digest("sluice"), digest("sluice"));
  assert.equal(new Set(Array.from({ length: 5_000 }, (_, index) => digest(`file ${index}`))).size, 5_000);
});
