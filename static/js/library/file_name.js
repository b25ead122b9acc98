/** File names as people change them: without the extension, which says what a browser can do with the file. */

const EXTENSION = /(?<=[^/.])\.[A-Za-z0-9]{1,8}$/;

/** A name as `{ stem, extension }`; the extension has its dot, and is empty where there is none. */
export function splitName(filename) {
  const extension = EXTENSION.exec(filename)?.[0] ?? "";
  return { stem: filename.slice(0, filename.length - extension.length), extension };
}
