import assert from "node:assert/strict";
import { test } from "node:test";

import { Rates } from "../../static/js/status/figures.js";
import { formatJob, formatStage, formatUptime, inWords, nodeFigures } from "../../static/js/words.js";

const MB = 1_000_000;

function fed(samples) {
  const rates = new Rates();
  for (const [at, received, sent] of samples) rates.add(at, { received, sent });
  return rates;
}

test("a rate needs two samples", () => {
  assert.equal(fed([]).now, null);
  assert.equal(fed([[0, 5, 5]]).now, null);
  assert.deepEqual(fed([[0, 0, 0], [1000, 2 * MB, MB]]).now, { received: 2 * MB, sent: MB });
});

test("a rate is that of the last seconds and not of all time", () => {
  const samples = [];
  for (let second = 0; second < 20; second += 1) samples.push([second * 1000, Math.min(second, 10) * MB, 0]);
  assert.equal(fed(samples.slice(0, 11)).now.received, MB);
  assert.equal(fed(samples).now.received, 0);
});

test("totals that go back are those of another start", () => {
  const rates = fed([[0, 50 * MB, 0], [1000, 60 * MB, 0], [2000, MB, 0]]);
  assert.equal(rates.now, null);
  rates.add(3000, { received: 2 * MB, sent: 0 });
  assert.equal(rates.now.received, MB);
});

test("the line of the last minute ends at the right and its peak touches the top", () => {
  const samples = [];
  for (let second = 0; second <= 90; second += 1) samples.push([second * 1000, second * MB, 0]);
  const rates = fed(samples);
  assert.equal(rates.peak, MB);
  const points = rates.points("received", { width: 600, height: 100 }).split(" ");
  assert.equal(points[0], "0.0,0.0");
  assert.equal(points.at(-1), "600.0,0.0");
  assert.ok(rates.points("sent", { width: 600, height: 100 }).endsWith("600.0,100.0"));
});

test("figures in words", () => {
  assert.equal(formatStage(0.00042), "0.42 ms");
  assert.equal(formatStage(0.0634), "63 ms");
  assert.equal(formatStage(1.24), "1.2 s");
  assert.equal(formatUptime(42.9), "42 s");
  assert.equal(formatUptime(3 * 3600 + 20 * 60), "3 h 20 min");
  assert.equal(formatUptime(12 * 86400 + 4 * 3600), "12 days 4 h");
  assert.equal(inWords(1234567, "count"), "1,234,567");
  assert.equal(inWords(null, "duration"), "–");
  assert.equal(inWords(undefined, "speed"), "–");
});

test("a job in words says how far it is while it runs", () => {
  assert.equal(formatJob({ step: "index", argument: "", state: "queued", progress: 0 }), "index");
  assert.equal(formatJob({ step: "rendition", argument: "720", state: "running", progress: 0.396 }), "rendition 720 40 %");
  assert.equal(formatJob({ step: "rendition", argument: "720", detail: "It failed." }), "rendition 720");
});

test("a node that is gone has no free space to show", () => {
  const node = { state: "gone", received_bytes_per_second: 0, sent_bytes_per_second: 0, requests_now: 0 };
  const figures = nodeFigures({ ...node, free_bytes: null, uptime_seconds: 61 });
  assert.deepEqual(figures, ["gone", "0 bytes/s", "0 bytes/s", "0", "–", "1 min"]);
});
