import assert from "node:assert/strict";
import { test } from "node:test";

import { chunkCount, chunkFields, chunkRange, chunksToSkip, coveredBytes } from "../../static/js/uploads/chunk_plan.js";

const skipped = (...args) => [...chunksToSkip(...args)];

test("the last chunk may be shorter, and an empty file has one", () => {
  assert.deepEqual([0, 1, 10, 11].map((size) => chunkCount(size, 10)), [1, 1, 1, 2]);
  assert.deepEqual(chunkRange(1, 15, 10), [10, 15]);
});

test("the fields of a chunk say where it belongs in its upload", () => {
  assert.deepEqual(chunkFields(3, { id: "ab", size: 35, chunkBytes: 10 }), {
    dzuuid: "ab",
    dzchunkindex: 3,
    dztotalfilesize: 35,
    dzchunksize: 10,
    dztotalchunkcount: 4,
    dzchunkbyteoffset: 30,
  });
});

test("nothing is left out of a new upload", () => {
  assert.deepEqual(skipped([[0, 35]], 35, 10), []);
});

test("chunks without a missing byte are left out", () => {
  assert.deepEqual(skipped([[10, 20]], 35, 10), [0, 2, 3]);
  assert.deepEqual(skipped([[30, 35]], 35, 10), [0, 1, 2]);
});

test("a range that ends where a chunk begins does not touch it", () => {
  assert.deepEqual(skipped([[0, 10]], 20, 10), [1]);
  assert.deepEqual(skipped([[9, 11]], 30, 10), [2]);
});

test("one missing byte is enough for its chunk to be sent", () => {
  assert.deepEqual(skipped([[19, 20], [34, 35]], 35, 10), [0, 2]);
});

test("an empty file is sent although no byte of it is missing", () => {
  assert.deepEqual(skipped([], 0, 10), []);
});

test("covered bytes are counted over half-open ranges", () => {
  assert.equal(coveredBytes([[0, 10], [20, 25]]), 15);
  assert.equal(coveredBytes([]), 0);
});
