/** The videos that are selected. All of them are in the list. */

/** Emits `change`. */
export class Selection extends EventTarget {
  #lengths = new Map();

  get size() {
    return this.#lengths.size;
  }

  get ids() {
    return [...this.#lengths.keys()];
  }

  /** Bytes of all of them. */
  get bytes() {
    return [...this.#lengths.values()].reduce((sum, length) => sum + length, 0);
  }

  has(id) {
    return this.#lengths.has(id);
  }

  /** Selects videos (`{ id, length }`, length in bytes), or deselects them. */
  set(videos, isSelected) {
    for (const { id, length } of videos) {
      if (isSelected) this.#lengths.set(id, length);
      else this.#lengths.delete(id);
    }
    this.#tell();
  }

  remove(id) {
    if (this.#lengths.delete(id)) this.#tell();
  }

  clear() {
    if (this.size === 0) return;
    this.#lengths.clear();
    this.#tell();
  }

  #tell() {
    this.dispatchEvent(new Event("change"));
  }
}

/** Items from one to the other, both included, in either order. */
export function rangeBetween(items, one, other) {
  const [first, last] = [items.indexOf(one), items.indexOf(other)].sort((a, b) => a - b);
  return first < 0 ? [items[last]] : items.slice(first, last + 1);
}
