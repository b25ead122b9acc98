// What the page sends in the requests that carry bytes, and what it takes for an answer.

import assert from "node:assert/strict";
import { test } from "node:test";

import { batchPost, cellPut, chunkPost } from "../../static/js/uploads/body_request.js";

/** A request that is answered with what `respond(body)` returns. */
class Request extends EventTarget {
  static respond;
  static last;
  upload = new EventTarget();
  status = 200;
  headers = {};

  open(method, url) {
    Object.assign(this, { method, url });
  }

  setRequestHeader(name, value) {
    this.headers[name] = value;
  }

  abort() {}

  getResponseHeader() {
    return null;
  }

  send(body) {
    Request.last = Object.assign(this, { body });
    this.responseText = Request.respond(body);
    queueMicrotask(() => {
      this.dispatchEvent(new Event("load"));
      this.dispatchEvent(new Event("loadend"));
    });
  }
}

function answerWith(context, respond) {
  const before = globalThis.XMLHttpRequest;
  globalThis.XMLHttpRequest = Request;
  Request.respond = respond;
  context.after(() => (globalThis.XMLHttpRequest = before));
}

/** Lets everything leave at once. */
const unlimited = { take: async () => {} };

/** The digest of a chunk is its length. */
const checksums = { contentDigest: async ({ size }) => `crc32c=:${size}:` };

const options = () => ({ signal: new AbortController().signal, onProgress() {} });

test("a fingerprint and a length stand in front of each file", async (context) => {
  const named = ([name, value]) => [name, value instanceof File ? value.name : value];
  answerWith(context, (form) => JSON.stringify({ files: [...form].map(named) }));
  const parcels = ["a.mp4", "b.mp4"].map((name, number) => ({
    file: new File(["x".repeat(number)], name),
    name,
    fingerprint: `print of ${name}`,
  }));
  const slots = { take: async () => () => {} };
  const sent = await batchPost({ url: "/batch", slots, limit: unlimited })(parcels, options());
  assert.deepEqual(sent, [
    ["fingerprint", "print of a.mp4"],
    ["length", "0"],
    ["file", "a.mp4"],
    ["fingerprint", "print of b.mp4"],
    ["length", "1"],
    ["file", "b.mp4"],
  ]);
});

test("a chunk is the body of its request, and the query says where it belongs", async (context) => {
  answerWith(context, () => JSON.stringify({ received: 20 }));
  const file = new File(["0123456789".repeat(4)], "clip.mp4");
  const chunk = { start: 10, end: 20, chunkBytes: 10 };
  assert.deepEqual(await chunkPost({ url: "/upload", limit: unlimited, checksums })(chunk, { file, id: "ab", ...options() }), { received: 20 });
  const { url, body, headers } = Request.last;
  assert.equal(
    url,
    "/upload?dzuuid=ab&dzchunkindex=1&dztotalfilesize=40&dzchunksize=10&dztotalchunkcount=4&dzchunkbyteoffset=10",
  );
  assert.equal(await body.text(), "0123456789");
  assert.equal(headers["Content-Type"], "application/octet-stream");
  assert.equal(headers["Content-Digest"], "crc32c=:10:");
});

test("a chunk without a digest is sent all the same", async (context) => {
  answerWith(context, () => JSON.stringify({ received: 1 }));
  const post = chunkPost({ url: "/upload", limit: unlimited, checksums: { contentDigest: async () => null } });
  await post({ start: 0, end: 1, chunkBytes: 1 }, { file: new File(["x"], "x"), id: "ab", ...options() });
  assert.ok(!("Content-Digest" in Request.last.headers));
});

test("the login page of a network in between is a lost connection", async (context) => {
  for (const text of ["<!doctype html><title>Log in</title>", "null", "{}"]) {
    answerWith(context, () => text);
    const sent = chunkPost({ url: "/upload", limit: unlimited, checksums })({ start: 0, end: 1, chunkBytes: 1 }, { file: new File(["x"], "x"), id: "ab", ...options() });
    await assert.rejects(sent, (error) => error.isConnectionLost);
  }
});

test("every body waits until the limit of the page lets it leave, and says how long it is", async (context) => {
  const taken = [];
  const limit = { take: async (bytes, signal) => (taken.push(bytes), signal.throwIfAborted()) };
  const refused = { signal: AbortSignal.abort("paused"), onProgress() {} };
  const file = new File(["0123456789"], "clip.mp4");
  const slots = { take: async () => () => {} };
  answerWith(context, () => assert.fail("nothing leaves"));
  const isPaused = (reason) => reason === "paused";
  const chunk = { start: 2, end: 10, chunkBytes: 10 };
  await assert.rejects(chunkPost({ url: "/upload", limit, checksums })(chunk, { file, id: "ab", ...refused }), isPaused);
  await assert.rejects(cellPut({ limit })({ url: "/cell", method: "PUT", headers: {} }, file.slice(3), refused), isPaused);
  const parcels = [file, file].map((each) => ({ file: each, name: each.name, fingerprint: "" }));
  await assert.rejects(batchPost({ url: "/batch", slots, limit })(parcels, refused), isPaused);
  assert.deepEqual(taken, [8, 7, 20]);
});
