// The talk on the page: its state, both sides' words as they come, and the means to take part.

import { element, icon, replace } from "../elements.js";
import { text } from "../text.js";

const words = text.agent.talk;
const KEYS = ["1", "2", "3", "4", "5", "6", "7", "8", "9", "*", "0", "#"];
const KINDS = { listening: "good", thinking: "accent", speaking: "accent", reconnecting: "warning", over: "" };

export class Conversation {
  element;

  #talk;
  #lines = element("ol", { class: "agent-lines", role: "log", "aria-label": words.transcript, tabindex: "0" });
  #state = element("span", { class: "badge agent-state", role: "status" }, words.states.connecting);
  #notes = element("div", { class: "stack agent-notes" });
  #callerLevel = meter(words.callerLevel);
  #agentLevel = meter(words.agentLevel);
  #controls;
  #composer;
  #pressed = element("output", { class: "mono", "aria-label": words.pressed });
  // The agent's line that is being said.
  #answer = null;
  #latency = null;

  // `again` is called when the visitor wants another talk.
  constructor(talk, again) {
    this.#talk = talk;
    this.#controls = element("div", { class: "row" }, this.#muteButton(),
      element("button", { type: "button", class: "danger", onclick: () => talk.end() }, icon("stop"), words.end));
    this.#composer = this.#makeComposer();
    this.element = element("section", { class: "card agent-conversation", "aria-label": words.title },
      element("div", { class: "card-head" },
        element("div", { class: "row" }, element("h2", {}, words.title), this.#state), this.#controls),
      element("div", { class: "agent-levels" }, this.#callerLevel.element, this.#agentLevel.element),
      element("div", { class: "card-body stack" }, this.#notes, this.#lines),
      this.#composer);
    talk.addEventListener("state", ({ detail }) => this.#showState(detail));
    talk.addEventListener("message", ({ detail }) => this.#take(detail));
    talk.addEventListener("latency", ({ detail }) => this.#showLatency(detail));
    talk.addEventListener("level", ({ detail }) => this.#showLevel(detail));
    talk.addEventListener("notice", ({ detail }) => this.#note(words.notices[detail], "warning"));
    talk.addEventListener("over", ({ detail }) => this.#end(detail.reason, again));
  }

  // What the server says of the start.
  show({ warnings = [] }) {
    for (const warning of warnings) this.#note(warning, "warning");
    this.element.querySelector("input").focus({ preventScroll: true });
    this.element.scrollIntoView({ block: "nearest" });
  }

  #take(message) {
    switch (message.type) {
      case "ConversationText":
        this.#hear(message);
        break;
      case "AgentStartedSpeaking":
        this.#answer = null;
        break;
      case "AgentAudioDone":
        this.#latency = null;
        this.#answer = null;
        break;
      case "Warning":
        this.#note(message.description, "warning");
        break;
      case "Error":
        this.#note(message.description, "bad");
        break;
      case "VerificationRequested":
        this.#event(words.asksProof);
        break;
      case "VerificationUpdated":
        this.#event(message.verified ? words.verified : message.locked ? words.locked : words.notVerified);
        break;
      case "SmsUpdated":
        this.#event(words.sms(message.status, message.to));
        break;
    }
  }

  #hear({ role, content, interrupted }) {
    if (role === "user") {
      this.#answer = null;
      this.#add("user", content);
    } else if (interrupted && this.#answer !== null) {
      // The agent was cut short: this is what was heard of it.
      this.#answer.content.textContent = content;
      this.#answer.line.append(element("span", { class: "badge" }, words.interrupted));
      this.#answer = null;
    } else if (this.#answer !== null) {
      this.#answer.content.textContent += ` ${content}`;
      this.#scroll();
    } else if (!interrupted) {
      this.#answer = this.#add("assistant", content);
      if (this.#latency !== null) this.#markLatency();
    }
  }

  #add(role, said) {
    const content = element("p", {}, said);
    const line = element("li", { dataset: { role } },
      element("span", { class: "agent-speaker" }, role === "user" ? words.you : words.agent), content);
    this.#lines.append(line);
    this.#scroll();
    return { line, content };
  }

  #event(said) {
    this.#lines.append(element("li", { dataset: { role: "event" } }, element("p", {}, said)));
    this.#scroll();
  }

  // The first sound and the first line come in any order.
  #showLatency(latency) {
    this.#latency = latency;
    if (this.#answer !== null) this.#markLatency();
  }

  #markLatency() {
    const { here, server } = this.#latency;
    this.#latency = null;
    this.#answer.line.append(element("span", { class: "agent-latency", title: words.latencyMeant },
      words.latency(here, server)));
  }

  #showLevel({ caller, agent }) {
    if (caller !== undefined) this.#callerLevel.show(caller);
    if (agent !== undefined) this.#agentLevel.show(agent);
  }

  #showState(state) {
    replace(this.#state, words.states[state] ?? state);
    this.#state.dataset.kind = KINDS[state] ?? "";
    this.#state.dataset.state = state;
  }

  #note(message, kind) {
    this.#notes.append(element("div", { class: `notice ${kind}`, role: "status" }, icon("warning"), element("p", {}, message)));
  }

  #end(reason, again) {
    const button = element("button", { type: "button", class: "primary", onclick: again }, icon("refresh"), words.again);
    this.#controls.replaceWith(button);
    this.#composer.hidden = true;
    this.#callerLevel.show(0);
    this.#agentLevel.show(0);
    const isBad = ["lost", "room_failed"].includes(reason);
    this.#note(words.ends[reason] ?? words.ends.ended, isBad ? "bad" : "");
    button.focus();
  }

  #muteButton() {
    const button = element("button", { type: "button", "aria-pressed": "false", onclick: () => {
      const isMuted = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(isMuted));
      this.#talk.isMuted = isMuted;
    } }, icon("live"), words.mute);
    return button;
  }

  #makeComposer() {
    const input = element("input", { id: "agent-say", autocomplete: "off", placeholder: words.typeHere, "aria-label": words.type, maxlength: 2000 });
    const form = element("form", { class: "row agent-compose", onsubmit: (event) => {
      event.preventDefault();
      const said = input.value.trim();
      if (said) this.#talk.say(said);
      input.value = "";
    } }, input, element("button", {}, words.send));
    return element("div", { class: "agent-means" }, form, this.#keypad());
  }

  #keypad() {
    const keys = KEYS.map((key) => element("button", { type: "button", class: "small", "aria-label": words.key(key), onclick: () => {
      this.#talk.press(key);
      this.#pressed.append("•");
    } }, key));
    return element("details", { class: "agent-more" }, element("summary", {}, words.keypad),
      element("div", { class: "agent-keys" }, keys), this.#pressed);
  }

  #scroll() {
    this.#lines.scrollTop = this.#lines.scrollHeight;
  }
}

function meter(label) {
  const bar = element("span", {});
  return {
    element: element("div", { class: "agent-level" }, element("span", { class: "fine" }, label),
      element("span", { class: "agent-bar", "aria-hidden": "true" }, bar)),
    // Loudness as the ear has it: 60 dB from end to end.
    show(level) {
      const share = Math.max(0, Math.min(1, 1 + (20 * Math.log10(Math.max(level, 1e-6))) / 60));
      bar.style.transform = `scaleX(${share.toFixed(3)})`;
    },
  };
}
