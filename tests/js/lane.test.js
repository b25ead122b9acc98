// What the page sends over a lane, and when it no longer does.

import assert from "node:assert/strict";
import { afterEach, mock, test } from "node:test";
import { setImmediate as settle } from "node:timers/promises";

import { laneOpener } from "../../static/js/uploads/lane.js";
import { RateLimit } from "../../static/js/uploads/limits.js";

const CHUNK = { start: 10, end: 20, chunkBytes: 10 };
const FILE = new File(["0123456789".repeat(4)], "clip.mp4");

/** Keeps its messages, and answers none. */
class Socket extends EventTarget {
  readyState = 1;
  sent = [];

  send(message) {
    this.sent.push(message);
  }

  close() {
    this.readyState = 3;
    this.dispatchEvent(new Event("close"));
  }
}

afterEach(() => mock.timers.reset());

async function setUp({ limit = new RateLimit(), digest = "crc32c=:AAAAAA==:" } = {}) {
  mock.timers.enable({ apis: ["setTimeout"] });
  const socket = new Socket();
  const WebSocket = function () {
    return socket;
  };
  const control = new AbortController();
  const checksums = { contentDigest: async () => digest };
  const opening = laneOpener({ url: "ws://x/lanes", limit, checksums, WebSocket })(new AbortController().signal);
  socket.dispatchEvent(new Event("open"));
  const lane = await opening;
  return { lane, socket, control, post: () => lane.post(CHUNK, { file: FILE, id: "ab", signal: control.signal }) };
}

function partsOf(message) {
  const text = (bytes) => new TextDecoder().decode(bytes);
  const length = new DataView(message.buffer).getUint16(0);
  return { head: JSON.parse(text(message.subarray(2, 2 + length))), body: text(message.subarray(2 + length)) };
}

test("a message is the length of its head, the head, and the chunk", async () => {
  const { socket, post } = await setUp();
  const answered = post();
  await settle();
  const { head, body } = partsOf(socket.sent[0]);
  assert.equal(new URLSearchParams(head.query).get("dzchunkbyteoffset"), "10");
  assert.equal(head.digest, "crc32c=:AAAAAA==:");
  assert.equal(body, "0123456789");
  const data = JSON.stringify({ status: 200, retry_after: null, body: { received: 20 } });
  socket.dispatchEvent(new MessageEvent("message", { data }));
  assert.deepEqual(await answered, { received: 20 });
});

test("without a digest the head has none", async () => {
  const { socket, post } = await setUp({ digest: null });
  post();
  await settle();
  assert.deepEqual(Object.keys(partsOf(socket.sent[0]).head), ["query"]);
});

for (const [when, bytesPerSecond] of [["while it is read", 0], ["while it waits for the limit", 1]]) {
  test(`a chunk that is cancelled ${when} does not leave`, async () => {
    const limit = new RateLimit({ now: () => 0 });
    limit.bytesPerSecond = bytesPerSecond;
    await limit.take(1_000);
    const { socket, control, post } = await setUp({ limit });
    const posted = assert.rejects(post(), (reason) => reason === "paused");
    if (bytesPerSecond > 0) for (let turn = 0; turn < 5; turn += 1) await settle();
    control.abort("paused");
    await posted;
    assert.deepEqual(socket.sent, []);
  });
}
