/** Puts the page of an upload link together. */

import { SentFiles } from "./elements/sent_files.js";
import "./forms.js";
import { startUploads } from "./upload_page.js";

const { queue } = startUploads();
const sent = new SentFiles(queue);
for (const element of document.querySelectorAll("sent-files, link-limits")) element.connect({ sent });
