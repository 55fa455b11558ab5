// Live: speech from the microphone or a file, through one of the live sockets, as it is heard.

import { fetchPublic, token } from "../api.js";
import { failure } from "../controls.js";
import { element, icon, replace } from "../elements.js";
import { Heard } from "../live/heard.js";
import { livePlot } from "../live/plot.js";
import { fileInRealTime, microphone } from "../live/sources.js";
import { LiveStream } from "../live/stream.js";
import { resultsTable, speechView } from "../live/view.js";
import { parameterControls } from "../playground/controls.js";
import { parametersOf, Values } from "../playground/parameters.js";
import { text } from "../text.js";

const SOCKETS = {
  "/v1/listen": { preset: { interim_results: "true", vad_events: "true", endpointing: "300", utterance_end_ms: "1000" },
    controls: ["Finalize", "KeepAlive", "CloseStream"] },
  "/v2/listen": { preset: {}, controls: ["ForceEndTurn", "KeepAlive", "CloseStream"] },
};
/** They describe the audio, which the page itself makes. */
const OWN = ["encoding", "sample_rate", "channels"];
const THRESHOLD = 0.7;
const PANEL_INTERVAL_MS = 200;

class Live extends HTMLElement {
  #path = "/v1/listen";
  #document = null;
  #values = new Values([]);
  #stream = null;
  #source = null;
  #isHeld = false;
  #heard = new Heard();
  #frame = 0;
  #drawn = { count: -1, at: 0 };

  #speech = speechView();
  #plot = livePlot();
  #table = resultsTable();
  #begin; #file; #end; #hold; #controls; #state; #problem; #stats; #parameters; #sockets;

  connectedCallback() {
    const words = text.live;
    this.#begin = element("button", { type: "button", class: "primary", onclick: () => this.#start("microphone") },
      icon("live"), words.microphone);
    const input = element("input", { type: "file", class: "visually-hidden", id: "live-file", onchange: () => {
      const [file] = input.files;
      if (file) this.#start("file", file);
      input.value = "";
    } });
    this.#file = element("span", { class: "file-button" }, input,
      element("label", { class: "button", for: "live-file" }, icon("upload"), words.file));
    this.#end = element("button", { type: "button", class: "danger", hidden: true, onclick: () => this.#close() },
      icon("stop"), words.end);
    this.#hold = element("button", { type: "button", hidden: true, "aria-pressed": "false", onclick: () => this.#toggleHold() },
      icon("pause"), element("span", {}, words.hold));
    this.#controls = element("div", { class: "row", role: "group", "aria-label": words.messages, hidden: true });
    this.#state = element("p", { class: "badge live-state", role: "status" }, words.states.idle);
    this.#problem = element("div", {});
    this.#stats = element("dl", { class: "live-stats" });
    this.#parameters = element("div", { class: "card-body" }, element("p", { class: "soft" }, text.loading));
    this.#sockets = Object.keys(SOCKETS).map((path) => element("button", { type: "button", onclick: () => this.#choose(path) },
      element("span", {}, words.sockets[path])));
    replace(this,
      element("header", { class: "page-head" },
        element("div", {}, element("h1", {}, text.pages.live), element("p", {}, words.about))),
      element("div", { class: "playground" },
        element("div", { class: "stack" },
          element("section", { class: "card", "aria-label": words.audio },
            element("div", { class: "card-body stack" },
              element("div", { class: "row" }, this.#begin, this.#file, this.#end, this.#hold, this.#state),
              this.#controls, this.#problem)),
          element("section", { class: "card" },
            element("div", { class: "card-head" }, element("h2", {}, words.speech)),
            element("div", { class: "card-body" }, this.#speech.element)),
          element("section", { class: "card" },
            element("div", { class: "card-head" }, element("h2", {}, words.plotTitle), this.#stats),
            element("div", { class: "card-body" }, this.#plot.element)),
          element("section", { class: "card" },
            element("div", { class: "card-head" }, element("h2", {}, words.results.title)), this.#table.element)),
        element("section", { class: "card parameters-card" },
          element("div", { class: "card-head" }, element("h2", {}, text.parameters.title),
            element("div", { class: "segments", role: "group", "aria-label": words.socket }, this.#sockets)),
          this.#parameters)));
    this.#load();
    this.#panel();
  }

  disconnectedCallback() {
    cancelAnimationFrame(this.#frame);
    this.#source?.stop();
    this.#stream?.stop();
  }

  async #load() {
    try {
      this.#document = await fetchPublic("/openapi.json").then((response) => response.json());
    } catch (error) {
      replace(this.#parameters, failure(error),
        element("button", { type: "button", onclick: () => this.#load() }, icon("refresh"), text.retry));
      return;
    }
    const [, wanted = "", fragment = ""] = /^([^?]*)\??(.*)$/.exec(this.getAttribute("path") ?? "") ?? [];
    this.#choose(wanted === "v2" ? "/v2/listen" : "/v1/listen", fragment);
  }

  #choose(path, fragment = "") {
    if (!this.#document) return;
    this.#path = path;
    this.#sockets.forEach((button, index) =>
      button.setAttribute("aria-pressed", String(Object.keys(SOCKETS)[index] === path)));
    const parameters = parametersOf(this.#document, path, "get").filter(({ name }) => !OWN.includes(name));
    this.#values = new Values(parameters, SOCKETS[path].preset);
    this.#values.restore(fragment);
    const controls = parameterControls(parameters, this.#values, { onchange: () => this.#share() });
    replace(this.#parameters, element("p", { class: "fine parameters-note" }, text.live.nextStream), controls.element);
    this.#share();
  }

  #share() {
    const fragment = this.#values.fragment();
    const socket = this.#path === "/v2/listen" ? "v2" : "v1";
    if (socket === "v1" && fragment === "" && !location.hash.startsWith("#/live/")) return;
    history.replaceState(null, "", `#/live/${socket}${fragment && `?${fragment}`}`);
  }

  async #start(kind, file) {
    this.#begin.disabled = true;
    replace(this.#problem);
    const hear = (samples) => this.#hearOwn(samples);
    try {
      // Before the microphone: who may not stream is not asked for it.
      await token();
      this.#source = kind === "file"
        ? await fileInRealTime(file, { isMultichannel: this.#values.get("multichannel") === "true", onaudio: hear,
          onend: () => this.#stream?.control("CloseStream") })
        : await microphone(hear);
    } catch (error) {
      this.#begin.disabled = false;
      this.#fail(error.name === "EncodingError" ? text.live.undecodable
        : error.name === "NotAllowedError" ? text.microphone.refused
          : error.name === "ApiError" ? error.message : text.microphone.missing);
      return;
    }
    this.#heard = new Heard();
    this.#speech.reset();
    this.#plot.reset();
    this.#isHeld = false;
    const query = new URLSearchParams(this.#values.pairs("query"));
    query.set("encoding", "linear16");
    query.set("sample_rate", String(this.#source.rate));
    if (this.#source.channels > 1) query.set("channels", String(this.#source.channels));
    const stream = new LiveStream(`${this.#path}?${query}`, this.#source.rate * this.#source.channels);
    stream.addEventListener("state", ({ detail }) => this.#stream === stream && this.#changed(detail));
    stream.addEventListener("message", ({ detail }) => this.#stream === stream && this.#message(detail));
    this.#stream = stream;
    this.#showControls(true);
    stream.open();
    this.#source.start?.();
  }

  #hearOwn(samples) {
    if (!this.#stream || this.#isHeld) return;
    this.#plot.hear(samples, this.#source.rate * this.#source.channels, this.#stream.seconds);
    this.#stream.send(samples);
  }

  #message(detail) {
    const { message } = detail;
    if (message.type === "Error") return this.#fail([message.code, message.description].filter(Boolean).join(": "));
    if (message.type === "Warning") return this.#note(message.description ?? message.message);
    for (const warning of (message.type === "Metadata" && message.warnings) || []) this.#note(warning.message);
    const utterance = this.#heard.take(detail);
    if (!utterance) return;
    this.#speech.show(utterance);
    this.#speech.keep(this.#heard.utterances);
  }

  #changed({ state, code, reason }) {
    const words = text.live;
    replace(this.#state, words.states[state]);
    this.#state.dataset.kind = { open: "good", lost: "bad", refused: "bad", opening: "warning" }[state] ?? "";
    if (state === "open") replace(this.#problem);
    if (state === "lost") {
      for (const open of this.#heard.interrupt()) this.#speech.show(open);
      if (this.#wasOpen) this.#speech.note(words.interrupted);
      this.#fail(words.lost(code, reason));
    }
    this.#wasOpen = state === "open";
    if (state === "refused") this.#fail(words.refused(code, reason));
    if (state === "refused" || state === "closed") this.#finish();
  }

  #wasOpen = false;

  #close() {
    this.#source?.stop();
    this.#stream?.control("CloseStream");
    this.#end.disabled = true;
  }

  #finish() {
    this.#source?.stop();
    for (const open of this.#heard.interrupt()) this.#speech.show(open);
    this.#showControls(false);
  }

  #showControls(isRunning) {
    this.#begin.hidden = this.#file.hidden = isRunning;
    this.#begin.disabled = this.#end.disabled = false;
    this.#end.hidden = this.#hold.hidden = this.#controls.hidden = !isRunning;
    this.#hold.setAttribute("aria-pressed", "false");
    const buttons = SOCKETS[this.#path].controls.map((type) => element("button", { type: "button", class: "small mono",
      title: text.live.controls[type], onclick: () => (type === "CloseStream" ? this.#close() : this.#stream?.control(type)) },
    type));
    replace(this.#controls, element("span", { class: "label" }, text.live.messages), buttons);
    for (const button of this.#sockets) button.disabled = isRunning;
  }

  #toggleHold() {
    this.#isHeld = !this.#isHeld;
    if (this.#stream) this.#stream.isQuiet = this.#isHeld;
    this.#hold.setAttribute("aria-pressed", String(this.#isHeld));
  }

  #fail(message) {
    replace(this.#problem, element("div", { class: "notice bad", role: "alert" }, icon("warning"), element("p", {}, message)));
  }

  #note(message) {
    replace(this.#problem, element("div", { class: "notice warning" }, icon("warning"), element("p", {}, message)));
  }

  /** Draws at each frame; the figures a few times a second. */
  #panel() {
    this.#frame = requestAnimationFrame(() => this.#panel());
    const isIdle = !this.#stream || ["closed", "refused"].includes(this.#stream.state);
    const seconds = this.#stream?.seconds ?? 0;
    const now = performance.now();
    if (isIdle && now - this.#drawn.at < 1000) return;
    const threshold = Number(this.#values.get("eot_threshold") || THRESHOLD);
    this.#plot.draw(this.#heard, seconds, threshold);
    if (now - this.#drawn.at < PANEL_INTERVAL_MS) return;
    this.#drawn.at = now;
    const facts = text.live.stats({
      seconds,
      last: this.#heard.results.at(-1)?.latency ?? null,
      interim: this.#heard.median(["interim"]),
      final: this.#heard.median(["final", "turn"]),
      confidence: this.#heard.confidences.at(-1)?.value ?? null,
      dropped: this.#stream?.dropped ?? 0,
    });
    replace(this.#stats, facts.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))));
    if (this.#heard.count === this.#drawn.count && this.#heard.count > 0) return;
    this.#drawn.count = this.#heard.count;
    this.#table.show(this.#heard.results);
  }
}

customElements.define("page-live", Live);
