/** The page of one video: the player, and the date in the local time zone. */

import "./elements/video_player.js";
import { localiseDates } from "./helpers/template.js";

localiseDates(document);
const player = document.querySelector("video-player");
const { id, filename, media, inline } = player.dataset;
player.show({ id, filename, media, inline: inline === "true" });
