/** Lists that keep the elements of unchanged entries, so that readers do not lose their place. */

import { formatBytes } from "../page/format.js";
import { drawMeter, nameMeter } from "../page/meter.js";
import { setText } from "../page/parts.js";
import { formatJob, inWords, nodeFigures } from "../words.js";

/**
 * Shows the unfinished uploads in `list`.
 * @param {HTMLElement} list
 * @param {Api.UnfinishedUpload[]} uploads
 */
export function drawUploads(list, uploads) {
  const keys = uploads.map(({ id }) => id);
  if (!hasKeys(list, keys)) list.replaceChildren(...uploads.map(uploadRow));
  uploads.forEach((upload, index) => fillUpload(list.children[index], upload));
}

/**
 * Shows jobs in `list`: those that run or wait, or those that failed, with the reason.
 * @param {HTMLElement} list
 * @param {Api.Job[]} jobs
 */
export function drawJobs(list, jobs) {
  const keys = jobs.map(({ id, step, argument }) => `${id} ${step} ${argument}`);
  if (!hasKeys(list, keys)) list.replaceChildren(...jobs.map((job, index) => jobRow(job, keys[index])));
  jobs.forEach((job, index) => fillJob(list.children[index], job));
}

/**
 * Shows counts by name in the description list `list`.
 * @param {HTMLElement} list
 * @param {Record<string, number>} counts
 */
export function drawCounts(list, counts) {
  const names = Object.keys(counts);
  if (!hasKeys(list, names)) list.replaceChildren(...names.map(countRow));
  names.forEach((name, index) => setText(partIn(list.children[index], "dd"), inWords(counts[name], "count")));
}

/**
 * Shows the servers of a fleet in the body of a table.
 * @param {HTMLElement} body
 * @param {Api.Node[]} nodes
 */
export function drawNodes(body, nodes) {
  const keys = nodes.map(({ name }) => name);
  if (!hasKeys(body, keys)) body.replaceChildren(...nodes.map(nodeRow));
  nodes.forEach((node, index) => fillNode(/** @type {HTMLElement} */ (body.children[index]), node));
}

/**
 * @param {HTMLElement} list
 * @param {string[]} keys
 */
function hasKeys(list, keys) {
  const rows = /** @type {HTMLElement[]} */ ([...list.children]);
  return rows.length === keys.length && rows.every((row, index) => row.dataset.key === keys[index]);
}

/**
 * @template {keyof HTMLElementTagNameMap} Name
 * @param {Name} name
 * @param {string} className
 * @param {...(Node | string)} content
 */
function element(name, className, ...content) {
  const made = document.createElement(name);
  made.className = className;
  made.append(...content);
  return made;
}

/**
 * @param {Element} row
 * @param {string} selector
 */
function partIn(row, selector) {
  return /** @type {HTMLElement} */ (row.querySelector(selector));
}

/**
 * @template {HTMLElement} Row
 * @param {Row} row
 * @param {string} key
 */
function keyed(row, key) {
  row.dataset.key = key;
  return row;
}

/** @param {Api.UnfinishedUpload} upload */
function uploadRow({ id, filename }) {
  const bar = element("progress", "");
  bar.max = 100;
  const meter = element("div", "meter", bar);
  nameMeter(meter, `Progress of ${filename}`);
  const name = element("span", "status-upload__name", element("bdi", "", filename));
  return keyed(element("li", "status-upload", name, element("span", "status-upload__share"), meter), id);
}

/**
 * @param {Element} row
 * @param {Api.UnfinishedUpload} upload
 */
function fillUpload(row, { length, received_bytes: received }) {
  const whole = length === null ? "" : ` of ${formatBytes(length)}`;
  setText(partIn(row, ".status-upload__share"), `${formatBytes(received)}${whole}`);
  const meter = partIn(row, ".meter");
  meter.hidden = length === null;
  drawMeter(meter, { received, sent: received, size: length ?? 0 });
}

/**
 * @param {Api.Job} job
 * @param {string} key
 */
function jobRow({ filename, detail }, key) {
  const name = element("span", "status-upload__name", element("bdi", "", filename));
  const row = element("li", "status-upload", name, element("span", "status-upload__share"));
  if (detail) row.append(element("span", "status-upload__detail"));
  return keyed(row, key);
}

/**
 * @param {Element} row
 * @param {Api.Job} job
 */
function fillJob(row, job) {
  setText(partIn(row, ".status-upload__share"), formatJob(job));
  if (job.detail) setText(partIn(row, ".status-upload__detail"), job.detail);
}

/** @param {Api.Node} node */
function nodeRow({ name, is_this: isThis, address, version }) {
  const place = element("small", "", `${address}, version ${version}`);
  const problems = element("small", "status-nodes__problems");
  const title = element("th", "", isThis ? `${name} (this one)` : name, place, problems);
  title.scope = "row";
  return keyed(element("tr", "", title, ...Array.from({ length: 6 }, () => element("td", ""))), name);
}

/**
 * @param {HTMLElement} row
 * @param {Api.Node} node
 */
function fillNode(row, node) {
  row.dataset.state = node.state;
  setText(partIn(row, ".status-nodes__problems"), node.problems.join(", "));
  nodeFigures(node).forEach((figure, index) => setText(row.children[index + 1], figure));
}

/** @param {string} name */
function countRow(name) {
  return keyed(element("div", "", element("dt", "", name), element("dd", "")), name);
}
