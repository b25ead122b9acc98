import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";

import { ArrivingVideos } from "../../static/js/library/arriving_videos.js";
import { Preparation } from "../../static/js/library/preparation.js";
import { InterruptedUploads } from "../../static/js/uploads/interrupted_uploads.js";
import { receipt, senderWords } from "../../static/js/words.js";

const realFetch = globalThis.fetch;
let answers;
let asked;

beforeEach(() => {
  asked = [];
  answers = {};
  globalThis.fetch = async (path) => {
    asked.push(path);
    const [status, document] = answers[path];
    return new Response(JSON.stringify(document), { status });
  };
});

afterEach(() => {
  globalThis.fetch = realFetch;
});

/** A list that notes what it is told. */
class List extends EventTarget {
  changes = [];

  change(video) {
    this.changes.push(video.id);
  }

  tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}

/** A clock that stands still until the test lets it go on. */
class Clock {
  waits = [];
  wait = (milliseconds) => new Promise((resolve) => this.waits.push({ milliseconds, resolve }));

  async next() {
    this.waits.at(-1).resolve();
    await new Promise((resolve) => setImmediate(resolve)); // Answers are there by then.
  }
}

function video(id, state) {
  return { id, playback: { state } };
}

test("a video that is being prepared is looked at, more and more rarely, until everything is made of it", async () => {
  const [list, clock] = [new List(), new Clock()];
  new Preparation(list, { videos: [video("a", "ready"), video("b", "waiting"), { id: "c" }], wait: clock.wait });
  answers["/api/videos/b"] = [200, video("b", "waiting")];
  await clock.next();
  await clock.next();
  assert.deepEqual([asked, list.changes], [["/api/videos/b", "/api/videos/b"], []]);
  for (const state of ["playable", "ready"]) {
    answers["/api/videos/b"] = [200, video("b", state)];
    await clock.next();
  }
  assert.deepEqual(list.changes, ["b", "b"]);
  assert.deepEqual(clock.waits.map(({ milliseconds }) => milliseconds), [1000, 1500, 2250, 1000]);
});

test("many videos that are being prepared take turns", async () => {
  const [list, clock] = [new List(), new Clock()];
  const videos = Array.from({ length: 15 }, (_, number) => video(`v${number}`, "waiting"));
  for (const item of videos) answers[`/api/videos/${item.id}`] = [200, item];
  new Preparation(list, { videos, wait: clock.wait });
  await clock.next();
  await clock.next();
  assert.equal(new Set(asked).size, 15);
});

test("new videos are followed, and those that leave the list are not", async () => {
  const [list, clock] = [new List(), new Clock()];
  new Preparation(list, { wait: clock.wait });
  list.tell("inserted", [{ video: video("a", "waiting"), before: null }, { video: video("b", "waiting"), before: null }]);
  list.tell("removed", "a");
  answers["/api/videos/b"] = [404, { status: 404, code: "upload_not_found" }];
  await clock.next();
  assert.deepEqual(asked, ["/api/videos/b"]);
  assert.equal(clock.waits.length, 1);
  list.tell("appended", [video("d", "waiting")]);
  assert.equal(clock.waits.length, 2);
});

test("uploads that can be watched already are listed with the share that has arrived", async () => {
  const videos = new ArrivingVideos();
  let changes = 0;
  videos.addEventListener("change", () => (changes += 1));
  const active = new Date().toISOString();
  const upload = { filename: "clip.mp4", length: 200, received: [[0, 40], [160, 200]], state: "receiving", yours: true, active };
  const playback = { state: "playable", playable: { hls: "/media/a/hls/master.m3u8" } };
  answers["/api/uploads"] = [200, { uploads: [{ ...upload, id: "a", playback }, { ...upload, id: "b" }] }];
  await videos.refresh();
  await videos.refresh();
  const entry = { id: "a", filename: "clip.mp4", length: 200, poster: null, share: 0.4 };
  assert.deepEqual(videos.list, [{ ...entry, isWatchable: true, sender: null, stopped: null }]);
  assert.equal(changes, 1);
});

test("what others send is listed with their name, and is not offered as one's own", async () => {
  const rosa = { kind: "upload_link", id: "l", name: "Aunt Rosa", link: "Wedding films" };
  const active = new Date(Date.now() - 3 * 3_600_000).toISOString();
  const upload = { filename: "clip.mov", length: 200, received: [[0, 40]], state: "receiving", active, fingerprint: "f" };
  const uploads = [
    { ...upload, id: "a", yours: false, sender: rosa },
    { ...upload, id: "b", yours: false, sender: { ...rosa, name: null } },
    { ...upload, id: "c", yours: true, sender: null },
  ];
  answers["/api/uploads"] = [200, { uploads }];
  const videos = new ArrivingVideos();
  const interrupted = new InterruptedUploads(Object.assign(new EventTarget(), { uploads: [] }));
  await Promise.all([videos.refresh(), interrupted.refresh()]);
  assert.deepEqual(videos.list.map(({ id, sender, stopped }) => [id, sender, stopped]), [
    ["a", "Aunt Rosa", "3 hours"],
    ["b", "Someone via Wedding films", "3 hours"],
  ]);
  assert.deepEqual(interrupted.list.map(({ id }) => id), ["c"]);
  assert.equal(senderWords(rosa), "from Aunt Rosa via Wedding films");
  assert.equal(senderWords({ kind: "person", name: "Bob" }), "from Bob");
  assert.equal(senderWords(null), "");
});

test("a receipt says how many files have arrived, and when all have", () => {
  const some = { count: 2, unfinished: 1, isBusy: false };
  assert.equal(receipt(some, "3 KB"), "2 of 3 files have arrived, 3 KB");
  assert.equal(receipt({ ...some, unfinished: 0, isBusy: true }, "3 KB"), "2 of 3 files have arrived, 3 KB");
  assert.equal(receipt({ ...some, unfinished: 0 }, "3 KB"), "All 2 files have arrived, 3 KB");
  assert.equal(receipt({ count: 1, unfinished: 0, isBusy: false }, "3 KB"), "Your file has arrived, 3 KB");
});

test("a video whose upload is cancelled here leaves the list at once, and an older answer does not bring it back", async () => {
  const videos = new ArrivingVideos();
  const playback = { state: "playable", playable: { hls: "/media/a/hls/master.m3u8" } };
  const upload = { id: "a", filename: "clip.mp4", length: 200, received: [[0, 40]], state: "receiving", yours: true, playback };
  answers["/api/uploads"] = [200, { uploads: [upload] }];
  await videos.refresh();
  const asking = videos.refresh();
  const shown = [];
  videos.addEventListener("change", () => shown.push(videos.list.length));
  videos.forget("a");
  assert.deepEqual(shown, [0]);
  await asking;
  assert.deepEqual(videos.list, []);
  videos.recall("a");
  await videos.refresh();
  assert.deepEqual(shown, [0, 1]);
});
