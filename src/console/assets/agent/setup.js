// The form before a talk: who the agent is, what it knows, and how a caller is verified.

import { element, icon, replace } from "../elements.js";
import { text } from "../text.js";
import { hasChat, voices } from "../voice/service.js";
import { FILL_IN } from "./visitor.js";

const words = text.agent.setup;
const FORMS_KEY = "forms";

export class Setup {
  element;

  #inputs = {};
  #problem = element("div", { class: "agent-notes" });
  #begin;
  // What the page can do for a chat model, if there is one.
  #functions = [];

  // `begin(fields, { hasMicrophone })` is called with the fields of the start.
  constructor(begin) {
    this.#begin = begin;
    this.element = this.#form();
  }

  // Asks which voices there are, and whether there is a chat model.
  async load() {
    const select = this.#inputs.voice;
    try {
      const [names, chats] = await Promise.all([voices(), hasChat()]);
      this.#functions = chats ? [FILL_IN] : [];
      const options = names.map((name) => element("option", { value: name }, name));
      replace(select, element("option", { value: "" }, names.length === 0 ? words.noVoice : words.ownVoice), options);
    } catch {
      // The talk itself says what is wrong with the server.
    }
  }

  refuse(notice) {
    replace(this.#problem, notice);
    this.#problem.scrollIntoView({ block: "nearest" });
  }

  focus() {
    this.element.querySelector("button.primary").focus();
  }

  #form() {
    const silent = element("button", { type: "button", onclick: () => this.#submit(false) }, words.withoutMicrophone);
    return element("form", { class: "card", onsubmit: (event) => {
      event.preventDefault();
      this.#submit(true);
    } },
      element("div", { class: "card-head" }, element("h2", {}, words.title)),
      element("div", { class: "card-body stack" },
        this.#problem,
        this.#area("instructions", 5),
        this.#line("greeting"),
        this.#select("voice"),
        this.#area("knowledge", 4),
        this.#more(),
        element("div", { class: "row" },
          element("button", { class: "primary" }, icon("live"), words.start), silent)));
  }

  #more() {
    const guidance = element("input", { type: "checkbox", checked: true });
    const secured = element("input", { type: "checkbox", checked: true });
    this.#inputs.guidance = guidance;
    this.#inputs.secured = secured;
    return element("details", { class: "agent-more" },
      element("summary", {}, words.more),
      element("div", { class: "stack" },
        this.#line("website", { type: "url", placeholder: "https://" }),
        this.#line("number", { type: "tel", placeholder: "+1 202 555 0143" }),
        element("label", { class: "choice" }, secured, element("span", {}, words.secured)),
        this.#line("prompt"),
        this.#line("link", { type: "url" }),
        element("label", { class: "choice" }, guidance, element("span", {}, words.guidance))));
  }

  #field(name, input) {
    const hint = words.hints[name];
    this.#inputs[name] = input;
    if (hint) input.setAttribute("aria-describedby", `${input.id}-hint`);
    return element("div", { class: "field" },
      element("label", { for: input.id }, words.fields[name]),
      input,
      hint && element("p", { class: "fine", id: `${input.id}-hint` }, hint));
  }

  #line(name, properties = {}) {
    const input = element("input", { id: `agent-${name}`, autocomplete: "off", ...properties });
    input.value = words.examples[name] ?? "";
    return this.#field(name, input);
  }

  #area(name, rows) {
    const area = element("textarea", { id: `agent-${name}`, rows });
    area.value = words.examples[name] ?? "";
    return this.#field(name, area);
  }

  #select(name) {
    return this.#field(name, element("select", { id: `agent-${name}` }, element("option", { value: "" }, words.ownVoice)));
  }

  #submit(hasMicrophone) {
    replace(this.#problem);
    this.#begin(this.#fields(), { hasMicrophone });
  }

  #fields() {
    const value = (name) => this.#inputs[name].value.trim();
    const fields = { instructions: value("instructions"), greeting: value("greeting"), voice: value("voice") };
    const paragraphs = value("knowledge").split(/\n\s*\n/).filter((content) => content.trim() !== "");
    if (paragraphs.length > 0) fields.documents = paragraphs.map((content) => ({ type: "text", content }));
    fields.website_url = value("website");
    fields.caller_number = value("number");
    if (value("link")) fields.link_catalog = { [FORMS_KEY]: { url: value("link"), title: words.linkTitle } };
    if (this.#inputs.secured.checked) {
      const rule = { voice_prompt: value("prompt"), sms_catalog_key: FORMS_KEY };
      fields.verification_rules = { patient_information: rule };
    }
    if (this.#functions.length > 0) fields.functions = this.#functions;
    fields.page_guidance_enabled = this.#inputs.guidance.checked;
    // An empty field is one that the integrator leaves out.
    return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== ""));
  }
}
