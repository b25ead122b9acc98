import assert from "node:assert/strict";
import { afterEach, mock, test } from "node:test";
import { setImmediate as settle } from "node:timers/promises";

import { ConnectionAdvice } from "../../static/js/uploads/limits.js";
import { Problem } from "../../static/js/uploads/problem.js";
import { UploadQueue } from "../../static/js/uploads/upload_queue.js";

const MINUTE = 60_000;

/** A queue whose uploads last until `seen.end(problem)`. */
function setUp() {
  mock.timers.enable({ apis: ["setInterval"] });
  const seen = { allowed: [], asked: 0, end: null, answer: async () => 7 };
  const ask = () => {
    seen.asked += 1;
    return seen.answer();
  };
  const slots = { allow: (count) => seen.allowed.push(count) };
  const prepare = () => new Promise((_resolve, reject) => (seen.end = reject));
  const view = { fail() {}, restart() {}, remove() {} };
  const queue = new UploadQueue({ steps: { prepare }, view, chunkBytes: 10 });
  const advice = new ConnectionAdvice({ ask, slots, lanes: null, isBusy: () => queue.isBusy });
  queue.addEventListener("started", () => advice.begin());
  return { seen, queue, add: () => queue.add([{ name: "a", file: { name: "a", size: 5 } }])[0] };
}

async function pass(milliseconds) {
  mock.timers.tick(milliseconds);
  await settle();
}

afterEach(() => mock.timers.reset());

test("the server is asked at once, and every minute while files are sent", async () => {
  const { seen, queue, add } = setUp();
  add();
  const upload = add();
  await pass(0);
  assert.deepEqual(seen.allowed, [7]);
  seen.answer = async () => null;
  await pass(MINUTE);
  assert.deepEqual(seen.allowed, [7, Infinity]);
  await queue.cancel(queue.uploads[0]);
  seen.end(new Problem({ code: "no_room" }));
  await settle();
  await pass(10 * MINUTE);
  assert.equal(seen.asked, 2);
  queue.retry(upload);
  assert.equal(seen.asked, 3, "a retry long after");
});

test("a server that does not answer wants nothing", async () => {
  const { seen, add } = setUp();
  seen.answer = () => Promise.reject(new Error("lost"));
  add();
  await pass(0);
  assert.deepEqual(seen.allowed, [Infinity]);
});
