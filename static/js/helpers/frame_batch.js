/** Collects work and does it once a frame, a few milliseconds at a time, so that thousands of changes never freeze the page. */

/** Half of a frame at 60 Hz; the rest belongs to layout and paint, milliseconds. */
const FRAME_BUDGET = 6;

/** Calls `work(item)` once for each added item, however often it was added since the last frame. */
export class FrameBatch {
  #items = new Set();
  #work;
  #afterFrame;
  #isScheduled = false;

  /** `afterFrame()` is called once after each frame's work. */
  constructor(work, afterFrame = () => {}) {
    this.#work = work;
    this.#afterFrame = afterFrame;
  }

  add(item) {
    this.#items.add(item);
    this.#schedule();
  }

  #schedule() {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    nextFrame(() => this.#runFrame());
  }

  #runFrame() {
    const end = performance.now() + FRAME_BUDGET;
    for (const item of this.#items) {
      this.#items.delete(item);
      this.#work(item);
      if (performance.now() > end) break;
    }
    this.#isScheduled = false;
    this.#afterFrame();
    if (this.#items.size > 0) this.#schedule();
  }
}

/** The next frame; hidden pages have none, and their rows should still be right when they come back. */
function nextFrame(callback) {
  if (document.hidden) setTimeout(callback, 250);
  else requestAnimationFrame(callback);
}
