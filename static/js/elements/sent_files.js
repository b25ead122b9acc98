/** <sent-files>: the receipt of a link's visitor, and <link-limits>: what the link still takes. */

import { countOf, formatBytes, formatDate } from "../helpers/format.js";
import { partsOf, setText } from "../helpers/template.js";
import { receipt } from "../uploads/sent_files.js";

export class SentFilesPanel extends HTMLElement {
  /** `sent` is shown after each change; until then there is what the server has drawn. */
  connect({ sent }) {
    sent.addEventListener("change", () => this.#draw(sent.sent));
  }

  #draw(sent) {
    const { panel, total, list } = partsOf(this);
    panel.hidden = sent.count === 0;
    setText(total, sent.count ? receipt(sent, formatBytes(sent.bytes)) : "");
    list.replaceChildren(...sent.files.map(rowOf));
  }
}

export class LinkLimits extends HTMLElement {
  /** `sent` tells what the link still takes. */
  connect({ sent }) {
    sent.addEventListener("change", () => this.#draw(sent.sent.link));
  }

  #draw(link) {
    const { filesLeft, bytesLeft } = partsOf(this);
    if (filesLeft && link?.files_left !== null) setText(filesLeft, countOf(link.files_left, "more file"));
    if (bytesLeft && link?.bytes_left !== null) setText(bytesLeft, `${formatBytes(link.bytes_left)} more in all`);
  }
}

function rowOf({ filename, length, arrived }) {
  const row = document.createElement("li");
  const [title, text, time] = ["p", "p", "time"].map((name) => document.createElement(name));
  row.className = "row";
  Object.assign(title, { className: "row__title", textContent: filename });
  Object.assign(time, { dateTime: arrived, textContent: formatDate(arrived) });
  text.className = "row__text";
  text.append(`${formatBytes(length)} · `, time);
  row.append(title, text);
  return row;
}

customElements.define("sent-files", SentFilesPanel);
customElements.define("link-limits", LinkLimits);
