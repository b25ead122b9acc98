/** The controls around a <video>, and the menus in them. */

import { copyOfTemplate, partsOf } from "../helpers/template.js";
import { loadMediaChrome } from "./media_chrome.js";
import { qualitiesOf } from "./playback.js";
import { audioNames } from "./words.js";

/** Puts controls around a <video>; resolves to their parts. */
export async function addControls(video) {
  await loadMediaChrome();
  const fragment = copyOfTemplate("player-controls");
  const parts = partsOf(fragment);
  const controller = fragment.querySelector("media-controller");
  video.before(controller);
  video.slot = "media";
  video.controls = false;
  controller.prepend(video);
  return parts;
}

/** Fills the menus; `wanted` is what has been chosen. */
export function drawMenus(parts, { playback }, wanted) {
  const qualities = qualitiesOf(playback);
  setChoices(parts.quality, qualities, wanted.quality);
  parts.qualityItem.hidden = qualities.length < 2;
  const sounds = audioNames(playback).map((name, index) => ({ value: String(index), name }));
  setChoices(parts.audio, sounds, String(wanted.audio));
  parts.audioItem.hidden = sounds.length < 2;
  const chapters = playback.chapters.map(({ start, title }) => ({ value: String(start), name: title }));
  setChoices(parts.chapters, chapters, null);
  parts.chaptersItem.hidden = chapters.length === 0;
  parts.subtitlesItem.hidden = parts.captions.hidden = playback.subtitles.length === 0;
}

/** Shows `choices` in a menu, `{ value, name, hint, isDisabled }`, and keeps the entries that are there: one has the focus. */
function setChoices(menu, choices, chosen) {
  const before = new Map([...menu.querySelectorAll("media-chrome-menu-item")].map((item) => [item.value, item]));
  const items = choices.map((choice) => before.get(choice.value) ?? newItem(choice));
  for (const item of before.values()) if (!items.includes(item)) item.remove();
  if (items.some((item) => !item.isConnected)) menu.append(...items);
  items.forEach((item, index) => writeChoice(item, choices[index], chosen));
}

function newItem({ value }) {
  const item = document.createElement("media-chrome-menu-item");
  item.type = "radio";
  item.value = value;
  const [name, hint] = ["menu-choice__name", "menu-choice__hint"].map((className) => {
    return Object.assign(document.createElement("span"), { className });
  });
  item.append(name, hint);
  return item;
}

function writeChoice(item, { value, name, hint = "", isDisabled = false }, chosen) {
  const [nameElement, hintElement] = item.children;
  nameElement.textContent = name;
  hintElement.textContent = hint;
  item.dataset.description = name; // What the menu above shows of the chosen entry.
  item.toggleAttribute("disabled", isDisabled);
  item.checked = value === chosen;
}
