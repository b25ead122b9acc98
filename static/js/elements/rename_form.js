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

  const close = () => {
    form.remove();
    name.hidden = false;
    name.focus();
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    submit(parts, { stem, extension, save, close });
  });
  form.addEventListener("keydown", (event) => event.key === "Escape" && !event.isComposing && close());
  parts.cancel.addEventListener("click", close);
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
  parts.input.readOnly = parts.save.disabled = true;
  try {
    await save(entered + extension);
    close();
  } catch (error) {
    complain(parts, wordsForName(error));
  } finally {
    parts.input.readOnly = parts.save.disabled = false;
  }
}

function complain({ input, problem }, text) {
  problem.textContent = text;
  problem.hidden = text === "";
  input.toggleAttribute("aria-invalid", text !== "");
  if (text) input.focus();
}
