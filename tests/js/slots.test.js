import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as settle } from "node:timers/promises";

import { Slots } from "../../static/js/uploads/slots.js";

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
