// The page Voice agent: a session as a visitor of a website has it, with the visitor's form beside the talk.

import { failure } from "../controls.js";
import { element, icon, replace } from "../elements.js";
import { text } from "../text.js";
import { Conversation } from "../agent/conversation.js";
import { Facts } from "../agent/facts.js";
import { Setup } from "../agent/setup.js";
import { VisitorForm } from "../agent/visitor.js";
import { MicrophoneError } from "../voice/sound.js";
import { Talk, TalkError } from "../voice/talk.js";

const words = text.agent;

class AgentPage extends HTMLElement {
  #talk = null;
  #setup = new Setup((fields, choice) => this.#begin(fields, choice));
  #left = element("div", { class: "agent-talk" });
  #form = new VisitorForm();
  #facts = new Facts();

  connectedCallback() {
    replace(
      this,
      element("div", { class: "page-head" },
        element("div", {}, element("h1", {}, words.title), element("p", {}, words.about))),
      element("div", { class: "agent-panes" },
        this.#left,
        element("div", { class: "stack" }, this.#form.element, this.#facts.element)),
    );
    replace(this.#left, this.#setup.element);
    this.#setup.load();
  }

  disconnectedCallback() {
    this.#talk?.end();
  }

  async #begin(fields, { hasMicrophone }) {
    const talk = new Talk();
    const conversation = new Conversation(talk, () => this.#again());
    this.#talk = talk;
    this.#form.watch(talk);
    this.#facts.watch(talk);
    replace(this.#left, conversation.element);
    try {
      await talk.begin(fields, { hasMicrophone });
      conversation.show(talk.session);
      this.#form.report("opened");
    } catch (error) {
      this.#talk = null;
      this.#again();
      this.#setup.refuse(explained(error), error);
    }
  }

  #again() {
    this.#talk = null;
    this.#form.unwatch();
    replace(this.#left, this.#setup.element);
    this.#setup.focus();
  }
}

// The cause of a failed start in words that say what to do.
function explained(error) {
  if (error instanceof MicrophoneError) return notice(words.microphone[error.reason]);
  if (error instanceof TalkError) return notice(words.cannot[error.reason]);
  if (error.status === 404) return notice(words.cannot.disabled);
  if (error.status === 0 || error.status === undefined) console.error(error);
  return failure(error);
}

function notice(message) {
  return element("div", { class: "notice bad", role: "alert" }, icon("warning"), element("p", {}, message));
}

customElements.define("page-agent", AgentPage);
