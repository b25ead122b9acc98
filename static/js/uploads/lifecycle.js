/**
 * The states of one upload on this page and the steps between them; any other step is a bug.
 */

const RUNNING = ["preparing", "sending", "verifying"];
const OPEN = ["queued", ...RUNNING, "waiting"];

/**
 * step name -> { from: states it is allowed in, to: state it leads to }. `wait` remembers where `proceed` goes back
 * to.
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
  constructor(step, state) {
    super(`an upload that is ${state} cannot ${step}`);
    this.name = "IllegalStep";
  }
}

/** Whether `step` is allowed in `state`. */
export function canStep(state, step) {
  return Boolean(STEPS[step]?.from.includes(state));
}

/** The state that `step` leads to from `state`; `proceed` returns to `previous`. */
export function nextState(state, step, previous = null) {
  if (!canStep(state, step)) throw new IllegalStep(step, state);
  return STEPS[step].to ?? previous;
}

/** Whether the page still has bytes to send, or an answer to wait for, in this state. */
export function isOpen(state) {
  return OPEN.includes(state);
}

/** Whether leaving the page now would interrupt the upload: once it verifies, the server has everything. */
export function isInterruptible(state) {
  return isOpen(state) && state !== "verifying";
}
