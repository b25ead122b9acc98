/** Which chunks of a file still have to be sent. Ranges are half-open [start, end) pairs of byte positions. */

/** How many chunks a file of `size` bytes has; an empty file is sent as one empty chunk. */
export function chunkCount(size, chunkBytes) {
  return Math.max(1, Math.ceil(size / chunkBytes));
}

/** Bytes covered by a list of ranges. */
export function coveredBytes(ranges) {
  return ranges.reduce((sum, [start, end]) => sum + (end - start), 0);
}

/** The byte range [start, end) of one chunk. */
export function chunkRange(index, size, chunkBytes) {
  const start = index * chunkBytes;
  return [start, Math.min(start + chunkBytes, size)];
}

/** What tells the server where a chunk of the upload with that id belongs, by Dropzone's names. */
export function chunkFields(index, { id, size, chunkBytes }) {
  const [offset] = chunkRange(index, size, chunkBytes);
  return {
    dzuuid: id,
    dzchunkindex: index,
    dztotalfilesize: size,
    dzchunksize: chunkBytes,
    dztotalchunkcount: chunkCount(size, chunkBytes),
    dzchunkbyteoffset: offset,
  };
}

/** The indexes, as a Set, of the chunks that touch no missing range and so need not be sent again. */
export function chunksToSkip(missing, size, chunkBytes) {
  if (size === 0) return new Set();
  const skipped = new Set(Array(chunkCount(size, chunkBytes)).keys());
  for (const [start, end] of missing) {
    const last = Math.floor((end - 1) / chunkBytes);
    for (let index = Math.floor(start / chunkBytes); index <= last; index += 1) skipped.delete(index);
  }
  return skipped;
}
