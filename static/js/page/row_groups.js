/**
 * A long list in groups of rows: the browser skips whole groups out of sight, which is cheaper than thousands of rows.
 * Rows that have `fill()` and `empty()` get their contents when their group comes near, and lose them when it is far.
 */

const ROWS_PER_GROUP = 40;
/** Rows are filled this far ahead, so that scrolling shows no empty ones. */
const NEAR = "1200px";

export class RowGroups {
  #list;
  #observer;

  /** `list` holds the groups; it may have some already. `isScroller` says that it scrolls by itself. */
  constructor(list, { isScroller = false } = {}) {
    this.#list = list;
    const root = isScroller ? list : null;
    this.#observer = new IntersectionObserver((entries) => entries.forEach(follow), { root, rootMargin: NEAR });
    for (const group of list.children) this.#observer.observe(group);
  }

  append(row) {
    const last = this.#list.lastElementChild;
    const group = isOpen(last) ? last : this.#list.appendChild(this.#newGroup());
    group.append(row);
    this.#fillIfNear(row, group);
  }

  /** Puts a row before another one of the list; without one, at the end. */
  insert(row, before) {
    if (!before) {
      this.append(row);
      return;
    }
    const group = before.parentElement;
    if (isOpen(group)) before.before(row);
    else this.#groupBefore(before).append(row);
    this.#fillIfNear(row, row.parentElement);
  }

  /** An open group that ends where the row `before` begins a full one. */
  #groupBefore(before) {
    const group = before.parentElement;
    const previous = group.previousElementSibling;
    if (before === group.firstElementChild && previous && isOpen(previous)) return previous;
    const created = this.#newGroup();
    while (group.firstElementChild !== before) created.append(group.firstElementChild);
    group.before(created);
    return created;
  }

  /** Removes all rows. */
  clear() {
    for (const group of this.#list.children) this.#observer.unobserve(group);
    this.#list.replaceChildren();
  }

  /** Removes a row, and its group if that is now empty. */
  remove(row) {
    const group = row.parentElement;
    row.remove();
    if (!group || group.childElementCount > 0) return;
    this.#observer.unobserve(group);
    group.remove();
  }

  /** The first rows are in sight from the start: filling them later would flicker. */
  #fillIfNear(row, group) {
    if (group.isNear || group === this.#list.firstElementChild) row.fill?.();
  }

  /** The role keeps the group out of the way of the list and its items in the accessibility tree. */
  #newGroup() {
    const group = document.createElement("div");
    group.className = "row-group";
    group.setAttribute("role", "none");
    this.#observer.observe(group);
    return group;
  }
}

function isOpen(group) {
  return group !== null && group.childElementCount < ROWS_PER_GROUP;
}

function follow({ target: group, isIntersecting }) {
  group.isNear = isIntersecting;
  for (const row of group.children) {
    if (isIntersecting) row.fill?.();
    else row.empty?.();
  }
}
