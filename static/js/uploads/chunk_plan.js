/** Which bytes of a file are still to be sent, and in which chunks of what size. Ranges are half-open [start, end) pairs, in bytes. */

/**
 * A chunk starts at a multiple of `chunkBytes`, and has at most so many; `missing` are those of its bytes that the server
 * lacks. A cell goes to the bucket.
 * @typedef {{ start: number, end: number, chunkBytes: number, missing: Api.Range[], isCell?: true }} Chunk
 */

/** Smaller chunks would cost more in requests than they save when one is lost, bytes. */
const SMALLEST_CHUNK = 64 * 1024;

/**
 * How many chunks of `chunkBytes` a file of `size` bytes has; an empty file is sent as one empty chunk.
 * @param {number} size
 * @param {number} chunkBytes
 */
export function chunkCount(size, chunkBytes) {
  return Math.max(1, Math.ceil(size / chunkBytes));
}

/**
 * Bytes covered by a list of ranges.
 * @param {Api.Range[]} ranges
 */
export function coveredBytes(ranges) {
  return ranges.reduce((sum, [start, end]) => sum + (end - start), 0);
}

/**
 * The fields, with Dropzone's names, that tell the server where a chunk belongs in the upload with that id.
 * @param {{ start: number, chunkBytes: number }} chunk
 * @param {{ id: string, size: number }} upload
 */
export function chunkFields({ start, chunkBytes }, { id, size }) {
  return {
    dzuuid: id,
    dzchunkindex: start / chunkBytes,
    dztotalfilesize: size,
    dzchunksize: chunkBytes,
    dztotalchunkcount: chunkCount(size, chunkBytes),
    dzchunkbyteoffset: start,
  };
}

/**
 * The same as the parameters of a URL.
 * @param {{ start: number, chunkBytes: number }} chunk
 * @param {{ id: string, size: number }} upload
 */
export function chunkQuery(chunk, upload) {
  const fields = Object.entries(chunkFields(chunk, upload));
  return new URLSearchParams(fields.map(([name, value]) => [name, String(value)]));
}

/**
 * The chunk sizes in use, each twice the one below. The server expects a chunk to start at a multiple of its size;
 * with sizes that nest, a change of size in mid-upload never sends a byte again.
 */
export class ChunkSizes {
  /**
   * `largest` is in bytes; the top size is that, or up to a few bytes less where it does not halve evenly.
   * @param {number} largest
   */
  constructor(largest) {
    let steps = 0;
    while (largest / 2 ** (steps + 1) >= SMALLEST_CHUNK) steps += 1;
    this.smallest = Math.floor(largest / 2 ** steps);
    this.largest = this.smallest * 2 ** steps;
  }

  /**
   * The smallest size of at least `bytes`; the largest one if there is none.
   * @param {number} bytes
   */
  containing(bytes) {
    let size = this.smallest;
    while (size < bytes && size < this.largest) size *= 2;
    return size;
  }

  /**
   * The largest size of at most `bytes`; the smallest one if there is none.
   * @param {number} bytes
   */
  fitting(bytes) {
    let size = this.smallest;
    while (size * 2 <= Math.min(bytes, this.largest)) size *= 2;
    return size;
  }
}

/** The missing bytes of one file, cut into chunks as they are taken. */
export class ChunkPlan {
  #sizes;
  #size;
  #first;
  #cellBytes;
  #maySend;
  /** @type {Api.Range[]} */
  #missing;

  /**
   * A file of `size` bytes; the server lacks its `missing` ranges. Those of them that lie in the ranges `first`
   * are taken before the others, in the order of `first`. `cellBytes` is the size of the cells of a bucket, 0 without one;
   * `maySend(start)` tells whether the bucket may get the cell there.
   * @param {{
   *   sizes: ChunkSizes,
   *   size: number,
   *   missing: Api.Range[],
   *   first?: Api.Range[],
   *   cellBytes?: number,
   *   maySend?: (start: number) => boolean,
   * }} plan
   */
  constructor({ sizes, size, missing, first = [], cellBytes = 0, maySend = () => true }) {
    this.#sizes = sizes;
    this.#size = size;
    this.#first = first;
    this.#cellBytes = cellBytes;
    this.#maySend = maySend;
    this.#missing = size === 0 ? [[0, 0]] : joined(missing);
  }

  /** Bytes that have not been taken. */
  get bytes() {
    return coveredBytes(this.#missing);
  }

  /** Whether every missing byte has been taken. */
  get isEmpty() {
    return this.#missing.length === 0;
  }

  /**
   * Takes the next chunk, of at most `bytes`: `{ start, end, chunkBytes, missing }`, or null at the end. It holds bytes
   * that are not missing only where a gap begins or ends between multiples of the smallest size.
   * @param {number} bytes
   * @returns {Chunk | null}
   */
  take(bytes) {
    if (this.isEmpty) return null;
    const { position, gap } = this.#next();
    const chunkBytes = this.#fittingSize(position, gap, bytes);
    const start = position - (position % chunkBytes);
    const end = Math.min(start + chunkBytes, this.#size);
    const missing = this.#missing.map((range) => overlap(range, [start, end])).filter((range) => range !== null);
    this.#missing = this.#missing.flatMap((range) => without(range, [start, end]));
    return { start, end, chunkBytes, missing };
  }

  /** Whether there is a cell that is missing whole, and that the bucket may get. */
  get hasCell() {
    return this.#nextCell() !== null;
  }

  /**
   * Takes the next such cell, as `take` takes a chunk; null if there is none.
   * @returns {Chunk | null}
   */
  takeCell() {
    const cell = this.#nextCell();
    if (!cell) return null;
    const [start, end] = cell;
    this.#missing = this.#missing.flatMap((range) => without(range, cell));
    return { start, end, chunkBytes: this.#cellBytes, missing: [cell], isCell: true };
  }

  /** No chunk is a cell from now on. */
  refuseCells() {
    this.#cellBytes = 0;
  }

  /**
   * `[start, end]` of the missing cell that is wanted most, or null.
   * @returns {Api.Range | null}
   */
  #nextCell() {
    if (!this.#cellBytes) return null;
    const wanted = this.#first.map(([start]) => start - (start % this.#cellBytes));
    const others = this.#missing.map((gap) => this.#firstCellIn(gap));
    /** @type {Api.Range[]} */
    const cells = [...wanted, ...others].map((start) => [start, Math.min(start + this.#cellBytes, this.#size)]);
    const isMissing = (/** @type {Api.Range} */ [start, end]) =>
      start < end && this.#missing.some((gap) => gap[0] <= start && end <= gap[1]);
    return cells.find((cell) => isMissing(cell) && this.#maySend(cell[0])) ?? null;
  }

  /** @param {Api.Range} gap */
  #firstCellIn([gapStart, gapEnd]) {
    let start = Math.ceil(gapStart / this.#cellBytes) * this.#cellBytes;
    while (start < gapEnd && !this.#maySend(start)) start += this.#cellBytes;
    return start;
  }

  /**
   * Makes the bytes of a chunk missing again.
   * @param {{ missing: Api.Range[] }} chunk
   */
  putBack({ missing }) {
    this.#missing = joined([...this.#missing, ...missing]);
  }

  /** The missing byte that is wanted most, and the gap it is in. */
  #next() {
    for (const range of this.#first) {
      const gap = this.#missing.find(([start, end]) => start < range[1] && range[0] < end);
      if (gap) return { position: Math.max(gap[0], range[0]), gap };
    }
    return { position: this.#missing[0][0], gap: this.#missing[0] };
  }

  /**
   * The size of the largest chunk around `position` that stays within the gap.
   * @param {number} position
   * @param {Api.Range} gap
   * @param {number} bytes
   */
  #fittingSize(position, [gapStart, gapEnd], bytes) {
    let size = this.#sizes.fitting(bytes);
    const start = () => position - (position % size);
    const fits = () => start() >= gapStart && Math.min(start() + size, this.#size) <= gapEnd;
    while (size > this.#sizes.smallest && !fits()) size /= 2;
    return size;
  }
}

/**
 * The ranges in order, with adjacent ones merged.
 * @param {Api.Range[]} ranges
 */
function joined(ranges) {
  /** @type {Api.Range[]} */
  const result = [];
  for (const [start, end] of [...ranges].sort(([one], [other]) => one - other)) {
    const last = result.at(-1);
    if (last && start <= last[1]) last[1] = Math.max(last[1], end);
    else result.push([start, end]);
  }
  return result;
}

/**
 * An empty range, which stands for an empty file, overlaps itself.
 * @param {Api.Range} range
 * @param {Api.Range} other
 * @returns {Api.Range | null}
 */
function overlap([start, end], [from, to]) {
  /** @type {Api.Range} */
  const both = [Math.max(start, from), Math.min(end, to)];
  return both[0] < both[1] || start === end ? both : null;
}

/**
 * @param {Api.Range} range
 * @param {Api.Range} other
 */
function without([start, end], [from, to]) {
  /** @type {Api.Range[]} */
  const rests = [[start, Math.min(end, from)], [Math.max(start, to), end]];
  return rests.filter(([restStart, restEnd]) => restStart < restEnd);
}

// ---- how large the next chunk is ---------------------------------------------------------------------------------

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

/**
 * Towards the end chunks get smaller, so that all connections end together: each has at most half of what is left for its
 * connection. None takes less than that many milliseconds because of it: waiting for its answer would cost more.
 */
const SHARE = 1 / 2;
const SHORTEST = 300;

/** Learned from earlier chunks. All files share one pace, as they share the line. */
export class ChunkPace {
  #sizes;
  #least;
  #limit;
  #chunkBytes = 0;
  /** Of one connection, lately; bytes per millisecond. */
  #rate = Infinity;

  /**
   * `sizes` are the ChunkSizes to choose from; smaller ones than `least` bytes cost the server more than they save.
   * @param {ChunkSizes} sizes
   * @param {{ least?: number }} [options]
   */
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

  /**
   * Size of the next one where so many bytes are left for each connection.
   * @param {number} bytesLeft
   */
  chunkBytesOf(bytesLeft) {
    return Math.min(this.#chunkBytes, Math.max(this.#least, SHARE * bytesLeft, SHORTEST * this.#rate));
  }

  /**
   * A chunk was acknowledged after `duration` milliseconds.
   * @param {Pick<Chunk, "chunkBytes" | "start" | "end">} chunk
   * @param {number} duration
   */
  sent({ chunkBytes, start, end }, duration) {
    const rate = (this.#rate = (end - start) / Math.max(1, duration));
    if (duration > (chunkBytes > this.#least ? SLOW : SLOW_LEAST)) return this.#halve(chunkBytes);
    if (this.#chunkBytes < this.#least && this.#least < rate * SLOW_LEAST) return this.#move(this.#least);
    if (duration >= FAST) return;
    const bytes = rate * GOOD;
    this.#move(Math.max(this.#chunkBytes, Math.min(bytes, LARGEST_STEP * chunkBytes)));
  }

  /**
   * A chunk was lost with its connection: the next line may be another one, and slower, so this begins again.
   * @param {{ chunkBytes: number }} chunk
   */
  failed({ chunkBytes }) {
    this.#move(Math.min(Math.max(FIRST_CHUNK, this.#least), this.#chunkBytes, chunkBytes / 2));
  }

  /**
   * A proxy refuses requests of this size. Returns whether there is a smaller size to try.
   * @param {{ chunkBytes: number }} chunk
   */
  wasTooLarge({ chunkBytes }) {
    if (chunkBytes <= this.#sizes.smallest) return false;
    this.#limit = Math.min(this.#limit, chunkBytes / 2);
    this.#move(this.#chunkBytes);
    return true;
  }

  /**
   * Chunks in flight together are slow together: that counts once.
   * @param {number} chunkBytes
   */
  #halve(chunkBytes) {
    if (chunkBytes === this.#chunkBytes) this.#move(chunkBytes / 2);
  }

  /** @param {number} bytes */
  #move(bytes) {
    this.#chunkBytes = this.#sizes.fitting(Math.min(bytes, this.#limit));
  }
}
