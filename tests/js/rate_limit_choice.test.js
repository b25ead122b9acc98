// The menu for the speed limit, in browsers that keep it and in those that block the data of sites.

import assert from "node:assert/strict";
import { afterEach, test } from "node:test";

const CHOICES = ["0", "1000000", "5000000"];

globalThis.HTMLElement = class {
  querySelectorAll() {
    return [this.select];
  }
};
globalThis.customElements = { define() {} };
globalThis.window = new EventTarget();
const { RateLimitChoice } = await import("../../static/js/elements/rate_limit_choice.js");

/** What of a <select> the element uses. */
class Select extends EventTarget {
  dataset = { part: "choice" };
  selectedIndex = 0;

  get value() {
    return CHOICES[this.selectedIndex] ?? "";
  }

  set value(value) {
    this.selectedIndex = CHOICES.indexOf(value);
  }
}

afterEach(() => delete globalThis.localStorage);

/** `storage()` is what the browser answers to `localStorage`. */
function setUp(storage) {
  Object.defineProperty(globalThis, "localStorage", { get: storage, configurable: true });
  const limit = { bytesPerSecond: null };
  const element = Object.assign(new RateLimitChoice(), { select: new Select() });
  element.connect({ limit });
  const choose = (value) => {
    element.select.value = value;
    element.select.dispatchEvent(new Event("change"));
  };
  return { limit, choose };
}

function storageOf(items) {
  return { getItem: (key) => items.get(key) ?? null, setItem: (key, value) => items.set(key, value) };
}

test("the choice is remembered, and that of another tab is followed", () => {
  const items = new Map();
  const { limit, choose } = setUp(() => storageOf(items));
  assert.equal(limit.bytesPerSecond, 0);
  choose("1000000");
  assert.equal(limit.bytesPerSecond, 1_000_000);
  const [[key]] = items;
  assert.equal(setUp(() => storageOf(items)).limit.bytesPerSecond, 1_000_000);
  window.dispatchEvent(Object.assign(new Event("storage"), { key, newValue: "5000000" }));
  assert.equal(limit.bytesPerSecond, 5_000_000);
});

test("where the data of sites are blocked, the choice holds until the page is left", () => {
  const { limit, choose } = setUp(() => {
    throw new DOMException("Access is denied for this document.", "SecurityError");
  });
  assert.equal(limit.bytesPerSecond, 0);
  choose("5000000");
  assert.equal(limit.bytesPerSecond, 5_000_000);
});

test("a choice that is no longer there is no limit", () => {
  const { limit } = setUp(() => ({ getItem: () => "7" }));
  assert.equal(limit.bytesPerSecond, 0);
});
