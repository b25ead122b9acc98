import assert from "node:assert/strict";
import { afterEach, mock, test } from "node:test";
import { setImmediate as settle } from "node:timers/promises";

import { ConnectionAdvice } from "../../static/js/uploads/connection_advice.js";

const MINUTE = 60_000;

function setUp() {
  mock.timers.enable({ apis: ["setInterval"] });
  const seen = { allowed: [], asked: 0, isBusy: true, answer: async () => 7 };
  const ask = () => {
    seen.asked += 1;
    return seen.answer();
  };
  const slots = { allow: (count) => seen.allowed.push(count) };
  return { seen, advice: new ConnectionAdvice({ ask, slots, lanes: null, isBusy: () => seen.isBusy }) };
}

async function pass(milliseconds) {
  mock.timers.tick(milliseconds);
  await settle();
}

afterEach(() => mock.timers.reset());

test("the server is asked at once, and every minute while files are sent", async () => {
  const { seen, advice } = setUp();
  advice.begin();
  advice.begin();
  await pass(0);
  assert.deepEqual(seen.allowed, [7]);
  seen.answer = async () => null;
  await pass(MINUTE);
  assert.deepEqual(seen.allowed, [7, Infinity]);
  seen.isBusy = false;
  await pass(10 * MINUTE);
  assert.equal(seen.asked, 2);
  advice.begin();
  assert.equal(seen.asked, 3);
});

test("a server that does not answer wants nothing", async () => {
  const { seen, advice } = setUp();
  seen.answer = () => Promise.reject(new Error("lost"));
  advice.begin();
  await pass(0);
  assert.deepEqual(seen.allowed, [Infinity]);
});
