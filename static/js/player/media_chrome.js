/** Loads the player's controls, custom elements of media-chrome. */

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
  const { nonce } = document.querySelector('meta[property="csp-nonce"]');
  for (const name of ELEMENTS) {
    const type = customElements.get(name);
    const withoutNonce = type.getTemplateHTML;
    type.getTemplateHTML = function (...settings) {
      return withoutNonce.apply(this, settings).replaceAll(/<style(?! nonce)/g, `<style nonce="${nonce}"`);
    };
  }
}
