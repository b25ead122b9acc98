/** Prints what the page sends first of the files that the task names. */

import { open } from "node:fs/promises";

import { neededFirst } from "../../static/js/uploads/local_files.js";

/** As a browser's File. Node's own, from `openAsBlob`, takes sizes beyond 4 GiB modulo that (20.20). */
async function fileAt(path) {
  const file = await open(path);
  const { size } = await file.stat();
  const read = async (start, end) => {
    const { buffer, bytesRead } = await file.read(new Uint8Array(end - start), 0, end - start, start);
    return buffer.buffer.slice(0, bytesRead);
  };
  return { size, slice: (start, end) => ({ arrayBuffer: () => read(start, end) }), close: () => file.close() };
}

const needed = [];
for (const path of JSON.parse(process.argv[2]).files) {
  const file = await fileAt(path);
  needed.push(await neededFirst(file));
  await file.close();
}
console.log(JSON.stringify(needed));
