// The view in place of everything else while nobody is signed in.

import { signIn } from "./api.js";
import { themeSwitch } from "./controls.js";
import { element, replace } from "./elements.js";
import { text } from "./text.js";

const LOOPBACK = /^(localhost|.*\.localhost|127(\.\d+){3}|\[::1\])$/;

/** @param {{ hasEnded: boolean }} state whether a session was there before */
export function signInView({ hasEnded }) {
  const words = text.signIn;
  const problem = element("p", { class: "problem", role: "alert", id: "sign-in-problem" });
  if (hasEnded) replace(problem, words.ended);
  const input = element("input", {
    id: "admin-key", name: "key", type: "password", autocomplete: "current-password", required: true,
    spellcheck: "false", autocapitalize: "none", "aria-describedby": "sign-in-problem", placeholder: "org_…",
  });
  const reveal = element("button", { type: "button", class: "plain", "aria-pressed": "false", onclick: () => {
    const isShown = input.type === "text";
    input.type = isShown ? "password" : "text";
    reveal.setAttribute("aria-pressed", String(!isShown));
    replace(reveal, isShown ? words.show : words.hide);
  } }, words.show);
  const submit = element("button", { class: "primary" }, words.submit);

  async function enter(event) {
    event.preventDefault();
    submit.disabled = true;
    replace(submit, words.busy);
    try {
      await signIn(input.value.trim());
    } catch (error) {
      replace(problem, error.status === 401 ? words.wrong
        : error.status === 429 ? text.refused(error.retryAfter) : error.message);
      input.setAttribute("aria-invalid", "true");
      input.focus();
      input.select();
    } finally {
      submit.disabled = false;
      replace(submit, words.submit);
    }
  }

  const isOpen = location.protocol === "http:" && !LOOPBACK.test(location.hostname);
  queueMicrotask(() => input.focus());
  return element("main", { class: "sign-in", id: "content" },
    element("div", { class: "card" },
      element("div", { class: "brand" },
        element("img", { src: new URL("icon.svg", import.meta.url).pathname, alt: "", width: 40, height: 40 }),
        element("span", {}, text.name)),
      element("h1", {}, words.title),
      isOpen && element("p", { class: "notice warning" }, words.plain),
      element("form", { onsubmit: enter },
        element("div", { class: "field" },
          element("div", { class: "field-head" }, element("label", { for: "admin-key" }, words.key), reveal),
          input),
        problem, submit),
      element("div", { class: "hint" }, element("p", {}, words.help), element("code", {}, words.command))),
    themeSwitch());
}
