/** <player-dialog>: plays a video over the page, so that uploads continue behind it. */

import { partsOf } from "../helpers/template.js";

export class PlayerDialog extends HTMLElement {
  /** Opens the player for a video of the library. */
  open({ id, media, name }) {
    const dialog = this.querySelector("dialog");
    const parts = partsOf(dialog);
    parts.title.textContent = name;
    parts.page.href = `/watch/${id}`;
    parts.download.href = `${media}?download`;
    parts.stage.replaceChildren(videoElement(media, name));
    dialog.addEventListener("close", () => stop(parts.stage), { once: true });
    dialog.showModal();
  }
}

function videoElement(media, name) {
  const video = document.createElement("video");
  Object.assign(video, { src: media, controls: true, preload: "metadata", autoplay: true, playsInline: true });
  video.setAttribute("aria-label", name);
  return video;
}

/** A removed video would keep loading unless its source is removed. */
function stop(stage) {
  const video = stage.querySelector("video");
  video.removeAttribute("src");
  video.load();
  stage.replaceChildren();
}

customElements.define("player-dialog", PlayerDialog);
