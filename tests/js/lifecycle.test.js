import assert from "node:assert/strict";
import { test } from "node:test";

import { canStep, IllegalStep, isInterruptible, isOpen, nextState, Upload } from "../../static/js/uploads/upload.js";

const file = { size: 100, name: "clip.mp4", lastModified: 0 };

test("an upload goes from the queue to completion", () => {
  const states = ["prepare", "send", "verify", "complete"].reduce((path, step) => [...path, nextState(path.at(-1), step)], ["queued"]);
  assert.deepEqual(states, ["queued", "preparing", "sending", "verifying", "complete"]);
});

test("waiting returns to where it came from", () => {
  for (const state of ["preparing", "sending", "verifying"]) assert.equal(nextState("waiting", "proceed", state), state);
});

test("a complete upload allows no step at all", () => {
  for (const step of ["prepare", "send", "verify", "wait", "pause", "resume", "fail", "retry", "cancel", "complete"]) {
    assert.equal(canStep("complete", step), false, step);
  }
});

test("an illegal step throws and changes nothing", () => {
  const changes = [];
  const upload = new Upload(file, { name: "clip.mp4", onChange: (changed) => changes.push(changed.state) });
  assert.throws(() => upload.step("send"), IllegalStep);
  assert.throws(() => upload.step("fly"), IllegalStep);
  assert.equal(upload.state, "queued");
  assert.deepEqual(changes, []);
});

test("leaving the page interrupts sending and waiting, but not the server's check", () => {
  assert.deepEqual(["queued", "sending", "waiting"].map(isInterruptible), [true, true, true]);
  assert.deepEqual(["verifying", "paused", "complete", "failed"].map(isInterruptible), [false, false, false, false]);
  assert.equal(isOpen("verifying"), true);
});

test("the time an upload waited is no part of its speed", () => {
  const upload = new Upload(file, { name: "clip.mp4" });
  upload.speedometer.start(0, 0);
  upload.speedometer.record(40, 1_000);
  for (const step of ["prepare", "send", "wait"]) upload.step(step);
  assert.equal(upload.speedometer.bytesPerSecond(100_000), 0.4);
  upload.step("proceed");
  assert.equal(upload.speedometer.bytesPerSecond(100_000), null);
});
