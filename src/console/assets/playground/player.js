// The audio under the transcript: playing, jumping, and telling where it is at each frame.

import { element, icon, replace } from "../elements.js";
import { text } from "../text.js";

const RATES = ["0.75", "1", "1.25", "1.5", "2"];

/**
 * @param {(seconds: number) => void} onmove called at each frame while it plays, and after a jump
 * @returns {{ element: HTMLElement, audio: HTMLAudioElement, load: (blob: Blob | null) => void,
 *   jump: (seconds: number) => void, toggle: () => void, close: () => void }}
 */
export function player(onmove) {
  const words = text.playground;
  const audio = element("audio", { preload: "auto" });
  const glyph = element("span", { class: "row" }, icon("play"));
  const toggle = element("button", { type: "button", class: "primary play", "aria-label": words.play,
    onclick: () => (audio.paused ? audio.play().catch(() => {}) : audio.pause()) }, glyph);
  const time = element("span", { class: "mono number" }, "0:00");
  const rate = element("select", { "aria-label": words.rate, class: "rate", onchange: () => {
    audio.playbackRate = Number(rate.value);
  } }, RATES.map((value) => element("option", { value, selected: value === "1" }, `${value}×`)));
  let frame = 0;
  let address = null;

  function tick() {
    frame = requestAnimationFrame(tick);
    told();
  }

  function told() {
    onmove(audio.currentTime);
    const shown = `${text.clock(audio.currentTime)} / ${text.clock(audio.duration || 0)}`;
    if (time.textContent !== shown) replace(time, shown);
  }

  function draw() {
    replace(glyph, icon(audio.paused ? "play" : "pause"));
    toggle.setAttribute("aria-label", audio.paused ? words.play : words.pause);
    cancelAnimationFrame(frame);
    if (!audio.paused) frame = requestAnimationFrame(tick);
  }

  for (const name of ["play", "pause", "ended"]) audio.addEventListener(name, draw);
  for (const name of ["seeked", "loadedmetadata"]) audio.addEventListener(name, told);

  return {
    element: element("div", { class: "row player" }, toggle, time, rate, audio),
    audio,
    load(blob) {
      audio.pause();
      if (address) URL.revokeObjectURL(address);
      address = blob ? URL.createObjectURL(blob) : null;
      if (address) audio.src = address;
      else audio.removeAttribute("src");
      told();
    },
    jump(seconds) {
      audio.currentTime = seconds;
      told();
    },
    toggle: () => toggle.click(),
    close() {
      cancelAnimationFrame(frame);
      audio.pause();
      if (address) URL.revokeObjectURL(address);
    },
  };
}
