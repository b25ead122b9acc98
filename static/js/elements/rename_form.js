/** Renames a video in its row: Enter saves, Escape leaves the name as it is. */

import { copyOfTemplate, partsOf } from "../helpers/template.js";
import { wordsForName } from "../helpers/words.js";
import { splitName } from "../library/file_name.js";

/** Replaces the name with a field; `save(filename)` resolves once the server has the new one. */
export function openRenameForm(row, save) {
  if (row.querySelector("form")) return;
  const { name } = partsOf(row);
  const { stem, extension } = splitName(name.textContent.trim());
  const form = copyOfTemplate("rename-form").querySelector("form");
  const parts = partsOf(form);
  parts.input.value = stem;
  parts.input.setAttribute("aria-label", `New name of ${name.textContent.trim()}`);
  parts.extension.textContent = extension;
  parts.problem.id = `rename-problem-${row.dataset.id}`;
  parts.input.setAttribute("aria-describedby", parts.problem.id);

  const close = () => {
    const hadFocus = form.contains(document.activeElement);
    form.remove();
    name.hidden = false;
    if (hadFocus) name.focus();
  };
  const cancel = () => parts.cancel.disabled || close();
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    submit(parts, { stem, extension, save, close });
  });
  form.addEventListener("keydown", (event) => event.key === "Escape" && !event.isComposing && cancel());
  parts.cancel.addEventListener("click", cancel);
  parts.input.addEventListener("input", () => complain(parts, ""));

  name.hidden = true;
  name.after(form);
  parts.input.select();
}

async function submit(parts, { stem, extension, save, close }) {
  const entered = parts.input.value.trim();
  if (entered === "") {
    complain(parts, "Enter a name.");
    return;
  }
  if (entered === stem) {
    close();
    return;
  }
  setSaving(parts, true);
  try {
    await save(entered + extension);
    close();
  } catch (error) {
    setSaving(parts, false);
    complain(parts, wordsForName(error));
  }
}

/** What has been sent cannot be taken back: until the server answers, nothing can be cancelled. */
function setSaving({ input, save, cancel }, isSaving) {
  // A button that is disabled loses the focus.
  if (document.activeElement === save) input.focus();
  input.readOnly = save.disabled = cancel.disabled = isSaving;
  input.form.setAttribute("aria-busy", String(isSaving));
}

function complain({ input, problem }, text) {
  problem.textContent = text;
  problem.hidden = text === "";
  input.setAttribute("aria-invalid", String(text !== ""));
  if (!text) return;
  if (document.activeElement === document.body || input.form.contains(document.activeElement)) input.focus();
  problem.scrollIntoView({ block: "nearest" });
}
