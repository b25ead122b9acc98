/** The status page: shows the figures as they arrive. */

import { formatSpeed } from "./page/format.js";
import { partsOf, setText } from "./page/parts.js";
import { Feed, Rates } from "./status/figures.js";
import { drawCounts, drawJobs, drawNodes, drawUploads } from "./status/lists.js";
import { inWords } from "./words.js";

/** The drawing's own units; the style sheet stretches it. */
const CHART = { width: 600, height: 120 };

const parts = partsOf(document);
const feed = new Feed();
const rates = new Rates();

/** @typedef {{ [name: string]: Figures } | number | null | undefined} Figures */

/**
 * The figure at a path such as "requests.now".
 * @param {object} figures
 * @param {string} path
 */
function lookUp(figures, path) {
  let found = /** @type {Figures} */ (figures);
  for (const name of path.split(".")) found = typeof found === "object" ? found?.[name] : undefined;
  return typeof found === "number" ? found : null;
}

/** @param {object} figures */
function drawFigures(figures) {
  const places = /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-value]"));
  for (const place of places) {
    setText(place, inWords(lookUp(figures, place.dataset.value ?? ""), place.dataset.as ?? "count"));
  }
}

function drawChart() {
  parts.receivedLine.setAttribute("points", rates.points("received", CHART));
  parts.sentLine.setAttribute("points", rates.points("sent", CHART));
  setText(parts.peak, formatSpeed(Math.round(rates.peak)));
}

/** @param {Api.Status} figures */
function draw(figures) {
  const { received_bytes: received, sent_bytes: sent } = figures.transfers;
  rates.add(performance.now(), { received, sent });
  drawFigures({ ...figures, rates: rates.now });
  drawUploads(parts.uploads, figures.uploads.newest);
  parts.noUploads.hidden = figures.uploads.newest.length > 0;
  drawJobs(parts.jobs, figures.jobs.next);
  drawJobs(parts.failures, figures.jobs.failures);
  parts.failedJobs.hidden = figures.jobs.failures.length === 0;
  drawNodes(parts.nodes, figures.nodes);
  parts.fleet.hidden = figures.nodes.length === 0;
  drawCounts(parts.answers, figures.requests.by_status);
  drawCounts(parts.errors, figures.errors);
  parts.noErrors.hidden = Object.keys(figures.errors).length > 0;
  drawChart();
}

const STATES = {
  live: "Live, every second.",
  paused: "Paused.",
  lost: "The server does not answer. These are its last figures.",
};

feed.addEventListener("figures", ({ detail }) => draw(detail));
feed.addEventListener("state", () => {
  setText(parts.state, STATES[feed.state]);
  parts.state.dataset.state = feed.state;
});
parts.pause.addEventListener("click", () => {
  feed.isPaused = !feed.isPaused;
  parts.pause.setAttribute("aria-pressed", String(feed.isPaused));
});
feed.start();
