import assert from "node:assert/strict";
import { test } from "node:test";

import { BundlePace, isSmall } from "../../static/js/uploads/bundles.js";

const MIB = 1024 * 1024;

/** Sends full bundles that take as long as `durationOf(lanes)` says, side by side on all lanes. */
function send(pace, bundles, durationOf) {
  let now = 0;
  for (let number = 0; number < bundles; number += 1) {
    const duration = durationOf(pace.lanes);
    now += duration / pace.lanes;
    pace.sent({ count: 10, bytes: pace.bytes, duration, now });
  }
}

test("a file that would be cut into chunks is not small", () => {
  assert.equal(isSmall(4 * MIB, 20 * MIB), true);
  assert.equal(isSmall(4 * MIB + 1, 20 * MIB), false);
  assert.equal(isSmall(2 * MIB, MIB), false);
  assert.equal(isSmall(0, MIB), true);
});

test("a bundle takes at least one file, and ends at its bytes or its number", () => {
  const pace = new BundlePace();
  assert.equal(pace.hasRoom({ count: 0, bytes: 0 }, 4 * MIB), true);
  assert.equal(pace.hasRoom({ count: 1, bytes: 10 }, 4 * MIB), false);
  assert.equal(pace.hasRoom({ count: 99, bytes: 99 }, 1), true);
  assert.equal(pace.hasRoom({ count: 100, bytes: 100 }, 1), false);
});

test("bundles grow on a fast line and shrink on a slow one, within bounds", () => {
  const pace = new BundlePace();
  send(pace, 40, () => 100);
  assert.equal(pace.bytes, 16 * MIB);
  send(pace, 40, () => 10_000);
  assert.equal(pace.bytes, 256 * 1024);
});

test("a small bundle that was fast does not make large ones", () => {
  const pace = new BundlePace();
  for (let number = 0; number < 20; number += 1) pace.sent({ count: 1, bytes: 10, duration: 5, now: number * 5 });
  assert.equal(pace.bytes, MIB);
});

test("lanes are added while each brings more", () => {
  const pace = new BundlePace();
  send(pace, 100, () => 1_500);
  assert.equal(pace.lanes, 4);
});

test("a lane that brings nothing is taken away again", () => {
  const pace = new BundlePace();
  const seen = [];
  send(pace, 200, (lanes) => seen.push(lanes) && 1_000 * lanes);
  assert.ok(Math.max(...seen) <= 3, `${seen}`);
  assert.ok(seen.filter((lanes) => lanes === 3).length < 50, `${seen}`);
});

test("a failure halves the bundle and takes a lane", () => {
  const pace = new BundlePace();
  pace.failed();
  assert.deepEqual([pace.bytes, pace.lanes], [MIB / 2, 1]);
  pace.failed();
  assert.equal(pace.lanes, 1);
});

test("a size that was refused is not tried again", () => {
  const pace = new BundlePace();
  pace.wasTooLarge(MIB);
  send(pace, 40, () => 100);
  assert.equal(pace.bytes, MIB / 2);
});
