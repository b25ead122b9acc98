/** How large the next chunk is, learned from earlier ones. All files share one pace, as they share the line. */

/**
 * The first chunks of all connections leave at once. Small enough to take a second or so on a slow line, and to see
 * soon what the line carries, bytes.
 */
const FIRST_CHUNK = 256 * 1024;

/** Duration of one chunk, milliseconds. A broken line costs what is in flight: whole chunks are sent again. */
const FAST = 750;
const GOOD = 1_500;
const SLOW = 4_000;
/** A smaller one than the server wants is worth its cost where that would take longer, milliseconds. */
const SLOW_LEAST = 10_000;

/** Sizes grow by this factor at most: one short chunk does not prove a fast line. */
const LARGEST_STEP = 4;

export class ChunkPace {
  #sizes;
  #least;
  #limit;
  #chunkBytes;

  /** `sizes` are the ChunkSizes to choose from; smaller ones than `least` bytes cost the server more than they save. */
  constructor(sizes, { least = 0 } = {}) {
    this.#sizes = sizes;
    this.#least = sizes.containing(least);
    this.#limit = sizes.largest;
    this.#move(Math.max(FIRST_CHUNK, this.#least));
  }

  /** Size of the next chunk, bytes. */
  get chunkBytes() {
    return this.#chunkBytes;
  }

  /** A chunk was acknowledged after `duration` milliseconds. */
  sent({ chunkBytes, start, end }, duration) {
    if (duration > (chunkBytes > this.#least ? SLOW : SLOW_LEAST)) return this.#halve(chunkBytes);
    const rate = (end - start) / Math.max(1, duration);
    if (this.#chunkBytes < this.#least && this.#least < rate * SLOW_LEAST) return this.#move(this.#least);
    if (duration >= FAST) return;
    const bytes = rate * GOOD;
    this.#move(Math.max(this.#chunkBytes, Math.min(bytes, LARGEST_STEP * chunkBytes)));
  }

  /** A chunk was lost with its connection: the next line may be another one, and slower, so this begins again. */
  failed({ chunkBytes }) {
    this.#move(Math.min(Math.max(FIRST_CHUNK, this.#least), this.#chunkBytes, chunkBytes / 2));
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
