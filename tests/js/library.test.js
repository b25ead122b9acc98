import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";

import { splitName } from "../../static/js/elements/video_row.js";
import { Library, rangeBetween, Selection } from "../../static/js/library/library.js";

const realFetch = globalThis.fetch;
let stored;
/** Names of renamed videos; the name of all others is their id. */
let names;
let requests;
/** What the server does before it answers. */
let before;

const nameOf = (id) => names.get(id) ?? id;
const byName = (one, other) => nameOf(one).localeCompare(nameOf(other), "en", { numeric: true });

/** Answers as the server does, a page at a time: of what is stored the videos that have the search in their names. */
async function serve(path, { method, body, signal }) {
  const url = new URL(path, "http://server");
  requests.push(`${method} ${url.pathname}${url.search}`);
  if (method === "DELETE") return new Response(null, { status: 204 });
  if (method === "PATCH") {
    const id = url.pathname.split("/").at(-1);
    names.set(id, JSON.parse(body).filename);
    await before(url);
    return new Response(JSON.stringify({ id, filename: nameOf(id) }));
  }
  const answer = pageOf(url.searchParams);
  await before(url);
  signal?.throwIfAborted();
  return answer;
}

/** A page as it is now; a cursor of another list is refused. */
function pageOf(query) {
  const list = `${query.get("q") ?? ""} ${query.get("sort")}`;
  const [start, ...of] = query.has("cursor") ? query.get("cursor").split("@") : ["0", list];
  if (of.join("@") !== list) return new Response("{}", { status: 400 });
  const end = Number(start) + Number(query.get("limit"));
  const found = stored.filter((id) => nameOf(id).includes(query.get("q") ?? ""));
  if (query.get("sort") === "oldest") found.reverse();
  if (query.get("sort") === "name") found.sort(byName);
  const videos = found.slice(Number(start), end).map((id) => ({ id, filename: nameOf(id) }));
  return new Response(JSON.stringify({ videos, next: end < found.length ? `${end}@${list}` : null }));
}

beforeEach(() => {
  requests = [];
  names = new Map();
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
  const library = new Library({ ids: list, next: stored.length > 50 ? "50@ newest" : null });
  const told = { inserted: [], appended: [], replaced: [] };
  for (const [type, ids] of Object.entries(told)) {
    library.addEventListener(type, ({ detail }) => ids.push(...detail.map((item) => (item.video ?? item).id)));
  }
  const insert = (id, before) => list.splice(before ? list.indexOf(before) : list.length, 0, id);
  const remove = (id) => list.splice(list.indexOf(id), 1);
  library.addEventListener("inserted", ({ detail }) => detail.forEach(({ video, before }) => insert(video.id, before)));
  library.addEventListener("moved", ({ detail: { id, before } }) => {
    remove(id);
    insert(id, before);
  });
  for (const type of ["left", "removed"]) library.addEventListener(type, ({ detail }) => remove(detail));
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
  assert.deepEqual([told.inserted, requests.length], [[], 1]);
  await library.refresh();
  assert.equal(requests.length, 2);
});

test("one that was deleted elsewhere does not make the next look go through the whole library", async () => {
  stored = downFrom(2000);
  const { library, list } = setUp();
  await library.show({ sort: "name" });
  stored = ["v0", ...stored.filter((id) => id !== "v7")];
  requests = [];
  await library.refresh("v0");
  assert.deepEqual([list[0], list.length, requests.length], ["v0", 51, 1]);
});

test("a new video is looked for at once, and those that end soon after together", async (t) => {
  stored = downFrom(3);
  const { library, told } = setUp();
  stored = downFrom(4);
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const look = library.refresh("v4");
  await new Promise(setImmediate);
  t.mock.timers.tick(1); // With a pause before the first look, this would wait for ever.
  await look;
  t.mock.timers.reset();
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

test("a search that fails, or is given up, can be asked for again", async () => {
  stored = downFrom(60);
  const { library, list } = setUp();
  const giveUp = new AbortController();
  const wanted = { search: "v1", sort: "newest" };
  before = () => giveUp.abort();
  await assert.rejects(library.show(wanted, giveUp.signal));
  assert.deepEqual([library.wants(wanted), library.search], [false, ""]);
  before = async () => {};
  const showing = library.show(wanted);
  assert.deepEqual([library.wants(wanted), library.search], [true, ""], "what is shown counts until then");
  await showing;
  assert.deepEqual([library.search, list[0]], ["v1", "v19"]);
});

test("of two searches the first fails only after the second was asked for, which fails too", async () => {
  stored = downFrom(60);
  const { library } = setUp();
  before = async () => {
    throw new TypeError("no connection");
  };
  await Promise.all([assert.rejects(library.show({ search: "a" })), assert.rejects(library.show({ search: "b" }))]);
  assert.deepEqual([library.search, library.wants({ search: "", sort: "newest" })], ["", true]);
});

test("a page that is asked for while another order is loaded belongs to that order", async () => {
  stored = downFrom(300);
  const { library, list } = setUp();
  await Promise.all([library.show({ sort: "oldest" }), library.loadMore()]);
  assert.deepEqual(list, downFrom(300).reverse().slice(0, 100));
});

test("a page that is on its way when another order is asked for does not get into it", async () => {
  stored = downFrom(300);
  const { library, list } = setUp();
  let answer;
  before = (url) => (url.searchParams.has("cursor") ? new Promise((resolve) => (answer = resolve)) : null);
  const page = library.loadMore();
  await new Promise(setImmediate);
  before = async () => {};
  await library.show({ sort: "oldest" });
  await library.loadMore();
  answer();
  await page;
  assert.deepEqual(list, downFrom(300).reverse().slice(0, 100));
});

test("a video that ends while another order is loaded is not missed", async () => {
  stored = downFrom(30);
  const { library, list } = setUp();
  let answer;
  before = () => new Promise((resolve) => (answer = resolve));
  const showing = library.show({ sort: "oldest" });
  before = async () => {};
  stored = downFrom(31);
  const look = library.refresh("v31");
  await new Promise(setImmediate);
  answer();
  await Promise.all([showing, look]);
  assert.deepEqual(list, downFrom(31).reverse());
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

test("a new video comes right before the last one that is loaded", async () => {
  stored = Array.from({ length: 100 }, (_, index) => `n${index * 10}`);
  const { library, list } = setUp();
  await library.show({ sort: "name" });
  stored.push("n485");
  await library.refresh("n485");
  assert.deepEqual(list.slice(-3), ["n480", "n485", "n490"]);
});

test("in the order of names a renamed video moves to its new place", async () => {
  stored = downFrom(2000);
  const { library, list } = setUp();
  await library.show({ sort: "name" });
  requests = [];
  await library.rename("v3", "v7 again");
  assert.deepEqual([list.slice(5, 8), list.length, requests.length], [["v7", "v3", "v8"], 50, 2]);
  await library.rename("v50", "v0");
  assert.deepEqual([list[0], list.at(-1)], ["v50", "v49"]);
  await library.rename("v49", "v49 again");
  assert.deepEqual([list.at(-1), list.length], ["v49", 50]);
});

test("a video renamed to a name beyond what is loaded leaves the list, and comes with its page", async () => {
  stored = downFrom(120);
  const { library, list } = setUp();
  await library.show({ sort: "name" });
  await library.rename("v3", "v99 again");
  assert.deepEqual([list.includes("v3"), library.size], [false, 49]);
  requests = [];
  stored.push("v0");
  await library.refresh("v0");
  assert.deepEqual([list[0], list.length, requests.length], ["v0", 50, 1]);
  await library.loadMore();
  assert.equal(list.filter((id) => id === "v3").length, 1);
});

test("a video whose new name no longer matches the search leaves the list", async () => {
  stored = downFrom(30);
  const { library, list } = setUp();
  await library.show({ search: "v1" });
  const renamed = await library.rename("v15", "other");
  assert.deepEqual([list.includes("v15"), library.size, renamed.filename], [false, 10, "other"]);
  await library.rename("v14", "v1 again");
  assert.deepEqual(list.slice(3, 5), ["v16", "v14"], "one that still matches stays where it was");
});

test("a video that is renamed while another list is loaded keeps its new name", async () => {
  stored = downFrom(3);
  const { library } = setUp();
  const shown = new Map();
  library.addEventListener("replaced", ({ detail }) => detail.forEach(({ id, filename }) => shown.set(id, filename)));
  library.addEventListener("changed", ({ detail }) => shown.set(detail.id, detail.filename));
  let answer;
  before = (url) => (url.searchParams.has("sort") ? new Promise((resolve) => (answer = resolve)) : null);
  const showing = library.show({ sort: "oldest" });
  const renaming = library.rename("v2", "new.mp4");
  await new Promise(setImmediate);
  answer();
  await Promise.all([showing, renaming]);
  assert.equal(shown.get("v2"), "new.mp4");
});

test("a video deleted while another list is loaded does not come back with it", async () => {
  stored = downFrom(3);
  const { library, list } = setUp();
  const showing = library.show({ sort: "oldest" });
  await library.delete("v2");
  await showing;
  assert.deepEqual([list, library.size], [["v1", "v3"], 2]);
});

test("a deleted video does not come back with an answer that was under way", async () => {
  stored = downFrom(3);
  const { library, list } = setUp();
  const look = library.refresh();
  await library.delete("v2");
  await look;
  assert.deepEqual([list, library.size], [["v3", "v1"], 2]);
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
