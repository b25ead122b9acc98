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

/** Sizes grow by this factor at most: one short chunk does not prove a fast line. */
const LARGEST_STEP = 4;

export class ChunkPace {
  #sizes;
  #limit;
  #chunkBytes;

  /** `sizes` are the ChunkSizes to choose from. */
  constructor(sizes) {
    this.#sizes = sizes;
    this.#limit = sizes.largest;
    this.#move(FIRST_CHUNK);
  }

  /** Size of the next chunk, bytes. */
  get chunkBytes() {
    return this.#chunkBytes;
  }

  /** A chunk was acknowledged after `duration` milliseconds. */
  sent({ chunkBytes, start, end }, duration) {
    if (duration > SLOW) return this.#halve(chunkBytes);
    if (duration >= FAST) return;
    const bytes = ((end - start) / Math.max(1, duration)) * GOOD;
    this.#move(Math.max(this.#chunkBytes, Math.min(bytes, LARGEST_STEP * chunkBytes)));
  }

  /** A chunk was lost with its connection: the next line may be another one, and slower, so this begins again. */
  failed({ chunkBytes }) {
    this.#move(Math.min(FIRST_CHUNK, this.#chunkBytes, chunkBytes / 2));
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
