import assert from "node:assert/strict";
import { afterEach, mock, test } from "node:test";
import { setImmediate as settle } from "node:timers/promises";

import { Lanes, shortestLoad } from "../../static/js/uploads/lanes.js";
import { sleep } from "../../static/js/uploads/retry.js";
import { Slots } from "../../static/js/uploads/limits.js";

const REQUESTS = 5;
const LEAST = 150;

/** A line on which time passes when the test says so. `line.roundTrip` is what an empty message takes. */
function setUp({ bytesLeft = 1e9, opens = async () => {}, limit = { bytesPerSecond: 0 }, knownRoundTrip, connections } = {}) {
  mock.timers.enable({ apis: ["setInterval", "setTimeout"] });
  let time = 0;
  const line = { roundTrip: LEAST, handshake: 2 * LEAST, opened: [], rate: 300_000 };
  const open = async (signal) => {
    await sleep(line.handshake, signal);
    await opens();
    const lane = { isOpen: true, underWay: 0, roundTrip: async () => line.roundTrip, close: () => (lane.isOpen = false) };
    signal.addEventListener("abort", lane.close);
    line.opened.push(lane);
    return lane;
  };
  const slots = new Slots(REQUESTS);
  const requests = requestsOf(slots);
  const lanes = new Lanes({ open, limit, slots, requests: REQUESTS, connections, knownRoundTrip, now: () => time });
  const transfer = { bytesLeft, sendOn: async () => ({ hasSent: false, pause: 0 }) };
  const pass = async (milliseconds) => {
    for (const end = time + milliseconds; time < end; ) {
      time += 100;
      lanes.acknowledged((line.rate + (line.gain ?? 0) * lanes.size) / 10);
      mock.timers.tick(100);
      await settle();
    }
  };
  return { lanes, line, transfer, pass, requests, isOpen: () => line.opened.filter((lane) => lane.isOpen).length };
}

/** Each has a slot for 100 ms, and asks for one again at once. */
function requestsOf(slots) {
  const requests = { underWay: 0 };
  const run = async () => {
    for (;;) {
      const release = await slots.take();
      requests.underWay += 1;
      await sleep(100);
      requests.underWay -= 1;
      release();
    }
  };
  for (let index = 0; index < REQUESTS; index += 1) run();
  return requests;
}

afterEach(() => mock.timers.reset());

test("where packets get lost, lanes are opened until there are enough", async () => {
  const { lanes, line, transfer, pass, isOpen } = setUp();
  line.gain = 50_000;
  lanes.add(transfer);
  await pass(1_000);
  assert.equal(lanes.size, 0);
  await pass(14_000);
  assert.equal(REQUESTS + isOpen(), 24);
});

test("where all requests share one connection, lanes begin earlier, and there are more", async () => {
  const { lanes, line, transfer, pass, isOpen } = setUp({ connections: 1 });
  line.gain = 50_000;
  lanes.add(transfer);
  await pass(1_200);
  assert.ok(lanes.size > 0);
  await pass(14_000);
  assert.equal(1 + isOpen(), 24);
});

test("requests that share one connection get a few lanes beside them at once, even while the line looks full", async () => {
  const { lanes, line, transfer, pass, isOpen } = setUp({ connections: 1 });
  lanes.add(transfer);
  await pass(300);
  line.roundTrip = 2 * LEAST;
  await pass(1_100);
  assert.equal(lanes.size, 4);
  await pass(1_600);
  assert.ok(isOpen() <= 5, "not more, and the one that measures");
});

test("after the first seconds several are opened at once", async () => {
  const { lanes, line, transfer, pass, isOpen } = setUp();
  line.gain = 50_000;
  lanes.add(transfer);
  await pass(6_500);
  assert.equal(REQUESTS + isOpen(), 24, "one after another would take 8 seconds");
});

test("where the line is full, none is opened beside the requests", async () => {
  const { lanes, line, transfer, pass, requests } = setUp();
  lanes.add(transfer);
  await pass(500);
  line.roundTrip = 2 * LEAST;
  for (let seconds = 0; seconds < 20; seconds += 1) {
    await pass(1_000);
    assert.ok(requests.underWay + lanes.size <= REQUESTS);
  }
});

test("one slow round trip is a lost packet, and no full line", async () => {
  const { lanes, line, transfer, pass } = setUp();
  line.gain = 50_000;
  lanes.add(transfer);
  for (let round = 0; round < 20; round += 1) {
    line.roundTrip = round % 4 === 3 ? 5 * LEAST : LEAST;
    await pass(300);
  }
  assert.ok(lanes.size > 10, `${lanes.size} lanes`);
});

test("lanes that bring nothing are given back, and not tried again soon", async () => {
  const { lanes, line, transfer, pass, requests, isOpen } = setUp();
  lanes.add(transfer);
  await pass(12_000);
  assert.equal(lanes.size, 0);
  assert.equal(isOpen(), 1, "the one that measures stays");
  await pass(30_000);
  assert.equal(lanes.size, 0);
  line.roundTrip = 2 * LEAST;
  await pass(60_000);
  assert.deepEqual([requests.underWay, isOpen()], [1, 2], "the line has become full");
});

test("a lane that measures and was closed is replaced, and none is opened on a full line without it", async () => {
  const { lanes, line, transfer, pass, isOpen } = setUp();
  lanes.add(transfer);
  await pass(500);
  line.roundTrip = 2 * LEAST;
  line.handshake = 4 * LEAST;
  line.opened[0].close();
  await pass(11_000);
  assert.deepEqual([lanes.size, isOpen(), line.opened.length], [0, 1, 2]);
  line.roundTrip = LEAST;
  line.gain = 50_000;
  await pass(5_000);
  assert.ok(lanes.size > 0);
});

test("a lane that answers an empty message with a refusal is closed, and another one measures", async () => {
  const { lanes, line, transfer, pass, isOpen } = setUp();
  lanes.add(transfer);
  await pass(500);
  line.opened[0].roundTrip = async () => {
    throw new Error("503");
  };
  await pass(500);
  assert.equal(isOpen(), 0);
  await pass(12_000);
  assert.ok(isOpen() > 0);
});

for (const [kind, rate, bytesLeft] of [["fast", 7e6, 1e9], ["nearly done", 300_000, 600_000]]) {
  test(`a line that is ${kind} needs none`, async () => {
    const { lanes, line, transfer, pass } = setUp({ bytesLeft });
    line.rate = rate;
    lanes.add(transfer);
    await pass(10_000);
    assert.equal(lanes.size, 0);
  });
}

test("with a limit none is opened: nothing but the limit holds back the requests", async () => {
  const limit = { bytesPerSecond: 1_000_000 };
  const { lanes, line, transfer, pass, isOpen } = setUp({ limit });
  lanes.add(transfer);
  await pass(10_000);
  assert.equal(isOpen(), 1, "the one that watches the line");
  limit.bytesPerSecond = 0;
  line.gain = 50_000;
  await pass(2_000);
  assert.ok(isOpen() > 1);
});

test("what lets no WebSocket pass is asked rarely", async () => {
  let asked = 0;
  const opens = async () => {
    asked += 1;
    throw new Error("400");
  };
  const { lanes, transfer, pass } = setUp({ opens });
  lanes.add(transfer);
  await pass(60_000);
  assert.ok(asked >= 3 && asked <= 7, `${asked} times`);
  assert.equal(lanes.size, 0);
});

test("without work all are closed after a while", async () => {
  const { lanes, line, transfer, pass, isOpen } = setUp();
  line.gain = 50_000;
  lanes.add(transfer);
  await pass(15_000);
  lanes.remove(transfer);
  await pass(15_000);
  assert.equal(isOpen(), 19, "another file may come");
  await pass(10_000);
  assert.equal(isOpen(), 0);
});

test("no more are open than the server wants, and again as many once it wants no less", async () => {
  const { lanes, line, transfer, pass, isOpen } = setUp();
  line.gain = 50_000;
  lanes.add(transfer);
  await pass(15_000);
  for (const [allowed, open] of [[8, 3], [7, 2], [6, 0], [1, 0]]) {
    lanes.allow(allowed);
    await pass(1_000);
    assert.equal(isOpen(), open, `${allowed} are allowed, ${REQUESTS} of them for requests`);
  }
  lanes.allow(Infinity);
  await pass(14_000);
  assert.equal(REQUESTS + isOpen(), 24);
});

test("what was being opened when the server came to want fewer is closed", async () => {
  const { lanes, line, transfer, pass, isOpen } = setUp();
  line.gain = 50_000;
  lanes.add(transfer);
  await pass(100);
  lanes.allow(1);
  await pass(1_000);
  assert.equal(isOpen(), 0);
  lanes.allow(Infinity);
  await pass(3_000);
  line.handshake = 5_000;
  await pass(1_000);
  const open = isOpen();
  lanes.allow(REQUESTS + open);
  await pass(10_000);
  assert.equal(isOpen(), open);
});

test("a line that stays full is shared with others until the last seconds of the upload", async () => {
  const { lanes, line, transfer, pass, requests } = setUp();
  lanes.add(transfer);
  await pass(500);
  line.roundTrip = 2 * LEAST;
  await pass(2_000);
  assert.deepEqual([requests.underWay, lanes.size], [REQUESTS, 0]);
  await pass(2_000);
  assert.ok(requests.underWay > 1 && requests.underWay < REQUESTS, "one less after another");
  await pass(4_000);
  assert.deepEqual([requests.underWay, lanes.size], [1, 1]);
  await pass(60_000);
  assert.deepEqual([requests.underWay, lanes.size], [1, 1]);
  transfer.bytesLeft = 2 * line.rate;
  await pass(1_000);
  assert.deepEqual([requests.underWay, lanes.size], [REQUESTS, 1]);
  lanes.remove(transfer);
  await pass(500);
  assert.equal(requests.underWay, REQUESTS, "for the next file");
});

test("who takes more than the room that is left gets no more of it for a while", async () => {
  const { lanes, line, transfer, pass, requests } = setUp();
  lanes.add(transfer);
  await pass(500);
  line.roundTrip = 2 * LEAST;
  await pass(10_000);
  assert.equal(requests.underWay, 1);
  line.rate *= 0.5;
  await pass(10_000);
  assert.equal(requests.underWay, 1, "two share it");
  line.rate *= 0.5;
  await pass(6_000);
  assert.equal(requests.underWay, REQUESTS);
  let seconds = 0;
  for (let second = 0; second < 120; second += 1) {
    await pass(1_000);
    if (requests.underWay === REQUESTS) seconds += 1;
  }
  assert.ok(seconds > 80 && seconds < 120, `${seconds} of 120: now and then it tries again`);
});

test("a line that was full before the first file is known by the requests that loaded the page", async () => {
  const { lanes, line, transfer, pass, requests } = setUp({ knownRoundTrip: () => LEAST });
  line.roundTrip = 2 * LEAST;
  line.handshake = 4 * LEAST;
  lanes.add(transfer);
  await pass(10_000);
  assert.deepEqual([requests.underWay, lanes.size], [1, 1]);
});

test("where fewer connections do not fill the line, all are used again, and more", async () => {
  const { lanes, line, transfer, pass, requests } = setUp();
  line.gain = 50_000;
  lanes.add(transfer);
  await pass(500);
  line.roundTrip = 2 * LEAST;
  await pass(9_000);
  assert.equal(requests.underWay, 1);
  line.roundTrip = LEAST;
  await pass(3_000);
  assert.equal(requests.underWay, REQUESTS);
  await pass(15_000);
  assert.ok(lanes.size > 10, `${lanes.size} lanes`);
  line.roundTrip = 2 * LEAST;
  await pass(20_000);
  assert.equal(requests.underWay, REQUESTS, "packets get lost there");
});

for (const [kind, rate, bytesLeft] of [["fast line", 7e6, 1e9], ["upload that is nearly done", 300_000, 1_500_000]]) {
  test(`a ${kind} has all requests, however long an empty message takes`, async () => {
    const { lanes, line, transfer, pass, requests } = setUp({ bytesLeft });
    line.rate = rate;
    lanes.add(transfer);
    await pass(500);
    line.roundTrip = 2 * LEAST;
    await pass(20_000);
    assert.equal(requests.underWay, REQUESTS);
  });
}

test("after a lost connection the line may be another one, slower and not full", async () => {
  const { lanes, line, transfer, pass } = setUp({ knownRoundTrip: () => LEAST / 10 });
  line.gain = 50_000;
  lanes.add(transfer);
  await pass(10_000);
  assert.ok(lanes.size <= 1, "it seems full");
  lanes.forgetLine();
  await pass(15_000);
  assert.ok(lanes.size > 10, `${lanes.size} lanes`);
});

test("the shortest load is that of a call that went over the line to the server lately", (context) => {
  const load = (wait, { initiatorType = "fetch", transferSize = 300, startTime = performance.now() } = {}) => {
    return { initiatorType, startTime, transferSize, requestStart: startTime + 5, responseStart: startTime + 5 + wait };
  };
  const calls = [
    load(41),
    load(35),
    load(2, { transferSize: 0 }),
    load(3, { initiatorType: "script" }),
    load(20, { startTime: performance.now() - 400_000 }),
  ];
  const answers = { navigation: [], resource: [] };
  context.mock.method(performance, "getEntriesByType", (type) => answers[type]);
  assert.equal(shortestLoad(), Infinity);
  answers.resource = calls;
  assert.equal(Math.round(shortestLoad()), 35);
  answers.navigation = [load(30, { initiatorType: "navigation" })];
  assert.equal(Math.round(shortestLoad()), 30);
});
