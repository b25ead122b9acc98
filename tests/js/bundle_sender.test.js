import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";

import { BundlePace, BundleSender, NOT_IN_BUNDLE } from "../../static/js/uploads/bundles.js";
import { connectionLost, Problem } from "../../static/js/uploads/problem.js";

const settle = () => pause(5);
const reachable = { reportLoss() {}, whenReachable: async () => {} };
const stored = ({ name }) => ({ name, id: `id of ${name}`, media: `/media/${name}` });

/** Requests that last until the test answers them. */
class HeldRequests {
  open = [];
  names = [];

  post = (parcels, { signal, onProgress }) =>
    new Promise((resolve, reject) => {
      const answer = (receiptOf = stored) => resolve(parcels.map(receiptOf));
      this.names.push(parcels.map(({ name }) => name));
      this.open.push({ parcels, signal, onProgress, answer, reply: resolve, fail: reject });
      signal.addEventListener("abort", () => reject(signal.reason));
    });

  /** The next request, once there is one; on a busy machine a moment later than usual. */
  async next() {
    await settle();
    for (let waited = 0; this.open.length === 0 && waited < 2000; waited += 5) await settle();
    return this.open.shift();
  }
}

function setUp({ lanes = 4 } = {}) {
  const requests = new HeldRequests();
  const pace = new BundlePace();
  pace.lanes = lanes;
  const soon = { random: () => 0, gathering: 0 };
  const sender = new BundleSender({ post: requests.post, connection: reachable, pace, ...soon });
  return { sender, requests, pace };
}

/** A file of ten bytes on its way; `end` is its receipt or its problem. */
function put(sender, name, file = new Blob(["0123456789"])) {
  const control = new AbortController();
  const one = { name, control, sent: [], events: [], unwanted: [], isCancelled: false };
  const joined = sender.join({
    file,
    name,
    size: file.size,
    fingerprint: name,
    signal: control.signal,
    isUnwanted: () => one.isCancelled,
    onSent: (bytes) => one.sent.push(bytes),
    onWait: (problem) => one.events.push(problem.code),
    onProceed: () => one.events.push("proceed"),
    onUnwanted: (receipt) => one.unwanted.push(receipt.id),
  });
  one.end = joined.then(({ receipt }) => receipt).catch((error) => error);
  one.cancel = () => {
    one.isCancelled = true;
    control.abort("cancelled");
  };
  return one;
}

const putAll = (sender, names) => [...names].map((name) => put(sender, name));
const ends = (files) => Promise.all(files.map((file) => file.end));

test("files of one moment go in one request, each to its own receipt", async () => {
  const { sender, requests } = setUp();
  const files = putAll(sender, "abc");
  (await requests.next()).answer();
  assert.deepEqual((await ends(files)).map(({ id }) => id), ["id of a", "id of b", "id of c"]);
  assert.deepEqual(requests.names, [["a", "b", "c"]]);
});

test("while all lanes are busy, files gather for the next bundle", async () => {
  const { sender, requests } = setUp({ lanes: 1 });
  const first = putAll(sender, "ab");
  const request = await requests.next();
  const others = putAll(sender, "cdef");
  await settle();
  assert.equal(requests.names.length, 1);
  request.answer();
  (await requests.next()).answer();
  await ends([...first, ...others]);
  assert.deepEqual(requests.names, [["a", "b"], ["c", "d", "e", "f"]]);
});

test("bytes on the wire belong to the files in order", async () => {
  const { sender, requests } = setUp();
  const [a, b, c] = putAll(sender, "abc");
  const { onProgress, answer } = await requests.next();
  onProgress(0.5);
  assert.deepEqual([a.sent, b.sent, c.sent], [[10], [5], []]);
  onProgress(1);
  assert.deepEqual([a.sent.at(-1), b.sent.at(-1), c.sent.at(-1)], [10, 10, 10]);
  answer();
  await ends([a, b, c]);
});

test("one refused file does not harm the others", async () => {
  const { sender, requests } = setUp();
  const [a, b] = putAll(sender, "ab");
  const error = { code: "type_not_allowed", status: 415, retryable: false };
  (await requests.next()).answer((parcel) => (parcel.name === "a" ? { name: "a", error } : stored(parcel)));
  assert.equal((await a.end).code, "type_not_allowed");
  assert.equal((await b.end).id, "id of b");
});

test("a file whose receipt asks to try again is sent again, alone", async () => {
  const { sender, requests } = setUp();
  const [a, b] = putAll(sender, "ab");
  const error = { code: "storage_failed", status: 500, retryable: true };
  (await requests.next()).answer((parcel) => (parcel.name === "a" ? { name: "a", error } : stored(parcel)));
  assert.equal((await b.end).id, "id of b");
  (await requests.next()).answer();
  assert.equal((await a.end).id, "id of a");
  assert.deepEqual(a.events, ["storage_failed", "proceed"]);
  assert.deepEqual(requests.names, [["a", "b"], ["a"]]);
});

test("a request that breaks is repeated, and nothing of it counts as sent", async () => {
  const { sender, requests } = setUp();
  const [a, b] = putAll(sender, "ab");
  const request = await requests.next();
  request.onProgress(0.9);
  request.fail(connectionLost());
  (await requests.next()).answer();
  await ends([a, b]);
  assert.deepEqual(a.sent, [10, 0]);
  assert.deepEqual(a.events, ["connection_lost", "proceed"]);
  assert.deepEqual(requests.names, [["a", "b"], ["a", "b"]]);
});

test("an answer with too few receipts is none", async () => {
  const { sender, requests } = setUp();
  const files = putAll(sender, "ab");
  (await requests.next()).reply([{ id: "one" }]);
  (await requests.next()).answer();
  assert.deepEqual((await ends(files)).map(({ id }) => id), ["id of a", "id of b"]);
});

test("a paused file leaves, and its company goes on", async () => {
  const { sender, requests } = setUp();
  const [a, b] = putAll(sender, "ab");
  const request = await requests.next();
  a.control.abort("paused");
  assert.equal(await a.end, "paused");
  assert.equal(request.signal.aborted, false);
  request.answer();
  assert.equal((await b.end).id, "id of b");
  assert.deepEqual(a.unwanted, []);
});

test("a request that nobody waits for is ended", async () => {
  const { sender, requests } = setUp();
  const files = putAll(sender, "ab");
  const request = await requests.next();
  for (const { control } of files) control.abort("paused");
  assert.equal(request.signal.aborted, true);
});

test("a cancelled file is told what the server made of it, so that it can be deleted", async () => {
  const { sender, requests } = setUp();
  const [a, b] = putAll(sender, "ab");
  const request = await requests.next();
  a.cancel();
  b.cancel();
  assert.equal(request.signal.aborted, false);
  request.answer();
  await settle();
  assert.deepEqual([a.unwanted, b.unwanted], [["id of a"], ["id of b"]]);
});

test("a file that leaves before its bundle does is never sent", async () => {
  const { sender, requests } = setUp({ lanes: 1 });
  put(sender, "first");
  const request = await requests.next();
  const [a, b] = putAll(sender, "ab");
  a.cancel();
  assert.equal(await a.end, "cancelled");
  request.answer();
  (await requests.next()).answer();
  await b.end;
  assert.deepEqual(requests.names, [["first"], ["b"]]);
});

test("a body too large for something on the way goes in two", async () => {
  const { sender, requests } = setUp();
  const files = putAll(sender, "abcd");
  const tooLarge = new Problem({ code: "too_large", status: 413 });
  (await requests.next()).fail(tooLarge);
  (await requests.next()).answer();
  const second = await requests.next();
  second.fail(tooLarge);
  (await requests.next()).answer();
  (await requests.next()).fail(tooLarge);
  const [, , c, d] = await ends(files);
  assert.equal(c.id, "id of c");
  assert.equal(d.code, NOT_IN_BUNDLE);
  assert.deepEqual(requests.names, [["a", "b", "c", "d"], ["a", "b"], ["c", "d"], ["c"], ["d"]]);
});

test("files that no bundle is taken with are left to go alone", async () => {
  const { sender, requests } = setUp();
  const files = putAll(sender, "ab");
  (await requests.next()).fail(new Problem({ code: "unexpected_answer", status: 404 }));
  assert.deepEqual((await ends(files)).map(({ code }) => code), [NOT_IN_BUNDLE, NOT_IN_BUNDLE]);
});

test("a file that can no longer be read is taken out, and the rest goes again", async () => {
  const { sender, requests } = setUp();
  const changed = { size: 10, slice: () => ({ arrayBuffer: () => Promise.reject(new Error("changed")) }) };
  const bad = put(sender, "bad", changed);
  const good = put(sender, "good");
  (await requests.next()).fail(connectionLost());
  (await requests.next()).answer();
  assert.equal((await bad.end).code, "file_unreadable");
  assert.equal((await good.end).id, "id of good");
});
