/**
 * A long list in groups of rows: the browser skips whole groups out of sight, which is cheaper than thousands of rows.
 */

const ROWS_PER_GROUP = 40;

export class RowGroups {
  #list;

  /** `list` holds the groups; it may have some already. */
  constructor(list) {
    this.#list = list;
  }

  append(row) {
    const last = this.#list.lastElementChild;
    const group = isOpen(last) ? last : this.#list.appendChild(newGroup());
    group.append(row);
  }

  prepend(row) {
    const first = this.#list.firstElementChild;
    if (isOpen(first)) return void first.prepend(row);
    const group = newGroup();
    group.append(row);
    this.#list.prepend(group);
  }

  /** Takes a row off, and its group with it when it was the last. */
  remove(row) {
    const group = row.parentElement;
    row.remove();
    if (group && group.childElementCount === 0) group.remove();
  }
}

function isOpen(group) {
  return group !== null && group.childElementCount < ROWS_PER_GROUP;
}

/** The role keeps the group out of the way of the list and its items in the accessibility tree. */
function newGroup() {
  const group = document.createElement("div");
  group.className = "row-group";
  group.setAttribute("role", "none");
  return group;
}
