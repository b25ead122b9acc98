import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";

import { Library } from "../../static/js/uploads/library.js";

const realFetch = globalThis.fetch;
let stored;
let requests;

/** Answers as the server does: newest first, so many a page. */
async function listVideos(path) {
  const query = new URL(path, "http://server").searchParams;
  const start = Number(query.get("cursor") ?? 0);
  const end = start + Number(query.get("limit"));
  requests += 1;
  const videos = stored.slice(start, end).map((id) => ({ id }));
  return new Response(JSON.stringify({ videos, next: end < stored.length ? String(end) : null }));
}

beforeEach(() => {
  requests = 0;
  globalThis.fetch = listVideos;
});

afterEach(() => {
  globalThis.fetch = realFetch;
});

/** The ids from `last` down to 1, as the server lists them. */
const downFrom = (last) => Array.from({ length: last }, (_, index) => `v${last - index}`);

/** A library that begins with the newest 50 of what is stored, and what it tells of. */
function setUp() {
  const library = new Library({ ids: stored.slice(0, 50), next: stored.length > 50 ? "50" : null });
  const told = { prepended: [], appended: [] };
  for (const [type, ids] of Object.entries(told)) {
    library.addEventListener(type, ({ detail }) => ids.push(...detail.map(({ id }) => id)));
  }
  return { library, told };
}

test("a new video comes to the top, and older ones keep their turn", async () => {
  stored = downFrom(300);
  const { library, told } = setUp();
  stored = downFrom(301);
  await library.refresh("v301");
  assert.deepEqual(told.prepended, ["v301"]);
  assert.equal(requests, 1);
  await library.loadMore();
  assert.equal(told.appended[0], "v250");
});

test("thousands of new videos come in one refresh, in order", async () => {
  stored = downFrom(10);
  const { library, told } = setUp();
  stored = downFrom(3010);
  await library.refresh();
  assert.deepEqual(told.prepended, downFrom(3010).slice(0, 3000));
});

test("one that shows up late, below others that are known, is still found", async () => {
  stored = downFrom(10);
  const { library, told } = setUp();
  const all = downFrom(1010);
  const late = "v700";
  stored = all.filter((id) => id !== late);
  await library.refresh();
  assert.ok(!told.prepended.includes(late));
  stored = all;
  await library.refresh(late);
  assert.equal(told.prepended.at(-1), late);
});

test("one that is waited for and has been deleted does not keep the library asking", async () => {
  stored = downFrom(450);
  const { library, told } = setUp();
  await library.refresh("gone");
  assert.deepEqual([told.prepended, requests], [[], 3]);
  await library.refresh();
  assert.equal(requests, 4);
});
