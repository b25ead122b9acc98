/** One file on its way to the server, as this page knows it. Sizes are bytes. */

import { canStep, isInterruptible, isOpen, nextState } from "./lifecycle.js";
import { Problem } from "./problem.js";
import { Speedometer } from "./progress.js";

/** Holds state and progress; calls `onChange(upload)` on every change and never touches the network or the page. */
export class Upload {
  #state = "queued";
  #before = null;
  #inFlight = 0;
  #onChange;

  constructor(file, { name, onChange = () => {} }) {
    this.file = file;
    this.name = name;
    this.size = file.size;
    this.fingerprint = null;
    this.id = null;
    /** Bytes that are safe on the server. */
    this.received = 0;
    /** When the server last acknowledged bytes, in terms of performance.now(). */
    this.acknowledgedAt = -Infinity;
    this.problem = null;
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

  /** Whether `step` is allowed now. */
  can(step) {
    return canStep(this.#state, step);
  }

  /** Takes one step of the lifecycle; throws IllegalStep, with nothing changed, where it is not allowed. */
  step(name, problem = null) {
    const state = nextState(this.#state, name, this.#before);
    this.#before = this.#state;
    this.#state = state;
    this.problem = problem;
    if (problem?.isUploadGone) this.received = 0;
    if (name === "proceed") this.speedometer.start(this.sent); // Waiting does not count towards the speed.
    this.#onChange(this);
  }

  /** Adopts what the server says about the upload: its id and how much of it arrived before. */
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
