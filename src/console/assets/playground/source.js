// The audio to be transcribed: a file that is chosen or dropped, an address, or a recording.

import { notify } from "../controls.js";
import { element, icon, replace } from "../elements.js";
import { text } from "../text.js";

const KINDS = ["file", "address", "record"];
/** A recording ends by itself after this time. */
const RECORDING_MAX_MS = 60 * 60 * 1000;

/**
 * @typedef {{ kind: "file", blob: Blob, name: string } | { kind: "url", url: string }} Source
 * @param {(source: Source | null) => void} onchange
 * @returns {{ element: HTMLElement, stop: () => void, take: (file: File) => void }}
 */
export function sourceChooser(onchange) {
  const words = text.playground.source;
  const panel = element("div", { class: "source-panel" });
  let recorder = null;

  const buttons = KINDS.map((kind) => element("button", { type: "button", "aria-pressed": "false",
    onclick: () => show(kind) }, words[kind]));
  const panels = { file: filePanel(take), address: addressPanel(onchange), record: recordPanel(take, (one) => recorder = one) };

  function open(kind) {
    recorder?.stop();
    buttons.forEach((button, index) => button.setAttribute("aria-pressed", String(KINDS[index] === kind)));
    replace(panel, panels[kind].element);
  }

  function show(kind) {
    open(kind);
    onchange(panels[kind].source());
  }

  /** A file from anywhere; it is then the one that the file panel shows. */
  function take(file) {
    panels.file.show(file);
    show("file");
  }

  open("file");
  const chooser = element("div", { class: "stack source" },
    element("div", { class: "segments", role: "group", "aria-label": words.title }, buttons), panel);
  return { element: chooser, stop: () => recorder?.stop(), take };
}

function filePanel(take) {
  const words = text.playground.source;
  let file = null;
  const label = element("span", { class: "drop-name" }, words.drop);
  const size = element("span", { class: "fine" }, words.formats);
  const input = element("input", { type: "file", class: "visually-hidden", id: "audio-file", onchange: () => {
    if (input.files.length > 0) take(input.files[0]);
    input.value = "";
  } });
  const zone = element("label", { class: "drop", for: "audio-file" }, icon("upload"), label, size);
  const shown = element("div", {}, input, zone);
  for (const name of ["dragenter", "dragover"]) {
    shown.addEventListener(name, (event) => {
      event.preventDefault();
      zone.dataset.over = "true";
    });
  }
  shown.addEventListener("dragleave", () => delete zone.dataset.over);
  shown.addEventListener("drop", (event) => {
    event.preventDefault();
    delete zone.dataset.over;
    const [dropped] = event.dataTransfer.files;
    if (dropped) take(dropped);
  });
  return {
    element: shown,
    source: () => file && { kind: "file", blob: file, name: file.name },
    show(chosen) {
      file = chosen;
      replace(label, chosen.name);
      replace(size, text.playground.size(chosen.size), " · ", words.another);
    },
  };
}

function addressPanel(onchange) {
  const words = text.playground.source;
  const input = element("input", { type: "url", id: "audio-address", placeholder: "https://", spellcheck: "false",
    autocomplete: "off", "aria-describedby": "audio-address-hint", oninput: () => onchange(source()) });
  const source = () => {
    const isGood = /^https?:\/\/./.test(input.value.trim()) && URL.canParse(input.value.trim());
    input.setAttribute("aria-invalid", String(input.value !== "" && !isGood));
    return isGood ? { kind: "url", url: input.value.trim() } : null;
  };
  const shown = element("div", { class: "field" }, element("label", { for: "audio-address" }, words.addressLabel), input,
    element("p", { class: "fine", id: "audio-address-hint" }, words.addressHint));
  return { element: shown, source };
}

function recordPanel(take, began) {
  const words = text.playground.source;
  const label = element("span", {}, words.start);
  const time = element("span", { class: "number mono", role: "timer", "aria-live": "off" }, "0:00");
  let running = null;
  const button = element("button", { type: "button", onclick: () => (running ? running.stop() : begin()) },
    icon("record"), label);

  async function begin() {
    button.disabled = true;
    try {
      running = await record(time);
    } catch (error) {
      notify(error.name === "NotAllowedError" ? text.microphone.refused : text.microphone.missing, "bad");
      return;
    } finally {
      button.disabled = false;
    }
    began(running);
    button.dataset.recording = "true";
    replace(label, words.end);
    const file = await running.done;
    running = null;
    delete button.dataset.recording;
    replace(label, words.start);
    if (file.size > 0) take(file);
  }

  const shown = element("div", { class: "row record" }, button, time, element("span", { class: "fine" }, words.recordHint));
  return { element: shown, source: () => null };
}

async function record(time) {
  const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
  const recorder = new MediaRecorder(stream);
  const pieces = [];
  const began = performance.now();
  const clock = setInterval(() => replace(time, text.clock((performance.now() - began) / 1000)), 250);
  const limit = setTimeout(() => recorder.stop(), RECORDING_MAX_MS);
  recorder.ondataavailable = ({ data }) => pieces.push(data);
  const done = new Promise((finish) => {
    recorder.onstop = () => {
      clearInterval(clock);
      clearTimeout(limit);
      for (const track of stream.getTracks()) track.stop();
      const type = recorder.mimeType.split(";")[0];
      const ending = type.includes("ogg") ? "ogg" : type.includes("mp4") ? "m4a" : "webm";
      finish(new File(pieces, `recording.${ending}`, { type }));
    };
  });
  recorder.start(1000);
  return { done, stop: () => recorder.state !== "inactive" && recorder.stop() };
}
