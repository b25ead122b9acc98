import assert from "node:assert/strict";
import { test } from "node:test";

import { Connection } from "../../static/js/uploads/connection.js";
import { connectionLost, Problem, problemOfAnswer } from "../../static/js/uploads/problem.js";
import { jitteredDelay, RetrySchedule, sleep, withRetries } from "../../static/js/uploads/retry.js";

const noWait = { random: () => 0 };
const online = { navigator: { onLine: true }, addEventListener() {} };
const reachable = { reportLoss() {}, whenReachable: async () => {} };

test("a permanent problem is thrown without waiting", async () => {
  const schedule = new RetrySchedule({ connection: reachable });
  const problem = new Problem({ code: "too_large" });
  await assert.rejects(schedule.untilNextAttempt(problem), (error) => error === problem);
});

test("a refusal that says retryable is believed eight times", async () => {
  const schedule = new RetrySchedule({ connection: reachable, ...noWait });
  const problem = new Problem({ code: "internal_server_error", retryable: true });
  for (let attempt = 0; attempt < 8; attempt += 1) await schedule.untilNextAttempt(problem);
  await assert.rejects(schedule.untilNextAttempt(problem), (error) => error === problem);
});

test("a busy server is waited for as long as it takes", async () => {
  const schedule = new RetrySchedule({ connection: reachable, ...noWait });
  const problem = new Problem({ code: "server_busy", retryable: true });
  for (let attempt = 0; attempt < 40; attempt += 1) await schedule.untilNextAttempt(problem);
});

test("a connection that breaks again and again although the server is there ends in its own problem", async () => {
  const schedule = new RetrySchedule({ connection: reachable, ...noWait });
  const lose = () => schedule.untilNextAttempt(connectionLost());
  for (let attempt = 0; attempt < 12; attempt += 1) await lose();
  await assert.rejects(lose(), (error) => error.code === "connection_unstable");
});

test("waiting ends when the upload is stopped", async () => {
  const control = new AbortController();
  const never = { reportLoss() {}, whenReachable: (signal) => new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason))) };
  const waiting = new RetrySchedule({ connection: never }).untilNextAttempt(connectionLost(), control.signal);
  control.abort("stopped");
  await assert.rejects(waiting, (reason) => reason === "stopped");
});

test("one probe serves everyone who lost the connection", async () => {
  const answers = [false, false, true];
  let probes = 0;
  const connection = new Connection({ probe: async () => answers[probes++], browser: online, ...noWait });
  connection.reportLoss();
  connection.reportLoss();
  assert.equal(connection.isReachable, false);
  await Promise.all([connection.whenReachable(), connection.whenReachable()]);
  assert.equal(probes, 3);
  assert.equal(connection.isReachable, true);
});

test("a lost connection holds up what has had no answer since, or for a while", async () => {
  let answer;
  const probe = () => new Promise((resolve) => (answer = resolve));
  const connection = new Connection({ probe, browser: online, ...noWait });
  assert.equal(connection.holdsUp(-Infinity), false);
  connection.reportLoss();
  assert.equal(connection.holdsUp(-Infinity), true);
  const answered = performance.now() + 1_100;
  assert.equal(connection.holdsUp(answered - 1_000, answered), true, "an answer that was on its way shows nothing");
  assert.equal(connection.holdsUp(answered, answered + 1_400), false);
  assert.equal(connection.holdsUp(answered, answered + 1_600), true);
  answer(true);
  await connection.whenReachable();
  assert.equal(connection.holdsUp(answered, answered + 1_600), false);
});

test("nobody is asked while the browser is offline", async () => {
  const listeners = {};
  const browser = { navigator: { onLine: false }, addEventListener: (name, listener) => (listeners[name] = listener) };
  let probes = 0;
  const connection = new Connection({ probe: async () => ++probes > 0, browser });
  connection.reportLoss();
  await new Promise((resolve) => setTimeout(resolve, 10));
  assert.equal(probes, 0);
  browser.navigator.onLine = true;
  listeners.online();
  await connection.whenReachable();
  assert.equal(probes, 1);
});

test("a call is repeated until it succeeds, and its waits are framed", async () => {
  const events = [];
  let calls = 0;
  const attempt = async () => {
    calls += 1;
    if (calls < 3) throw connectionLost();
    return "answer";
  };
  const frame = { onWait: (problem) => events.push(problem.code), onProceed: () => events.push("proceed") };
  assert.equal(await withRetries(attempt, { connection: reachable, random: () => 0, ...frame }), "answer");
  assert.deepEqual(events, ["connection_lost", "proceed", "connection_lost", "proceed"]);
});

test("the ceiling doubles up to thirty seconds and the jitter is full", () => {
  const ceilings = [0, 1, 2, 3, 4, 5, 20].map((attempt) => jitteredDelay(attempt, () => 1));
  assert.deepEqual(ceilings, [1000, 2000, 4000, 8000, 16000, 30000, 30000]);
  assert.equal(jitteredDelay(5, () => 0), 0);
  assert.equal(jitteredDelay(-3, () => 1), 1000);
});

test("sleep ends at once with the reason of its signal", async () => {
  const control = new AbortController();
  const sleeping = sleep(60_000, control.signal);
  control.abort("stopped");
  await assert.rejects(sleeping, (reason) => reason === "stopped");
  await assert.rejects(sleep(0, control.signal), (reason) => reason === "stopped");
});

test("whoever was signed out is asked until they have signed in again", async () => {
  const answers = [false, true];
  const connection = new Connection({ probe: async () => true, signedIn: async () => answers.shift(), browser: online, ...noWait });
  const problem = problemOfAnswer(401, '{"code": "not_signed_in", "retryable": false}');
  const waiting = new RetrySchedule({ connection }).untilNextAttempt(problem);
  assert.equal(connection.isSignedOut, true);
  assert.equal(connection.isReachable, false);
  await waiting;
  assert.deepEqual(answers, []);
  assert.equal(connection.isSignedOut, false);
});

test("where nobody can sign in, a refusal is final", async () => {
  const connection = new Connection({ probe: async () => true, browser: online });
  const problem = problemOfAnswer(401, '{"code": "not_signed_in"}');
  await assert.rejects(new RetrySchedule({ connection }).untilNextAttempt(problem), (error) => error === problem);
  assert.equal(connection.isReachable, true);
});

test("a lost connection may have been a refusal: the session is looked at too", async () => {
  let isSignedIn = false;
  const connection = new Connection({ probe: async () => true, signedIn: async () => isSignedIn, browser: online, ...noWait });
  const changed = new Promise((resolve) => connection.addEventListener("change", () => connection.isSignedOut && resolve()));
  connection.reportLoss();
  await changed;
  isSignedIn = true;
  await connection.whenReachable();
  assert.equal(connection.isSignedOut, false);
});
