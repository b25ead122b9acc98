/** How large the next chunk is: learned from how long chunks took. One pace serves all files, as they share the line. */

/** Shows how fast the line is, and is lost within seconds even on a slow one, bytes. */
const FIRST_CHUNK = 512 * 1024;

/** The server keeps a chunk whole or not at all, so a broken line costs what is in flight. Milliseconds for one chunk. */
const FAST = 1_500;
const GOOD = 3_000;
const SLOW = 8_000;

/** One answer is no proof of a fast line: a size grows by this factor at most. */
const LARGEST_STEP = 4;

export class ChunkPace {
  #sizes;
  #limit;
  #chunkBytes;

  /** `sizes` are the ChunkSizes to choose from. */
  constructor(sizes) {
    this.#sizes = sizes;
    this.#limit = sizes.largest;
    this.#chunkBytes = sizes.fitting(FIRST_CHUNK);
  }

  /** Size of the next chunk, bytes. */
  get chunkBytes() {
    return this.#chunkBytes;
  }

  /** A chunk was acknowledged after `duration` milliseconds. */
  sent({ chunkBytes, start, end }, duration) {
    if (duration > SLOW) return this.#halve(chunkBytes);
    if (duration >= FAST) return;
    const wanted = ((end - start) / Math.max(1, duration)) * GOOD;
    this.#move(Math.max(this.#chunkBytes, Math.min(wanted, LARGEST_STEP * this.#chunkBytes)));
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
