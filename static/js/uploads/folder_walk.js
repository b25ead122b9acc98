/** Reads a dropped folder a few files at a time, in order of name: thousands at once would freeze the page. */

const AT_ONCE = 20;

/** As people see a folder: "clip 9" before "clip 10". */
const { compare } = new Intl.Collator("en", { numeric: true });
const byName = (one, other) => compare(one.name, other.name);

/**
 * Calls `take(file, path)` for each file in `directory` (a FileSystemDirectoryEntry) and below, the path beginning with
 * the folder's own name. Leaves out hidden files and whatever cannot be read.
 */
export async function walkFolder(directory, take, path = directory.name) {
  const entries = (await entriesOf(directory)).sort(byName);
  for (let start = 0; start < entries.length; start += AT_ONCE) {
    const some = entries.slice(start, start + AT_ONCE);
    const files = await Promise.all(some.map((entry) => (isWanted(entry) ? fileOf(entry) : null)));
    for (const [index, entry] of some.entries()) {
      if (files[index]) take(files[index], `${path}/${entry.name}`);
      if (entry.isDirectory) await walkFolder(entry, take, `${path}/${entry.name}`);
    }
  }
}

/** The browser returns some at a time, until there are none. */
async function entriesOf(directory) {
  const reader = directory.createReader();
  const all = [];
  for (;;) {
    const some = await resultOf((resolve, reject) => reader.readEntries(resolve, reject), []);
    if (some.length === 0) return all;
    all.push(...some);
  }
}

function isWanted({ isFile, name }) {
  return isFile && !name.startsWith(".");
}

function fileOf(entry) {
  return resultOf((resolve, reject) => entry.file(resolve, reject), null);
}

async function resultOf(call, otherwise) {
  try {
    return await new Promise(call);
  } catch {
    return otherwise;
  }
}
