import { fileUnreadable } from "./problem.js";

/**
 * Throws where the browser can no longer read `blob`: to a request, a file changed on the disk is a lost connection.
 */
export async function checkReadable(blob) {
  try {
    await blob.slice(0, 1).arrayBuffer();
  } catch {
    throw fileUnreadable();
  }
}
