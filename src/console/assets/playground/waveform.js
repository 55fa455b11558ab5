// The waveform: a slider over the time of the audio, with the stretches of voice that gave no words.

import { element, replace } from "../elements.js";
import { text } from "../text.js";

const STEP_SECONDS = 5;
const BAR_PIXELS = 2;
const GAP_PIXELS = 1;

/**
 * @param {(seconds: number) => void} onseek
 * @returns {{ element: HTMLElement, load: (peaks: object) => void, mark: (spans: object[]) => void,
 *   move: (seconds: number) => void, close: () => void }}
 */
export function waveform(onseek) {
  const canvas = element("canvas", { class: "wave-canvas" });
  const marks = element("div", { class: "wave-marks" });
  const head = element("div", { class: "wave-head" });
  const slider = element("div", { class: "wave", role: "slider", tabindex: "0", "aria-label": text.playground.position,
    "aria-valuemin": "0", "aria-valuemax": "0", "aria-valuenow": "0" }, canvas, marks, head);
  let shape = null;
  let now = 0;
  let drawnTo = -1;

  const seek = (seconds) => shape && onseek(Math.max(0, Math.min(shape.duration, seconds)));
  const at = (event) => {
    const box = slider.getBoundingClientRect();
    return ((event.clientX - box.left) / box.width) * (shape?.duration ?? 0);
  };
  slider.addEventListener("pointerdown", (event) => {
    slider.setPointerCapture(event.pointerId);
    seek(at(event));
  });
  slider.addEventListener("pointermove", (event) => {
    if (slider.hasPointerCapture(event.pointerId)) seek(at(event));
  });
  slider.addEventListener("keydown", (event) => {
    const steps = { ArrowRight: STEP_SECONDS, ArrowUp: STEP_SECONDS, ArrowLeft: -STEP_SECONDS, ArrowDown: -STEP_SECONDS,
      PageUp: 60, PageDown: -60, Home: -Infinity, End: Infinity };
    if (!(event.key in steps)) return;
    event.preventDefault();
    seek(now + steps[event.key]);
  });
  const resized = new ResizeObserver(() => draw());
  resized.observe(slider);
  const recoloured = new MutationObserver(() => draw());
  recoloured.observe(document.documentElement, { attributeFilter: ["data-theme"] });

  function draw() {
    const { width, height } = slider.getBoundingClientRect();
    if (!shape || width === 0) return;
    const scale = devicePixelRatio;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    drawnTo = -1;
    paint();
  }

  function paint() {
    const pen = canvas.getContext("2d");
    const scale = devicePixelRatio;
    const pitch = (BAR_PIXELS + GAP_PIXELS) * scale;
    const count = Math.floor(canvas.width / pitch);
    const played = Math.round((now / shape.duration) * count);
    if (played === drawnTo || count === 0) return;
    drawnTo = played;
    const [done, rest] = [slider, canvas].map((one) => getComputedStyle(one).color);
    pen.clearRect(0, 0, canvas.width, canvas.height);
    const { peaks } = shape;
    for (let bar = 0; bar < count; bar++) {
      const from = Math.floor((bar / count) * peaks.length);
      const to = Math.max(from + 1, Math.floor(((bar + 1) / count) * peaks.length));
      let most = 0;
      for (let index = from; index < to; index++) most = Math.max(most, peaks[index]);
      const size = Math.max(scale, (most / shape.loudest) * canvas.height * 0.94);
      pen.fillStyle = bar < played ? done : rest;
      pen.fillRect(bar * pitch, (canvas.height - size) / 2, BAR_PIXELS * scale, size);
    }
  }

  return {
    element: slider,
    load({ duration, peaks }) {
      let loudest = 0.05;
      for (const peak of peaks) loudest = Math.max(loudest, peak);
      shape = { duration, peaks, loudest };
      slider.setAttribute("aria-valuemax", duration.toFixed(1));
      now = 0;
      this.move(0);
      draw();
    },
    /** @param {{ start: number, end: number }[]} spans */
    mark(spans) {
      replace(marks, shape ? spans.map(({ start, end }) => {
        const made = element("span", { class: "wave-mark", title: text.playground.withoutWords(end - start) });
        made.style.left = `${(start / shape.duration) * 100}%`;
        made.style.width = `${((end - start) / shape.duration) * 100}%`;
        return made;
      }) : []);
    },
    move(seconds) {
      now = seconds;
      if (!shape) return;
      head.style.left = `${(seconds / shape.duration) * 100}%`;
      slider.setAttribute("aria-valuenow", seconds.toFixed(1));
      slider.setAttribute("aria-valuetext", text.playground.positionOf(seconds, shape.duration));
      if (canvas.width > 0) paint();
    },
    close() {
      resized.disconnect();
      recoloured.disconnect();
    },
  };
}
