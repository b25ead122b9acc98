/** One file on its way to the server, as this page knows it: its states and its progress. Sizes are bytes. */

import { Problem } from "./problem.js";
import { Speedometer } from "./progress.js";

/**
 * @typedef {"queued" | "preparing" | "sending" | "verifying" | "waiting"} OpenState
 * @typedef {OpenState | "complete" | "paused" | "failed" | "cancelled"} State
 */

// ---- the states and the steps between them; any other step is a bug ----------------------------------------------

/** @type {State[]} */
const RUNNING = ["preparing", "sending", "verifying"];
/** @type {State[]} */
const OPEN = ["queued", ...RUNNING, "waiting"];

/**
 * step name -> { from: states it is allowed in, to: state it leads to }. `wait` remembers where `proceed` goes back
 * to.
 * @type {Record<string, { from: State[], to: State | null }>}
 */
const STEPS = {
  prepare: { from: ["queued"], to: "preparing" },
  send: { from: ["preparing"], to: "sending" },
  verify: { from: ["preparing", "sending"], to: "verifying" },
  wait: { from: RUNNING, to: "waiting" },
  proceed: { from: ["waiting"], to: null },
  complete: { from: RUNNING, to: "complete" },
  pause: { from: ["queued", "preparing", "sending", "waiting"], to: "paused" },
  resume: { from: ["paused"], to: "queued" },
  fail: { from: OPEN, to: "failed" },
  retry: { from: ["failed"], to: "queued" },
  cancel: { from: [...OPEN, "paused", "failed"], to: "cancelled" },
};

/** Thrown for a step that the state does not allow; changes nothing. */
export class IllegalStep extends Error {
  /**
   * @param {string} step
   * @param {State} state
   */
  constructor(step, state) {
    super(`an upload that is ${state} cannot ${step}`);
    this.name = "IllegalStep";
  }
}

/**
 * Whether `step` is allowed in `state`.
 * @param {State} state
 * @param {string} step
 */
export function canStep(state, step) {
  return Boolean(STEPS[step]?.from.includes(state));
}

/**
 * The state that `step` leads to from `state`; `proceed` returns to `previous`.
 * @param {State} state
 * @param {string} step
 * @param {State | null} [previous]
 * @returns {State}
 */
export function nextState(state, step, previous = null) {
  if (!canStep(state, step)) throw new IllegalStep(step, state);
  return /** @type {State} */ (STEPS[step].to ?? previous);
}

/**
 * Whether the page still has bytes to send, or an answer to wait for, in this state.
 * @param {State} state
 */
export function isOpen(state) {
  return OPEN.includes(state);
}

/**
 * Whether leaving the page now would interrupt the upload: once it verifies, the server has everything.
 * @param {State} state
 */
export function isInterruptible(state) {
  return isOpen(state) && state !== "verifying";
}

// ---- one upload --------------------------------------------------------------------------------------------------

/** Holds state and progress; calls `onChange(upload)` on every change and never touches the network or the page. */
export class Upload {
  /** @type {State} */
  #state = "queued";
  /** @type {State | null} */
  #before = null;
  #inFlight = 0;
  /** @type {(upload: Upload) => void} */
  #onChange;

  /**
   * @param {File} file
   * @param {{ name: string, onChange?: (upload: Upload) => void }} options
   */
  constructor(file, { name, onChange = () => {} }) {
    this.file = file;
    this.name = name;
    this.size = file.size;
    /** @type {string | null} */
    this.fingerprint = null;
    /** @type {string | null} */
    this.id = null;
    /** Bytes that are safe on the server. */
    this.received = 0;
    /** When the server last acknowledged bytes, in terms of performance.now(). */
    this.acknowledgedAt = -Infinity;
    /** @type {Problem | null} */
    this.problem = null;
    /** @type {string | null} */
    this.media = null;
    this.wasCompleteBefore = false;
    /** Whether it shares one request with other small files, answered at the end. */
    this.isBundled = false;
    /** Of the bytes that have left. */
    this.speedometer = new Speedometer();
    this.#onChange = onChange;
  }

  get state() {
    return this.#state;
  }

  get isOpen() {
    return isOpen(this.#state);
  }

  get isInterruptible() {
    return isInterruptible(this.#state);
  }

  /** Bytes sent: those that are safe, and those in requests without an answer yet. */
  get sent() {
    return Math.min(this.size, this.received + this.#inFlight);
  }

  /**
   * Whether `step` is allowed now.
   * @param {string} step
   */
  can(step) {
    return canStep(this.#state, step);
  }

  /**
   * Takes one step of the lifecycle; throws IllegalStep, with nothing changed, where it is not allowed.
   * @param {string} name
   * @param {Problem | null} [problem]
   */
  step(name, problem = null) {
    const state = nextState(this.#state, name, this.#before);
    this.#before = this.#state;
    this.#state = state;
    this.problem = problem;
    if (problem?.isUploadGone) this.received = 0;
    if (name === "proceed") this.speedometer.start(this.sent); // Waiting does not count towards the speed.
    this.#onChange(this);
  }

  /**
   * Adopts what the server says about the upload: its id and how much of it arrived before.
   * @param {{ id: string, received: number, isComplete?: boolean }} known
   */
  identify({ id, received, isComplete = false }) {
    this.id = id;
    this.wasCompleteBefore = isComplete;
    this.received = received;
    this.#inFlight = 0;
    this.speedometer.start(received);
    this.#onChange(this);
  }

  /**
   * Notes how many bytes are safe, and how many have left without an answer yet. Safe bytes stay safe; a broken
   * request takes back what it had sent.
   * @param {{ received?: number, inFlight?: number }} progress
   */
  progress({ received = this.received, inFlight = 0 }) {
    if (received > this.received) this.acknowledgedAt = performance.now();
    this.received = Math.min(this.size, Math.max(this.received, received));
    this.#inFlight = inFlight;
    this.speedometer.record(this.sent);
    this.#onChange(this);
  }

  /** Whether trying again can help. */
  get isWorthRetrying() {
    const hopeless = new Set(["too_large", "type_not_allowed", "link_closed", "file_unreadable"]);
    return this.#state === "failed" && this.problem instanceof Problem && !hopeless.has(this.problem.code);
  }
}
