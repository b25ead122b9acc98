import assert from "node:assert/strict";
import { test } from "node:test";

import {
  isAudioOnly,
  isChanging,
  isSameFile,
  ORIGINAL,
  qualitiesOf,
  substituteFor,
  wayToPlay,
} from "../../static/js/player/playback.js";
import { NotMakeable, prepareQuality, segmentAt } from "../../static/js/player/preparation.js";
import { Positions } from "../../static/js/player/positions.js";
import { barsOf } from "../../static/js/player/waveform.js";
import { audioNames, detailsOf, languageName, orderFor, wordsForState } from "../../static/js/words.js";

const PLAYABLE = { from: "original", mp4: "/media/1/play.mp4", hls: "/media/1/hls/master.m3u8" };
const ENGLISH = { kind: "audio", codec: "mp4a.40.2", language: "en", channels: 2, bit_rate: 128_000 };
const GERMAN = { kind: "audio", codec: "ac-3", language: "de", channels: 6, bit_rate: 448_000 };
const PICTURE = { kind: "video", codec: "hvc1.1.6.L93.B0", bit_rate: 8_240_000 };

function film(playback = {}, more = {}) {
  const known = { state: "playable", tracks: [PICTURE, ENGLISH], chapters: [], renditions: [], subtitles: [], problem: null };
  return { media: "/media/1", inline: true, isArriving: false, length: 1_000_000, playback: { ...known, playable: PLAYABLE, ...playback }, ...more };
}

function rendition(height, state, progress = 0) {
  return { height, state, progress };
}

test("a video with a new ticket or signature is the same one", () => {
  assert.ok(isSameFile("/t/one/media/1/play.mp4", "/t/two/media/1/play.mp4"));
  assert.ok(isSameFile("/videos/t/one/media/1/play.mp4", "/videos/t/two/media/1/play.mp4"));
  assert.ok(isSameFile("/t/one/media/1?expires=1", "/t/one/media/1?expires=2"));
  assert.ok(!isSameFile("/t/one/media/1/play.mp4", "/t/one/media/1/hls/master.m3u8"));
  assert.ok(!isSameFile("/media/1", "/media/2"));
  assert.ok(!isSameFile(null, "/media/1"));
});

test("an original is played as one file, and anything else by HLS", () => {
  assert.deepEqual(wayToPlay(film()), { kind: "file", url: PLAYABLE.mp4 });
  assert.deepEqual(wayToPlay(film(), { quality: "720" }), { kind: "hls", url: PLAYABLE.hls });
  assert.deepEqual(wayToPlay(film(), { audio: 1 }), { kind: "hls", url: PLAYABLE.hls });
  assert.deepEqual(wayToPlay(film({}, { isArriving: true })), { kind: "hls", url: PLAYABLE.hls });
  assert.deepEqual(wayToPlay(film({ playable: { ...PLAYABLE, hls: null } }), { audio: 1 }), { kind: "file", url: PLAYABLE.mp4 });
});

test("sound that only segments have is played by HLS, and a picture that is only made in the tallest quality", () => {
  assert.deepEqual(wayToPlay(film({ playable: { ...PLAYABLE, from: "hls" } })), { kind: "hls", url: PLAYABLE.hls });
  const playable = { from: "hls", mp4: null, hls: PLAYABLE.hls };
  const renditions = [rendition(360, "on_demand"), rendition(720, "on_demand")];
  const { playback } = film({ playable, renditions });
  assert.deepEqual(qualitiesOf(playback).map(({ value }) => value), ["720", "360"]);
  assert.deepEqual(wayToPlay(film({ playable }), { quality: "720" }), { kind: "hls", url: PLAYABLE.hls });
});

test("until the server has looked at a video, the browser tries the file as it was uploaded", () => {
  const waiting = { state: "waiting", playable: null };
  assert.deepEqual(wayToPlay(film(waiting)), { kind: "file", url: "/media/1" });
  assert.equal(wayToPlay(film(waiting, { inline: false })), null);
  assert.equal(wayToPlay(film(waiting, { isArriving: true })), null);
  const asItIs = { state: "ready", playable: { from: "original", mp4: null, hls: null } };
  assert.deepEqual(wayToPlay(film(asItIs)), { kind: "file", url: "/media/1" });
  assert.equal(wayToPlay(film({ state: "unplayable", playable: null })), null);
});

test("the quality menu says what is ready, and what choosing the others means", () => {
  const renditions = [rendition(360, "ready"), rendition(1080, "failed"), rendition(720, "making", 0.404), rendition(480, "on_demand"), rendition(240, "absent")];
  const choices = qualitiesOf(film({ width: 1080, height: 1920, renditions }).playback);
  assert.deepEqual(choices.map(({ value, name, hint }) => [value, name, hint]), [
    [ORIGINAL, "Original, 1080p", ""],
    ["1080", "1080p", "could not be made"],
    ["720", "720p", "being made, 40\u00a0%"],
    ["480", "480p", "made when chosen"],
    ["360", "360p", ""],
  ]);
  assert.deepEqual(choices.filter(({ isDisabled }) => isDisabled).map(({ value }) => value), ["1080"]);
});

test("a browser that cannot decode the original gets the tallest rendition that can be made", () => {
  const renditions = [rendition(1080, "failed"), rendition(360, "ready"), rendition(720, "on_demand")];
  assert.equal(substituteFor(film({ renditions }).playback), "720");
  assert.equal(substituteFor(film().playback), null);
});

test("a picture that no browser decodes is not among the qualities", () => {
  const renditions = [rendition(720, "on_demand")];
  const { playback } = film({ playable: { from: "hls", mp4: null, hls: PLAYABLE.hls }, renditions });
  assert.deepEqual(qualitiesOf(playback).map(({ value }) => value), ["720"]);
});

test("a quality that can be downloaded has words, and a button for what can be done", () => {
  const order = (state, more) => Object.values(orderFor({ height: 720, state, progress: 0.4, problem: null, ...more }));
  assert.deepEqual(order("on_demand"), ["can be made", "Make 720p"]);
  assert.deepEqual(order("making"), ["is being made: 40\u00a0%", "Cancel 720p"]);
  assert.deepEqual(order("making", { problem: { detail: "The disk is full." } }), ["has to wait: The disk is full.", "Cancel 720p"]);
  assert.deepEqual(order("ready"), ["is ready", "Delete 720p"]);
  assert.deepEqual(order("failed", { problem: { detail: "Damaged." } }), ["Damaged.", "Make 720p again"]);
});

test("the segment that is shown at a time is known from the playlist", () => {
  const playlist = "#EXTM3U\n#EXTINF:4.000000,\n1.m4s\n#EXTINF:2.500000,\n2.m4s\n#EXT-X-ENDLIST\n";
  assert.deepEqual([0, 3.9, 4, 6.4, 7].map((seconds) => segmentAt(playlist, seconds)), [1, 1, 2, 2, 2]);
});

test("a quality is prepared although the line breaks and the server fails, until the disk is full", async (t) => {
  const playlist = "#EXTM3U\n#EXTINF:4.000000,\n1.m4s\n#EXT-X-ENDLIST\n";
  const full = Response.json({ code: "no_room", detail: "The disk is full." }, { status: 507 });
  const answers = [new Error("offline"), new Response("", { status: 500 }), new Response(playlist), new Response("1"), full];
  const asked = [];
  t.mock.method(globalThis, "setTimeout", setImmediate);
  t.mock.method(globalThis, "fetch", async (url) => {
    asked.push(url.pathname);
    const answer = answers.shift();
    if (answer instanceof Error) throw answer;
    return answer;
  });
  globalThis.location = new URL("http://sluice/watch/1");
  const options = { position: () => 0, signal: new AbortController().signal };
  await assert.rejects(prepareQuality("/media/1/hls/master.m3u8", "720", options), new NotMakeable("The disk is full."));
  assert.deepEqual(asked.map((path) => path.split("/").at(-1)), [...Array(3).fill("index.m3u8"), "1.m4s", "init.mp4"]);
});

test("the state is said in words", () => {
  const making = { renditions: [rendition(720, "making", 0.999)] };
  assert.equal(wordsForState(film(making)), "Playable. 720p is being made: 90\u00a0%.");
  const postponed = { ...rendition(720, "making"), problem: { code: "no_room", detail: "The disk is full." } };
  assert.equal(wordsForState(film({ renditions: [postponed] })), "Playable. 720p has to wait.");
  assert.equal(wordsForState(film()), "");
  assert.equal(wordsForState(film({ state: "probed", progress: 0.4 })), "This video is being prepared for watching: 40\u00a0%.");
  const waits = { state: "probed", progress: null, problem: { code: "no_room", detail: "The disk is full." } };
  assert.equal(wordsForState(film(waits)), "This video is being prepared for watching. The disk is full.");
  assert.equal(wordsForState(film({}, { isArriving: true, share: 0.4 })), "Still being uploaded: 40\u00a0% has arrived.");
  assert.equal(wordsForState(film({ problem: { code: "truncated", detail: "The end is missing." } })), "The end is missing.");
  const problem = { code: "no_media", detail: "This file has no video or sound." };
  assert.equal(wordsForState(film({ state: "unplayable", problem })), "This file has no video or sound. You can download it.");
});

test("details name codecs, sizes and languages", () => {
  const playback = { container: "mov", width: 1920, height: 1080, frame_rate: 29.97, hdr: "hdr10", tracks: [PICTURE, ENGLISH, GERMAN] };
  assert.deepEqual(detailsOf(film({ ...playback, subtitles: [{ language: "fr", url: "" }] })), [
    ["File", "MOV · 1 MB"],
    ["Video", "HEVC · 1920 × 1080 · 29.97 frames per second · 8.2 Mbit/s · HDR10"],
    ["Sound", "English · AAC · stereo · 128 kbit/s"],
    ["Sound", "German · Dolby Digital · 5.1 · 448 kbit/s"],
    ["Subtitles", "French"],
  ]);
});

test("audio tracks have names that differ", () => {
  const unnamed = { ...ENGLISH, language: "und" };
  const { playback } = film({ tracks: [ENGLISH, ENGLISH, GERMAN, unnamed] });
  assert.deepEqual(audioNames(playback), ["English (1)", "English (2)", "German · 5.1", "Track 4"]);
  assert.equal(languageName("not a language"), "not a language");
});

test("a video is looked at again while something may change", () => {
  assert.equal(isChanging({ state: "waiting" }), true);
  assert.equal(isChanging({ state: "playable", renditions: [rendition(720, "making")] }), true);
  assert.equal(isChanging({ state: "ready", renditions: [rendition(720, "on_demand")] }), false);
  assert.equal(isAudioOnly({ tracks: [ENGLISH] }), true);
});

function memory(items = {}) {
  return { getItem: (key) => items[key] ?? null, setItem: (key, value) => (items[key] = value) };
}

test("a position is remembered, and forgotten near both ends", () => {
  const positions = new Positions(memory());
  positions.keep("1", 65.4, 600);
  assert.equal(positions.of("1"), 65);
  positions.keep("1", 590, 600);
  assert.equal(positions.of("1"), 0);
  positions.keep("2", 2, 600);
  assert.equal(positions.of("2"), 0);
  positions.keep("3", 30, 40); // Three quarters of a short one are its end.
  assert.equal(positions.of("3"), 0);
});

test("the oldest positions make room for new ones, and broken ones are ignored", () => {
  const positions = new Positions(memory());
  for (let number = 0; number <= 200; number += 1) positions.keep(`film ${number}`, 100, 1000);
  assert.equal(positions.of("film 0"), 0);
  assert.equal(positions.of("film 200"), 100);
  assert.equal(new Positions(memory({ "sluice.positions": "{" })).of("1"), 0);
  const refusing = { getItem: () => null, setItem: () => { throw new Error("full"); } };
  new Positions(refusing).keep("1", 100, 1000);
});

test("a waveform has a bar for the loudest of its peaks", () => {
  assert.deepEqual(barsOf([0, 1, 0.2, 0.4], 2), [1, 0.4]);
  assert.deepEqual(barsOf([0.5], 200), [0.5]);
});
