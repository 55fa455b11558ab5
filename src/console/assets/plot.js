// A plot of series over time, as SVG, with a table of the same figures for those who don't see it.

import { drawing, element, replace } from "./elements.js";
import { number, timeOfDay } from "./formats.js";
import { text } from "./text.js";

const WIDTH = 600;
const HEIGHT = 160;
const BOTTOM = 20;
const TOP = 8;
/** Strokes differ as well as colours. */
const DASHES = ["", "6 4", "2 3", "10 4 2 4"];

/** The smallest round number that is at least `value`, in steps of a `base`. */
function roundUp(value, base) {
  if (!(value > 0)) return 1;
  const size = base ** Math.floor(Math.log(value) / Math.log(base));
  const steps = base === 10 ? [1, 2, 2.5, 5, 10] : [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
  return steps.map((step) => step * size).find((step) => step >= value * 0.999);
}

/**
 * A card with a plot.
 *
 * @param {string} title
 * @param {string} about one sentence
 * @param {{ name: string, label: string }[]} series
 * @param {{ format?: (value: number) => string, least?: number }} [options] `least`: the top
 *   of the scale at least; `base`: 10, or 1024 for bytes
 */
export class Plot {
  #series;
  #format;
  #least;
  #base;
  #times = [];
  #values = {};
  #svg = drawing("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
  #legend = element("ul", { class: "plot-legend" });
  #scale = element("div", { class: "plot-scale", "aria-hidden": "true" });
  #axis = element("div", { class: "plot-axis", "aria-hidden": "true" });
  #tip = element("div", { class: "plot-tip", hidden: true });
  #table = element("div", { class: "table", role: "region", tabindex: "0" });
  #title;
  node;

  constructor(title, about, series, { format = number, least = 1, base = 10 } = {}) {
    this.#base = base;
    this.#series = series;
    this.#format = format;
    this.#least = least;
    this.#title = title;
    this.#svg.setAttribute("aria-label", title);
    this.#table.setAttribute("aria-label", title);
    const details = element("details", { class: "plot-figures", ontoggle: () => this.#drawTable() },
      element("summary", {}, text.plot.figures), this.#table);
    const area = element("div", { class: "plot-area", onpointermove: (event) => this.#point(event),
      onpointerleave: () => { this.#tip.hidden = true; } }, this.#svg, this.#tip);
    this.node = element("section", { class: "card plot", "aria-label": title },
      element("div", { class: "card-body" },
        element("h2", {}, title), element("p", { class: "fine" }, about), this.#legend,
        element("div", { class: "plot-frame" }, this.#scale, area), this.#axis, details));
  }

  /** Draws `values`, arrays by name of series, at `times` in milliseconds. */
  draw(times, values) {
    this.#times = times;
    this.#values = values;
    const columns = this.#series.map(({ name }) => values[name] ?? []);
    const most = roundUp(columns.reduce((most, column) => column.reduce((a, b) => Math.max(a, b), most), this.#least), this.#base);
    const first = times[0] ?? 0;
    const span = Math.max(1, (times.at(-1) ?? 1) - first);
    const x = (time) => (((time - first) / span) * WIDTH).toFixed(1);
    const y = (value) => (HEIGHT - BOTTOM - (value / most) * (HEIGHT - BOTTOM - TOP)).toFixed(1);
    const lines = [0, 0.5, 1].map((part) => drawing("line", {
      class: "plot-line", x1: 0, x2: WIDTH, y1: y(most * part), y2: y(most * part) }));
    const paths = columns.map((column, place) => drawing("path", {
      class: `plot-path series-${place + 1}`, "stroke-dasharray": DASHES[place % DASHES.length] || null,
      d: column.map((value, at) => `${at === 0 ? "M" : "L"}${x(times[at])} ${y(value)}`).join(""),
    }));
    this.#svg.setAttribute("aria-label", this.#said(columns));
    replace(this.#svg, lines, paths);
    replace(this.#scale, [1, 0.5, 0].map((part) => element("span", {}, this.#format(most * part))));
    replace(this.#axis, times.length > 1
      ? [times[0], times[Math.floor(times.length / 2)], times.at(-1)].map((time) => element("span", {}, timeOfDay(time)))
      : []);
    replace(this.#legend, this.#series.map(({ label }, place) => element("li", {},
      drawing("svg", { viewBox: "0 0 20 4", class: "plot-key", "aria-hidden": "true" },
        drawing("path", { class: `plot-path series-${place + 1}`, d: "M0 2H20",
          "stroke-dasharray": DASHES[place % DASHES.length] || null })),
      `${label} `, element("strong", {}, columns[place].length ? this.#format(columns[place].at(-1)) : "–"))));
    if (this.#table.parentElement.open) this.#drawTable();
  }

  /** The plot in words. */
  #said(columns) {
    const parts = this.#series.map(({ label }, place) => {
      const column = columns[place];
      if (column.length === 0) return "";
      const [least, most] = [Math.min(...column), Math.max(...column)];
      return text.plot.said(label, this.#format(column.at(-1)), this.#format(least), this.#format(most));
    });
    return `${this.#title}. ${parts.filter(Boolean).join(" ")}`;
  }

  /** The value of each minute. */
  #drawTable() {
    if (!this.#table.parentElement.open) return;
    const step = Math.max(1, Math.ceil(this.#times.length / 60));
    const places = this.#times.map((_, at) => at).filter((at) => (this.#times.length - 1 - at) % step === 0).reverse();
    replace(this.#table, element("table", {},
      element("thead", {}, element("tr", {}, element("th", { scope: "col" }, text.plot.time),
        this.#series.map(({ label }) => element("th", { scope: "col", class: "number" }, label)))),
      element("tbody", {}, places.map((at) => element("tr", {},
        element("th", { scope: "row" }, timeOfDay(this.#times[at])),
        this.#series.map(({ name }) => element("td", { class: "number" },
          this.#format(this.#values[name]?.[at] ?? 0))))))));
  }

  #point(event) {
    if (this.#times.length < 2) return;
    const box = this.#svg.getBoundingClientRect();
    const part = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    const wanted = this.#times[0] + part * (this.#times.at(-1) - this.#times[0]);
    let at = this.#times.findIndex((time) => time >= wanted);
    if (at < 0) at = this.#times.length - 1;
    replace(this.#tip, element("strong", {}, timeOfDay(this.#times[at])),
      this.#series.map(({ name, label }) => element("div", {}, `${label} ${this.#format(this.#values[name]?.[at] ?? 0)}`)));
    this.#tip.hidden = false;
    this.#tip.style.setProperty("left", `${part * 100}%`);
    this.#tip.dataset.side = part > 0.5 ? "left" : "right";
  }
}
