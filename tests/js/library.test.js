import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";

import { splitName } from "../../static/js/library/file_name.js";
import { Library } from "../../static/js/library/library.js";
import { rangeBetween, Selection } from "../../static/js/library/selection.js";

const realFetch = globalThis.fetch;
let stored;
let requests;
/** What the server does before it answers. */
let before;

/** Answers as the server does, so many a page: of what is stored the ids that have the search in them. */
async function serve(path, { method }) {
  const url = new URL(path, "http://server");
  requests.push(`${method} ${url.pathname}${url.search}`);
  await before(url);
  if (method === "DELETE") return new Response(null, { status: 204 });
  if (method === "PATCH") return new Response(JSON.stringify({ id: "v1", filename: "new.mp4" }));
  const query = url.searchParams;
  const start = Number(query.get("cursor") ?? 0);
  const end = start + Number(query.get("limit"));
  const found = stored.filter((id) => id.includes(query.get("q") ?? ""));
  if (query.get("sort") === "oldest") found.reverse();
  const videos = found.slice(start, end).map((id) => ({ id }));
  return new Response(JSON.stringify({ videos, next: end < found.length ? String(end) : null }));
}

beforeEach(() => {
  requests = [];
  before = async () => {};
  globalThis.fetch = serve;
});

afterEach(() => {
  globalThis.fetch = realFetch;
});

/** The ids from `last` down to 1, as the server lists them. */
const downFrom = (last) => Array.from({ length: last }, (_, index) => `v${last - index}`);

/** A library that begins with the newest 50 of what is stored, what it tells of, and the list that this makes. */
function setUp() {
  const list = stored.slice(0, 50);
  const library = new Library({ ids: list, next: stored.length > 50 ? "50" : null });
  const told = { inserted: [], appended: [], replaced: [] };
  for (const [type, ids] of Object.entries(told)) {
    library.addEventListener(type, ({ detail }) => ids.push(...detail.map((item) => (item.video ?? item).id)));
  }
  library.addEventListener("inserted", ({ detail }) => {
    for (const { video, before } of detail) list.splice(before ? list.indexOf(before) : list.length, 0, video.id);
  });
  library.addEventListener("appended", ({ detail }) => list.push(...detail.map(({ id }) => id)));
  library.addEventListener("replaced", ({ detail }) => list.splice(0, list.length, ...detail.map(({ id }) => id)));
  return { library, told, list };
}

test("a new video comes to the top, and older ones keep their turn", async () => {
  stored = downFrom(300);
  const { library, told } = setUp();
  stored = downFrom(301);
  await library.refresh("v301");
  assert.deepEqual(told.inserted, ["v301"]);
  assert.equal(requests.length, 1);
  await library.loadMore();
  assert.equal(told.appended[0], "v250");
});

test("thousands of new videos come in one refresh, in order", async () => {
  stored = downFrom(10);
  const { library, told } = setUp();
  stored = downFrom(3010);
  await library.refresh();
  assert.deepEqual(told.inserted, downFrom(3010).slice(0, 3000));
});

test("one that shows up late, below others that are known, is still found", async () => {
  stored = downFrom(10);
  const { library, told } = setUp();
  const all = downFrom(1010);
  const late = "v700";
  stored = all.filter((id) => id !== late);
  await library.refresh();
  assert.ok(!told.inserted.includes(late));
  stored = all;
  await library.refresh(late);
  assert.equal(told.inserted.at(-1), late);
});

test("one that is waited for and has been deleted does not keep the library asking", async () => {
  stored = downFrom(450);
  const { library, told } = setUp();
  await library.refresh("gone");
  assert.deepEqual([told.inserted, requests.length], [[], 3]);
  await library.refresh();
  assert.equal(requests.length, 4);
});

test("a new video is looked for at once, and those that end soon after together", async () => {
  stored = downFrom(3);
  const { library, told } = setUp();
  stored = downFrom(4);
  const start = performance.now();
  await library.refresh("v4");
  assert.ok(performance.now() - start < 400, "there is no pause before the first look");
  stored = downFrom(7);
  await Promise.all(["v5", "v6", "v7"].map((id) => library.refresh(id)));
  assert.deepEqual(told.inserted, ["v4", "v7", "v6", "v5"]);
  assert.equal(requests.length, 2);
});

test("a look that failed is made again", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  stored = [];
  const { library, told } = setUp();
  stored = downFrom(1);
  before = async () => {
    throw new TypeError("no connection");
  };
  const letPass = async (milliseconds) => {
    for (let passed = 0; passed < milliseconds; passed += 100) {
      await new Promise(setImmediate);
      t.mock.timers.tick(100);
    }
  };
  const failing = assert.rejects(library.refresh("v1"));
  await letPass(200);
  await failing;
  before = async () => {};
  await letPass(6_000);
  assert.deepEqual([told.inserted, requests.length], [["v1"], 2]);
});

test("a search replaces the list, and its pages go on with it", async () => {
  stored = downFrom(300);
  const { library, list } = setUp();
  await library.show({ search: "v2" });
  assert.deepEqual(list, downFrom(300).filter((id) => id.includes("v2")).slice(0, 50));
  await library.loadMore();
  assert.equal(list.length, 100);
  await library.show({ search: "", sort: "oldest" });
  assert.deepEqual([list[0], library.search, library.sort], ["v1", "", "oldest"]);
});

test("of two searches the later one counts, whichever is answered first", async () => {
  stored = downFrom(30);
  const { library, list } = setUp();
  let answer;
  before = (url) => (url.searchParams.get("q") === "v1" ? new Promise((resolve) => (answer = resolve)) : null);
  const slow = library.show({ search: "v1" });
  const more = library.show({ search: "v2" });
  await more;
  answer();
  await slow;
  assert.deepEqual([list[0], library.search], ["v29", "v2"]);
});

test("a search that fails leaves the list as it was", async () => {
  stored = downFrom(60);
  const { library, list } = setUp();
  before = async (url) => {
    if (url.searchParams.has("q")) throw new TypeError("no connection");
  };
  await assert.rejects(library.show({ search: "v1" }));
  await library.loadMore();
  assert.deepEqual([library.search, list], ["", downFrom(60)]);
});

test("while a search is shown, only new videos that match it come in", async () => {
  stored = downFrom(30);
  const { library, list } = setUp();
  await library.show({ search: "v1" });
  stored = ["other", "v199", ...downFrom(30)];
  await library.refresh("other");
  assert.deepEqual(list, ["v199", ...downFrom(30).filter((id) => id.includes("v1"))]);
});

test("in another order new videos come to their places", async () => {
  stored = ["v9", "v7", "v5", "v3"];
  const { library, list } = setUp();
  await library.show({ sort: "oldest" });
  stored = ["v10", "v9", "v8", "v7", "v6", "v5", "v3", "v1"];
  await library.refresh("v10");
  assert.deepEqual(list, stored.toReversed());
});

test("a deleted video does not come back with an answer that was under way", async () => {
  stored = downFrom(3);
  const { library, list } = setUp();
  const look = library.refresh();
  await library.delete("v2");
  await look;
  assert.deepEqual([list, library.size], [downFrom(3), 2], "nothing was inserted");
});

test("a selection knows how much it is", () => {
  const selection = new Selection();
  let changes = 0;
  selection.addEventListener("change", () => (changes += 1));
  selection.set([{ id: "a", length: 3 }, { id: "b", length: 2 ** 40 }], true);
  selection.set([{ id: "a", length: 3 }], true);
  assert.deepEqual([selection.size, selection.bytes, selection.ids], [2, 2 ** 40 + 3, ["a", "b"]]);
  selection.remove("a");
  selection.remove("a");
  selection.clear();
  selection.clear();
  assert.deepEqual([selection.size, selection.bytes, changes], [0, 0, 4]);
});

test("a range has both its ends, in either direction", () => {
  const rows = ["a", "b", "c", "d"];
  assert.deepEqual(rangeBetween(rows, "b", "d"), ["b", "c", "d"]);
  assert.deepEqual(rangeBetween(rows, "d", "b"), ["b", "c", "d"]);
  assert.deepEqual(rangeBetween(rows, "c", "c"), ["c"]);
  assert.deepEqual(rangeBetween(rows, "gone", "c"), ["c"]);
});

test("a name is changed without its extension", () => {
  const parts = (name) => Object.values(splitName(name));
  assert.deepEqual(parts("film.mp4"), ["film", ".mp4"]);
  assert.deepEqual(parts("Ferien/1. Tag.tar.gz"), ["Ferien/1. Tag.tar", ".gz"]);
  assert.deepEqual(parts("no extension"), ["no extension", ""]);
  assert.deepEqual(parts(".hidden"), [".hidden", ""]);
  assert.deepEqual(parts("folder/.hidden"), ["folder/.hidden", ""]);
  assert.deepEqual(parts("St. Anna"), ["St. Anna", ""]);
});
