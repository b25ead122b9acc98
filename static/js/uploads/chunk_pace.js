/** How large the next chunk is, learned from earlier ones. All files share one pace, as they share the line. */

import { Slots } from "./slots.js";

/** Small enough to take seconds on a slow line, large enough to measure it, bytes. */
const FIRST_CHUNK = 512 * 1024;

/** Duration of one chunk, milliseconds. A broken line costs what is in flight: whole chunks are sent again. */
const FAST = 1_500;
const GOOD = 3_000;
const SLOW = 8_000;

/** As GOOD, from the first chunk, which had the line to itself while those after it share it. */
const GOOD_ALONE = 2_000;

/** Sizes grow by this factor at most: one short chunk does not prove a fast line. */
const LARGEST_STEP = 4;

export class ChunkPace {
  #sizes;
  #limit;
  #chunkBytes;
  #isKnown;
  #first = new Slots(1);

  /** `sizes` are the ChunkSizes to choose from. */
  constructor(sizes) {
    this.#sizes = sizes;
    this.#limit = sizes.largest;
    this.#begin(FIRST_CHUNK);
  }

  #begin(bytes) {
    this.#chunkBytes = this.#sizes.fitting(bytes);
    this.#isKnown = this.#chunkBytes === this.#sizes.largest;
  }

  /**
   * Resolves once a chunk may be cut. Until the first answer one chunk is sent at a time, so that a fast line gets few
   * small ones. Resolves to a function to call when the chunk has ended; rejects when `signal` is aborted.
   */
  async enter(signal) {
    if (this.#isKnown) return () => {};
    const leave = await this.#first.take(signal);
    if (this.#isKnown) leave();
    return leave;
  }

  /** Size of the next chunk, bytes. */
  get chunkBytes() {
    return this.#chunkBytes;
  }

  /** A chunk was acknowledged after `duration` milliseconds. */
  sent({ chunkBytes, start, end }, duration) {
    const bytesPerMillisecond = (end - start) / Math.max(1, duration);
    const isFirst = !this.#isKnown;
    this.#isKnown = true;
    if (duration > SLOW) return this.#halve(chunkBytes);
    if (duration >= FAST) return;
    if (isFirst) return this.#grow(bytesPerMillisecond * GOOD_ALONE);
    this.#grow(Math.min(bytesPerMillisecond * GOOD, LARGEST_STEP * this.#chunkBytes));
  }

  #grow(bytes) {
    this.#move(Math.max(this.#chunkBytes, bytes));
  }

  /** A chunk was lost with its connection: the next line may be another one, and slower, so this begins again. */
  failed({ chunkBytes }) {
    this.#begin(Math.min(FIRST_CHUNK, this.#chunkBytes, chunkBytes / 2));
  }

  /** A proxy refuses requests of this size. Returns whether there is a smaller size to try. */
  wasTooLarge({ chunkBytes }) {
    if (chunkBytes <= this.#sizes.smallest) return false;
    this.#limit = Math.min(this.#limit, chunkBytes / 2);
    this.#move(this.#chunkBytes);
    return true;
  }

  /** Chunks in flight together are slow together: that counts once. */
  #halve(chunkBytes) {
    if (chunkBytes === this.#chunkBytes) this.#move(chunkBytes / 2);
  }

  #move(bytes) {
    this.#chunkBytes = this.#sizes.fitting(Math.min(bytes, this.#limit));
  }
}
