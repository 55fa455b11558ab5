// Jobs: requests with a callback, of all organisations.

import { call, callRaw, save } from "../api.js";
import { cell, failure, notify } from "../controls.js";
import { element, icon, replace } from "../elements.js";
import { ago, bytes, date } from "../formats.js";
import { text } from "../text.js";

const words = text.jobs;
const STATES = ["queued", "running", "delivering", "delivered", "dead"];
const KINDS = { queued: "", running: "accent", delivering: "warning", delivered: "good", dead: "bad" };
const REFRESH_MS = 5000;
const LIMIT = 200;
/** Of results that are not JSON. */
const ENDINGS = { "text/plain": "txt", "text/vtt": "vtt", "application/x-subrip": "srt" };

const stateBadge = (state) => element("span", { class: "badge", dataset: { kind: KINDS[state] ?? "" } },
  words.stateOf[state] ?? state);
const moment = (time) => (time ? element("time", { datetime: time, title: date(time) }, ago(time)) : "–");

class JobsPage extends HTMLElement {
  static observedAttributes = ["path"];
  #state = "";
  #chooser = element("div", { class: "segments", role: "group" });
  #list = element("div", { class: "card" });
  #detail = element("div", { class: "jobs-detail" });
  #left = new AbortController();
  #timer = 0;
  #jobs = null;
  #shown = null;

  connectedCallback() {
    this.#chooser.setAttribute("aria-label", words.state);
    replace(this,
      element("header", { class: "page-head" },
        element("div", {}, element("h1", {}, text.pages.jobs), element("p", {}, words.about)),
        element("button", { type: "button", onclick: () => this.#load() }, icon("refresh"), words.refresh)),
      element("div", { class: "jobs-tools" }, this.#chooser),
      element("div", { class: "jobs-panes" }, this.#list, this.#detail));
    replace(this.#list, element("p", { class: "empty" }, text.loading));
    this.#load();
    this.#open();
  }

  disconnectedCallback() {
    clearTimeout(this.#timer);
    this.#left.abort();
  }

  attributeChangedCallback() {
    if (this.isConnected && this.firstChild) this.#open();
  }

  async #load() {
    clearTimeout(this.#timer);
    try {
      const query = new URLSearchParams({ limit: LIMIT });
      if (this.#state) query.set("state", this.#state);
      this.#jobs = await call("GET", `/console/api/jobs?${query}`, undefined, { signal: this.#left.signal });
      this.#draw();
      if (this.#shown && !["delivered", "dead"].includes(this.#shown.state)) this.#open({ quietly: true });
    } catch (error) {
      if (error.name === "AbortError") return;
      replace(this.#list, error.code === "JOBS_DISABLED"
        ? element("div", { class: "empty" }, icon("jobs"), element("p", {}, error.message)) : failure(error));
    }
    if (this.isConnected) this.#timer = setTimeout(() => this.#load(), REFRESH_MS);
  }

  #draw() {
    const counts = new Map(this.#jobs.counts.map(({ state, jobs }) => [state, jobs]));
    const all = [...counts.values()].reduce((sum, count) => sum + count, 0);
    const focused = document.activeElement?.dataset?.state;
    replace(this.#chooser, ["", ...STATES].map((state) => element("button", {
      type: "button", dataset: { state }, "aria-pressed": String(state === this.#state),
      onclick: () => { this.#state = state; this.#load(); },
    }, `${state ? words.stateOf[state] : words.all} ${state ? counts.get(state) ?? 0 : all}`)));
    if (focused !== undefined) this.#chooser.querySelector(`[data-state="${focused}"]`)?.focus();

    if (this.#jobs.jobs.length === 0) {
      replace(this.#list, element("div", { class: "empty" }, icon("jobs"),
        element("p", {}, all === 0 ? words.none : words.noneOfState)));
      return;
    }
    const inside = this.#list.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    const head = [words.job, words.state, words.accepted, words.attempts, words.error];
    replace(this.#list, element("div", { class: "table", role: "region", tabindex: "0", "aria-label": text.pages.jobs },
      element("table", { class: "stacked", role: "table" },
        element("thead", { role: "rowgroup" }, element("tr", { role: "row" }, head.map((name) =>
          element("th", { scope: "col", role: "columnheader" }, name)))),
        element("tbody", { role: "rowgroup" }, this.#jobs.jobs.map((job) => element("tr", { role: "row" },
          element("td", { role: "cell" }, element("a", { class: "mono", href: `#/jobs/${job.id}`,
            "aria-current": job.id === this.#shown?.id ? "true" : null, title: job.id }, job.id.slice(0, 8)),
          element("div", { class: "fine" }, job.receiver)),
          cell(words.state, {}, stateBadge(job.state)),
          cell(words.accepted, {}, moment(job.accepted)),
          cell(words.attempts, {}, job.attempts),
          cell(words.error, {}, element("span", { class: "mono" }, job.error ?? "–"))))))));
    if (inside) [...this.#list.querySelectorAll("a")].find((link) => link.getAttribute("href") === inside)?.focus();
  }

  async #open({ quietly = false } = {}) {
    const id = this.getAttribute("path");
    if (!id) {
      this.#shown = null;
      replace(this.#detail);
      return;
    }
    try {
      const job = await call("GET", `/console/api/jobs/${encodeURIComponent(id)}`, undefined,
        { signal: this.#left.signal });
      if (this.getAttribute("path") !== id) return;
      this.#shown = job;
      this.#drawJob(job, quietly);
    } catch (error) {
      if (error.name !== "AbortError") replace(this.#detail, failure(error));
    }
  }

  #drawJob(job, quietly) {
    const hadFocus = this.#detail.contains(document.activeElement);
    const facts = [
      [words.organisation, element("span", { class: "mono" }, job.organisation)],
      [words.receiver, job.receiver],
      [words.accepted, moment(job.accepted)],
      [words.finished, moment(job.finished)],
      [words.ended, moment(job.ended)],
      job.due && [words.due, moment(job.due)],
      [words.runs, job.runs],
      job.error && [words.error, element("span", { class: "mono" }, job.error)],
      [words.result, job.result_bytes === null ? words.noResult : bytes(job.result_bytes)],
    ].filter(Boolean);
    const title = element("h2", { tabindex: "-1", class: "mono" }, job.id);
    replace(this.#detail, element("section", { class: "card", "aria-label": words.oneJob },
      element("div", { class: "card-head" }, title, stateBadge(job.state),
        element("a", { class: "button small", href: "#/jobs" }, text.close)),
      element("div", { class: "card-body stack" },
        element("dl", { class: "facts" }, facts.map(([name, value]) => [
          element("dt", {}, name), element("dd", {}, value)])),
        element("div", { class: "row" },
          element("button", { type: "button", disabled: !job.may_retry, onclick: () => this.#retry(job) },
            icon("refresh"), words.retry),
          element("button", { type: "button", disabled: job.result_bytes === null, onclick: () => this.#save(job) },
            icon("download"), words.download)),
        element("h3", {}, words.deliveries),
        job.deliveries.length === 0
          ? element("p", { class: "soft" }, job.attempts > 0 ? words.olderDeliveries : words.noDeliveries)
          : element("ol", { class: "jobs-deliveries" }, job.deliveries.map((delivery) =>
            element("li", {}, element("span", { class: "fine" }, words.attempt(delivery.number)),
              element("span", { class: "badge", dataset: { kind: delivery.answer === "delivered" ? "good" : "bad" } },
                words.answerOf(delivery.answer)),
              moment(delivery.ended)))))));
    if (!quietly || hadFocus) title.focus({ preventScroll: quietly });
  }

  async #retry(job) {
    try {
      this.#shown = await call("POST", `/console/api/jobs/${job.id}/retry`);
      notify(words.retried);
      this.#drawJob(this.#shown, true);
      this.#load();
    } catch (error) {
      notify(error.message, "bad");
    }
  }

  async #save(job) {
    try {
      const response = await callRaw("GET", `/console/api/jobs/${job.id}/result`);
      const type = (response.headers.get("content-type") ?? "").split(";")[0].trim();
      save(`${job.id}.${ENDINGS[type] ?? "json"}`, await response.blob());
    } catch (error) {
      notify(error.message, "bad");
    }
  }
}

customElements.define("page-jobs", JobsPage);
