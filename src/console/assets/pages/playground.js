// The playground: audio in, parameters beside it, and what the server answers.

import { ApiError, callRaw, fetchPublic } from "../api.js";
import { failure } from "../controls.js";
import { element, icon, replace } from "../elements.js";
import { codePanel } from "../playground/code-panel.js";
import { parameterControls } from "../playground/controls.js";
import { parametersOf, Values } from "../playground/parameters.js";
import { peaksOf } from "../playground/peaks.js";
import { resultPanel } from "../playground/result.js";
import { sourceChooser } from "../playground/source.js";
import { upload } from "../playground/upload.js";
import { text } from "../text.js";

const PATH = "/v1/listen";
/** The page shows words with their times, so it asks for them. */
const PRESET = { timestamps: "true" };

class Playground extends HTMLElement {
  #source = null;
  #sending = null;
  #peaks = null;
  #values = new Values([]);
  #controls = null;

  connectedCallback() {
    const words = text.playground;
    this.#result = resultPanel();
    this.#chooser = sourceChooser((source) => this.#choose(source));
    this.#code = codePanel(() => this.#sent());
    this.#run = element("button", { type: "button", class: "primary", disabled: true, onclick: () => this.#transcribe() },
      words.run);
    this.#cancel = element("button", { type: "button", hidden: true, onclick: () => this.#sending?.abort() }, text.cancel);
    this.#bar = element("progress", { max: "1", hidden: true, "aria-label": words.progress });
    this.#state = element("p", { class: "fine", role: "status" });
    this.#problem = element("div", {});
    this.#parameters = element("div", { class: "card-body" }, element("p", { class: "soft" }, text.loading));
    replace(this,
      element("header", { class: "page-head" },
        element("div", {}, element("h1", {}, text.pages.playground), element("p", {}, words.about))),
      element("div", { class: "playground" },
        element("div", { class: "stack" },
          element("section", { class: "card", "aria-label": words.source.title },
            element("div", { class: "card-body stack" }, this.#chooser.element,
              element("div", { class: "row" }, this.#run, this.#cancel, this.#bar, this.#state), this.#problem)),
          this.#result.element,
          this.#code.element),
        element("section", { class: "card parameters-card" },
          element("div", { class: "card-head" }, element("h2", {}, text.parameters.title)), this.#parameters)));
    this.#load();
  }

  #result; #chooser; #code; #run; #cancel; #bar; #state; #problem; #parameters;

  disconnectedCallback() {
    this.#sending?.abort();
    this.#peaks?.abort();
    this.#chooser.stop();
    this.#result.close();
  }

  static observedAttributes = ["path"];

  /** Another link to this page: its parameters take the place of the present ones. */
  attributeChangedCallback() {
    if (!this.#controls) return;
    this.#values.restore(this.#fragment());
    this.#controls.refresh();
    this.#code.refresh();
  }

  #fragment() {
    return (this.getAttribute("path") ?? "").replace(/^\?/, "");
  }

  async #load() {
    try {
      const [document, models] = await Promise.all([
        fetchPublic("/openapi.json").then((response) => response.json()),
        // Only names to choose among: the page works without.
        fetchPublic("/v1/models").then((response) => response.json()).catch(() => ({})),
      ]);
      const parameters = parametersOf(document, PATH, "post");
      this.#values = new Values(parameters, PRESET);
      this.#values.restore(this.#fragment());
      const names = [...new Set((models.stt ?? []).map((model) => model.name ?? model.canonical_name).filter(Boolean))];
      this.#controls = parameterControls(parameters, this.#values, {
        suggestions: { model: names },
        onchange: () => this.#changed(),
      });
      replace(this.#parameters, this.#controls.element);
      this.#code.refresh();
    } catch (error) {
      replace(this.#parameters, failure(error),
        element("button", { type: "button", onclick: () => this.#load() }, icon("refresh"), text.retry));
    }
  }

  #changed() {
    const fragment = this.#values.fragment();
    history.replaceState(null, "", `#/playground${fragment && `/?${fragment}`}`);
    this.#code.refresh();
  }

  #sent() {
    const source = this.#source;
    return {
      server: location.origin,
      query: this.#values.pairs("query"),
      headers: this.#values.pairs("header"),
      source: source?.kind === "url" ? { url: source.url } : { file: source?.name ?? text.playground.code.file },
    };
  }

  #choose(source) {
    this.#source = source;
    this.#run.disabled = source === null || this.#sending !== null;
    this.#code.refresh();
    replace(this.#problem);
    if (source?.kind !== "file" || source.blob === this.#heard) return;
    this.#heard = source.blob;
    this.#result.hide();
  }

  #heard = null;

  async #transcribe() {
    const source = this.#source;
    const words = text.playground;
    this.#sending = new AbortController();
    const { signal } = this.#sending;
    this.#busy(true);
    replace(this.#problem);
    const query = new URLSearchParams(this.#values.pairs("query")).toString();
    const isFile = source.kind === "file";
    const type = isFile ? "application/octet-stream" : "application/json";
    const began = performance.now();
    try {
      const answer = await upload(`${PATH}${query && `?${query}`}`, isFile ? source.blob : JSON.stringify({ url: source.url }), {
        headers: [...this.#values.pairs("header"), ["content-type", type]],
        signal,
        onsent: (share) => {
          this.#bar.value = share;
          if (share === 1) this.#bar.removeAttribute("value");
          replace(this.#state, share < 1 ? words.uploading(share) : words.working);
        },
      });
      const took = (performance.now() - began) / 1000;
      replace(this.#state, words.done(took));
      this.show(answer, source.name ?? "transcript", { took, ...(isFile ? { blob: source.blob } : { url: source.url }) });
    } catch (error) {
      replace(this.#state, error.name === "AbortError" ? words.cancelled : "");
      if (error.name !== "AbortError") this.#fail(error);
    } finally {
      this.#sending = null;
      this.#busy(false);
    }
  }

  /**
   * Shows an answer of `/v1/listen`, and plays `blob` under it, or what the server finds at `url`.
   *
   * @param {object} answer
   * @param {string} name
   * @param {{ took?: number, blob?: Blob, url?: string }} [more]
   */
  show(answer, name, { took, blob, url } = {}) {
    this.#peaks?.abort();
    this.#peaks = new AbortController();
    this.#result.listen(blob ?? null, url ? text.playground.fetching : text.playground.noAudio);
    this.#result.show(answer, name, took);
    this.#hear(this.#peaks.signal, blob, url).catch((error) => {
      if (error.name === "AbortError") return;
      if (!(error instanceof ApiError)) throw error;
      this.#result.listen(null, text.playground.notFetched(error.message));
    });
  }

  /** The audio at an address comes by way of the server: the policy of the page lets it load nothing from elsewhere. */
  async #hear(signal, blob, url) {
    if (!blob && url) {
      const response = await callRaw("POST", "/console/api/audio", { url }, { signal });
      blob = await response.blob();
      signal.throwIfAborted();
      this.#result.listen(blob);
    }
    if (blob) this.#result.shape(await peaksOf(blob, signal));
  }

  #busy(is) {
    this.#run.disabled = is || this.#source === null;
    this.#cancel.hidden = this.#bar.hidden = !is;
    if (is) this.#bar.value = 0;
  }

  #fail(error) {
    const advice = error instanceof ApiError ? text.playground.advice(error) : text.failed;
    const again = [0, 429, 503].includes(error.status)
      ? element("button", { type: "button", class: "small", onclick: () => this.#transcribe() }, icon("refresh"), text.retry)
      : null;
    replace(this.#problem, element("div", { class: "stack" }, failure(error),
      advice && element("p", { class: "fine" }, advice), again));
  }
}

customElements.define("page-playground", Playground);
