/**
 * A long list in groups of rows: the browser skips whole groups out of sight, which is cheaper than thousands of rows.
 * Rows that have `fill()` and `empty()` get their contents when their group comes near, and lose them when it is far.
 */

/**
 * Rows that fill() and empty() themselves.
 * @typedef {HTMLElement & { fill?: () => void, empty?: () => void }} Row
 *
 * @typedef {HTMLElement & { isNear?: boolean }} Group
 */

const ROWS_PER_GROUP = 40;
/** Rows are filled this far ahead, so that scrolling shows no empty ones. */
const NEAR = "1200px";

export class RowGroups {
  /** @type {Element} */
  #list;
  #observer;

  /**
   * `list` holds the groups; it may have some already. `isScroller` says that it scrolls by itself.
   * @param {HTMLElement} list
   * @param {{ isScroller?: boolean }} [options]
   */
  constructor(list, { isScroller = false } = {}) {
    this.#list = list;
    const root = isScroller ? list : null;
    this.#observer = new IntersectionObserver((entries) => entries.forEach(follow), { root, rootMargin: NEAR });
    for (const group of list.children) this.#observer.observe(group);
  }

  /** @param {Row} row */
  append(row) {
    const last = this.#list.lastElementChild;
    const group = /** @type {Group} */ (isOpen(last) ? last : this.#list.appendChild(this.#newGroup()));
    group.append(row);
    this.#fillIfNear(row, group);
  }

  /**
   * Puts a row before another one of the list; without one, at the end.
   * @param {Row} row
   * @param {Element | null} before
   */
  insert(row, before) {
    if (!before) {
      this.append(row);
      return;
    }
    if (isOpen(before.parentElement)) before.before(row);
    else this.#groupBefore(before).append(row);
    this.#fillIfNear(row, /** @type {Group} */ (row.parentElement));
  }

  /**
   * An open group that ends where the row `before` begins a full one.
   * @param {Element} before
   */
  #groupBefore(before) {
    const group = /** @type {Group} */ (before.parentElement);
    const previous = group.previousElementSibling;
    if (before === group.firstElementChild && previous && isOpen(previous)) return previous;
    const created = this.#newGroup();
    while (before.previousElementSibling) created.prepend(before.previousElementSibling);
    group.before(created);
    return created;
  }

  /** Removes all rows. */
  clear() {
    for (const group of this.#list.children) this.#observer.unobserve(group);
    this.#list.replaceChildren();
  }

  /**
   * Removes a row, and its group if that is now empty.
   * @param {Element} row
   */
  remove(row) {
    const group = row.parentElement;
    row.remove();
    if (!group || group.childElementCount > 0) return;
    this.#observer.unobserve(group);
    group.remove();
  }

  /**
   * The first rows are in sight from the start: filling them later would flicker.
   * @param {Row} row
   * @param {Group} group
   */
  #fillIfNear(row, group) {
    if (group.isNear || group === this.#list.firstElementChild) row.fill?.();
  }

  /**
   * The role keeps the group out of the way of the list and its items in the accessibility tree.
   * @returns {Group}
   */
  #newGroup() {
    const group = document.createElement("div");
    group.className = "row-group";
    group.setAttribute("role", "none");
    this.#observer.observe(group);
    return group;
  }
}

/** @param {Element | null} group */
function isOpen(group) {
  return group !== null && group.childElementCount < ROWS_PER_GROUP;
}

/** @param {IntersectionObserverEntry} entry */
function follow({ target, isIntersecting }) {
  const group = /** @type {Group} */ (target);
  group.isNear = isIntersecting;
  for (const row of /** @type {Iterable<Row>} */ (group.children)) {
    if (isIntersecting) row.fill?.();
    else row.empty?.();
  }
}
