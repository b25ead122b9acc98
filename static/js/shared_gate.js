/** Opens a link that asks for nothing: programs that only look at it run no scripts, and use up no view. */

const form = /** @type {HTMLFormElement} */ (document.querySelector("form[data-part=visit]"));
const mark = `opened ${location.pathname}`;
// A browser that keeps no cookies would otherwise press the button for ever.
if (navigator.cookieEnabled && !sessionStorage.getItem(mark)) {
  sessionStorage.setItem(mark, "yes");
  form.submit();
}
