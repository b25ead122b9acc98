/**
 * A 53-bit digest in plain JavaScript (cyrb53, public domain), for pages served over plain http: browsers keep
 * `crypto.subtle` for secure origins. It tells files apart; it protects nothing.
 */
export function digest53(bytes, seed = 0) {
  let high = 0xdeadbeef ^ seed;
  let low = 0x41c6ce57 ^ seed;
  for (const byte of bytes) {
    high = Math.imul(high ^ byte, 2654435761);
    low = Math.imul(low ^ byte, 1597334677);
  }
  high = Math.imul(high ^ (high >>> 16), 2246822507) ^ Math.imul(low ^ (low >>> 13), 3266489909);
  low = Math.imul(low ^ (low >>> 16), 2246822507) ^ Math.imul(high ^ (high >>> 13), 3266489909);
  return (4294967296 * (2097151 & low) + (high >>> 0)).toString(16).padStart(14, "0");
}
