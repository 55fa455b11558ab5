// Keys: those of all organisations, with what they may do and when they were last used.

import { call } from "../api.js";
import { cell, copyButton, dialog, failure, notify } from "../controls.js";
import { element, icon, replace } from "../elements.js";
import { ago, date } from "../formats.js";
import { text } from "../text.js";

const words = text.keys;
/** Of the most common needs; the last one lets every scope be chosen. */
const USES = { client: [], member: ["member"], reader: ["project:read", "usage:read"], own: null };
const DAY_SECONDS = 86_400;
const STATES = ["active", "ended", "all"];

class KeysPage extends HTMLElement {
  #known = null;
  #state = "active";
  #search = "";
  #list = element("div", { class: "card" });
  #left = new AbortController();

  connectedCallback() {
    const search = element("input", {
      type: "search", placeholder: words.search, "aria-label": words.search, class: "keys-search",
      oninput: () => { this.#search = search.value.trim().toLowerCase(); this.#draw(); },
    });
    const states = STATES.map((state) => element("button", {
      type: "button", "aria-pressed": String(state === this.#state), onclick: (event) => {
        this.#state = state;
        for (const other of event.target.parentElement.children) {
          other.setAttribute("aria-pressed", String(other === event.target));
        }
        this.#draw();
      },
    }, words.states[state]));
    replace(this,
      element("header", { class: "page-head" },
        element("div", {}, element("h1", {}, text.pages.keys), element("p", {}, words.about)),
        element("button", { type: "button", class: "primary", onclick: () => this.#create() },
          icon("plus"), words.create)),
      element("div", { class: "row keys-tools" },
        element("div", { class: "segments", role: "group", "aria-label": words.state }, states), search),
      this.#list);
    replace(this.#list, element("p", { class: "empty" }, text.loading));
    this.#load();
  }

  disconnectedCallback() {
    this.#left.abort();
  }

  async #load() {
    try {
      this.#known = await call("GET", "/console/api/keys", undefined, { signal: this.#left.signal });
      this.#draw();
    } catch (error) {
      if (error.name !== "AbortError") replace(this.#list, failure(error));
    }
  }

  #draw() {
    if (!this.#known) return;
    const organisations = new Map(this.#known.organisations.map(({ id, name }) => [id, name]));
    const isWanted = (key) => {
      const isOfState = this.#state === "all" || (key.state === "active") === (this.#state === "active");
      const said = `${key.label} ${key.id} ${organisations.get(key.organisation) ?? ""} ${key.tags.join(" ")}`;
      return isOfState && said.toLowerCase().includes(this.#search);
    };
    const rows = this.#known.keys.filter(isWanted).reverse();
    if (rows.length === 0) {
      replace(this.#list, element("div", { class: "empty" }, icon("keys"), element("p", {}, words.none)));
      return;
    }
    const head = [words.label, words.organisation, words.scopes, words.lastUsed, words.expires];
    replace(this.#list, element("div", { class: "table", tabindex: "0", role: "region", "aria-label": text.pages.keys },
      element("table", { class: "stacked", role: "table" },
        element("thead", { role: "rowgroup" }, element("tr", { role: "row" }, head.map((name) => element("th", { scope: "col", role: "columnheader" }, name)),
          element("th", { scope: "col", role: "columnheader" },
            element("span", { class: "visually-hidden" }, words.actions)))),
        element("tbody", { role: "rowgroup" }, rows.map((key) => this.#row(key, organisations))))));
  }

  #row(key, organisations) {
    const role = key.role !== "caller" && element("span", { class: "badge", dataset: { kind: "accent" } },
      words.roles[key.role]);
    const state = key.state !== "active" && element("span", { class: "badge", dataset: {
      kind: key.state === "revoked" ? "bad" : "warning" } }, words.stateOf[key.state]);
    const used = key.last_used
      ? element("time", { datetime: key.last_used, title: date(key.last_used) }, ago(key.last_used))
      : element("span", { class: "soft" }, this.#known.knows_uses ? words.never : words.unknown);
    const expires = key.expires
      ? element("time", { datetime: key.expires, title: date(key.expires) }, ago(key.expires))
      : element("span", { class: "soft" }, words.never);
    const revoke = key.state !== "revoked" && element("button", {
      type: "button", class: "small danger", "aria-label": words.revokeKey(key.label), onclick: () => this.#revoke(key),
    }, words.revoke);
    return element("tr", { role: "row" },
      element("td", { role: "cell" },
        element("div", { class: "row" }, element("strong", {}, key.label), role, state,
          key.is_own && element("span", { class: "badge" }, words.own)),
        element("div", { class: "fine mono" }, key.id),
        key.tags.length > 0 && element("div", { class: "row keys-tags" },
          key.tags.map((tag) => element("span", { class: "badge" }, tag)))),
      cell(words.organisation, {}, organisations.get(key.organisation) ?? "",
        element("div", { class: "fine mono" }, key.organisation)),
      cell(words.scopes, { class: "keys-scopes" }, key.role === "operator" || key.role === "admin"
        ? words.everything : key.scopes.join(", ")),
      cell(words.lastUsed, {}, used),
      cell(words.expires, {}, expires),
      element("td", { role: "cell", class: "number" }, revoke));
  }

  #create() {
    const input = (properties) => element("input", { autocomplete: "off", ...properties });
    const field = (label, control, hint) => element("div", { class: "field" },
      element("label", { for: control.id }, label), control, hint && element("p", { class: "fine" }, hint));
    const label = input({ id: "key-label", required: true, maxlength: 100 });
    const organisation = element("select", { id: "key-organisation" },
      element("option", { value: "" }, words.newOrganisation),
      this.#known?.organisations.map(({ id, name }) => element("option", { value: id }, `${name} (${id})`)));
    const use = element("select", { id: "key-use" }, Object.keys(USES).concat("operator").map((name) =>
      element("option", { value: name }, words.uses[name])));
    const scopes = element("fieldset", { hidden: true }, element("legend", {}, words.scopes),
      element("div", { class: "keys-choices" }, (this.#known?.scopes ?? []).map((scope) =>
        element("label", { class: "choice" }, input({ type: "checkbox", name: "scope", value: scope }),
          element("span", { class: "mono" }, scope)))));
    const about = element("p", { class: "fine" }, words.useAbout.client);
    use.addEventListener("change", () => {
      scopes.hidden = use.value !== "own";
      replace(about, words.useAbout[use.value]);
    });
    const expiry = element("select", { id: "key-expiry" }, words.expiries.map(([days, name]) =>
      element("option", { value: days }, name)));
    const problem = element("div", {});
    const submit = element("button", { class: "primary" }, words.create);

    const shown = dialog(words.createTitle, (close) => [element("form", { onsubmit: async (event) => {
      event.preventDefault();
      const chosen = [...scopes.querySelectorAll("input:checked")].map((box) => box.value);
      if (use.value === "own" && chosen.length === 0) {
        replace(problem, element("p", { class: "problem", role: "alert" }, words.noScope));
        return;
      }
      submit.disabled = true;
      try {
        const made = await call("POST", "/console/api/keys", {
          label: label.value,
          organisation: organisation.value || null,
          operator: use.value === "operator",
          scopes: use.value === "own" ? chosen : USES[use.value] ?? [],
          expires_in_seconds: expiry.value ? Number(expiry.value) * DAY_SECONDS : null,
        });
        close();
        this.#show(made);
        this.#load();
      } catch (error) {
        replace(problem, failure(error));
      } finally {
        submit.disabled = false;
      }
    } },
    element("div", { class: "dialog-body" },
      field(words.label, label, words.labelHint),
      field(words.organisation, organisation),
      element("div", { class: "field" }, element("label", { for: "key-use" }, words.use), use, about),
      scopes,
      field(words.expires, expiry),
      element("p", { class: "fine" }, words.noAdmins),
      problem),
    element("div", { class: "dialog-foot" },
      element("button", { type: "button", onclick: close }, text.cancel), submit))]);
    shown.classList.add("keys-create");
    label.focus();
  }

  /** The text of a new key, this one time. */
  #show(made) {
    const value = element("code", { class: "keys-secret", tabindex: "0" }, made.key);
    dialog(words.createdTitle, (close) => [
      element("div", { class: "dialog-body" },
        element("p", { class: "notice warning" }, icon("warning"), element("span", {}, words.shownOnce)),
        element("div", { class: "row" }, value, copyButton(() => made.key))),
      element("div", { class: "dialog-foot" },
        element("button", { type: "button", class: "primary", onclick: close }, words.saved)),
    ]);
  }

  #revoke(key) {
    const problem = element("div", {});
    dialog(words.revokeKey(key.label), (close) => [
      element("div", { class: "dialog-body" },
        element("p", {}, key.is_own ? words.revokeOwn : words.revokeAbout), problem),
      element("div", { class: "dialog-foot" },
        element("button", { type: "button", onclick: close }, text.cancel),
        element("button", { type: "button", class: "danger", onclick: async ({ currentTarget: button }) => {
          button.disabled = true;
          try {
            await call("DELETE", `/console/api/keys/${encodeURIComponent(key.id)}`);
            close();
            notify(words.revoked(key.label));
            this.#load();
          } catch (error) {
            replace(problem, failure(error));
            button.disabled = false;
          }
        } }, words.revoke)),
    ]);
  }
}

customElements.define("page-keys", KeysPage);
