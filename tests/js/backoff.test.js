import assert from "node:assert/strict";
import { test } from "node:test";

import { jitteredDelay, retryAfterDelay, sleep } from "../../static/js/uploads/backoff.js";

test("the ceiling doubles up to thirty seconds and the jitter is full", () => {
  const ceilings = [0, 1, 2, 3, 4, 5, 20].map((attempt) => jitteredDelay(attempt, () => 1));
  assert.deepEqual(ceilings, [1000, 2000, 4000, 8000, 16000, 30000, 30000]);
  assert.equal(jitteredDelay(5, () => 0), 0);
  assert.equal(jitteredDelay(-3, () => 1), 1000);
});

test("Retry-After is read as seconds or as a date", () => {
  assert.equal(retryAfterDelay("7"), 7000);
  assert.equal(retryAfterDelay("Thu, 01 Jan 1970 00:00:10 GMT", 4000), 6000);
  assert.equal(retryAfterDelay("Thu, 01 Jan 1970 00:00:10 GMT", 40_000), 0);
});

test("a Retry-After that is absent, senseless or endless does not stop the upload", () => {
  assert.equal(retryAfterDelay(null), 0);
  assert.equal(retryAfterDelay("soon"), 0);
  assert.equal(retryAfterDelay("86400"), 300_000);
});

test("sleep ends at once with the reason of its signal", async () => {
  const control = new AbortController();
  const sleeping = sleep(60_000, control.signal);
  control.abort("stopped");
  await assert.rejects(sleeping, (reason) => reason === "stopped");
  await assert.rejects(sleep(0, control.signal), (reason) => reason === "stopped");
});
