/** What pages with forms need of scripts; without them, they work as well. */

import "./elements/copy_text.js";
import { localiseDates } from "./helpers/template.js";

localiseDates(document);
