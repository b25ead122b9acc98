/** The picture of a file that has only sound. */

const WIDTH = 1200;
const HEIGHT = 300;
/** Shares of the height: the controls are below. */
const MIDDLE = 0.4;
const HIGHEST = 0.7;
const COLOUR = "#6fd3c6";
const BAR = 4;
const GAP = 2;
/** Silence is a line. */
const LOWEST = 2;

/**
 * Draws the loudness of `peaks`, each 0 to 1, as bars; resolves to the URL of the picture.
 * @param {number[]} peaks
 */
export async function drawWaveform(peaks) {
  const canvas = document.createElement("canvas");
  Object.assign(canvas, { width: WIDTH, height: HEIGHT });
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.fillStyle = COLOUR;
  barsOf(peaks, Math.floor(WIDTH / (BAR + GAP))).forEach((peak, index) => {
    const height = Math.max(LOWEST, peak * HEIGHT * HIGHEST);
    context.fillRect(index * (BAR + GAP), HEIGHT * MIDDLE - height / 2, BAR, height);
  });
  /** @type {Blob | null} */
  const image = await new Promise((resolve) => canvas.toBlob(resolve));
  return image ? URL.createObjectURL(image) : "";
}

/**
 * As many bars as fit, each as high as the loudest of its peaks.
 * @param {number[]} peaks
 * @param {number} most
 */
export function barsOf(peaks, most) {
  const count = Math.min(most, peaks.length);
  return Array.from({ length: count }, (_, index) => {
    const [start, end] = [index, index + 1].map((place) => Math.floor((place * peaks.length) / count));
    return Math.max(...peaks.slice(start, end));
  });
}
