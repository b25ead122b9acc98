/** Puts the page of an upload link together. */

import "./elements/copy_text.js";
import "./elements/sent_files.js";
import { localiseDates } from "./helpers/template.js";
import { startUploads } from "./upload_page.js";
import { SentFiles } from "./uploads/sent_files.js";

const { queue } = startUploads();
const sent = new SentFiles(queue);
for (const element of document.querySelectorAll("sent-files, link-limits")) element.connect({ sent });
localiseDates(document);
