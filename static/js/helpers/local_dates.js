/** The server writes dates in UTC; people read them in their own time zone. */

import { formatDate } from "./format.js";

/** Rewrites every <time datetime> inside `root`. */
export function localiseDates(root) {
  for (const time of root.querySelectorAll("time[datetime]")) time.textContent = formatDate(time.dateTime);
}
