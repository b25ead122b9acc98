import assert from "node:assert/strict";
import { test } from "node:test";

import { walkFolder } from "../../static/js/uploads/local_files.js";

const asFile = (name) => ({
  name,
  isFile: true,
  file: (resolve) => setImmediate(() => resolve({ name })),
});
const broken = (name) => ({ name, isFile: true, file: (_, reject) => reject(new Error("unreadable")) });

/** A folder as browsers hand it out: up to a hundred entries a time, then an empty list. */
function folder(name, entries) {
  const createReader = () => {
    const left = [...entries];
    return { readEntries: (resolve) => setImmediate(() => resolve(left.splice(0, 100))) };
  };
  return { name, isDirectory: true, createReader };
}

async function pathsIn(directory) {
  const paths = [];
  await walkFolder(directory, (_, path) => paths.push(path));
  return paths;
}

test("files of a folder and of those below it come with their paths", async () => {
  const trip = folder("trip", [asFile("a.mp4"), folder("day 1", [asFile("b.mp4"), folder("raw", [asFile("c.mp4")])])]);
  assert.deepEqual(await pathsIn(trip), ["trip/a.mp4", "trip/day 1/b.mp4", "trip/day 1/raw/c.mp4"]);
});

test("they come in the order in which people count", async () => {
  const reel = folder("reel", ["clip 10", "clip 9", "B", "a"].map(asFile));
  assert.deepEqual(await pathsIn(reel), ["reel/a", "reel/B", "reel/clip 9", "reel/clip 10"]);
});

test("every one of many files comes once", async () => {
  const many = folder("many", Array.from({ length: 1050 }, (_, index) => asFile(`${index}.mp4`)));
  assert.equal(new Set(await pathsIn(many)).size, 1050);
});

test("hidden files and what cannot be read are left out, and the rest comes", async () => {
  const closed = { name: "closed", isDirectory: true, createReader: () => ({ readEntries: (_, reject) => reject() }) };
  const odd = folder("odd", [asFile(".DS_Store"), broken("x.mp4"), closed, asFile("good.mp4")]);
  assert.deepEqual(await pathsIn(odd), ["odd/good.mp4"]);
});

test("few files are asked for at once", async () => {
  let open = 0;
  let most = 0;
  const slow = (name) => ({
    name,
    isFile: true,
    file: (resolve) => {
      most = Math.max(most, (open += 1));
      setImmediate(() => ((open -= 1), resolve({ name })));
    },
  });
  await pathsIn(folder("many", Array.from({ length: 300 }, (_, index) => slow(`${index}`))));
  assert.ok(most <= 20, `${most}`);
});
