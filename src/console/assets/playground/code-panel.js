// The request in other languages, beside what the page sends.

import { copyButton } from "../controls.js";
import { element, replace } from "../elements.js";
import { text } from "../text.js";
import { LANGUAGES, lines } from "./code.js";

/** @param {() => import("./code.js").Sent} sent  @returns {{ element: HTMLElement, refresh: () => void }} */
export function codePanel(sent) {
  let language = LANGUAGES[0];
  const code = element("code", {});
  const pre = element("pre", { tabindex: "0", role: "region", "aria-label": text.playground.code.title }, code);
  const buttons = LANGUAGES.map((name) => element("button", { type: "button", onclick: () => {
    language = name;
    refresh();
  } }, name));

  function refresh() {
    buttons.forEach((button, index) => button.setAttribute("aria-pressed", String(LANGUAGES[index] === language)));
    replace(code, lines(language, sent()));
  }

  refresh();
  const panel = element("section", { class: "card code-panel" },
    element("div", { class: "card-head" }, element("h2", {}, text.playground.code.title),
      element("div", { class: "segments", role: "group", "aria-label": text.playground.code.language }, buttons),
      copyButton(() => code.textContent)),
    element("div", { class: "card-body stack" }, pre, element("p", { class: "fine" }, text.playground.code.hint)));
  return { element: panel, refresh };
}
