// The parameters of a request: read from /openapi.json, and the values that differ from what the server does anyway.

/** Where a parameter stands; the rest are among `others`. The order is that of the page. */
const GROUPS = {
  live: ["interim_results", "endpointing", "utterance_end_ms", "vad_events", "no_delay"],
  turns: ["eot_threshold", "eager_eot_threshold", "eot_timeout_ms"],
  recognition: ["model", "language", "language_hint", "detect_language", "multichannel"],
  format: ["smart_format", "punctuate", "paragraphs", "utterances", "utt_split", "numerals", "measurements", "dictation",
    "filler_words", "profanity_filter", "replace", "redact", "redact_mode"],
  speakers: ["diarize", "identify_speakers", "min_speakers", "max_speakers", "speakers_expected"],
  terms: ["keyterm", "keywords", "search"],
  audio: ["encoding", "sample_rate", "channels"],
  delivery: ["timestamps", "callback", "callback_method", "Idempotency-Key", "metadata", "tag", "extra", "mip_opt_out"],
};
const OTHERS = "others";
export const GROUP_NAMES = [...Object.keys(GROUPS), OTHERS];

/**
 * @typedef {object} Parameter
 * @property {string} name
 * @property {"query" | "header"} place
 * @property {"switch" | "choice" | "number" | "list" | "text"} kind
 * @property {string} description
 * @property {string} group one of `GROUP_NAMES`
 * @property {string[]} choices of a choice; the first is no value where the server has no default
 * @property {string | string[] | null} usual what the server does without it
 * @property {{ minimum?: number, maximum?: number, step: string, items?: number, characters?: number }} bounds
 */

/**
 * @param {object} document /openapi.json
 * @param {string} path
 * @param {"get" | "post"} method
 * @returns {Parameter[]}
 */
export function parametersOf(document, path, method) {
  const listed = document.paths?.[path]?.[method]?.parameters ?? [];
  const found = listed.filter((one) => one.in === "query" || one.in === "header").map(parameter);
  const rank = (one) => {
    const within = (GROUPS[one.group] ?? []).indexOf(one.name);
    return GROUP_NAMES.indexOf(one.group) * 1000 + (within < 0 ? 500 : within);
  };
  return found.sort((a, b) => rank(a) - rank(b));
}

function parameter({ name, in: place, description = "", schema = {} }) {
  const group = Object.keys(GROUPS).find((key) => GROUPS[key].includes(name)) ?? OTHERS;
  return { name, place, description, group, ...kind(schema) };
}

function kind(schema) {
  const usual = schema.default === undefined ? null : [schema.default].flat().map(String);
  const single = usual?.[0] ?? null;
  if (schema.type === "boolean" && single === "false") {
    return { kind: "switch", choices: [], usual: single, bounds: {} };
  }
  if (schema.type === "boolean") return { kind: "choice", choices: ["true", "false"], usual: single, bounds: {} };
  if (schema.enum) return { kind: "choice", choices: schema.enum.map(String), usual: single, bounds: {} };
  if (schema.type === "integer" || schema.type === "number") {
    const { minimum, maximum } = schema;
    const step = schema.type === "integer" ? "1" : "any";
    return { kind: "number", choices: [], usual: single, bounds: { minimum, maximum, step } };
  }
  if (schema.type === "array") {
    return { kind: "list", choices: [], usual: usual ?? [], bounds: { items: schema.maxItems } };
  }
  return { kind: "text", choices: [], usual: single, bounds: { characters: schema.maxLength } };
}

/** Whether `value` is what the server does anyway. */
export function isUsual(parameter, value) {
  if (parameter.kind === "list") {
    return !value?.length || JSON.stringify(value) === JSON.stringify(parameter.usual);
  }
  return value === undefined || value === null || value === "" || value === parameter.usual;
}

/** The values of a page; only those that were changed. */
export class Values {
  #all;
  #changed = new Map();

  /** @param {Parameter[]} all  @param {Record<string, string>} preset what the page itself asks for */
  constructor(all, preset = {}) {
    this.#all = all;
    this.preset = preset;
    this.reset();
  }

  reset() {
    this.#changed.clear();
    for (const [name, value] of Object.entries(this.preset)) this.set(name, value);
  }

  get(name) {
    return this.#changed.get(name) ?? this.#find(name)?.usual ?? "";
  }

  set(name, value) {
    const parameter = this.#find(name);
    if (!parameter) return;
    if (isUsual(parameter, value)) this.#changed.delete(name);
    else this.#changed.set(name, value);
  }

  has(name) {
    return this.#changed.has(name);
  }

  /** How many differ from what the page asks for by itself. */
  get count() {
    const own = [...this.#changed].filter(([name, value]) => this.preset[name] !== value).length;
    return own + Object.keys(this.preset).filter((name) => !this.#changed.has(name)).length;
  }

  /** Names and values in the order of the page, a pair for each value of a list. `place`: "query" or "header". */
  pairs(place) {
    const here = this.#all.filter((one) => one.place === place && this.#changed.has(one.name));
    return here.flatMap(({ name }) => [this.#changed.get(name)].flat().map((value) => [name, value]));
  }

  /** For the address bar: a text that `restore` reads. */
  fragment() {
    const pairs = [...this.pairs("query"), ...this.pairs("header")];
    const shared = pairs.filter(([name, value]) => this.preset[name] !== value);
    for (const name of Object.keys(this.preset)) if (!this.has(name)) shared.push([name, ""]);
    return new URLSearchParams(shared).toString();
  }

  restore(fragment) {
    this.reset();
    const given = new URLSearchParams(fragment);
    for (const name of new Set(given.keys())) {
      const parameter = this.#find(name);
      const value = given.getAll(name);
      this.set(name, parameter?.kind === "list" ? value.filter(Boolean) : value.at(-1));
    }
  }

  #find(name) {
    return this.#all.find((one) => one.name === name);
  }
}
