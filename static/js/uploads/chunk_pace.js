/** How large the next chunk is: learned from how long chunks took. One pace serves all files, as they share the line. */

import { Slots } from "./slots.js";

/** Shows how fast the line is, and is lost within seconds even on a slow one, bytes. */
const FIRST_CHUNK = 512 * 1024;

/** The server keeps a chunk whole or not at all, so a broken line costs what is in flight. Milliseconds for one chunk. */
const FAST = 1_500;
const GOOD = 3_000;
const SLOW = 8_000;

/** The first chunk has the line to itself, those after it share it: milliseconds for one, if it were alone. */
const GOOD_ALONE = 2_000;

/** A short chunk, or one that found the line empty, is no proof of a fast one: a size grows by this factor at most. */
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
    this.#chunkBytes = sizes.fitting(FIRST_CHUNK);
    this.#isKnown = this.#chunkBytes === sizes.largest;
  }

  /**
   * Resolves once a chunk may be cut: until the first answer one leaves at a time, so that few chunks are small on a
   * fast line. To a function that is called at the chunk's end; rejects when `signal` is aborted while waiting.
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

  /** A chunk was lost with its connection. */
  failed({ chunkBytes }) {
    this.#halve(chunkBytes);
  }

  /** Something on the way lets no request of this size through. Returns whether there is a smaller size to try. */
  wasTooLarge({ chunkBytes }) {
    if (chunkBytes <= this.#sizes.smallest) return false;
    this.#limit = Math.min(this.#limit, chunkBytes / 2);
    this.#move(this.#chunkBytes);
    return true;
  }

  /** Chunks in flight beside each other are slow, or lost, together: that counts once. */
  #halve(chunkBytes) {
    if (chunkBytes === this.#chunkBytes) this.#move(chunkBytes / 2);
  }

  #move(bytes) {
    this.#chunkBytes = this.#sizes.fitting(Math.min(bytes, this.#limit));
  }
}
