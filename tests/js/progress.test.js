import assert from "node:assert/strict";
import { test } from "node:test";

import { formatBytes, formatTimeLeft, percentage } from "../../static/js/page/format.js";
import { progressWords } from "../../static/js/page/meter.js";
import { Speedometer, totalsOf, TotalSpeed } from "../../static/js/uploads/progress.js";
import { Upload } from "../../static/js/uploads/upload.js";

const MB = 1_000_000;

test("speed is unknown before anything moves, then a mean over the window", () => {
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
  const upload = { state: "preparing", sent: 0, acknowledgedAt: 0 };
  total.note(upload, 0);
  upload.sent = 1_000_000;
  total.note(upload, 1_000);
  upload.state = "sending";
  upload.sent += 500;
  total.note(upload, 2_000);
  assert.equal(total.bytesPerSecond(2_000), 250);
});

test("bytes that are sent again after a loss count for the speed each time", () => {
  const speed = new Speedometer();
  speed.start(0, 0);
  speed.record(1_000, 1_000);
  speed.record(0, 1_500);
  assert.equal(speed.bytesPerSecond(2_000), 500);
  speed.record(1_000, 2_000);
  assert.equal(speed.bytesPerSecond(2_000), 1_000);
});

test("a speed from hundreds of small steps is that of the last seconds", () => {
  const speed = new Speedometer();
  speed.start(0, 0);
  let position = 0;
  for (let now = 50; now <= 30_000; now += 50) speed.record((position += now <= 15_000 ? 1_000 : 100), now);
  assert.ok(Math.abs(speed.bytesPerSecond(30_000) - 2_000) < 50, `${speed.bytesPerSecond(30_000)}`);
});

test("what is safe only grows; what is in flight is taken back when its request breaks", () => {
  const upload = new Upload({ size: 100 }, { name: "clip" });
  upload.identify({ id: "x", received: 10 });
  upload.progress({ received: 10, inFlight: 30 });
  assert.deepEqual([upload.received, upload.sent], [10, 40]);
  upload.progress({ received: 30, inFlight: 10 });
  assert.deepEqual([upload.received, upload.sent], [30, 40]);
  upload.progress({ inFlight: 0 });
  assert.deepEqual([upload.received, upload.sent], [30, 30]);
  for (const received of [40, 20, 500]) upload.progress({ received });
  assert.deepEqual([upload.received, upload.sent], [100, 100]);
});

test("a line about an upload tells what was sent, what is safe, how fast and for how long", () => {
  const speed = { bytesPerSecond: () => 2 * MB, secondsLeft: (bytes) => bytes / (2 * MB) };
  const words = (received, sent, ...rest) => progressWords({ received: received * MB, sent: sent * MB, size: 100 * MB }, ...rest);
  assert.deepEqual(words(10, 40, speed), ["40 MB of 100 MB sent", "10 MB safe", "2 MB/s", "30 s left"]);
  assert.deepEqual(words(40, 40), ["40 MB of 100 MB sent", "40 MB safe"]);
  assert.deepEqual(words(90, 100, speed), ["100 MB of 100 MB sent", "90 MB safe", "waiting for the server"]);
  assert.deepEqual(words(100, 100, speed), ["100 MB"]);
});

test("totals leave out what failed, but say how much did", () => {
  const failed = { state: "failed", size: 90, received: 0, sent: 0 };
  const uploads = [{ state: "sending", size: 10, received: 4, sent: 7 }, failed, { ...failed, isWorthRetrying: true }];
  const states = { sending: 1, failed: 2 };
  assert.deepEqual(totalsOf(uploads), { size: 10, received: 4, sent: 7, count: 3, states, worthRetrying: 1 });
});

test("sizes and times are said as people say them", () => {
  assert.deepEqual([0, 1, 1023, 20e6, 20 * 2 ** 20, 1.44e9, 1e12].map(formatBytes), ["0 bytes", "1 byte", "1 KB", "20 MB", "21 MB", "1.4 GB", "1 TB"]);
  assert.deepEqual([3, 31, 61, 7_000, 200_000].map(formatTimeLeft), ["a few seconds", "35 s", "2 min", "1 h 57 min", "2 days"]);
  assert.deepEqual([percentage(999, 1_000), percentage(1, 1), percentage(0, 0)], [99, 100, 100]);
});
