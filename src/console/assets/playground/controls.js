// A control for each parameter of the API, in groups that open and close.

import { element, replace } from "../elements.js";
import { text } from "../text.js";
import { GROUP_NAMES } from "./parameters.js";

const OPEN_AT_FIRST = ["live", "turns", "recognition", "format", "speakers"];
let numbered = 0;

/**
 * @param {import("./parameters.js").Parameter[]} parameters
 * @param {import("./parameters.js").Values} values
 * @param {{ suggestions?: Record<string, string[]>, onchange: () => void }} options `suggestions`: by parameter
 * @returns {{ element: HTMLElement, refresh: () => void }}
 */
export function parameterControls(parameters, values, { suggestions = {}, onchange }) {
  const words = text.parameters;
  const refreshers = [];
  const changed = element("span", { class: "badge", dataset: { kind: "accent" } });
  const reset = element("button", { type: "button", class: "small", onclick: () => {
    values.reset();
    refresh();
    onchange();
  } }, words.reset);

  function refresh() {
    for (const one of refreshers) one();
    changed.hidden = reset.hidden = values.count === 0;
    replace(changed, words.changed(values.count));
  }

  const onedit = () => {
    refresh();
    onchange();
  };
  const groups = GROUP_NAMES.map((name) => {
    const inside = parameters.filter((one) => one.group === name);
    if (inside.length === 0) return null;
    const count = element("span", { class: "badge", dataset: { kind: "accent" } });
    const fields = inside.map((one) => {
      const made = field(one, values, suggestions[one.name] ?? [], onedit);
      refreshers.push(made.refresh);
      return made.element;
    });
    refreshers.push(() => {
      const here = inside.filter((one) => values.has(one.name) && values.preset[one.name] !== values.get(one.name));
      count.hidden = here.length === 0;
      replace(count, here.length);
    });
    return element("details", { class: "parameters-group", open: OPEN_AT_FIRST.includes(name) },
      element("summary", {}, words.groups[name], count), element("div", { class: "parameters-fields" }, fields));
  });
  refresh();
  const head = element("div", { class: "row parameters-head" }, changed, reset);
  return { element: element("div", { class: "parameters" }, head, groups), refresh };
}

function field(parameter, values, suggestions, onedit) {
  const id = `parameter-${++numbered}`;
  const hint = element("p", { class: "fine", id: `${id}-hint` }, describe(parameter));
  const make = { switch: toggle, choice, number, list, text: line }[parameter.kind];
  const control = make(parameter, values, id, suggestions, onedit);
  const name = element("label", { for: id, class: "mono" }, parameter.name);
  const undo = element("button", { type: "button", class: "plain small", "aria-label": text.parameters.undo(parameter.name),
    onclick: () => {
      values.set(parameter.name, values.preset[parameter.name] ?? "");
      onedit();
      control.focus?.focus();
    } }, text.parameters.undoShort);
  const isSwitch = parameter.kind === "switch";
  const made = element("div", { class: "field" },
    element("div", { class: "field-head" },
      isSwitch ? element("span", { class: "choice" }, control.element, name) : name, undo),
    isSwitch ? null : control.element, hint);
  return {
    element: made,
    refresh: () => {
      control.refresh();
      const isChanged = values.has(parameter.name) && values.preset[parameter.name] !== values.get(parameter.name);
      made.dataset.changed = String(isChanged);
      undo.hidden = !isChanged;
    },
  };
}

/** The server's own words, and the range. */
function describe({ description, bounds }) {
  const range = text.parameters.range(bounds.minimum, bounds.maximum);
  return [description.replaceAll("`", ""), range].filter(Boolean).join(" ");
}

/** What is being typed stays as it is: it may be half a value, and has a cursor. */
const isBeingEdited = (input) => document.activeElement === input;

const common = (id) => ({ id, "aria-describedby": `${id}-hint` });

function toggle({ name }, values, id, _, onedit) {
  const input = element("input", { ...common(id), type: "checkbox", onchange: () => {
    values.set(name, String(input.checked));
    onedit();
  } });
  return { element: input, focus: input, refresh: () => { input.checked = values.get(name) === "true"; } };
}

function choice({ name, choices, usual }, values, id, _, onedit) {
  const option = (value, label) => element("option", { value }, label);
  const none = usual === null ? [option("", text.parameters.notSent)] : [];
  const select = element("select", { ...common(id), onchange: () => {
    values.set(name, select.value);
    onedit();
  } }, none, choices.map((value) => option(value, value)));
  return { element: select, focus: select, refresh: () => { select.value = values.get(name); } };
}

function number({ name, bounds, usual }, values, id, _, onedit) {
  const input = element("input", { ...common(id), type: "number", inputmode: "decimal", min: bounds.minimum,
    max: bounds.maximum, step: bounds.step, placeholder: usual ?? text.parameters.notSent, oninput: () => {
      const isGood = input.checkValidity();
      input.setAttribute("aria-invalid", String(!isGood));
      values.set(name, input.value);
      onedit();
    } });
  const refresh = () => {
    if (isBeingEdited(input)) return;
    input.value = values.has(name) ? values.get(name) : "";
    input.setAttribute("aria-invalid", String(!input.checkValidity()));
  };
  return { element: input, focus: input, refresh };
}

function line({ name, bounds, usual }, values, id, suggestions, onedit) {
  const known = suggestions.length > 0
    ? element("datalist", { id: `${id}-known` }, suggestions.map((value) => element("option", { value })))
    : null;
  const input = element("input", { ...common(id), type: "text", maxlength: bounds.characters, spellcheck: "false",
    list: known ? known.id : null, placeholder: usual ?? text.parameters.notSent, oninput: () => {
      values.set(name, input.value.trim());
      onedit();
    } });
  const refresh = () => {
    if (!isBeingEdited(input)) input.value = values.has(name) ? values.get(name) : "";
  };
  return { element: element("span", {}, input, known), focus: input, refresh };
}

/** A value on each line. */
function list({ name }, values, id, _, onedit) {
  const area = element("textarea", { ...common(id), rows: 2, spellcheck: "false",
    placeholder: text.parameters.onEachLine, oninput: () => {
      values.set(name, area.value.split("\n").map((value) => value.trim()).filter(Boolean));
      onedit();
    } });
  const refresh = () => {
    if (!isBeingEdited(area)) area.value = values.has(name) ? values.get(name).join("\n") : "";
  };
  return { element: area, focus: area, refresh };
}
