import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as settle } from "node:timers/promises";

import { Problem } from "../../static/js/uploads/problem.js";
import { UploadQueue } from "../../static/js/uploads/upload_queue.js";

const CHUNK = 10;
const receiving = (id) => ({ id, state: "receiving", received: [], missing: [[0, 5]] });

/** Steps whose sending lasts until the test ends it. */
class HeldSteps {
  sending = [];
  discarded = [];

  async prepare(upload) {
    upload.identify({ id: upload.name, received: 0 });
    return receiving(upload.name);
  }

  send(upload, _plan, signal) {
    return new Promise((resolve, reject) => {
      this.sending.push({ upload, finish: () => resolve({ media: `/media/${upload.id}` }), fail: reject });
      signal.addEventListener("abort", () => reject(signal.reason));
    });
  }

  async verify() {
    return { media: "/media/later" };
  }

  async discard(upload) {
    this.discarded.push(upload.id);
  }
}

class SilentView {
  calls = [];

  constructor() {
    for (const name of ["succeed", "fail", "restart", "remove"]) this[name] = (upload) => this.calls.push(`${name} ${upload.name}`);
  }
}

function setUp(steps = new HeldSteps(), options = {}) {
  const view = new SilentView();
  const queue = new UploadQueue({ steps, view, chunkBytes: CHUNK, ...options });
  const add = (...files) => queue.add(files.map(([name, size]) => ({ name, file: { name, size } })));
  return { queue, steps, view, add };
}

const states = (queue) => queue.uploads.map((upload) => upload.state);

test("three large files or nine small ones run at once", async () => {
  const large = setUp();
  large.add(...Array.from({ length: 5 }, (_, index) => [`large ${index}`, 100]));
  await settle();
  assert.equal(large.steps.sending.length, 3);
  const small = setUp();
  for (const day of ["Monday", "Tuesday"]) small.add(...Array.from({ length: 7 }, (_, index) => [`${day} ${index}`, 5]));
  await settle();
  assert.equal(small.steps.sending.length, 9);
});

test("many small files of one drop go in bundles, and large ones beside them in chunks", async () => {
  const { queue, steps, add } = setUp();
  const folder = Array.from({ length: 1000 }, (_, index) => [`small ${index}`, 5]);
  add(["large", 100], ...folder);
  add(["one more", 5]);
  await settle();
  assert.deepEqual(queue.uploads.filter(({ isBundled }) => !isBundled).map(({ name }) => name), ["large"]);
  assert.equal(steps.sending.length, 1 + 300);
});

test("how many are open follows their states", async () => {
  const { queue, steps, add } = setUp();
  const [first] = add(["a", 100], ["b", 100]);
  await settle();
  assert.deepEqual([queue.size, queue.isBusy, queue.isSending, queue.openIds], [2, true, true, ["a", "b"]]);
  queue.pause(first);
  steps.sending[1].finish();
  await settle();
  assert.deepEqual([queue.size, queue.isBusy, queue.isSending, queue.openIds], [2, false, false, []]);
});

test("the end of one lets the next begin", async () => {
  const { queue, steps, add, view } = setUp();
  const completed = [];
  queue.addEventListener("completed", ({ detail }) => completed.push([detail.name, detail.media]));
  add(["a", 100], ["b", 100], ["c", 100], ["d", 100]);
  await settle();
  steps.sending[0].finish();
  await settle();
  assert.deepEqual(states(queue), ["complete", "sending", "sending", "sending"]);
  assert.deepEqual(completed, [["a", "/media/a"]]);
  assert.deepEqual(view.calls, ["succeed a"]);
});

test("a file above the limit is refused before anything is asked or sent", async () => {
  const { queue, steps, add } = setUp(undefined, { maxUploadBytes: 50 });
  add(["huge", 51], ["fits", 50]);
  await settle();
  assert.deepEqual(states(queue), ["failed", "sending"]);
  assert.equal(queue.uploads[0].problem.code, "too_large");
  assert.equal(queue.uploads[0].isWorthRetrying, false);
  assert.equal(steps.sending.length, 1);
});

test("pausing stops the work, and resuming asks anew what is missing", async () => {
  const { queue, steps, add } = setUp();
  const [upload] = add(["a", 100]);
  await settle();
  queue.pause(upload);
  await settle();
  assert.equal(upload.state, "paused");
  assert.equal(queue.isSending, false);
  queue.resume(upload);
  await settle();
  assert.equal(upload.state, "sending");
  assert.equal(steps.sending.length, 2);
});

test("a failure is shown and can be tried again", async () => {
  const { queue, steps, add, view } = setUp();
  const [upload] = add(["a", 100]);
  await settle();
  steps.sending[0].fail(new Problem({ code: "no_room" }));
  await settle();
  assert.equal(upload.state, "failed");
  assert.equal(upload.isWorthRetrying, true);
  queue.retry(upload);
  await settle();
  assert.deepEqual([upload.state, upload.problem], ["sending", null]);
  assert.deepEqual(view.calls, ["fail a", "restart a"]);
});

test("cancelling stops the work here and on the server", async () => {
  const { queue, steps, add } = setUp();
  const [upload] = add(["a", 100]);
  await settle();
  await queue.cancel(upload);
  assert.equal(upload.state, "cancelled");
  assert.deepEqual(queue.uploads, []);
  assert.deepEqual(steps.discarded, ["a"]);
});

test("a discard that fails is told, and breaks nothing", async () => {
  const steps = new HeldSteps();
  steps.discard = () => Promise.reject(new Problem({ code: "internal_server_error" }));
  const { queue, add } = setUp(steps);
  const [upload] = add(["a", 100]);
  const told = [];
  queue.addEventListener("discard-failed", ({ detail }) => told.push(detail));
  await settle();
  await queue.cancel(upload);
  assert.deepEqual(told, [upload]);
});

test("the same file twice is sent once", async () => {
  const { queue, add } = setUp();
  add(["twin", 100], ["twin", 100]);
  await settle();
  assert.deepEqual(states(queue).sort(), ["failed", "sending"]);
});

test("a file that the server has already is complete without sending", async () => {
  const steps = new HeldSteps();
  steps.prepare = async (upload) => {
    upload.identify({ id: "x", received: upload.size, isComplete: true });
    return { id: "x", state: "complete", media: "/media/x" };
  };
  const { queue, add } = setUp(steps);
  const [upload] = add(["a", 100]);
  await settle();
  assert.deepEqual([upload.state, upload.wasCompleteBefore, steps.sending.length], ["complete", true, 0]);
  assert.equal(queue.isBusy, false);
});

test("an upload under way cannot be dismissed", async () => {
  const { queue, add } = setUp();
  const [upload] = add(["a", 100]);
  assert.throws(() => queue.dismiss(upload));
  await settle();
});

test("what no repetition can change is left out when all are tried again", async () => {
  const { queue, steps, add } = setUp();
  add(["a", 100], ["b", 100]);
  await settle();
  steps.sending[0].fail(new Problem({ code: "type_not_allowed" }));
  steps.sending[1].fail(new Problem({ code: "no_room" }));
  await settle();
  await queue.forAll("retry");
  await settle();
  assert.deepEqual(states(queue), ["failed", "sending"]);
});

test("pause all and resume all touch only what allows it", async () => {
  const { queue, steps, add } = setUp();
  add(["a", 100], ["b", 100], ["c", 100], ["d", 100]);
  await settle();
  steps.sending[0].finish();
  await settle();
  await queue.forAll("pause");
  await settle();
  assert.deepEqual(states(queue), ["complete", "paused", "paused", "paused"]);
  await queue.forAll("resume");
  await settle();
  assert.deepEqual(states(queue), ["complete", "sending", "sending", "sending"]);
});
