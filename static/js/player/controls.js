/** The controls around a <video>, the menus in them, and its text tracks: subtitles, chapters, pictures while seeking. */

import { copyOfTemplate, partsOf } from "../page/parts.js";
import { audioNames, languageName } from "../words.js";
import { qualitiesOf } from "./playback.js";

/**
 * @import { MediaChromeMenu, MediaChromeMenuItem } from "media-chrome/menu"
 * @import { Choice, Wanted } from "./playback.js"
 *
 * The class of an element of media-chrome.
 * @typedef {{ getTemplateHTML: (...settings: unknown[]) => string }} TemplatedElement
 *
 * @typedef {Record<"quality" | "audio" | "chapters", MediaChromeMenu>} Menus
 * @typedef {Record<"qualityItem" | "audioItem" | "chaptersItem" | "subtitlesItem" | "captions" | "play", HTMLElement>} Items
 * @typedef {Menus & Items} Controls
 */

/**
 * Puts controls around a <video>; resolves to their parts.
 * @param {HTMLVideoElement} video
 * @returns {Promise<Controls>}
 */
export async function addControls(video) {
  await loadMediaChrome();
  const fragment = copyOfTemplate("player-controls");
  const parts = /** @type {Controls} */ (partsOf(fragment));
  const controller = /** @type {HTMLElement} */ (fragment.querySelector("media-controller"));
  video.before(controller);
  video.slot = "media";
  video.controls = false;
  controller.prepend(video);
  return parts;
}

/**
 * Fills the menus; `wanted` is what has been chosen.
 * @param {Controls} parts
 * @param {{ playback: Api.Playback }} video
 * @param {Wanted} wanted
 */
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

/**
 * Shows `choices` in a menu, `{ value, name, hint, isDisabled }`, and keeps the entries that are there: one has the focus.
 * @param {HTMLElement} menu
 * @param {Choice[]} choices
 * @param {string | null} chosen
 */
function setChoices(menu, choices, chosen) {
  const present = /** @type {NodeListOf<MediaChromeMenuItem>} */ (menu.querySelectorAll("media-chrome-menu-item"));
  const before = new Map([...present].map((item) => [item.value, item]));
  const items = choices.map((choice) => before.get(choice.value) ?? newItem(choice));
  for (const item of before.values()) if (!items.includes(item)) item.remove();
  if (items.some((item) => !item.isConnected)) menu.append(...items);
  items.forEach((item, index) => writeChoice(item, choices[index], chosen));
}

/** @param {Choice} choice */
function newItem({ value }) {
  const item = /** @type {MediaChromeMenuItem} */ (document.createElement("media-chrome-menu-item"));
  item.type = "radio";
  item.value = value;
  const [name, hint] = ["menu-choice__name", "menu-choice__hint"].map((className) => {
    return Object.assign(document.createElement("span"), { className });
  });
  item.append(name, hint);
  return item;
}

/**
 * @param {MediaChromeMenuItem} item
 * @param {Choice} choice
 * @param {string | null} chosen
 */
function writeChoice(item, { value, name, hint = "", isDisabled = false }, chosen) {
  const [nameElement, hintElement] = item.children;
  nameElement.textContent = name;
  hintElement.textContent = hint;
  item.dataset.description = name; // What the menu above shows of the chosen entry.
  item.toggleAttribute("disabled", isDisabled);
  item.checked = value === chosen;
}

// ---- the elements of media-chrome, loaded when they are first needed ---------------------------------------------

const MEDIA_CHROME = "../../vendor/media-chrome/all.js";

/** Elements with a shadow root of their own; those at the end are made by others of them. */
const ELEMENTS = [
  "media-controller",
  "media-control-bar",
  "media-loading-indicator",
  "media-play-button",
  "media-mute-button",
  "media-volume-range",
  "media-time-display",
  "media-time-range",
  "media-captions-button",
  "media-captions-menu",
  "media-playback-rate-menu",
  "media-settings-menu",
  "media-settings-menu-item",
  "media-settings-menu-button",
  "media-chrome-menu",
  "media-chrome-menu-item",
  "media-pip-button",
  "media-fullscreen-button",
  "media-gesture-receiver",
  "media-keyboard-shortcuts-dialog",
  "media-preview-chapter-display",
  "media-preview-thumbnail",
  "media-preview-time-display",
  "media-tooltip",
];

/** @type {Promise<void> | null} */
let loading = null;

/** Resolves once the elements can be used; rejects if they cannot be loaded. */
export function loadMediaChrome() {
  loading ??= import(MEDIA_CHROME).then(allowStyles);
  return loading;
}

/**
 * The elements bring a <style> in their shadow roots, which the page's policy applies only with its nonce. None of them
 * may be in the page before this.
 */
function allowStyles() {
  const { nonce } = /** @type {HTMLMetaElement} */ (document.querySelector('meta[property="csp-nonce"]'));
  for (const name of ELEMENTS) {
    const type = /** @type {TemplatedElement} */ (/** @type {unknown} */ (customElements.get(name)));
    const withoutNonce = type.getTemplateHTML;
    type.getTemplateHTML = function (...settings) {
      return withoutNonce.apply(this, settings).replaceAll(/<style(?! nonce)/g, `<style nonce="${nonce}"`);
    };
  }
}

// ---- text tracks -------------------------------------------------------------------------------------------------

/** Counted from the bottom. */
const LINE_ABOVE_CONTROLS = -4;

/**
 * Adds what `playback` has and `video` has not yet; more may come while the video is being processed.
 * @param {HTMLVideoElement} video
 * @param {Api.Playback} playback
 */
export function addTextTracks(video, playback) {
  const { subtitles = [], thumbnails } = playback;
  subtitles.forEach(({ language, title, url }, index) => {
    const label = title || languageName(language) || `Subtitles ${index + 1}`;
    addTrack(video, { kind: "subtitles", src: url, srclang: language ?? "und", label });
  });
  // The controls know the pictures by this label. A track is only loaded when it is the default of its kind.
  if (thumbnails) addTrack(video, { kind: "metadata", src: thumbnails, label: "thumbnails", default: true });
  addChapters(video, playback);
}

/**
 * @param {HTMLVideoElement} video
 * @param {{ kind: string, src: string, srclang?: string, label: string, default?: boolean }} attributes
 */
function addTrack(video, attributes) {
  const isThere = [...video.querySelectorAll("track")].some((track) => track.getAttribute("src") === attributes.src);
  if (isThere) return;
  const element = Object.assign(document.createElement("track"), attributes);
  if (attributes.kind === "subtitles") element.addEventListener("load", () => raise(element.track.cues));
  video.append(element);
}

/**
 * Cues without a place of their own would be under the controls.
 * @param {TextTrackCueList | null} cues
 */
function raise(cues) {
  for (const cue of /** @type {Iterable<VTTCue>} */ (cues ?? [])) {
    if (cue.line === "auto") cue.line = LINE_ABOVE_CONTROLS;
  }
}

/**
 * @param {HTMLVideoElement} video
 * @param {Api.Playback} playback
 */
function addChapters(video, { chapters = [], duration }) {
  const isThere = [...video.textTracks].some(({ kind }) => kind === "chapters");
  if (isThere || chapters.length === 0) return;
  const track = video.addTextTrack("chapters", "Chapters");
  track.mode = "hidden";
  chapters.forEach(({ start, title }, index) => {
    const end = chapters[index + 1]?.start ?? duration;
    if (end > start) track.addCue(new VTTCue(start, end, escaped(title)));
  });
}

/**
 * A cue's text is markup.
 * @param {string} text
 */
function escaped(text) {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
}
