// JSON as a tree that opens, or as its text; both make elements only for what is seen.

import { element, replace } from "../elements.js";
import { text } from "../text.js";

/** Members of a long list are shown in ranges of so many. */
const RANGE = 100;
const LINE_PIXELS = 20;
const LINES_AROUND = 20;

/** A tree of `value`. */
export function jsonTree(value) {
  return element("div", { class: "json mono" }, node("", value, true));
}

function node(name, value, isOpen = false) {
  if (value === null || typeof value !== "object") return leaf(name, value);
  const entries = Object.entries(value);
  const isList = Array.isArray(value);
  const size = isList ? `[${entries.length}]` : `{${entries.length}}`;
  return branch(label(name), size, isOpen, () => (entries.length > RANGE ? ranges(entries) : children(entries)));
}

const children = (entries) => entries.map(([key, inner]) => node(key, inner));

function ranges(entries) {
  const found = [];
  for (let from = 0; from < entries.length; from += RANGE) {
    const here = entries.slice(from, from + RANGE);
    found.push(branch(null, `[${from} – ${from + here.length - 1}]`, false, () => children(here)));
  }
  return found;
}

function branch(name, size, isOpen, content) {
  const inside = element("div", { class: "json-inside" });
  const made = element("details", { open: isOpen }, element("summary", {}, name, element("span", { class: "soft" }, size)),
    inside);
  const fillOnce = () => made.open && inside.childElementCount === 0 && inside.append(...content());
  made.addEventListener("toggle", fillOnce);
  fillOnce();
  return made;
}

const label = (name) => (name === "" ? null : element("span", { class: "json-name" }, `${name}: `));

function leaf(name, value) {
  const kind = value === null ? "null" : typeof value;
  return element("div", { class: "json-leaf" }, label(name),
    element("span", { dataset: { kind } }, JSON.stringify(value)));
}

/** The lines of a long text, of which only those in view are elements. */
export function longText(content) {
  const lines = content.split("\n");
  const shown = element("pre", { class: "long-lines" });
  const inside = element("div", { class: "long-height" }, shown);
  inside.style.height = `${lines.length * LINE_PIXELS}px`;
  const view = element("div", { class: "long", tabindex: "0", role: "region", "aria-label": text.playground.jsonText }, inside);
  let first = -1;

  function draw() {
    const from = Math.max(0, Math.floor(view.scrollTop / LINE_PIXELS) - LINES_AROUND);
    if (from === first) return;
    first = from;
    const count = Math.ceil((view.clientHeight || 600) / LINE_PIXELS) + 2 * LINES_AROUND;
    shown.style.transform = `translateY(${from * LINE_PIXELS}px)`;
    replace(shown, lines.slice(from, from + count).join("\n"));
  }

  view.addEventListener("scroll", draw, { passive: true });
  draw();
  return view;
}
