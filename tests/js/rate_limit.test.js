// How fast the page sends where somebody has set a limit.

import assert from "node:assert/strict";
import { afterEach, beforeEach, mock, test } from "node:test";
import { setImmediate as settle } from "node:timers/promises";

import { RateLimit } from "../../static/js/uploads/limits.js";

let time = 0;

beforeEach(() => {
  time = 0;
  mock.timers.enable({ apis: ["setTimeout"] });
});
afterEach(() => mock.timers.reset());

function limited(bytesPerSecond) {
  const limit = new RateLimit({ now: () => time });
  limit.bytesPerSecond = bytesPerSecond;
  return limit;
}

async function pass(milliseconds) {
  time += milliseconds;
  mock.timers.tick(milliseconds);
  await settle();
}

/** When each of some chunks left, by a clock that moves in steps of 100 ms. */
async function departures(takes, until) {
  const left = [];
  for (const take of takes) take.then(() => left.push(time));
  await settle();
  while (time < until) await pass(100);
  return left;
}

test("chunks of all requests leave one after the other, each when those before would have passed", async () => {
  const limit = limited(1_000_000);
  const takes = [500_000, 250_000, 1_000_000, 1].map((bytes) => limit.take(bytes));
  assert.deepEqual(await departures(takes, 3_000), [0, 500, 800, 1_800]);
});

test("an unused second is not made up for", async () => {
  const limit = limited(1_000_000);
  await pass(60_000);
  const takes = [1_000_000, 1_000_000].map((bytes) => limit.take(bytes));
  assert.deepEqual(await departures(takes, 63_000), [60_000, 61_000]);
});

test("without a limit nothing waits", async () => {
  const takes = [1e12, 1e12].map((bytes) => limited(0).take(bytes));
  assert.deepEqual(await departures(takes, 0), [0, 0]);
});

test("what waits goes by the new limit as soon as that is chosen", async () => {
  const limit = limited(1_000);
  const takes = [1_000_000, 1_000_000, 1_000_000].map((bytes) => limit.take(bytes));
  await pass(100);
  limit.bytesPerSecond = 1_000_000;
  assert.deepEqual(await departures(takes, 3_000), [100, 100, 1_100]);
  const others = [1_000_000, 1_000_000_000, 1].map((bytes) => limit.take(bytes));
  limit.bytesPerSecond = 0;
  assert.deepEqual(await departures(others, 3_100), [3_000, 3_000, 3_000]);
});

test("who waits no longer is told why", async () => {
  const limit = limited(1);
  const control = new AbortController();
  await limit.take(1_000, control.signal);
  const waiting = limit.take(1, control.signal);
  control.abort("paused");
  await assert.rejects(waiting, (reason) => reason === "paused");
});
