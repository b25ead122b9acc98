import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as settle } from "node:timers/promises";

import { ChunkPace, ChunkSizes } from "../../static/js/uploads/chunk_plan.js";
import { CHUNKS_AT_ONCE, ChunkSender } from "../../static/js/uploads/chunk_sender.js";
import { connectionLost, Problem } from "../../static/js/uploads/problem.js";
import { Slots } from "../../static/js/uploads/limits.js";

const KIB = 1024;
const MIB = 1024 * KIB;
const reachable = { reportLoss() {}, whenReachable: async () => {} };

/** A sender whose requests are held in `requests` until the test answers them. */
function setUp({ size = MIB, missing = [[0, size]], slots = new Slots(5), largest = 128 * KIB, lanes = null } = {}) {
  const file = new File([new Uint8Array(size)], "clip.mp4");
  const requests = [];
  const told = [];
  const post = (chunk, { signal, onProgress }) =>
    new Promise((resolve, reject) => {
      const abort = () => reject(signal.reason);
      signal.addEventListener("abort", abort);
      const answer = (answer) => {
        signal.removeEventListener("abort", abort);
        resolve(answer);
      };
      requests.push({ chunk, signal, onProgress, answer, fail: reject });
    });
  const sizes = new ChunkSizes(largest);
  const pace = new ChunkPace(sizes);
  const sender = new ChunkSender({ post, slots, sizes, pace, connection: reachable, lanes, random: () => 0 });
  const control = new AbortController();
  const received = size - missing.reduce((sum, [start, end]) => sum + end - start, 0);
  const sent = sender.send({ id: "ab", file, size, received }, {
    missing,
    signal: control.signal,
    onProgress: (progress) => told.push(progress),
    onWait: (problem) => told.push(problem.code),
    onProceed() {},
  });
  return { sent, requests, told, control, pace };
}

/** Answers every request that comes until `sent` is settled, and returns its result. */
async function answerAll(sent, requests, { from = 0 } = {}) {
  let isOver = false;
  sent.finally(() => (isOver = true)).catch(() => {});
  for (let next = from; !isOver; ) {
    await settle();
    while (next < requests.length) requests[next++].answer({ received: 1 });
  }
  return sent;
}

const startsOf = (requests) => requests.map(({ chunk }) => chunk.start / KIB);

test("every byte is sent once, several chunks at a time", async () => {
  const { sent, requests, told } = setUp();
  await settle();
  assert.equal(requests.length, CHUNKS_AT_ONCE);
  await answerAll(sent, requests);
  assert.deepEqual(startsOf(requests), [0, 128, 256, 384, 512, 640, 768, 896]);
  assert.deepEqual(told.at(-1), { received: MIB, inFlight: 0 });
});

test("the last chunks of a file on a slow line are smaller, so that all connections end together", async () => {
  const { sent, requests, pace } = setUp({ size: 4 * MIB, largest: 256 * KIB });
  pace.sent({ chunkBytes: 256 * KIB, start: 0, end: 256 * KIB }, 2_000);
  pace.sent = () => {}; // Here each takes no time.
  await answerAll(sent, requests);
  const sizes = requests.map(({ chunk }) => (chunk.end - chunk.start) / KIB);
  assert.deepEqual(sizes, [...Array(7).fill(256), ...Array(9).fill(128), ...Array(18).fill(64)]);
});

test("progress tells what is safe and what is in flight, and never counts a byte as both", async () => {
  const { sent, requests, told } = setUp({ missing: [[512 * KIB, MIB]] });
  await settle();
  requests[0].onProgress(0.5);
  requests[1].onProgress(1);
  assert.deepEqual(told.at(-1), { received: 512 * KIB, inFlight: 192 * KIB });
  requests[1].answer({ received: 0 });
  await settle();
  assert.deepEqual(told.at(-1), { received: 640 * KIB, inFlight: 64 * KIB });
  requests[0].fail(connectionLost());
  await settle();
  assert.deepEqual(told.at(-1), { received: 640 * KIB, inFlight: 0 });
  await answerAll(sent, requests, { from: 2 });
});

test("a lost chunk is sent again, in smaller ones, and the others go on meanwhile", async () => {
  const { sent, requests, told, pace } = setUp();
  await settle();
  requests[0].fail(connectionLost());
  await settle();
  assert.equal(pace.chunkBytes, 64 * KIB);
  await answerAll(sent, requests, { from: 1 });
  assert.ok(startsOf(requests.slice(CHUNKS_AT_ONCE)).includes(0));
  assert.ok(!told.includes("connection_lost"));
  assert.deepEqual(told.at(-1), { received: MIB, inFlight: 0 });
});

test("an upload waits once none of its chunks is on the way", async () => {
  const { sent, requests, told } = setUp();
  await settle();
  for (const request of requests.slice(0, CHUNKS_AT_ONCE)) request.fail(connectionLost());
  await answerAll(sent, requests, { from: CHUNKS_AT_ONCE });
  assert.ok(told.includes("connection_lost"));
  assert.deepEqual(told.at(-1), { received: MIB, inFlight: 0 });
});

test("one final refusal ends the upload and the other chunks of its file", async () => {
  const { sent, requests } = setUp();
  await settle();
  requests[1].fail(new Problem({ code: "upload_gone", status: 410 }));
  await assert.rejects(sent, ({ code }) => code === "upload_gone");
  assert.ok(requests.every(({ signal }) => signal.aborted));
  assert.equal(requests.length, CHUNKS_AT_ONCE);
});

test("a chunk that is too large for a proxy is sent at once in smaller ones", async () => {
  const { sent, requests } = setUp();
  await settle();
  requests[0].fail(new Problem({ code: "too_large", status: 413 }));
  await answerAll(sent, requests, { from: 1 });
  assert.ok(requests.slice(CHUNKS_AT_ONCE).every(({ chunk }) => chunk.chunkBytes <= 64 * KIB));
});

test("the smallest chunk that is still too large ends the upload", async () => {
  const { sent, requests } = setUp({ largest: 64 * KIB });
  await settle();
  requests[0].fail(new Problem({ code: "too_large", status: 413 }));
  await assert.rejects(sent, ({ code }) => code === "too_large");
});

test("stopping ends all requests and takes back what was in flight", async () => {
  const { sent, requests, told, control } = setUp();
  await settle();
  requests[0].onProgress(0.5);
  control.abort("paused");
  await assert.rejects(sent, (reason) => reason === "paused");
  await settle();
  assert.deepEqual(told.at(-1), { received: 0, inFlight: 0 });
});

test("all files together keep to the slots of the page", async () => {
  const slots = new Slots(2);
  const { sent, requests } = setUp({ slots });
  await settle();
  assert.equal(requests.length, 2);
  await answerAll(sent, requests);
  (await slots.take())();
});

test("the answer that names the finished file is the one that is kept", async () => {
  const { sent, requests } = setUp({ size: 3 * 64 * KIB, largest: 64 * KIB });
  await settle();
  requests[2].answer({ received: 3, media: "/media/ab" });
  await settle();
  for (const { answer } of requests) answer({ received: 1 });
  assert.equal((await sent).media, "/media/ab");
});

test("a file that was finished elsewhere is not sent on", async () => {
  const { requests, sent, told } = setUp();
  await settle();
  requests[0].answer({ received: MIB, media: "/media/ab" });
  assert.deepEqual(await sent, { received: MIB, media: "/media/ab" });
  assert.equal(told.at(-1).received, MIB);
  assert.ok(requests.slice(1).every(({ signal }) => signal.aborted));
});

test("an empty file takes one request", async () => {
  const { sent, requests } = setUp({ size: 0, missing: [] });
  await answerAll(sent, requests);
  assert.equal(requests.length, 1);
});

test("chunks that wait for a slot are cut when they get it, in the size that has been learned by then", async () => {
  const { sent, requests, pace } = setUp({ size: 4 * MIB, largest: MIB, slots: new Slots(1) });
  await settle();
  assert.equal(requests[0].chunk.chunkBytes, 256 * KIB);
  requests[0].answer({ received: 1 });
  await settle();
  assert.equal(pace.chunkBytes, MIB);
  await answerAll(sent, requests, { from: 1 });
  assert.ok(requests.slice(3).every(({ chunk }) => chunk.chunkBytes === MIB));
});

test("a file whose last byte is acknowledged waits for no slot that another file has", async () => {
  const slots = new Slots(1);
  const { sent, requests } = setUp({ size: 3 * 64 * KIB, largest: 64 * KIB, slots });
  await settle();
  const held = slots.take();
  await answerAll(sent, requests);
  assert.equal(requests.length, 3);
  (await held)();
});

/** What takes the place of Lanes: the test drives the transfer itself. */
function fakeLanes() {
  const lanes = { transfers: [], bytes: 0 };
  lanes.add = (transfer) => lanes.transfers.push(transfer);
  lanes.remove = (transfer) => lanes.transfers.splice(lanes.transfers.indexOf(transfer), 1);
  lanes.acknowledged = (bytes) => (lanes.bytes += bytes);
  return lanes;
}

/** A lane whose messages are held until the test answers them. */
function fakeLane() {
  const messages = [];
  const post = (chunk) => new Promise((answer, fail) => messages.push({ chunk, answer, fail }));
  return { messages, post };
}

test("lanes send chunks beside the requests, and every byte is sent once", async () => {
  const lanes = fakeLanes();
  const { sent, requests, told } = setUp({ lanes });
  await settle();
  const lane = fakeLane();
  const over = lanes.transfers[0].sendOn(lane);
  assert.equal(lane.messages[0].chunk.start, CHUNKS_AT_ONCE * 128 * KIB);
  lane.messages[0].answer({ received: 1 });
  assert.deepEqual(await over, { hasSent: true, pause: 0 });
  assert.equal(lanes.bytes, 128 * KIB);
  await answerAll(sent, requests);
  assert.deepEqual(startsOf(requests), [0, 128, 256, 384, 512, 768, 896]);
  assert.deepEqual(told.at(-1), { received: MIB, inFlight: 0 });
  assert.equal(lanes.transfers.length, 0);
});

test("what a lane does not take, a request does, also where all others are over", async () => {
  const lanes = fakeLanes();
  const { sent, requests, told } = setUp({ lanes });
  await settle();
  const lane = fakeLane();
  const over = lanes.transfers[0].sendOn(lane);
  for (let next = 0; next < 7; next += 1) {
    requests[next].answer({ received: 1 });
    await settle();
  }
  assert.equal(requests.length, 7);
  lane.messages[0].fail(new Problem({ code: "server_busy", status: 503, retryAfter: 2_000, retryable: true }));
  assert.deepEqual(await over, { hasSent: false, pause: 2_000 });
  await answerAll(sent, requests, { from: 7 });
  assert.equal(requests.at(-1).chunk.start, CHUNKS_AT_ONCE * 128 * KIB);
  assert.deepEqual(told.at(-1), { received: MIB, inFlight: 0 });
});

const TEN_CHUNKS = 640 * KIB;

/** A transfer of which all chunks but one are acknowledged; the lane `slow`, or else the last request, has that. */
async function nearTheEnd(context, { size = TEN_CHUNKS, isOnLane }) {
  let now = 0;
  context.mock.method(performance, "now", () => now);
  const lanes = fakeLanes();
  const { sent, requests, told } = setUp({ lanes, size, largest: 64 * KIB });
  await settle();
  const [transfer] = lanes.transfers;
  const slow = fakeLane();
  let late = null;
  const most = size / (64 * KIB) - 1;
  for (let next = 0; next < most; next += 1) {
    if (isOnLane && next === 0) late = transfer.sendOn(slow);
    requests[next].answer({ received: 1 });
    await settle();
  }
  return { sent, requests, told, transfer, slow, late, waitUntil: (time) => (now = time) };
}

const NOTHING_SENT = { hasSent: false, pause: 0 };

test("a chunk that a lane has had for long is sent on another one too, and its first answer counts", async (context) => {
  const { sent, requests, told, transfer, slow, late, waitUntil } = await nearTheEnd(context, { isOnLane: true });
  const idle = fakeLane();
  assert.deepEqual(await transfer.sendOn(idle), NOTHING_SENT);
  waitUntil(600);
  assert.deepEqual(await transfer.sendOn(slow), NOTHING_SENT);
  const again = transfer.sendOn(idle);
  assert.deepEqual(idle.messages[0].chunk, slow.messages[0].chunk);
  assert.deepEqual(await transfer.sendOn(fakeLane()), NOTHING_SENT, "once is enough");
  idle.messages[0].answer({ received: TEN_CHUNKS, media: "/media/ab" });
  assert.deepEqual(await again, { hasSent: true, pause: 0 });
  assert.equal((await sent).media, "/media/ab");
  slow.messages[0].fail(connectionLost());
  await late;
  assert.equal(requests.length, 9);
  assert.deepEqual(told.at(-1), { received: TEN_CHUNKS, inFlight: 0 });
});

test("a small chunk that a request has had for very long is sent on a lane too", async (context) => {
  const { sent, requests, told, transfer, waitUntil } = await nearTheEnd(context, { isOnLane: false });
  const idle = fakeLane();
  waitUntil(2_000);
  assert.deepEqual(await transfer.sendOn(idle), NOTHING_SENT);
  waitUntil(4_000);
  const again = transfer.sendOn(idle);
  assert.deepEqual(idle.messages[0].chunk, requests.at(-1).chunk);
  idle.messages[0].answer({ received: TEN_CHUNKS, media: "/media/ab" });
  await again;
  assert.equal((await sent).media, "/media/ab");
  assert.ok(requests.at(-1).signal.aborted);
  assert.deepEqual(told.at(-1), { received: TEN_CHUNKS, inFlight: 0 });
});

test("a request whose chunk a lane has brought ends, and makes room for another one", async (context) => {
  let now = 0;
  context.mock.method(performance, "now", () => now);
  const lanes = fakeLanes();
  const slots = new Slots(5);
  const { sent, requests, told } = setUp({ lanes, slots, size: TEN_CHUNKS, largest: 64 * KIB });
  await settle();
  for (const { answer } of requests) answer({ received: 1 });
  await settle();
  now = 4_000;
  const lane = fakeLane();
  const again = lanes.transfers[0].sendOn(lane);
  lane.messages[0].answer({ received: 1 });
  await again;
  await settle();
  assert.deepEqual(requests.slice(5).map(({ signal }) => signal.aborted), [true, false, false, false, false]);
  (await slots.take(AbortSignal.timeout(1_000)))();
  await answerAll(sent, requests, { from: 6 });
  assert.equal(requests.length, 10);
  assert.deepEqual(told.at(-1), { received: TEN_CHUNKS, inFlight: 0 });
});

test("no more than a tenth of a file is sent twice", async (context) => {
  const { sent, requests, transfer, slow, late, waitUntil } = await nearTheEnd(context, {
    size: MIB / 2,
    isOnLane: true,
  });
  waitUntil(600);
  assert.deepEqual(await transfer.sendOn(fakeLane()), NOTHING_SENT);
  slow.messages[0].answer({ received: MIB / 2 });
  await late;
  await sent;
  assert.equal(requests.length, 7);
});
