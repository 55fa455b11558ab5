// What the integrator's backend knows of the session: verification, text messages, and the session itself.

import { notify } from "../controls.js";
import { element, replace } from "../elements.js";
import { text } from "../text.js";
import * as service from "../voice/service.js";

const words = text.agent.facts;
const CATEGORY = "patient_information";
// Events of a session that change what is shown here.
const CHANGES = new Set(["Welcome", "VerificationRequested", "VerificationUpdated", "SmsUpdated", "CompletionNotice", "CallerBound", "KnowledgeUpdated"]);

export class Facts {
  element;

  #talk = null;
  #verification = element("div", { class: "stack" });
  #messages = element("div", { class: "stack" });
  #session = element("dl", { class: "facts" });

  constructor() {
    this.element = element("section", { class: "card", "aria-label": words.title },
      element("div", { class: "card-head" }, element("h2", {}, words.title)),
      element("div", { class: "card-body stack" },
        element("h3", {}, words.verification), this.#verification,
        element("h3", {}, words.messages), this.#messages,
        element("h3", {}, words.session), this.#session));
    this.#show(null);
  }

  watch(talk) {
    this.#talk = talk;
    this.#show(null);
    talk.addEventListener("message", ({ detail }) => talk === this.#talk && CHANGES.has(detail.type) && this.#ask());
    talk.addEventListener("over", () => talk === this.#talk && this.#ask());
  }

  async #ask() {
    const talk = this.#talk;
    try {
      const status = await service.status(talk.id);
      if (talk === this.#talk) this.#show(status);
    } catch {
      // The talk shows that the server is gone.
    }
  }

  #show(status) {
    replace(this.#verification, this.#verifications(status));
    replace(this.#messages, status === null ? none() : sms(status));
    replace(this.#session, status === null ? [] : about(status));
    this.#session.previousElementSibling.hidden = status === null;
  }

  #verifications(status) {
    if (status === null) return none();
    const known = { ...status.verification };
    const isPending = status.pending_verification;
    for (const category of [CATEGORY, isPending]) if (category) known[category] ??= null;
    const isOpen = status.status !== "ended";
    return Object.entries(known).map(([category, state]) => element("div", { class: "row agent-fact" },
      element("code", {}, category), proof(state, category === isPending),
      isOpen && this.#verdict(category, !state?.verified)));
  }

  // What the backend may say of the caller, as after a form in which they signed in.
  #verdict(category, verified) {
    return element("button", { type: "button", class: "small", onclick: async ({ currentTarget }) => {
      currentTarget.disabled = true;
      try {
        await service.verify(this.#talk.id, category, verified);
      } catch (error) {
        notify(error.message, "bad");
        currentTarget.disabled = false;
      }
    } }, verified ? words.confirm : words.withdraw);
  }
}

function none() {
  return element("p", { class: "fine" }, words.none);
}

function proof(state, isPending) {
  if (state?.verified) return element("span", { class: "badge", dataset: { kind: "good" } }, words.verified(state.source));
  if (state?.locked) return element("span", { class: "badge", dataset: { kind: "bad" } }, words.locked);
  if (isPending) return element("span", { class: "badge", dataset: { kind: "accent" } }, words.asked(state?.attempts ?? 0));
  return element("span", { class: "badge" }, words.notVerified);
}

function sms({ sms: { provider, pending, sent, failed } }) {
  const all = [...pending, ...sent, ...failed];
  const list = all.map((message) => element("div", { class: "row agent-fact" },
    element("code", {}, message.sms_catalog_key),
    element("span", { class: "badge", dataset: { kind: { sent: "good", failed: "bad" }[message.status] ?? "warning" } }, words.sms[message.status] ?? message.status),
    element("span", { class: "fine" }, [message.to, message.error].filter(Boolean).join(" · "))));
  return [list.length > 0 ? list : none(), provider === "none" && element("p", { class: "fine" }, words.noProvider)];
}

function about({ session_id, status, caller_number, page_context_version, knowledge, agent: { engine }, completion, warnings }) {
  const rows = [
    [words.id, element("code", {}, session_id)],
    [words.status, words.statuses[status] ?? status],
    [words.caller, caller_number],
    [words.page, page_context_version > 0 && words.version(page_context_version)],
    [words.knowledge, words.passages(knowledge.passages, knowledge.ready)],
    [words.completion, completion?.status],
    [words.hears, engine.ears === "none" ? words.noEars : words.endOfTurn[engine.end_of_turn]],
    [words.thinks, words.brains[engine.brain]],
    [words.speaks, engine.voice === "none" ? words.noVoice : engine.voice],
    [words.warnings, warnings.length > 0 && warnings.join(" ")],
  ];
  return rows.filter(([, value]) => value).map(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]);
}
