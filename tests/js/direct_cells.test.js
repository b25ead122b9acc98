// Whole cells of a file go to the bucket; what the bucket does not take goes through the server.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Worker } from "node:worker_threads";

import { Checksums } from "../../static/js/uploads/checksums.js";
import { ChunkPace, ChunkPlan, ChunkSizes } from "../../static/js/uploads/chunk_plan.js";
import { CHUNKS_AT_ONCE, ChunkSender } from "../../static/js/uploads/chunk_sender.js";
import { crc32c, inBase64 } from "../../static/js/uploads/crc32c.js";
import { DirectCells } from "../../static/js/uploads/direct_cells.js";
import { connectionLost, Problem } from "../../static/js/uploads/problem.js";
import { Slots } from "../../static/js/uploads/limits.js";

const CELL = 1000;
const reachable = { reportLoss() {}, whenReachable: async () => {} };
const refused = () => new Problem({ code: "unexpected_answer", status: 403 });

/** A server and its bucket, which keep what they get; `put` decides what the bucket takes. */
function setUp({ size, missing = [[0, size]], put = async () => {}, offer = async () => {}, isThere = true, clock }) {
  const sent = [];
  const stored = new Map();
  const received = [];
  const direct = new DirectCells({
    checksums: { of: async (blob) => inBase64(crc32c(new Uint8Array(await blob.arrayBuffer()))) },
    offer: async (_id, cell) => (await offer(cell)) ?? { url: `bucket/${cell.start}`, method: "PUT", headers: {} },
    put: async (target, blob, options) => {
      await put(target, options);
      stored.set(target.url, blob.size);
    },
    confirm: async (_id, { start, length }) => {
      if (!stored.has(`bucket/${start}`)) throw new Problem({ code: "cell_not_stored", status: 409 });
      sent.push(`bucket ${start}-${start + length}`);
      received.push([start, start + length]);
      return { received };
    },
    isServerThere: async () => isThere,
    connection: reachable,
    clock,
  });
  const post = async ({ start, end, missing: ranges }) => {
    sent.push(`server ${start}-${end}`);
    received.push(...ranges);
    return { received: received.reduce((sum, range) => sum + range[1] - range[0], 0) };
  };
  const sizes = new ChunkSizes(CELL * 64);
  const tools = { post, slots: new Slots(5), sizes, pace: new ChunkPace(sizes), connection: reachable, direct };
  const upload = { id: "ab", file: new File([new Uint8Array(size)], "clip.mp4"), size, received: 0 };
  const view = { onProgress() {}, onWait() {}, onProceed() {} };
  const plan = { missing, cellBytes: CELL };
  const sender = new ChunkSender({ ...tools, random: () => 0 });
  const run = (signal = new AbortController().signal) => sender.send(upload, { ...plan, signal, ...view });
  return { direct, sent, stored, run };
}

test("every whole cell goes to the bucket, the last one too", async () => {
  const { sent, run } = setUp({ size: 2500 });
  await run();
  assert.deepEqual(sent.toSorted(), ["bucket 0-1000", "bucket 1000-2000", "bucket 2000-2500"]);
});

test("a cell of which the server has some bytes goes through the server", async () => {
  const { sent, run } = setUp({ size: 3000, missing: [[500, 3000]] });
  await run();
  assert.deepEqual(sent.toSorted(), ["bucket 1000-2000", "bucket 2000-3000", "server 0-3000"]);
});

test("a bucket that refuses twice in a row is left alone from then on", async () => {
  let asked = 0;
  const put = async () => {
    asked += 1;
    throw refused();
  };
  const { direct, sent, run } = setUp({ size: 50 * CELL, put });
  await run();
  assert.equal(direct.isUsable, false);
  assert.ok(asked <= CHUNKS_AT_ONCE, `${asked} cells`);
  assert.ok(sent.every((each) => each.startsWith("server")));
});

test("a cell that the bucket has refused goes through the server", async () => {
  let isFirst = true;
  const put = async () => {
    if (!isFirst) return;
    isFirst = false;
    throw refused();
  };
  const { sent, run } = setUp({ size: 2 * CELL, put });
  await run();
  assert.deepEqual(sent.toSorted(), ["bucket 1000-2000", "server 0-2000"]);
});

test("a cell without a URL goes through the server, and the bucket is not to blame", async () => {
  const offer = async ({ start }) => (start === 1000 || start === 2000 ? { stored: false } : null);
  const { direct, sent, run } = setUp({ size: 4 * CELL, offer });
  await run();
  assert.deepEqual(sent.toSorted(), ["bucket 0-1000", "bucket 3000-4000", "server 0-4000"]);
  assert.equal(direct.isUsable, true);
});

test("a cell goes to the bucket once: if its request breaks off, it goes through the server", async () => {
  const put = async ({ url }) => {
    if (url === "bucket/1000") throw connectionLost();
  };
  const { direct, sent, run } = setUp({ size: 4 * CELL, put });
  await run();
  // The server's chunks are larger here than a cell, and hold bytes that it has.
  assert.deepEqual(sent.toSorted(), ["bucket 0-1000", "bucket 2000-3000", "bucket 3000-4000", "server 0-4000"]);
  assert.equal(direct.isUsable, true);
});

test("a cell whose sending was paused goes through the server", async () => {
  const pause = new AbortController();
  let isFirst = true;
  const put = async (_target, { signal }) => {
    if (!isFirst) return;
    isFirst = false;
    pause.abort();
    signal.throwIfAborted();
  };
  const { sent, run } = setUp({ size: CELL, put });
  await assert.rejects(run(pause.signal), { name: "AbortError" });
  await run();
  assert.deepEqual(sent, ["server 0-1000"]);
});

test("without any network the bucket is not to blame", async () => {
  const { direct, sent, run } = setUp({ size: 3 * CELL, put: async () => Promise.reject(connectionLost()), isThere: false });
  await run();
  assert.deepEqual(sent, ["server 0-3000"]);
  assert.equal(direct.isUsable, true);
});

test("on a slow line a cell is given up early, and the server gets the bytes", async () => {
  for (const [seconds, isUsable] of [[9, true], [11, false], [59, false]]) {
    let now = 0;
    const put = async (_target, { signal, onProgress }) => {
      now += seconds * 1000;
      onProgress(0.09);
      signal.throwIfAborted();
    };
    const { direct, sent, run } = setUp({ size: CELL, put, clock: () => now });
    await run();
    assert.equal(direct.isUsable, isUsable, `${seconds} s`);
    assert.deepEqual(sent, [isUsable ? "bucket 0-1000" : "server 0-1000"]);
  }
});

test("a server that wants the bytes of an upload itself gets all of them, and no others", async () => {
  const offer = async () => {
    throw new Problem({ code: "not_direct", status: 409 });
  };
  const { direct, sent, run } = setUp({ size: 3 * CELL, offer });
  await run();
  assert.deepEqual(sent, ["server 0-3000"]);
  assert.equal(direct.isUsable, true);
});

test("a cell that another page has stored is not sent again", async () => {
  let puts = 0;
  const put = async () => (puts += 1);
  const { sent, stored, run } = setUp({ size: CELL, put, offer: async () => ({ stored: true }) });
  stored.set("bucket/0", CELL);
  await run();
  assert.deepEqual([puts, sent], [0, ["bucket 0-1000"]]);
});

test("the cell that a player needs first is taken first", () => {
  const sizes = new ChunkSizes(CELL * 64);
  const plan = new ChunkPlan({ sizes, size: 4500, missing: [[0, 4500]], first: [[4100, 4500]], cellBytes: CELL });
  assert.deepEqual([plan.takeCell().start, plan.takeCell().start, plan.hasCell], [4000, 0, true]);
});

test("CRC32C is that of RFC 3720, however the bytes are cut", () => {
  const words = (text) => new TextEncoder().encode(text);
  assert.equal(crc32c(words("123456789")), 0xe3069283);
  assert.equal(crc32c(new Uint8Array(32)), 0x8a9136aa);
  assert.equal(crc32c(new Uint8Array(32).fill(0xff)), 0x62a8ab43);
  assert.equal(inBase64(crc32c(words("123456789"))), "4waSgw==");
  const bytes = Uint8Array.from({ length: 1000 }, (_, index) => (index * 7919) % 256);
  assert.equal(crc32c(bytes.subarray(333), crc32c(bytes.subarray(0, 333))), crc32c(bytes));
});

test("a worker answers each question, and says which file cannot be read", async (context) => {
  const script = new URL("../../static/js/uploads/crc32c_worker.js", import.meta.url);
  const bridge = `
    import { parentPort } from "node:worker_threads";
    globalThis.postMessage = (message) => parentPort.postMessage(message);
    globalThis.addEventListener = (_type, listener) => parentPort.on("message", (data) => listener({ data }));
    await import(${JSON.stringify(script.href)});`;
  const start = () => {
    const worker = new Worker(new URL(`data:text/javascript,${encodeURIComponent(bridge)}`));
    context.after(() => worker.terminate());
    worker.addEventListener = (type, listener) => worker.on(type, (data) => listener({ data }));
    return worker;
  };
  const checksums = new Checksums({ start });
  const answers = [new Blob(["123456789"]), new Blob([])].map((blob) => checksums.of(blob));
  assert.deepEqual(await Promise.all(answers), ["4waSgw==", "AAAAAA=="]);
  await assert.rejects(checksums.of(null), { code: "file_unreadable" });
  assert.equal(await checksums.contentDigest(new Blob(["123456789"])), "crc32c=:4waSgw==:");
  assert.equal(await checksums.contentDigest(new Blob([new Uint8Array(1024 * 1024 + 1)])), null);
});

test("where the worker fails, chunks have no digest, and it is not started again for the next one", async () => {
  let starts = 0;
  const start = () => {
    starts += 1;
    const worker = Object.assign(new EventTarget(), { postMessage() {} });
    queueMicrotask(() => worker.dispatchEvent(new Event("error")));
    return worker;
  };
  const checksums = new Checksums({ start });
  for (let chunk = 0; chunk < 3; chunk += 1) assert.equal(await checksums.contentDigest(new Blob(["x"])), null);
  assert.equal(starts, 1);
});
