// The answer: what was said beside the audio, the JSON, and files to keep.

import { save } from "../api.js";
import { element, icon, replace } from "../elements.js";
import { text } from "../text.js";
import { plainText, srt, vtt } from "./captions.js";
import { jsonTree, longText } from "./json-view.js";
import { player } from "./player.js";
import { paragraphs, stretchesWithoutWords, transcriptOf, utterances } from "./transcript.js";
import { transcriptView } from "./transcript-view.js";
import { waveform } from "./waveform.js";

const VIEWS = ["paragraphs", "utterances", "tree", "json"];

/**
 * Element, and `show(answer, name)`, `listen(blob)`, `shape(peaks)`, which come in any order, and `close`.
 */
export function resultPanel() {
  const words = text.playground;
  const play = player((seconds) => {
    wave.move(seconds);
    view.light(seconds);
  });
  const wave = waveform((seconds) => play.jump(seconds));
  const view = transcriptView((seconds) => play.jump(seconds));
  const follow = element("input", { type: "checkbox", id: "follow", checked: true, onchange: () => {
    view.follow = follow.checked;
  } });
  const sound = element("div", { class: "sound stack" }, wave.element,
    element("div", { class: "row" }, play.element,
      element("label", { class: "choice", for: "follow" }, follow, words.follow)));
  const silent = element("p", { class: "fine" });
  const facts = element("div", { class: "row facts-row" });
  const notes = element("div", { class: "stack" });
  const body = element("div", { class: "result-body" });
  const buttons = VIEWS.map((name) => element("button", { type: "button", onclick: () => choose(name) }, words.views[name]));
  const keep = element("div", { class: "row downloads", role: "group", "aria-label": words.downloads });
  const panel = element("section", { class: "card result", hidden: true, "aria-label": words.result },
    element("div", { class: "card-head" }, element("h2", {}, words.result),
      element("div", { class: "segments", role: "group", "aria-label": words.viewsLabel }, buttons)),
    element("div", { class: "card-body stack" }, sound, silent, facts, notes, body, keep));
  let answer = null;
  let transcript = null;
  let shape = null;
  let chosen = VIEWS[0];

  function choose(name) {
    chosen = name;
    draw();
  }

  function draw() {
    buttons.forEach((button, index) => button.setAttribute("aria-pressed", String(VIEWS[index] === chosen)));
    if (!answer) return;
    if (chosen === "tree") return replace(body, jsonTree(answer));
    if (chosen === "json") return replace(body, longText(JSON.stringify(answer, null, 2)));
    const spans = shape ? stretchesWithoutWords(transcript, shape.loudness) : [];
    wave.mark(spans);
    const blocks = chosen === "paragraphs" ? paragraphs(answer, transcript) : utterances(transcript);
    view.show(transcript.words, blocks, spans);
    replace(body, view.element);
    view.light(play.audio.currentTime || 0);
  }

  function downloads(name) {
    const stem = name.replace(/\.[^.]*$/, "") || "transcript";
    const files = {
      JSON: ["json", "application/json", () => JSON.stringify(answer, null, 2)],
      Text: ["txt", "text/plain", () => plainText(transcript)],
      SRT: ["srt", "application/x-subrip", () => srt(transcript.words)],
      VTT: ["vtt", "text/vtt", () => vtt(transcript.words)],
    };
    replace(keep, element("span", { class: "label" }, words.downloads),
      Object.entries(files).map(([label, [ending, type, content]]) =>
        element("button", { type: "button", class: "small", onclick: async () => save(`${stem}.${ending}`, await content(), type) },
          icon("download"), label)));
  }

  draw();
  return {
    element: panel,
    /** @param {object} given the answer's JSON  @param {string} name of the file  @param {number} [took] seconds */
    show(given, name, took) {
      answer = given;
      transcript = transcriptOf(given);
      panel.hidden = false;
      if (!given.results) chosen = "tree";
      else if (chosen === "tree") chosen = VIEWS[0];
      replace(facts, words.facts(given, transcript, took).map((fact) => element("span", { class: "badge" }, fact)));
      const warnings = given.metadata?.warnings ?? [];
      replace(notes, warnings.map((warning) => element("p", { class: "notice warning" }, icon("warning"),
        element("span", {}, [warning.parameter, warning.message].filter(Boolean).join(": ")))),
      given.results ? null : element("p", { class: "notice" }, words.later));
      downloads(name);
      draw();
    },
    /** @param {Blob | null} blob  @param {string} [silence] why there is none */
    listen(blob, silence = "") {
      play.load(blob);
      sound.hidden = blob === null;
      shape = null;
      replace(silent, silence);
      silent.hidden = blob !== null;
    },
    /** @param {object | null} peaks as `peaksOf` gives them */
    shape(peaks) {
      wave.element.hidden = peaks === null;
      shape = peaks;
      if (peaks) wave.load(peaks);
      else replace(silent, words.noWaveform);
      silent.hidden = peaks !== null;
      // Only now it is known where voice was without words.
      const isShown = chosen === "paragraphs" || chosen === "utterances";
      if (isShown && peaks && transcript?.withoutWords > 0) draw();
    },
    hide: () => { panel.hidden = true; },
    close() {
      play.close();
      wave.close();
      view.close();
    },
  };
}
