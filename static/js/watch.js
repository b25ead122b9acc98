/** The page of one video, perhaps one that is still being uploaded, or a link user's: the player, and local dates. */

import "./elements/video_player.js";
import { find, localiseDates, partsOf } from "./page/parts.js";

localiseDates(document);
const player = find("video-player");
const { id = "", filename = "", media = null, inline, stateUrl = null } = player.dataset;
const isArriving = "arriving" in player.dataset;
player.addEventListener("arrived", () => {
  const header = /** @type {HTMLElement} */ (document.querySelector(".watch__header"));
  const { arriving, download } = partsOf(header);
  arriving.remove();
  download.hidden = false;
});
player.show({ id, filename, media, inline: inline === "true", isArriving, stateUrl });
