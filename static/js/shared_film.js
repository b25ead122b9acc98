/** A guest's page of one video. */

import "./elements/video_player.js";

const player = document.querySelector("video-player");
const { id, filename, inline, stateUrl } = player.dataset;
player.show({ id, filename, media: null, inline: inline === "true", stateUrl });
