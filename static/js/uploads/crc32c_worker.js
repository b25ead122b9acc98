/** A worker that computes the CRC32C of blobs, so that the page stays responsive. */

import { crc32c, inBase64 } from "./crc32c.js";

globalThis.addEventListener("message", async ({ data: { number, blob } }) => {
  try {
    globalThis.postMessage({ number, checksum: inBase64(await checksumOf(blob)) });
  } catch {
    globalThis.postMessage({ number, checksum: null }); // The file cannot be read any more.
  }
});

/** @param {Blob} blob */
async function checksumOf(blob) {
  let crc = 0;
  const reader = blob.stream().getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return crc;
    crc = crc32c(value, crc);
  }
}
