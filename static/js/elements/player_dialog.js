/** <player-dialog>: plays a video over the page, so that uploads continue behind it. */

import { copyOfTemplate, partsOf } from "../helpers/template.js";
import "./video_player.js";

export class PlayerDialog extends HTMLElement {
  /** Opens the player for a video of the library, or for an upload that is still arriving. */
  open(video) {
    const dialog = this.querySelector("dialog");
    const parts = partsOf(dialog);
    parts.title.textContent = video.filename;
    parts.page.href = `/watch/${video.id}`;
    parts.download.href = `${video.media}?download`;
    parts.download.hidden = Boolean(video.isArriving);
    const player = document.createElement("video-player");
    player.append(copyOfTemplate("video-player"));
    parts.stage.replaceChildren(player);
    player.addEventListener("arrived", () => (parts.download.hidden = false), { once: true });
    dialog.addEventListener("close", () => player.remove(), { once: true });
    dialog.showModal();
    player.show(video, { autoplay: true });
  }
}

customElements.define("player-dialog", PlayerDialog);
