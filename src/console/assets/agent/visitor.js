// The visitor's form: a page of an integrator's website. Its backend tells the agent what happens on it, which fields are
// filled in but not with what, and the agent's side may fill fields too.

import { element, replace } from "../elements.js";
import { text } from "../text.js";
import * as service from "../voice/service.js";

const words = text.agent.visitor;
const PAGE = "/forms/sign-up";
const FORM = "patient_sign_up";
// Events that follow each other so soon are sent as one.
const GATHER_MS = 300;
// Names of the fields by section, as the agent hears of them.
const SECTIONS = { you: ["full_name", "email"], address: ["street", "city"], insurance: ["insurer", "member_number"] };

export class VisitorForm {
  element;

  #talk = null;
  #timer = 0;
  #step = "opened";
  #inputs = {};
  #state = element("p", { class: "fine", role: "status" }, words.apart);
  #sent = element("pre", { tabindex: "0", "aria-label": words.seen }, "{}");
  #submit = element("button", { class: "primary", disabled: true }, words.submit);

  constructor() {
    const sections = Object.entries(SECTIONS).map(([section, names]) =>
      element("fieldset", {}, element("legend", {}, words.sections[section]), names.map((name) => this.#field(name))));
    const form = element("form", { class: "card-body stack agent-visitor", onsubmit: (event) => {
      event.preventDefault();
      this.#complete();
    } }, sections, element("div", { class: "row" }, this.#submit, this.#state));
    form.addEventListener("focusin", ({ target }) => target.name && this.report(target.name));
    form.addEventListener("change", ({ target }) => target.name && this.report(target.name));
    this.element = element("section", { class: "card", "aria-label": words.title },
      element("div", { class: "card-head" }, element("h2", {}, words.title), element("span", { class: "badge" }, PAGE)),
      form,
      element("details", { class: "agent-more" }, element("summary", {}, words.seen), this.#sent));
  }

  // Reports to the agent of `talk` from now on.
  watch(talk) {
    this.#talk = talk;
    this.#submit.disabled = false;
    this.#say(words.joined);
    talk.addEventListener("message", ({ detail }) => talk === this.#talk && this.#take(detail));
    talk.addEventListener("over", () => talk === this.#talk && this.unwatch());
  }

  unwatch() {
    this.#talk = null;
    this.#submit.disabled = true;
    this.#say(words.apart);
  }

  // Something happened at `step`, the name of a field or `opened`.
  report(step) {
    if (this.#talk === null) return;
    this.#step = step;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#send(), GATHER_MS);
  }

  #field(name) {
    const input = element("input", { id: `visitor-${name}`, name, autocomplete: "off" });
    this.#inputs[name] = input;
    return element("div", { class: "field" }, element("label", { for: input.id }, words.fields[name]), input);
  }

  // What an integrator's backend tells the agent.
  #context() {
    const field = (name) => ({ name, label: words.fields[name], filled: this.#inputs[name].value.trim() !== "" });
    const context = { page: PAGE, form_name: FORM };
    const names = Object.entries(SECTIONS);
    const at = names.findIndex(([, fields]) => fields.includes(this.#step));
    context.step = at + 1 || 1;
    context.total_steps = names.length;
    if (at >= 0) context.current_field = words.fields[this.#step];
    context.sections = names.map(([section, fields]) => ({ title: words.sections[section], fields: fields.map(field) }));
    return context;
  }

  async #send() {
    const id = this.#talk?.id;
    if (!id) return;
    const context = this.#context();
    try {
      const { page_context_version: version } = await service.showPage(id, context);
      replace(this.#sent, JSON.stringify(context, null, 2));
      this.#say(words.sent(version));
    } catch (error) {
      this.#say(words.notSent(error.message));
    }
  }

  async #complete() {
    const id = this.#talk?.id;
    if (!id) return;
    const filled = Object.entries(this.#inputs).filter(([, input]) => input.value.trim() !== "");
    try {
      await service.complete(id, words.arrived, Object.fromEntries(filled.map(([name]) => [name, true])));
      this.#say(words.submitted);
    } catch (error) {
      this.#say(words.notSent(error.message));
    }
  }

  #take(message) {
    if (message.type === "CompletionNotice") this.#fill(message.updated_fields);
    if (message.type === "PageContextUpdated") this.#fill(valuesIn(message.page_context));
    if (message.type === "FunctionCallRequest") message.functions.forEach((call) => this.#run(call));
  }

  // Fills fields by their names, and shows which.
  #fill(values) {
    const known = Object.entries(values ?? {}).filter(([name, value]) =>
      Object.hasOwn(this.#inputs, name) && typeof value === "string");
    for (const [name, value] of known) {
      const input = this.#inputs[name];
      if (input.value === value) continue;
      input.value = value;
      input.classList.remove("agent-filled");
      requestAnimationFrame(() => input.classList.add("agent-filled"));
    }
    return known.map(([name]) => name);
  }

  // The chat model calls a function of the page.
  #run({ id, name, arguments: given }) {
    let content = words.unknownFunction;
    if (name === "fill_in") {
      const filled = this.#fill(parsed(given));
      content = filled.length > 0 ? words.filled(filled) : words.noSuchField;
      if (filled.length > 0) this.report(filled.at(-1));
    }
    this.#talk.answer(id, name, content);
  }

  #say(message) {
    replace(this.#state, message);
  }
}

// The function that the chat model may call, in the form of the wire format.
export const FILL_IN = {
  name: "fill_in",
  description: words.fillIn,
  parameters: {
    type: "object",
    properties: Object.fromEntries(Object.values(SECTIONS).flat().map((name) => [name, { type: "string" }])),
  },
};

// The values of a page's state that another device or the backend sent.
function valuesIn(context) {
  const sections = Array.isArray(context?.sections) ? context.sections : [];
  const fields = sections.flatMap((section) => section?.fields ?? []);
  return Object.fromEntries(fields.filter((field) => typeof field?.value === "string").map(({ name, value }) => [name, value]));
}

function parsed(json) {
  try {
    return JSON.parse(json);
  } catch {
    return {};
  }
}
