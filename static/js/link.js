/** Puts the page of an upload link together. */

import { SentFiles } from "./elements/sent_files.js";
import "./forms.js";
import { find } from "./page/parts.js";
import { startUploads } from "./upload_page.js";

const { queue } = startUploads();
const sent = new SentFiles(queue);
find("sent-files").connect({ sent });
find("link-limits").connect({ sent });
