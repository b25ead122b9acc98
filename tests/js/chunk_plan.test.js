import assert from "node:assert/strict";
import { test } from "node:test";

import { chunkCount, chunkFields, ChunkPlan, ChunkSizes, coveredBytes } from "../../static/js/uploads/chunk_plan.js";

const KIB = 1024;
const MIB = 1024 * KIB;
const sizes = new ChunkSizes(MIB);

const planOf = (size, missing) => new ChunkPlan({ sizes, size, missing });

/** The chunks of at most `bytes` that are taken until none is left, each as [start, end). */
function taken(plan, bytes = MIB) {
  const chunks = [];
  for (let chunk = plan.take(bytes); chunk; chunk = plan.take(bytes)) chunks.push([chunk.start, chunk.end]);
  return chunks;
}

test("sizes halve from the largest down to 64 KiB", () => {
  assert.deepEqual([sizes.smallest, sizes.largest], [64 * KIB, MIB]);
  assert.deepEqual([1, 64, 127, 128, 700, 5_000].map((kib) => sizes.fitting(kib * KIB) / KIB), [64, 64, 64, 128, 512, 1024]);
  assert.equal(new ChunkSizes(20 * MIB).largest, 20 * MIB);
});

test("a largest size that is small, or does not halve evenly, is kept as nearly as sizes nest", () => {
  const tiny = new ChunkSizes(1_000);
  assert.deepEqual([tiny.smallest, tiny.largest, tiny.fitting(1)], [1_000, 1_000, 1_000]);
  const odd = new ChunkSizes(1_000_001);
  assert.equal(odd.largest, 8 * odd.smallest);
  assert.ok(odd.largest > 999_990 && odd.largest <= 1_000_001);
});

test("a new file is sent from its beginning to its end", () => {
  assert.deepEqual(taken(planOf(2.5 * MIB, [[0, 2.5 * MIB]])), [[0, MIB], [MIB, 2 * MIB], [2 * MIB, 2.5 * MIB]]);
});

test("an empty file is sent as one empty chunk", () => {
  assert.deepEqual(taken(planOf(0, [])), [[0, 0]]);
  assert.equal(chunkCount(0, MIB), 1);
});

test("nothing is sent of a file of which nothing is missing", () => {
  assert.deepEqual(taken(planOf(MIB, [])), []);
});

test("the fields of every chunk agree with each other, whatever the sizes before it", () => {
  const size = 3 * MIB + 17;
  const plan = planOf(size, [[0, size]]);
  const wanted = [64, 64, 128, 1024, 512, 64, 1024, 1024];
  for (let turn = 0; !plan.isEmpty; turn += 1) {
    const chunk = plan.take((wanted[turn] ?? 1024) * KIB);
    const fields = chunkFields(chunk, { id: "ab", size });
    assert.equal(fields.dzchunkindex * fields.dzchunksize, fields.dzchunkbyteoffset);
    assert.equal(fields.dztotalchunkcount, Math.ceil(size / fields.dzchunksize));
    assert.equal(chunk.end, Math.min(chunk.start + chunk.chunkBytes, size));
  }
});

test("a chunk stays within its gap, so that a change of size sends no byte twice", () => {
  const plan = planOf(4 * MIB, [[0, 4 * MIB]]);
  const chunks = [64, 64, 64, 1024, 1024, 1024, 1024, 1024].map((kib) => plan.take(kib * KIB)).filter(Boolean);
  const ends = chunks.map(({ end }) => end / KIB);
  assert.deepEqual(ends, [64, 128, 192, 256, 512, 1024, 2048, 3072]);
  assert.deepEqual(chunks.slice(1).map(({ start }) => start / KIB), ends.slice(0, -1));
});

test("a gap between two multiples of the smallest size costs less than one such chunk", () => {
  const plan = planOf(MIB, [[100, 200], [300, 400], [MIB - 5, MIB]]);
  const chunk = plan.take(MIB);
  assert.deepEqual([chunk.start, chunk.end, coveredBytes(chunk.missing)], [0, 64 * KIB, 200]);
  assert.deepEqual(taken(plan), [[MIB - 64 * KIB, MIB]]);
});

test("a chunk that is put back is missing again, and may be cut in smaller ones", () => {
  const plan = planOf(2 * MIB, [[0, 2 * MIB]]);
  const first = plan.take(MIB);
  plan.take(MIB);
  assert.equal(plan.isEmpty, true);
  plan.putBack(first);
  assert.deepEqual(taken(plan, 512 * KIB), [[0, 512 * KIB], [512 * KIB, MIB]]);
});

test("small chunks that are put back beside each other make a large one", () => {
  const plan = planOf(MIB, [[0, MIB]]);
  const chunks = Array.from({ length: 4 }, () => plan.take(256 * KIB));
  for (const chunk of chunks.reverse()) plan.putBack(chunk);
  assert.deepEqual(taken(plan), [[0, MIB]]);
});

test("what is needed first is taken first, in the grid of the others", () => {
  const size = 7.5 * MIB;
  const first = [[0, 32], [5 * MIB + 100, 6 * MIB + 100]];
  const plan = new ChunkPlan({ sizes, size, missing: [[0, size]], first });
  const starts = taken(plan).map(([start]) => start / MIB);
  assert.deepEqual(starts, [0, 5, 6, 1, 2, 3, 4, 7]);
});

test("of what is needed first only what is missing is taken", () => {
  const plan = new ChunkPlan({ sizes, size: 4 * MIB, missing: [[0, MIB], [3.5 * MIB, 4 * MIB]], first: [[3 * MIB, 4 * MIB]] });
  assert.deepEqual(taken(plan), [[3.5 * MIB, 4 * MIB], [0, MIB]]);
});

test("a lost chunk of what is needed first is taken again before the others", () => {
  const plan = new ChunkPlan({ sizes, size: 4 * MIB, missing: [[0, 4 * MIB]], first: [[0, 1], [3 * MIB, 4 * MIB]] });
  const [, index] = [plan.take(MIB), plan.take(MIB)];
  plan.putBack(index);
  assert.deepEqual([plan.take(64 * KIB).start, plan.take(MIB).start], [3 * MIB, 3 * MIB + 64 * KIB]);
});

test("whatever is needed first, each byte is taken once, in hardly more chunks than in order", () => {
  const random = randomNumbers(20);
  const sizeOfTurn = (turn) => Math.min(1024, 64 * 2 ** turn) * KIB;
  for (let round = 0; round < 300; round += 1) {
    const size = 1 + random(20 * MIB);
    const first = Array.from({ length: random(4) }, () => span(random, size));
    const ordered = chunksOf(planOf(size, [[0, size]]), sizeOfTurn);
    const chunks = chunksOf(new ChunkPlan({ sizes, size, missing: [[0, size]], first }), sizeOfTurn);
    chunks.sort((one, other) => one.start - other.start);
    assert.deepEqual(chunks.map(({ end }) => end).slice(0, -1), chunks.map(({ start }) => start).slice(1));
    assert.deepEqual([chunks[0].start, chunks.at(-1).end], [0, size]);
    assert.ok(chunks.length <= ordered.length + 8 * first.length, `${chunks.length} chunks`);
  }
});

function chunksOf(plan, sizeOfTurn) {
  const chunks = [];
  for (let turn = 0; !plan.isEmpty; turn += 1) chunks.push(plan.take(sizeOfTurn(turn)));
  return chunks;
}

/** Whole numbers below a limit, the same in every run (a linear congruential generator). */
function randomNumbers(seed) {
  let state = seed;
  return (limit) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * limit);
  };
}

function span(random, size) {
  const start = random(size);
  return [start, start + 1 + random(size - start)];
}

test("covered bytes are counted over half-open ranges", () => {
  assert.equal(coveredBytes([[0, 10], [20, 25]]), 15);
  assert.equal(coveredBytes([]), 0);
});
