/** The page of one video works by itself; only its date is put into the person's own time zone. */

import { localiseDates } from "./helpers/template.js";

localiseDates(document);
