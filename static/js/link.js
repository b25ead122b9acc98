/** Puts the page of an upload link together. */

import "./elements/copy_text.js";
import { startUploads } from "./upload_page.js";

startUploads();
