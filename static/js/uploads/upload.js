/** One file on its way to the server, as this page knows it. Sizes are bytes. */

import { canStep, isInterruptible, isOpen, nextState } from "./lifecycle.js";
import { Problem } from "./problem.js";
import { Speedometer } from "./speedometer.js";

/** Holds state and progress; tells `onChange(upload)` of every change and never touches the network or the page. */
export class Upload {
  #state = "queued";
  #before = null;
  #onChange;

  constructor(file, { name, onChange = () => {} }) {
    this.file = file;
    this.name = name;
    this.size = file.size;
    this.fingerprint = null;
    this.id = null;
    this.received = 0;
    this.problem = null;
    this.media = null;
    this.wasCompleteBefore = false;
    /** Whether it goes along with other small files, in one request that is answered at its end. */
    this.isBundled = false;
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
    if (name === "proceed") this.speedometer.start(this.received); // The wait is no part of the speed.
    this.#onChange(this);
  }

  /** Takes over what the server says of the upload: its id and how much of it arrived before. */
  identify({ id, received, isComplete = false }) {
    this.id = id;
    this.wasCompleteBefore = isComplete;
    this.received = received;
    this.speedometer.start(received);
    this.#onChange(this);
  }

  /** Records that the server has `received` bytes; answers may overtake each other, so it only grows. */
  acknowledge(received) {
    this.received = Math.min(this.size, Math.max(this.received, received));
    this.speedometer.record(this.received);
    this.#onChange(this);
  }

  /** Shows how many bytes are on the wire, where no more is known until the answer; a broken request takes them back. */
  showSent(bytes) {
    this.received = bytes;
    if (bytes === 0) this.speedometer.start(0);
    else this.speedometer.record(bytes);
    this.#onChange(this);
  }

  /** Whether a person can do something about the failure by trying again. */
  get isWorthRetrying() {
    const hopeless = new Set(["too_large", "type_not_allowed", "file_unreadable"]);
    return this.#state === "failed" && this.problem instanceof Problem && !hopeless.has(this.problem.code);
  }
}
