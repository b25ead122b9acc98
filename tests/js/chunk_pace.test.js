import assert from "node:assert/strict";
import { test } from "node:test";

import { ChunkPace, ChunkSizes } from "../../static/js/uploads/chunk_plan.js";

const KIB = 1024;
const MIB = 1024 * KIB;
const MAXIMUM = 20 * MIB;

const paceOf = (largest = MAXIMUM, least = 0) => new ChunkPace(new ChunkSizes(largest), { least });
const chunkOf = (chunkBytes) => ({ chunkBytes, start: 0, end: chunkBytes });

/** The sizes of chunks sent one after another on a line of so many bytes a second. */
function sizesOn(bytesPerSecond, count, pace = paceOf()) {
  return Array.from({ length: count }, () => {
    const size = pace.chunkBytes;
    pace.sent(chunkOf(size), (size * 1_000) / bytesPerSecond);
    return size;
  });
}

test("the first chunk is small, and on a fast line the fifth has the full size", () => {
  const [first, , , , fifth] = sizesOn(100 * MIB, 5);
  assert.ok(first <= 256 * KIB);
  assert.equal(fifth, MAXIMUM);
});

test("on a slow line a chunk never takes longer than some seconds", () => {
  for (const kibPerSecond of [30, 100, 500, 2_000]) {
    const seconds = sizesOn(kibPerSecond * KIB, 50).map((size) => size / (kibPerSecond * KIB));
    assert.ok(Math.max(...seconds) < 12, `${kibPerSecond} KiB/s: ${seconds}`);
    assert.ok(Math.max(...seconds.slice(1)) <= 8, `${kibPerSecond} KiB/s: ${seconds}`);
  }
});

test("a line that becomes slow halves the size once for the chunks that were in flight together", () => {
  const pace = paceOf();
  sizesOn(100 * MIB, 10, pace);
  for (let lane = 0; lane < 3; lane += 1) pace.sent(chunkOf(MAXIMUM), 20_000);
  assert.equal(pace.chunkBytes, MAXIMUM / 2);
});

test("after a lost connection the first chunk is small again, whatever the sizes of those that were lost", () => {
  const pace = paceOf();
  sizesOn(100 * MIB, 10, pace);
  for (const size of [MAXIMUM, MAXIMUM / 4, MAXIMUM / 4]) pace.failed(chunkOf(size));
  const [first, , , , fifth] = sizesOn(100 * MIB, 5, pace);
  assert.ok(first <= 256 * KIB);
  assert.equal(fifth, MAXIMUM);
});

test("each size that is lost again is half as large, down to the smallest", () => {
  const pace = paceOf(MIB);
  for (const size of [256, 128, 64, 64]) {
    pace.failed(chunkOf(MIB));
    assert.equal(pace.chunkBytes, size * KIB);
    pace.failed(chunkOf(pace.chunkBytes));
  }
});

test("the short end of a file is no proof of a fast line", () => {
  const pace = paceOf();
  const before = pace.chunkBytes;
  pace.sent({ chunkBytes: before, start: 0, end: 100 }, 1_400);
  assert.equal(pace.chunkBytes, before);
});

test("a proxy that refuses a size never gets one as large again", () => {
  const pace = paceOf();
  sizesOn(100 * MIB, 10, pace);
  assert.equal(pace.wasTooLarge(chunkOf(MAXIMUM)), true);
  assert.ok(sizesOn(100 * MIB, 20, pace).every((size) => size <= MAXIMUM / 2));
  assert.equal(pace.wasTooLarge(chunkOf(80 * KIB)), false);
});

test("chunks that cost the server more are cut only where one of the size it wants takes over ten seconds", () => {
  const least = 5 * MIB;
  const onSlowLine = (kibPerSecond) => sizesOn(kibPerSecond * KIB, 20, paceOf(MAXIMUM, least));
  assert.equal(Math.min(...onSlowLine(600)), least);
  assert.ok(Math.max(...onSlowLine(100).slice(3)) < least);
  assert.equal(Math.min(...onSlowLine(100_000)), least);
  assert.equal(Math.max(...onSlowLine(100_000)), MAXIMUM);
});

test("a line that carries such chunks again after a break gets them again", () => {
  const pace = paceOf(MAXIMUM, 5 * MIB);
  for (let lost = 0; lost < 4; lost += 1) pace.failed(chunkOf(pace.chunkBytes));
  const [first, second] = sizesOn(600 * KIB, 2, pace);
  assert.ok(first < MIB);
  assert.equal(second, 5 * MIB);
});

test("towards the end of a file chunks get smaller, unless they are short already", () => {
  const pace = paceOf();
  sizesOn(500 * KIB, 10, pace);
  const size = pace.chunkBytes;
  assert.equal(pace.chunkBytesOf(10 * size), size);
  assert.equal(pace.chunkBytesOf(size), size / 2);
  assert.equal(pace.chunkBytesOf(0), 0.3 * 500 * KIB);
  sizesOn(1_000 * MIB, 10, pace);
  assert.equal(pace.chunkBytesOf(0), MAXIMUM, "which takes 20 ms");
});

test("no chunk is smaller than the server wants because the file ends", () => {
  const pace = paceOf(MAXIMUM, 5 * MIB);
  sizesOn(1_000 * KIB, 3, pace);
  assert.equal(pace.chunkBytesOf(0), 5 * MIB);
});
