// Operations: how the server does now and how it did over the last hour, its models, its errors and its settings.

import { call } from "../api.js";
import { cell, failure } from "../controls.js";
import { element, icon, replace } from "../elements.js";
import { ago, bytes, date, duration, number, percent } from "../formats.js";
import { Plot } from "../plot.js";
import { text } from "../text.js";

const words = text.operations;
const TABS = ["overview", "errors", "settings"];
const MODEL_KINDS = { loaded: "good", loading: "accent", unloaded: "", no_room: "warning", failed: "bad", too_large: "bad" };
const RETRY_MS = 3000;

const PLOTS = [
  { name: "queue", series: ["queue_live", "queue_interactive", "queue_job"], least: 4 },
  { name: "slots", series: ["slots_active", "slots"], least: 4 },
  { name: "speed", series: ["real_time_factor", "audio_rate"], format: (value) => `${number(value)}×`, least: 4 },
  { name: "streams", series: ["streams", "speak_streams", "sessions"], least: 4 },
  { name: "waiting", series: ["queue_age_seconds", "held_audio_seconds"], format: duration, least: 1 },
  { name: "refused", series: ["refused_busy", "refused_share", "refused_unwell", "refused_jobs"], least: 4 },
  { name: "memory", series: ["memory_bytes"], format: bytes, least: 1 << 20, base: 1024 },
  { name: "requests", series: ["active_requests", "held_requests"], least: 4 },
];
/** Drawn only where there is a GPU. */
const GPU_PLOTS = [
  { name: "gpu", series: ["gpu_used"], format: percent, least: 1 },
  { name: "gpuMemory", series: ["gpu_memory_free_bytes", "gpu_memory_bytes"], format: bytes, least: 1 << 30, base: 1024 },
];
const made = ({ name, series, ...options }) => new Plot(words.plots[name].title, words.plots[name].about,
  series.map((name) => ({ name, label: words.series[name] })), options);

class OperationsPage extends HTMLElement {
  static observedAttributes = ["path"];
  #left = new AbortController();
  #timer = 0;
  #next = 0;
  #times = [];
  #series = {};
  #problem = element("div", {});
  #stats = element("dl", { class: "grid operations-stats" });
  #modelRows = element("tbody", { role: "rowgroup" });
  #version = element("span", { class: "fine" });
  #plots = PLOTS.map(made);
  #gpuPlots = GPU_PLOTS.map(made);
  #panels = Object.fromEntries(TABS.map((name) => [name, element("div", {
    id: `operations-${name}`, role: "tabpanel", "aria-labelledby": `operations-tab-${name}`, class: "stack" })]));

  connectedCallback() {
    const tabs = TABS.map((name) => element("button", {
      type: "button", role: "tab", id: `operations-tab-${name}`, "aria-controls": `operations-${name}`,
      onclick: () => { location.hash = name === "overview" ? "#/operations" : `#/operations/${name}`; },
    }, words.tabs[name]));
    const list = element("div", { class: "segments", role: "tablist", "aria-label": text.pages.operations,
      onkeydown: (event) => this.#move(event, tabs) }, tabs);
    replace(this.#panels.overview, this.#stats, this.#models(),
      element("div", { class: "operations-plots" }, [...this.#plots, ...this.#gpuPlots].map((plot) => plot.node)));
    replace(this, element("header", { class: "page-head" },
      element("div", {}, element("h1", {}, text.pages.operations), element("p", {}, words.about)), list),
    this.#problem, Object.values(this.#panels));
    this.#open();
    this.#load();
  }

  disconnectedCallback() {
    clearTimeout(this.#timer);
    this.#left.abort();
  }

  attributeChangedCallback() {
    if (this.isConnected && this.firstChild) this.#open();
  }

  /** The arrow keys go from tab to tab, as in the ARIA practices. */
  #move(event, tabs) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const at = tabs.indexOf(document.activeElement);
    const to = tabs[(at + step + tabs.length) % tabs.length];
    to.focus();
    to.click();
  }

  #open() {
    const path = this.getAttribute("path");
    const chosen = TABS.includes(path) ? path : "overview";
    for (const name of TABS) {
      this.#panels[name].hidden = name !== chosen;
      const tab = this.querySelector(`#operations-tab-${name}`);
      tab.setAttribute("aria-selected", String(name === chosen));
      tab.tabIndex = name === chosen ? 0 : -1;
    }
    if (chosen === "errors") this.#loadErrors();
    if (chosen === "settings") this.#loadSettings();
  }

  #get(path) {
    return call("GET", path, undefined, { signal: this.#left.signal });
  }

  async #load() {
    let wait = RETRY_MS;
    try {
      const figures = await this.#get(`/console/api/operations?from=${this.#next}`);
      this.#add(figures);
      this.#draw(figures);
      replace(this.#problem);
      wait = figures.interval_seconds * 1000;
    } catch (error) {
      if (error.name === "AbortError") return;
      // The shell says that the server does not answer.
      if (error.status !== 0) replace(this.#problem, failure(error));
    }
    if (this.isConnected) this.#timer = setTimeout(() => this.#load(), wait);
  }

  #add({ samples, samples_max: most }) {
    // After a restart of the server, its numbers begin again.
    if (samples.next < this.#next) [this.#times, this.#series] = [[], {}];
    this.#next = samples.next;
    this.#times = this.#times.concat(samples.unix_ms).slice(-most);
    for (const [name, values] of Object.entries(samples.series)) {
      this.#series[name] = (this.#series[name] ?? []).concat(values).slice(-most);
    }
  }

  #models() {
    const head = [words.model, words.state, words.device, words.slots, words.uses];
    return element("div", { class: "card" },
      element("div", { class: "card-head" }, element("h2", {}, words.models), this.#version),
      element("div", { class: "table", role: "region", tabindex: "0", "aria-label": words.models },
        element("table", { class: "stacked", role: "table" },
          element("thead", { role: "rowgroup" }, element("tr", { role: "row" }, head.map((name) =>
            element("th", { scope: "col", role: "columnheader" }, name)))),
          this.#modelRows)));
  }

  #draw(figures) {
    const last = (name) => this.#series[name]?.at(-1) ?? 0;
    const hour = (name) => (this.#series[name] ?? []).reduce((sum, value) => sum + value, 0);
    const refused = ["refused_busy", "refused_share", "refused_unwell", "refused_jobs", "refused_speak"];
    const stats = [
      [words.engine, element("span", { class: "badge", dataset: { kind: figures.engine === "working" ? "good" : "bad" } },
        words.engineIs[figures.engine]), words.uptime(duration(figures.uptime_seconds))],
      [words.slotsInUse, `${number(last("slots_active"))} / ${number(last("slots"))}`,
        words.inQueue(number(last("queue_live") + last("queue_interactive") + last("queue_job")))],
      [words.speed, last("real_time_factor") > 0 ? `${number(last("real_time_factor"))}×` : "–", words.speedAbout],
      [words.streams, number(last("streams")), words.streamsAbout(number(last("speak_streams")), number(last("sessions")))],
      [words.refused, number(refused.reduce((sum, name) => sum + hour(name), 0)), words.lastHour],
      [words.memory, figures.memory ? bytes(figures.memory.resident) : "–",
        figures.memory && words.peak(bytes(figures.memory.peak))],
      ...gpuStats(figures),
    ];
    replace(this.#stats, stats.map(([name, value, about]) => element("div", { class: "card stat" },
      element("dt", {}, name), element("dd", { class: "stat-value" }, value), element("dd", { class: "fine" }, about))));
    replace(this.#version, words.version(figures.version));
    replace(this.#modelRows, figures.models.map((model) => element("tr", { role: "row" },
      element("td", { role: "cell" }, element("strong", {}, model.name), " ",
        model.is_default && element("span", { class: "badge" }, words.isDefault)),
      cell(words.state, {}, element("span", { class: "badge", dataset: { kind: MODEL_KINDS[model.state] ?? "" } },
        words.modelIs[model.state] ?? model.state)),
      cell(words.device, {}, model.device ?? "–"),
      cell(words.slots, {}, model.slots ?? "–"),
      cell(words.uses, {}, model.is_default ? "–" : model.uses))));
    for (const plot of this.#plots) plot.draw(this.#times, this.#series);
    for (const plot of this.#gpuPlots) {
      plot.node.hidden = !figures.gpus?.length;
      if (!plot.node.hidden) plot.draw(this.#times, this.#series);
    }
  }

  async #loadErrors() {
    const panel = this.#panels.errors;
    try {
      const { errors } = await this.#get("/console/api/errors");
      replace(panel, element("p", { class: "soft" }, words.errorsAbout), errors.length === 0
        ? element("div", { class: "card empty" }, icon("check"), element("p", {}, words.noErrors))
        : element("ol", { class: "operations-errors" }, errors.map((event) => this.#event(event))));
    } catch (error) {
      if (error.name !== "AbortError") replace(panel, failure(error));
    }
  }

  #event(event) {
    const fields = Object.entries(event.fields).concat(event.request ? [["request", event.request]] : []);
    return element("li", { class: "card" },
      element("div", { class: "row" },
        element("span", { class: "badge", dataset: { kind: event.level === "ERROR" ? "bad" : "warning" } },
          words.levels[event.level]),
        element("strong", {}, event.message),
        element("time", { class: "fine", datetime: event.at, title: date(event.at) }, ago(event.at))),
      element("dl", { class: "facts" }, element("dt", {}, words.target), element("dd", { class: "mono" }, event.target),
        fields.map(([name, value]) => [element("dt", {}, name), element("dd", { class: "mono" }, value)])));
  }

  async #loadSettings() {
    const panel = this.#panels.settings;
    try {
      const { settings } = await this.#get("/console/api/config");
      const body = element("tbody", { role: "rowgroup" });
      const count = element("p", { class: "fine", role: "status" });
      const search = element("input", { type: "search", placeholder: words.searchSettings,
        "aria-label": words.searchSettings, class: "operations-search" });
      const changed = element("input", { type: "checkbox" });
      const draw = () => {
        const wanted = search.value.trim().toLowerCase();
        const rows = settings.filter(({ name, value, source }) => name.toLowerCase().includes(wanted)
          && (!changed.checked || source !== "default"));
        replace(count, words.settingsShown(rows.length, settings.length));
        replace(body, rows.map(({ name, value, source }) => element("tr", { role: "row" },
          element("th", { scope: "row", role: "rowheader", class: "mono" }, name),
          cell(words.value, { class: "mono" }, value ?? element("span", { class: "soft" },
            source === "default" ? words.notSet : words.hidden)),
          cell(words.source, {}, source === "default" ? element("span", { class: "soft" }, words.byDefault) : source))));
      };
      search.addEventListener("input", draw);
      changed.addEventListener("change", draw);
      draw();
      replace(panel, element("div", { class: "row" }, search,
        element("label", { class: "choice" }, changed, words.onlyChanged), count),
      element("div", { class: "card table", role: "region", tabindex: "0", "aria-label": words.tabs.settings },
        element("table", { class: "stacked operations-settings", role: "table" },
          element("thead", { role: "rowgroup" }, element("tr", { role: "row" },
            [words.setting, words.value, words.source].map((name) =>
              element("th", { scope: "col", role: "columnheader" }, name)))), body)));
    } catch (error) {
      if (error.name !== "AbortError") replace(panel, failure(error));
    }
  }
}

/** Name, value and what it means, of each GPU, or of none. */
function gpuStats({ gpus, models }) {
  if (gpus?.length) {
    return gpus.map(({ index, name, used, memory_free: free, memory_total: total }) =>
      [gpus.length > 1 ? words.gpuOf(index) : words.gpu, used === null ? "–" : percent(used),
        [words.gpuMemory(bytes(free), bytes(total)), element("br", {}), name]]);
  }
  const isElsewhere = models.some(({ device }) => device && !device.startsWith("cpu"));
  return [[words.gpu, isElsewhere ? "–" : words.noGpu, isElsewhere ? words.gpuSilent : words.onCpu]];
}

customElements.define("page-operations", OperationsPage);
