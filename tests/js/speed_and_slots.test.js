import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as settle } from "node:timers/promises";

import { formatBytes, formatTimeLeft, percentage } from "../../static/js/helpers/format.js";
import { Slots } from "../../static/js/uploads/slots.js";
import { Speedometer } from "../../static/js/uploads/speedometer.js";
import { TotalSpeed, totalsOf } from "../../static/js/uploads/totals.js";

test("speed is unknown before the first acknowledgement, then a mean over the window", () => {
  const speed = new Speedometer();
  assert.equal(speed.bytesPerSecond(0), null);
  speed.start(1_000, 0);
  assert.equal(speed.bytesPerSecond(5_000), null);
  speed.record(3_000, 2_000);
  assert.equal(speed.bytesPerSecond(2_000), 1_000);
  assert.equal(speed.secondsLeft(5_000, 2_000), 5);
});

test("speed falls while nothing arrives and forgets what is long past", () => {
  const speed = new Speedometer();
  speed.start(0, 0);
  speed.record(10_000, 1_000);
  assert.equal(speed.bytesPerSecond(10_000), 1_000);
  for (let second = 20; second <= 40; second += 1) speed.record(10_000 + (second - 19) * 100, second * 1_000);
  assert.ok(Math.abs(speed.bytesPerSecond(40_000) - 100) < 10);
});

test("bytes that were on the server before are no speed", () => {
  const total = new TotalSpeed();
  const upload = { state: "preparing", received: 0 };
  total.note(upload, 0);
  upload.received = 1_000_000;
  total.note(upload, 1_000);
  upload.state = "sending";
  upload.received += 500;
  total.note(upload, 2_000);
  assert.equal(total.bytesPerSecond(2_000), 250);
});

test("totals leave out what failed, but say how much did", () => {
  const failed = { state: "failed", size: 90, received: 0 };
  const uploads = [{ state: "sending", size: 10, received: 4 }, failed, { ...failed, isWorthRetrying: true }];
  const states = { sending: 1, failed: 2 };
  assert.deepEqual(totalsOf(uploads), { size: 10, received: 4, count: 3, states, worthRetrying: 1 });
});

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

test("sizes and times are said as people say them", () => {
  assert.deepEqual([0, 1, 1023, 20 * 2 ** 20, 1.44 * 2 ** 30, 2 ** 40].map(formatBytes), ["0 bytes", "1 byte", "1 KB", "20 MB", "1.4 GB", "1 TB"]);
  assert.deepEqual([3, 31, 61, 7_000, 200_000].map(formatTimeLeft), ["a few seconds", "35 s", "2 min", "1 h 57 min", "2 days"]);
  assert.deepEqual([percentage(999, 1_000), percentage(1, 1), percentage(0, 0)], [99, 100, 100]);
});
