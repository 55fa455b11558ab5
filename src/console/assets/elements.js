// Makes elements. Text is always text: nothing here, or anywhere in the console, turns text into markup.

const SVG = "http://www.w3.org/2000/svg";

/**
 * An element with properties and children.
 *
 * @param {string} tag
 * @param {Record<string, unknown>} [properties] `onclick` and the like are listeners; `dataset` is an object; `true`
 *   is an attribute without a value; `false`, `null` and `undefined` leave the attribute out; anything else is the
 *   attribute's text.
 * @param {...(Node | string | number | null | undefined | false | Array)} children
 */
export function element(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/** As `element`, of SVG. */
export function drawing(tag, properties = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

function fill(made, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "dataset") Object.assign(made.dataset, value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...present(children));
  return made;
}

/** Puts `children` in the place of all that `parent` has. */
export function replace(parent, ...children) {
  parent.replaceChildren(...present(children));
  return parent;
}

function present(children) {
  const kept = children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
  return kept.map((child) => (child instanceof Node ? child : String(child)));
}

// Strokes on a field of 24 by 24.
const ICONS = {
  playground: "M4 10v4M8 7v10M12 4v16M16 8v8M20 10.500v3",
  live: "M12 3a3 3 0 0 0-3 3v5a3 3 0 0 0 6 0V6a3 3 0 0 0-3-3zM6 11a6 6 0 0 0 12 0M12 17v4",
  agent: "M4 5h16v11H10l-5 4v-4H4zM8.500 10.500h.01M12 10.500h.01M15.500 10.500h.01",
  keys: "M8 11a4 4 0 1 0 0 .01M11 12.500l9 0M17 12.500v3.500M20 12.500v2.500",
  jobs: "M5 6h14M5 12h14M5 18h9",
  operations: "M4 19h16M6 15l4-5 3 3 5-7",
  check: "M5 12.500l4.500 4.500L19 7.500",
  copy: "M9 9h10v11H9zM5 15V4h10",
  cross: "M6 6l12 12M18 6L6 18",
  download: "M12 4v11M7 10.500l5 5 5-5M5 20h14",
  leave: "M10 4H5v16h5M14 8l4 4-4 4M18 12H9",
  moon: "M19 14.500A7.500 7.500 0 0 1 9.500 5a7.500 7.500 0 1 0 9.500 9.500z",
  pause: "M8 5v14M16 5v14",
  play: "M7 4.500v15l12-7.500z",
  plus: "M12 5v14M5 12h14",
  record: "M12 7a5 5 0 1 0 0 10 5 5 0 0 0 0-10z",
  refresh: "M19 12a7 7 0 1 1-2-5M17 3v4h-4",
  stop: "M7 7h10v10H7z",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2.500v2M12 19.500v2M2.500 12h2M19.500 12h2M5.500 5.500l1.400 1.400M17 17l1.400 1.400M18.500 5.500L17 7M7 17l-1.400 1.400",
  upload: "M12 16V5M7 9.500l5-5 5 5M5 20h14",
  warning: "M12 4l9 16H3zM12 10v4M12 17h.01",
};

/** An icon beside a text that says the same: screen readers pass over it. */
export function icon(name) {
  const properties = { viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true", focusable: "false" };
  return drawing("svg", properties, drawing("path", { d: ICONS[name] ?? "" }));
}
