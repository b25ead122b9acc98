import assert from "node:assert/strict";
import { test } from "node:test";

import { Damage } from "../../static/js/player/positions.js";

const DURATION = 60;

test("after damage a video goes on a little later, and further with each attempt that fails", () => {
  const damage = new Damage();
  const targets = [];
  for (let seconds = 10; targets.length < 5; seconds = targets.at(-1)) {
    const { at, target } = damage.next(seconds, DURATION);
    assert.equal(at, 10);
    targets.push(target);
  }
  const steps = targets.map((target, index) => target - (targets[index - 1] ?? 10));
  assert.ok(steps[0] < 1);
  assert.deepEqual(steps, steps.toSorted((one, other) => one - other));
});

test("a place further on is damage of its own", () => {
  const damage = new Damage();
  const first = damage.next(10, DURATION).target - 10;
  assert.deepEqual(damage.next(30, DURATION), { at: 30, target: 30 + first });
  assert.deepEqual(damage.next(5, DURATION), { at: 5, target: 5 + first });
});

test("damage up to the end leaves no place to go on at", () => {
  const damage = new Damage();
  let found = damage.next(50, DURATION);
  while (found.target !== null) found = damage.next(found.target, DURATION);
  assert.equal(found.at, 50);
});

test("a browser has shown that it can decode a video once some of it has played", () => {
  const damage = new Damage();
  damage.begin(20);
  damage.notePlayed(20);
  assert.ok(!damage.hasPlayed);
  damage.notePlayed(20.5);
  assert.ok(damage.hasPlayed);
  damage.begin(30);
  assert.ok(damage.hasPlayed);
});
