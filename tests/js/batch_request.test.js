// What the page sends in one request of many files.

import assert from "node:assert/strict";
import { test } from "node:test";

import { batchPost } from "../../static/js/uploads/batch_request.js";

class Request extends EventTarget {
  upload = new EventTarget();
  status = 200;

  open() {}

  setRequestHeader() {}

  abort() {}

  getResponseHeader() {
    return null;
  }

  send(form) {
    const entries = [...form].map(([name, value]) => [name, value instanceof File ? value.name : value]);
    this.responseText = JSON.stringify({ files: entries });
    queueMicrotask(() => {
      this.dispatchEvent(new Event("load"));
      this.dispatchEvent(new Event("loadend"));
    });
  }
}

test("a fingerprint and a length stand in front of each file", async (context) => {
  const before = globalThis.XMLHttpRequest;
  globalThis.XMLHttpRequest = Request;
  context.after(() => (globalThis.XMLHttpRequest = before));
  const parcels = ["a.mp4", "b.mp4"].map((name, number) => ({
    file: new File(["x".repeat(number)], name),
    name,
    fingerprint: `print of ${name}`,
  }));
  const slots = { take: async () => () => {} };
  const signal = new AbortController().signal;
  const sent = await batchPost({ url: "/batch", slots })(parcels, { signal, onProgress() {} });
  assert.deepEqual(sent, [
    ["fingerprint", "print of a.mp4"],
    ["length", "0"],
    ["file", "a.mp4"],
    ["fingerprint", "print of b.mp4"],
    ["length", "1"],
    ["file", "b.mp4"],
  ]);
});
