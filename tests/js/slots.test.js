import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as settle } from "node:timers/promises";

import { Slots } from "../../static/js/uploads/limits.js";

test("slots are given in order, and taken back from those who give up waiting", async () => {
  const slots = new Slots(1);
  const order = [];
  const release = await slots.take();
  const control = new AbortController();
  const quitter = slots.take(control.signal).catch((reason) => order.push(reason));
  const second = slots.take().then((free) => (order.push("second"), free));
  control.abort("gave up");
  await quitter;
  release();
  release();
  (await second)();
  await settle();
  (await slots.take())();
  assert.deepEqual(order, ["gave up", "second"]);
});

test("fewer slots are granted as long as fewer are allowed", async () => {
  const slots = new Slots(3);
  const releases = [await slots.take(), await slots.take()];
  slots.allow(1);
  let granted = 0;
  for (let waiting = 0; waiting < 3; waiting += 1) slots.take().then(() => (granted += 1));
  releases[0]();
  await settle();
  assert.equal(granted, 0);
  releases[1]();
  await settle();
  assert.equal(granted, 1);
  slots.allow(Infinity);
  await settle();
  assert.equal(granted, 3);
});

test("of the counts for different reasons the least holds", async () => {
  const slots = new Slots(3);
  slots.allow(1);
  slots.allow(2, "another");
  let granted = 0;
  for (let waiting = 0; waiting < 3; waiting += 1) slots.take().then(() => (granted += 1));
  await settle();
  assert.equal(granted, 1);
  slots.allow(Infinity);
  await settle();
  assert.equal(granted, 2);
  slots.allow(Infinity, "another");
  await settle();
  assert.equal(granted, 3);
});
