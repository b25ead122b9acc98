/** The page of one video needs no script except to show its date in the local time zone. */

import { localiseDates } from "./helpers/template.js";

localiseDates(document);
