/**
 * Opens lanes where packets get lost: each connection then slows down long before the line is full, and a browser opens
 * only six to a server. Where the line is full, more of them would only take it from others; what tells is how long an
 * empty message takes, which waits in the same queue. A line that stays full needs not even all requests: beside them another
 * program's connection keeps 10 to 16 % of 20 Mbit/s, beside one and a lane about a third. If others take most of the line
 * even so, they have many connections as well, and the page uses all of its own again.
 */

import { sleep } from "./retry.js";

/**
 * @import { Lane } from "./lane.js"
 * @import { Slots } from "./limits.js"
 *
 * What sends the chunks of one file.
 * @typedef {object} Transfer
 * @property {number} bytesLeft
 * @property {(lane: Lane) => Promise<{ hasSent: boolean, pause: number }>} sendOn
 */

/** Connections at once, with those of the XMLHttpRequests and the one that measures. */
const MOST_CONNECTIONS = 24;

/** How often to look, milliseconds. */
const LOOK = 200;

/** Before the first lane that carries chunks: by then the requests have got up to speed, milliseconds. */
const START = 1_200;
/** The same where all requests share one connection, as with HTTP/2: that does not fill a line that loses packets. */
const EARLY_START = 400;

/** From here on a line needs no lanes, and has room for others; bytes per second: 50 Mbit/s. */
const FAST = 6_250_000;
/** How much faster the line must be to take back room that was left to others, which would else be left again at once. */
const FASTER = 1.2;

/**
 * After so long a line that loses no packets would be full; then several are opened at once, as a handshake takes two or
 * three round trips; milliseconds.
 */
const SURE = 3_000;
const AT_ONCE = 3;

/**
 * Where all requests share one connection, so many lanes are opened at once: with them there are as many connections as
 * elsewhere, and the first seconds of each look like a full queue to the others.
 */
const FEW_AT_ONCE = 4;

/** A lane is worth opening if so much work is left, milliseconds. */
const WORTHWHILE = 3_000;

/** Round trips of an empty message that count, and how often it is sent, milliseconds. */
const PROBES = 3;
const PROBE = 300;

/** A round trip over this much of the least one, and milliseconds more, has waited in a queue. */
const LONGER = 1.3;
const LONGER_BY = 2;

/** A line whose queue was full so lately is full, milliseconds. */
const CALM = 1_500;

/** With so many connections and so long after, the rate must have risen so far; milliseconds. */
const JUDGED_AT = 12;
const JUDGED_AFTER = 4_000;
const GAIN = 1.4;
/** Lanes that brought nothing are not tried again for so long, milliseconds. */
const SETTLED = 60_000;

/** What the rate is measured over, milliseconds. */
const RATE_OVER = 2_000;
/** And where two connections are left, whose chunks take a second or two. */
const STEADY_RATE_OVER = 5_000;

/** Messages under way in a lane: the next one leaves while the last one is answered. */
const MESSAGES_AT_ONCE = 2;

/** Others are left room on a line that has been in use, and full, for so long; milliseconds. */
const ALONE = 3_000;
const FULL = 1_000;
/** Not if there are more lanes: the line is full because of them, and packets get lost. */
const FEW_LANES = 6;
/** What fills it then, beside the lane that measures. A lane has no pause between two messages, as requests have. */
const FEWEST_REQUESTS = 1;
const FEWER_LANES = 1;
/** One request less after another, this long apart: those that are left must learn to fill the line; milliseconds. */
const STEP = 1_000;
/** Others that leave the page less than this share of the most it had get no more room for so long, milliseconds. */
const LEAST_SHARE = 0.3;
const CONTESTED = 30_000;
/** No room is left to others if the upload ends sooner than that; milliseconds. */
const LONG = 15_000;
/** So long before the end of the uploads all are used again, milliseconds: one slow connection must not delay it. */
const END = 3_000;

/** How long a lane without work waits until it looks again, and until it is closed, milliseconds. */
const PAUSE = 100;
const IDLE = 20_000;

/** After a lane did not open, or broke, this long passes before the next one, milliseconds. */
const AGAIN = 10_000;

export class Lanes {
  /** @type {(signal: AbortSignal) => Promise<Lane>} */
  #open;
  #limit;
  #slots;
  #requests;
  #connections;
  #knownRoundTrip;
  #most;
  #allowed;
  #now;
  /** @type {Set<Transfer>} */
  #transfers = new Set();
  /** @type {Set<Lane>} */
  #lanes = new Set();
  #line = new LineWatch();
  #closing = new AbortController();
  /** @type {number | undefined} */
  #timer;
  /** How many are being opened. */
  #opening = 0;
  #beganAt = 0;
  #idleSince = 0;
  #settledUntil = -Infinity;
  #failedUntil = -Infinity;
  /** Requests that are given up, so that others have room on the line, and when the last one was. */
  #givenUp = 0;
  #givenUpAt = 0;
  /** The most that all connections brought before, and until when no room is left. */
  #rateOfAll = 0;
  #contestedUntil = -Infinity;
  /** The rate before the first lane, and since when there are enough of them to judge. */
  #rateBefore = 0;
  /** @type {number | null} */
  #judgedAt = null;
  /**
   * The lane that measures, and what ends it: it outlives those that carry chunks.
   * @type {Lane | null}
   */
  #probe = null;
  #measuring = new AbortController();
  #probedAt = -Infinity;

  /**
   * `open(signal)` resolves to a Lane; `slots` are those of the XMLHttpRequests that go on beside, `requests` how many there
   * are, on how many `connections`; `limit`, a RateLimit. `knownRoundTrip()` is the shortest that was seen, milliseconds.
   * @param {{
   *   open: (signal: AbortSignal) => Promise<Lane>,
   *   limit: { readonly bytesPerSecond: number },
   *   slots?: Slots | null,
   *   requests: number,
   *   connections?: number,
   *   knownRoundTrip?: () => number,
   *   most?: number,
   *   now?: () => number,
   * }} options
   */
  constructor({
    open,
    limit,
    slots,
    requests,
    connections = requests,
    knownRoundTrip = () => Infinity,
    most = MOST_CONNECTIONS,
    now = () => performance.now(),
  }) {
    this.#open = open;
    this.#limit = limit;
    this.#slots = slots;
    this.#requests = requests;
    this.#connections = connections;
    this.#knownRoundTrip = knownRoundTrip;
    this.#most = this.#allowed = most;
    this.#now = now;
  }

  /**
   * Opens no more connections than this; lanes beyond it end once what is under way in them is answered.
   * @param {number} count
   */
  allow(count) {
    this.#allowed = Math.min(this.#most, count);
    this.#endSpare();
    if (this.#room === 0) this.#closeProbe();
  }

  #endSpare() {
    for (const lane of [...this.#lanes].slice(this.#room)) this.#lanes.delete(lane);
  }

  /** Lanes that may carry chunks, beside the requests and the lane that measures. */
  get #room() {
    const requests = Math.min(this.#connections, this.#requests - this.#givenUp);
    const room = Math.max(0, this.#allowed - requests - 1);
    return this.#givenUp ? Math.min(FEWER_LANES, room) : room;
  }

  /** How many carry chunks. */
  get size() {
    return this.#lanes.size;
  }

  /**
   * Sends chunks of a transfer too, until `remove`: `bytesLeft` tells how many there are, `sendOn(lane)` sends the next
   * one and resolves to `{ hasSent, pause }`, the milliseconds that the server wants to be left alone.
   * @param {Transfer} transfer
   */
  add(transfer) {
    this.#transfers.add(transfer);
    if (this.#transfers.size === 1) this.#begin();
  }

  /** @param {Transfer} transfer */
  remove(transfer) {
    this.#transfers.delete(transfer);
    if (this.#transfers.size > 0) return;
    this.#idleSince = this.#now();
    this.#giveUp(0);
  }

  /**
   * Bytes were acknowledged, on any connection.
   * @param {number} bytes
   */
  acknowledged(bytes) {
    this.#line.acknowledged(bytes, this.#now());
  }

  /** Looks at the line, and opens or closes lanes; called by a timer. */
  look() {
    const now = this.#now();
    if (this.#transfers.size === 0) {
      if (now - this.#idleSince > IDLE) this.#end();
      return;
    }
    if (this.#probe && !this.#probe.isOpen) this.#probeFailed();
    if (!this.#probe && this.#opening === 0 && this.#canOpen(now) && now >= this.#settledUntil) this.#openProbe();
    this.#probeSometimes(now);
    if (this.#judgedAt !== null && now >= this.#judgedAt) this.#judge(now);
    this.#giveUp(this.#toGiveUp(now));
    if (this.#givenUp ? this.#lanes.size < this.#room && this.#canOpen(now) : this.#isWorthOpening(now)) this.#openOne();
  }

  /** Whether there are fewer connections than requests usually have. */
  get #hasFew() {
    return this.#connections < this.#requests && !this.#givenUp && this.#lanes.size + this.#opening < FEW_AT_ONCE;
  }

  /** @param {number} now */
  #canOpen(now) {
    const atOnce = this.#hasFew ? FEW_AT_ONCE : now - this.#beganAt < SURE || this.#givenUp ? 1 : AT_ONCE;
    return this.#opening < atOnce && this.#room > 0 && now >= this.#failedUntil;
  }

  /**
   * How many requests to give up.
   * @param {number} now
   */
  #toGiveUp(now) {
    const left = this.#timeLeft(now);
    if (this.#givenUp === 0) {
      const rate = this.#line.rate(now);
      const isSlow = rate > 0 && rate < FAST; // On a fast line a server's own work takes as long as a queue.
      const isAlone = now - this.#beganAt >= ALONE && now >= this.#contestedUntil && this.#lanes.size <= FEW_LANES;
      return isSlow && isAlone && this.#line.fullFor(now) >= FULL && left > LONG ? 1 : 0;
    }
    if (this.#line.rate(now, STEADY_RATE_OVER) >= FASTER * FAST) return 0;
    if (this.#isContested(now)) this.#contestedUntil = now + CONTESTED;
    if (this.#line.fullFor(now) === 0 || left <= END || now < this.#contestedUntil) return 0;
    return now - this.#givenUpAt < STEP ? this.#givenUp : Math.min(this.#givenUp + 1, this.#requests - FEWEST_REQUESTS);
  }

  /**
   * Whether others have taken more room than was left to them.
   * @param {number} now
   */
  #isContested(now) {
    if (Math.min(now - this.#beganAt, this.#line.fullFor(now)) < STEADY_RATE_OVER) return false;
    return this.#line.rate(now, STEADY_RATE_OVER) < LEAST_SHARE * this.#rateOfAll;
  }

  /** @param {number} count */
  #giveUp(count) {
    if (count === this.#givenUp) return;
    const now = this.#now();
    if (count === 0 || this.#givenUp === 0) this.#beganAt = now;
    if (this.#givenUp === 0) this.#rateOfAll = Math.max(this.#rateOfAll, this.#line.rate(now));
    this.#givenUp = count;
    this.#givenUpAt = now;
    this.#slots?.allow(count ? this.#requests - count : Infinity, "room for others");
    if (count === 0 && this.#line.fullFor(now) === 0) this.#lanes.clear(); // The next ones are judged by themselves.
    this.#endSpare();
  }

  /**
   * Milliseconds that the transfers take at the rate of the last seconds.
   * @param {number} now
   */
  #timeLeft(now) {
    const left = [...this.#transfers].reduce((sum, { bytesLeft }) => sum + bytesLeft, 0);
    return (left * 1_000) / this.#line.rate(now);
  }

  #begin() {
    this.#beganAt = this.#now();
    this.#line.begin(this.#beganAt);
    this.#line.tookAtMost(this.#knownRoundTrip());
    this.#timer ??= setInterval(() => this.look(), LOOK);
    this.look();
  }

  #end() {
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#closeAll();
    this.#closeProbe();
    this.#line = new LineWatch();
    this.#rateOfAll = 0;
  }

  /** The line may be another one: what is known of it holds no more, and neither does what loading the page took. */
  forgetLine() {
    this.#line.forget();
    this.#knownRoundTrip = () => Infinity;
    this.#rateOfAll = 0;
  }

  #closeAll() {
    this.#closing.abort();
    this.#closing = new AbortController();
    for (const lane of this.#lanes) lane.close();
    this.#lanes.clear();
    this.#judgedAt = null;
  }

  #closeProbe() {
    this.#measuring.abort();
    this.#measuring = new AbortController();
    this.#probe?.close();
    this.#probe = null;
    this.#line.forgetLatest();
  }

  #probeFailed() {
    this.#closeProbe();
    this.#failed();
  }

  /**
   * The first one carries no chunks: opened before they fill the line, it knows how long a round trip takes at least. One
   * that takes its place later would not.
   */
  async #openProbe() {
    const began = this.#now();
    this.#probe = await this.#opened(this.#measuring.signal);
    // TCP's round trip, and that of the request; with TLS it is more than two, and the first probe says so.
    if (this.#probe) this.#line.tookAtMost((this.#now() - began) / 2);
  }

  /** @param {number} now */
  async #probeSometimes(now) {
    if (!this.#probe?.isOpen || this.#probe.underWay > 0 || now - this.#probedAt < PROBE) return;
    this.#probedAt = now;
    const probe = this.#probe;
    try {
      const took = await probe.roundTrip(this.#now);
      this.#line.took(took, this.#now());
    } catch {
      if (this.#probe === probe) this.#probeFailed();
    }
  }

  /** @param {number} now */
  #isWorthOpening(now) {
    return (
      this.#probe?.isOpen &&
      this.#canOpen(now) &&
      this.#limit.bytesPerSecond === 0 &&
      this.#lanes.size + this.#opening < this.#room &&
      now - this.#beganAt >= (this.#connections < this.#requests ? EARLY_START : START) &&
      now >= this.#settledUntil &&
      this.#line.rate(now) < FAST &&
      this.#timeLeft(now) > WORTHWHILE &&
      (this.#hasFew || !this.#line.isFull(now))
    );
  }

  async #openOne() {
    if (this.#lanes.size === 0) this.#rateBefore = this.#line.rate(this.#now());
    const lane = await this.#opened(this.#closing.signal);
    if (!lane) return;
    if (this.#lanes.size >= this.#room) return lane.close();
    this.#lanes.add(lane);
    for (let message = 0; message < MESSAGES_AT_ONCE; message += 1) this.#drive(lane, this.#closing.signal);
    if (this.#connections + this.#lanes.size >= JUDGED_AT) this.#judgedAt ??= this.#now() + JUDGED_AFTER;
  }

  /** @param {AbortSignal} signal */
  async #opened(signal) {
    this.#opening += 1;
    try {
      const lane = await this.#open(signal);
      if (signal.aborted) lane.close();
      return signal.aborted ? null : lane;
    } catch {
      if (!signal.aborted) this.#failed();
      return null;
    } finally {
      this.#opening -= 1;
    }
  }

  /** @param {number} now */
  #judge(now) {
    this.#judgedAt = Infinity;
    if (this.#line.rate(now) >= GAIN * this.#rateBefore) return;
    this.#settledUntil = now + SETTLED;
    this.#closeAll();
  }

  /**
   * Sends chunks on a lane while it is open, those of all transfers in turn.
   * @param {Lane} lane
   * @param {AbortSignal} signal
   */
  async #drive(lane, signal) {
    try {
      while (lane.isOpen && this.#lanes.has(lane) && !signal.aborted) {
        const { hasSent, pause } = (await this.#next()?.sendOn(lane)) ?? { hasSent: false, pause: 0 };
        if (pause || !hasSent) await sleep(pause || PAUSE, signal);
      }
    } catch (error) {
      if (!signal.aborted) throw error;
    }
    if (this.#lanes.delete(lane)) this.#failed();
    else if (lane.underWay === 0) lane.close();
  }

  #failed() {
    this.#failedUntil = this.#now() + AGAIN;
  }

  #next() {
    const [transfer] = this.#transfers;
    if (!transfer) return null;
    this.#transfers.delete(transfer);
    this.#transfers.add(transfer);
    return transfer;
  }
}

/** Whether all requests of this page share one connection, as with HTTP/2. */
export function sharesOneConnection() {
  const [page] = /** @type {PerformanceResourceTiming[]} */ (performance.getEntriesByType("navigation"));
  return ["h2", "h3"].includes(page?.nextHopProtocol ?? "");
}

/** The line may be another one after so long, milliseconds. */
const RECENT = 300_000;

/**
 * The shortest wait for the answer to one of the first requests of the page, milliseconds; Infinity if that was long ago.
 * Others may fill the line already when a file is chosen: lanes would find no round trip as short as that. Of the page and
 * its calls alone: a cache, here or on the way, may answer the others.
 */
export function shortestLoad() {
  const entries = [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")];
  const loads = /** @type {PerformanceResourceTiming[]} */ (entries).filter(
    ({ initiatorType, transferSize, startTime }) =>
      ["navigation", "fetch"].includes(initiatorType) &&
      transferSize > 0 &&
      Date.now() - performance.timeOrigin - startTime < RECENT,
  );
  return Math.min(...loads.map(({ requestStart, responseStart }) => responseStart - requestStart));
}

/** What is known of the line: how much passes, and whether its queue is full. */
class LineWatch {
  /** @type {{ bytes: number, at: number }[]} */
  #acknowledged = [];
  #least = Infinity;
  /** @type {number[]} */
  #latest = [];
  #fullAt = -Infinity;
  /** @type {number | null} */
  #fullSince = null;
  #since = 0;

  /**
   * Nothing was sent before.
   * @param {number} now
   */
  begin(now) {
    this.#since = now;
    this.#acknowledged = [];
  }

  /**
   * @param {number} bytes
   * @param {number} now
   */
  acknowledged(bytes, now) {
    this.#acknowledged.push({ bytes, at: now });
  }

  /**
   * Bytes per second, lately.
   * @param {number} now
   */
  rate(now, over = RATE_OVER) {
    this.#acknowledged = this.#acknowledged.filter(({ at }) => now - at < STEADY_RATE_OVER);
    const counted = this.#acknowledged.filter(({ at }) => now - at < over);
    const sum = counted.reduce((total, { bytes }) => total + bytes, 0);
    return (sum * 1_000) / Math.max(1, Math.min(over, now - this.#since));
  }

  /**
   * A round trip takes no longer than that.
   * @param {number} milliseconds
   */
  tookAtMost(milliseconds) {
    this.#least = Math.min(this.#least, milliseconds);
  }

  /**
   * An empty message took so long. A lost packet makes one of them slow, a full queue all.
   * @param {number} milliseconds
   * @param {number} now
   */
  took(milliseconds, now) {
    this.tookAtMost(milliseconds);
    this.#latest = [...this.#latest, milliseconds].slice(-PROBES);
    const median = [...this.#latest].sort((one, other) => one - other)[this.#latest.length >> 1];
    if (median > LONGER * this.#least + LONGER_BY) {
      this.#fullAt = now;
      this.#fullSince ??= now;
    } else if (now - this.#fullAt >= CALM) {
      this.#fullSince = null;
    }
  }

  /** How fast it is stays known, by what was acknowledged. */
  forget() {
    this.forgetLatest();
    this.#least = Infinity;
    this.#fullAt = -Infinity;
  }

  /** The lane that measures is closed; the least round trip of the line stays known. */
  forgetLatest() {
    this.#latest = [];
    this.#fullSince = null;
  }

  /**
   * How long it has been full, as far as is known; milliseconds.
   * @param {number} now
   */
  fullFor(now) {
    return this.#fullSince === null ? 0 : now - this.#fullSince;
  }

  /**
   * Also while nothing is known.
   * @param {number} now
   */
  isFull(now) {
    return this.#latest.length === 0 || now - this.#fullAt < CALM;
  }
}
