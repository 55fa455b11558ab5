// The last half minute as a running plot: loudness, the confidence that a turn has ended, endpoints, and how long each
// result took.

import { element } from "../elements.js";
import { text } from "../text.js";

const WINDOW_SECONDS = 30;
const LEVELS_PER_SECOND = 25;
const MARGIN = { left: 34, right: 8, top: 18, bottom: 18 };

export function livePlot() {
  const canvas = element("canvas", { class: "live-plot", role: "img", "aria-label": text.live.plot });
  // Colours of the style sheet as a canvas needs them.
  const colours = Object.fromEntries(["text", "soft", "line", "level", "confidence", "endpoint", "latency"].map((name) =>
    [name, element("span", { class: "plot-colour", dataset: { colour: name } })]));
  const figure = element("figure", { class: "plot" }, canvas, Object.values(colours), legend());
  let levels = [];
  let firstLevel = 0;

  const colour = (name) => getComputedStyle(colours[name]).color;

  return {
    element: figure,
    reset() {
      levels = [];
      firstLevel = 0;
    },
    /** @param {Int16Array} samples  @param {number} rate  @param {number} from seconds before them */
    hear(samples, rate, from) {
      const size = rate / LEVELS_PER_SECOND;
      for (let index = 0; index < samples.length; index++) {
        const place = Math.floor((from * rate + index) / size) - firstLevel;
        levels[place] = Math.max(levels[place] ?? 0, Math.abs(samples[index]) / 0x8000);
      }
      const extra = levels.length - 4 * WINDOW_SECONDS * LEVELS_PER_SECOND;
      if (extra > 0) {
        levels = levels.slice(extra);
        firstLevel += extra;
      }
    },
    /** @param {import("./heard.js").Heard} heard  @param {number} now seconds of audio  @param {number} threshold */
    draw(heard, now, threshold) {
      const { width, height } = canvas.getBoundingClientRect();
      if (width === 0) return;
      const scale = devicePixelRatio;
      if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
        canvas.width = Math.round(width * scale);
        canvas.height = Math.round(height * scale);
      }
      const pen = canvas.getContext("2d");
      pen.setTransform(scale, 0, 0, scale, 0, 0);
      pen.clearRect(0, 0, width, height);
      const from = Math.max(0, now - WINDOW_SECONDS);
      const inner = { width: width - MARGIN.left - MARGIN.right, height: height - MARGIN.top - MARGIN.bottom };
      const x = (seconds) => MARGIN.left + ((seconds - from) / WINDOW_SECONDS) * inner.width;
      const y = (value) => MARGIN.top + (1 - value) * inner.height;
      drawAxes(pen, { x, y, from, inner, colour });
      drawLevels(pen, { x, y, from, inner, colour }, levels, firstLevel);
      drawMarks(pen, { x, y, from, colour }, heard.marks);
      drawConfidence(pen, { x, y, from, inner, colour }, heard.confidences, threshold);
      drawLatencies(pen, { x, y, from, colour }, heard.results);
    },
  };
}

function legend() {
  const entries = Object.entries(text.live.legend);
  return element("figcaption", { class: "row fine" }, entries.map(([name, label]) =>
    element("span", { class: "legend" }, element("span", { class: "legend-mark", dataset: { colour: name } }), label)));
}

function drawAxes(pen, { x, y, from, inner, colour }) {
  pen.font = "11px system-ui, sans-serif";
  pen.fillStyle = colour("soft");
  pen.strokeStyle = colour("line");
  pen.lineWidth = 1;
  pen.textAlign = "right";
  for (const value of [0, 0.5, 1]) {
    const height = Math.round(y(value)) + 0.5;
    pen.beginPath();
    pen.moveTo(MARGIN.left, height);
    pen.lineTo(MARGIN.left + inner.width, height);
    pen.stroke();
    pen.fillText(String(value), MARGIN.left - 6, height + 4);
  }
  const end = MARGIN.left + inner.width;
  for (let second = Math.ceil(from / 5) * 5; second <= from + WINDOW_SECONDS; second += 5) {
    // The last one would not fit around its place.
    pen.textAlign = x(second) > end - 12 ? "right" : "center";
    pen.fillText(text.clock(second), x(second), y(0) + 14);
  }
}

function drawLevels(pen, { x, y, from, inner, colour }, levels, first) {
  pen.fillStyle = colour("level");
  const width = Math.max(1, inner.width / (WINDOW_SECONDS * LEVELS_PER_SECOND) - 0.5);
  const start = Math.max(0, Math.floor(from * LEVELS_PER_SECOND) - first);
  for (let index = start; index < levels.length; index++) {
    // Decibels from -60 to 0: a voice then fills the plot.
    const share = Math.max(0, 1 + Math.log10(Math.max(1e-6, levels[index] ?? 0)) / 3);
    const top = y(share);
    pen.fillRect(x((first + index) / LEVELS_PER_SECOND), top, width, y(0) - top);
  }
}

function drawMarks(pen, { x, y, from, colour }, marks) {
  pen.textAlign = "left";
  let labelled = -Infinity;
  for (const { kind, at } of marks) {
    if (at < from) continue;
    const place = Math.round(x(at)) + 0.5;
    const isStart = kind === "SpeechStarted" || kind === "StartOfTurn" || kind === "TurnResumed";
    pen.strokeStyle = pen.fillStyle = colour(isStart ? "soft" : "endpoint");
    pen.setLineDash(isStart ? [2, 3] : []);
    pen.lineWidth = isStart ? 1 : 1.5;
    pen.beginPath();
    pen.moveTo(place, y(1));
    pen.lineTo(place, y(0));
    pen.stroke();
    if (place < labelled) continue;
    const label = text.live.marks[kind] ?? kind;
    pen.fillText(label, place + 3, MARGIN.top - 6);
    labelled = place + pen.measureText(label).width + 8;
  }
  pen.setLineDash([]);
}

function drawConfidence(pen, { x, y, from, inner, colour }, points, threshold) {
  const shown = points.filter(({ at }) => at >= from);
  if (shown.length === 0) return;
  pen.strokeStyle = colour("confidence");
  pen.lineWidth = 1;
  pen.setLineDash([5, 4]);
  pen.beginPath();
  pen.moveTo(MARGIN.left, y(threshold));
  pen.lineTo(MARGIN.left + inner.width, y(threshold));
  pen.stroke();
  pen.setLineDash([]);
  pen.lineWidth = 2;
  pen.beginPath();
  shown.forEach(({ at, value }, index) => (index === 0 ? pen.moveTo(x(at), y(value)) : pen.lineTo(x(at), y(value))));
  pen.stroke();
}

/** A dot for each result; the height is its latency, one second at the top. */
function drawLatencies(pen, { x, y, from, colour }, results) {
  pen.fillStyle = colour("latency");
  pen.strokeStyle = colour("latency");
  for (const { end, latency, kind } of results) {
    if (end < from || latency === null) continue;
    pen.beginPath();
    pen.arc(x(end), y(Math.min(1, latency / 1000)), kind === "interim" ? 2 : 4, 0, 2 * Math.PI);
    if (kind === "interim") pen.stroke();
    else pen.fill();
  }
}
