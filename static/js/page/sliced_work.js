/** Does small work a few milliseconds at a time, so that thousands of files or changes never block the page. */

/** Half of a frame at 60 Hz; the rest belongs to layout and paint, milliseconds. */
const SLICE = 8;

/**
 * Calls `work(item)` once for each added item, however often it was added since the last slice.
 * @template Item
 */
export class SlicedWork {
  /** @type {Set<Item>} */
  #items = new Set();
  #work;
  #afterSlice;
  #schedule;
  #isScheduled = false;

  /**
   * `schedule(callback)` starts each slice; `afterSlice()` is called once after each.
   * @param {(item: Item) => void} work
   * @param {{ schedule: (callback: () => void) => void, afterSlice?: () => void }} options
   */
  constructor(work, { schedule, afterSlice = () => {} }) {
    this.#work = work;
    this.#schedule = schedule;
    this.#afterSlice = afterSlice;
  }

  /** @param {Item} item */
  add(item) {
    this.#items.add(item);
    this.#scheduleSlice();
  }

  #scheduleSlice() {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    this.#schedule(() => this.#runSlice());
  }

  #runSlice() {
    const end = performance.now() + SLICE;
    for (const item of this.#items) {
      this.#items.delete(item);
      this.#work(item);
      if (performance.now() > end) break;
    }
    this.#isScheduled = false;
    this.#afterSlice();
    if (this.#items.size > 0) this.#scheduleSlice();
  }
}

/**
 * Schedules progress: five frames a second are enough.
 * @param {() => void} callback
 */
export function aFewTimesASecond(callback) {
  setTimeout(() => nextFrame(callback), 200);
}

/**
 * Schedules new rows: soon, and many of them together.
 * @param {() => void} callback
 */
export function soon(callback) {
  setTimeout(() => nextFrame(callback), 80);
}

/**
 * A hidden page has no frames.
 * @param {() => void} callback
 */
function nextFrame(callback) {
  if (document.hidden) callback();
  else requestAnimationFrame(callback);
}

/**
 * Schedules work that draws nothing: the next task, so that input and painting come in between.
 * @param {() => void} callback
 */
export function nextTask(callback) {
  setTimeout(callback, 0);
}
