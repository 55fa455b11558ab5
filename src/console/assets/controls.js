// Controls that several pages use: notes that pass, the switch of colours, copying, cells of tables, dialogs.

import { element, icon, replace } from "./elements.js";
import { text } from "./text.js";

const NOTE_MS = 6000;
const THEME = "verbatim-theme";

let notes = null;

/** A note that goes by itself. `kind`: "good" or "bad". */
export function notify(message, kind = "good") {
  notes ??= element("div", { class: "notes", role: "status", "aria-live": "polite" });
  // Replacing the body removes it.
  if (!notes.isConnected) document.body.append(notes);
  const note = element("div", { class: "note", dataset: { kind } },
    icon(kind === "bad" ? "warning" : "check"), element("span", {}, message),
    element("button", { type: "button", class: "plain", "aria-label": text.close, onclick: () => note.remove() },
      icon("cross")));
  notes.append(note);
  setTimeout(() => note.remove(), kind === "bad" ? 2 * NOTE_MS : NOTE_MS);
}

/** The message of a failure for people, with the id that the log has. */
export function failure(error) {
  const wait = error.retryAfter > 0 ? ` ${text.refused(error.retryAfter)}` : "";
  return element("div", { class: "notice bad", role: "alert" }, icon("warning"),
    element("div", {}, element("p", {}, `${error.message ?? text.failed}${wait}`),
      error.requestId && element("p", { class: "fine" }, text.requestId(error.requestId))));
}

function stored() {
  try { return localStorage.getItem(THEME); } catch { return null; }
}

function applied(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
}

applied(stored());

/** A button that switches between light and dark. Without it, the system's choice counts. */
export function themeSwitch() {
  const isDark = () =>
    (document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"))
      === "dark";
  const button = element("button", { type: "button", class: "plain theme", onclick: () => {
    const theme = isDark() ? "light" : "dark";
    applied(theme);
    try { localStorage.setItem(THEME, theme); } catch { /* It then lasts as long as the page. */ }
    draw();
  } });
  function draw() {
    const label = isDark() ? text.theme.toLight : text.theme.toDark;
    button.title = label;
    button.setAttribute("aria-label", label);
    replace(button, icon(isDark() ? "sun" : "moon"));
  }
  draw();
  return button;
}

/** A button that copies what `content` returns. */
export function copyButton(content, label = text.copy) {
  const words = element("span", {}, label);
  return element("button", { type: "button", class: "small", onclick: async () => {
    try {
      await navigator.clipboard.writeText(content());
      replace(words, text.copied);
      setTimeout(() => replace(words, label), 2000);
    } catch {
      notify(text.failed, "bad");
    }
  } }, icon("copy"), words);
}

/** A cell of a table that becomes a list of cards on a phone; there `name` stands before it. */
export function cell(name, properties, ...children) {
  return element("td", { role: "cell", ...properties, dataset: { name } }, element("div", {}, children));
}

/**
 * A modal dialog that is open at once, and removed when it closes. `Escape` closes it.
 *
 * @param {string} title
 * @param {(close: () => void) => Node[]} content
 * @returns {HTMLDialogElement}
 */
export function dialog(title, content) {
  const id = `dialog-${crypto.getRandomValues(new Uint32Array(1))[0]}`;
  const made = element("dialog", { "aria-labelledby": id, onclose: () => made.remove() });
  const close = () => made.close();
  made.append(
    element("div", { class: "dialog-head" }, element("h2", { id }, title),
      element("button", { type: "button", class: "plain", "aria-label": text.close, onclick: close }, icon("cross"))),
    ...content(close));
  document.body.append(made);
  made.showModal();
  return made;
}
