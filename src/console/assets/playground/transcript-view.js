// The transcript as one reads it. A block far from the window is one piece of text; near it, each word is an element
// that lights up, has its confidence, and can be jumped to. Only so many words change at a frame, so that no task is
// long, however fast one scrolls.

import { element, replace } from "../elements.js";
import { text } from "../text.js";
import { slices } from "./slices.js";
import { wordAt } from "./transcript.js";

/** How far from the window words become elements. */
const NEAR = "400px";
/** Words that become elements, or text again, at one frame; and at least one block. */
const FRAME_WORDS = 240;
const SERIES = 6;
/** Lower bounds of confidence; what is above the last one is not shaded. */
const DOUBTS = [["low", 0.5], ["middling", 0.75], ["fair", 0.9]];

/**
 * @param {(seconds: number) => void} onjump
 * @returns {{ element: HTMLElement, show: (words: object[], blocks: object[], spans?: object[]) => Promise<void>,
 *   light: (seconds: number) => void, follow: boolean, close: () => void }}
 */
export function transcriptView(onjump) {
  const list = element("div", { class: "transcript", role: "group", "aria-label": text.playground.transcript });
  let all = [];
  let blocks = [];
  let elements = new Map();
  let lit = -1;
  let current = 0;
  let showing = 0;

  /** Blocks that have come near or gone far. */
  const moved = new Set();
  let frame = 0;

  const watcher = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      const block = blocks[Number(target.dataset.block)];
      if (!block) continue;
      block.isWanted = isIntersecting;
      moved.add(block);
    }
    plan();
  }, { rootMargin: NEAR });

  function plan() {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(turn);
  }

  /** Makes elements or text of the blocks that have moved. Those that have gone again by then cost nothing. */
  function turn() {
    let left = FRAME_WORDS;
    for (const block of moved) {
      if (left <= 0) return plan();
      moved.delete(block);
      if (block.isWanted === block.isNear) continue;
      left -= block.words.length;
      if (block.isWanted) spell(block);
      else join(block);
    }
    return undefined;
  }

  /** Makes an element of each word. */
  function spell(block) {
    block.isNear = true;
    const pieces = block.words.flatMap((word, index) => {
      const place = block.first + index;
      const made = wordElement(word, place);
      if (place === lit) made.dataset.lit = "true";
      if (place === current) focusable(made, true);
      elements.set(place, made);
      return [index === 0 ? "" : space(word), languageMark(word, all[place - 1]), made];
    });
    replace(block.body, pieces);
  }

  /** One piece of text again, unless it has the focus. */
  function join(block) {
    if (block.body.contains(document.activeElement)) return;
    block.isNear = false;
    block.words.forEach((_, index) => elements.delete(block.first + index));
    replace(block.body, plain(block.words));
  }

  function blockElement(block, index) {
    block.isNear = block.isWanted = false;
    block.body = element("p", { class: "block-words", dir: "auto" }, plain(block.words));
    const isSame = index > 0 && sameSpeaker(blocks[index - 1], block);
    const head = element("div", { class: "block-head" },
      speakerLabel(block, isSame), element("span", { class: "fine number" }, text.clock(block.words[0].start)));
    const made = element("section", { class: "block", dataset: { block: index } }, head, block.body);
    const colour = series(block);
    if (colour) made.dataset.speaker = colour;
    watcher.observe(made);
    return made;
  }

  function set(place, isLit) {
    const made = elements.get(place);
    if (!made) return;
    if (isLit) made.dataset.lit = "true";
    else delete made.dataset.lit;
  }

  function focusable(made, is) {
    made.tabIndex = is ? 0 : -1;
    if (is) made.setAttribute("role", "button");
    else made.removeAttribute("role");
  }

  /** The one word that the tab key reaches. */
  function go(place, { focus }) {
    const next = Math.max(0, Math.min(all.length - 1, place));
    const old = elements.get(current);
    if (old) focusable(old, false);
    current = next;
    const block = blocks.find((one) => next >= one.first && next < one.first + one.words.length);
    if (block?.body && !block.isNear) spell(block);
    const made = elements.get(next);
    if (!made) return;
    focusable(made, true);
    if (focus) made.focus();
  }

  list.addEventListener("click", (event) => {
    const place = event.target.dataset?.word;
    if (place === undefined || !getSelection().isCollapsed) return;
    go(Number(place), { focus: true });
    onjump(all[Number(place)].start);
  });
  list.addEventListener("keydown", (event) => {
    const place = event.target.dataset?.word;
    if (place === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    const here = Number(place);
    if (event.key === "Enter" || event.key === " ") onjump(all[here].start);
    else if (event.key === "ArrowRight") go(here + 1, { focus: true });
    else if (event.key === "ArrowLeft") go(here - 1, { focus: true });
    else if (event.key === "ArrowDown") go(nextBlock(here, 1), { focus: true });
    else if (event.key === "ArrowUp") go(nextBlock(here, -1), { focus: true });
    else if (event.key === "Home") go(0, { focus: true });
    else if (event.key === "End") go(all.length - 1, { focus: true });
    else return;
    event.preventDefault();
  });

  function nextBlock(place, by) {
    const index = blocks.findIndex((one) => place < one.first + one.words.length);
    const isInside = by < 0 && place > blocks[index].first;
    return blocks[isInside ? index : Math.max(0, Math.min(blocks.length - 1, index + by))].first;
  }

  return {
    element: list,
    follow: true,
    async show(words, cut, spans = []) {
      const mine = ++showing;
      watcher.disconnect();
      moved.clear();
      all = words;
      blocks = cut;
      elements = new Map();
      lit = -1;
      current = 0;
      const gaps = [...spans];
      replace(list, words.length === 0 ? element("p", { class: "soft" }, text.playground.nothingSaid) : null);
      const breathe = slices();
      for (const [index, block] of blocks.entries()) {
        await breathe();
        // Another transcript has taken its place.
        if (mine !== showing) return;
        while (gaps.length > 0 && gaps[0].start < block.words[0].start) list.append(gapElement(gaps.shift()));
        list.append(blockElement(block, index));
      }
      list.append(...gaps.map(gapElement));
    },
    light(seconds) {
      const place = wordAt(all, seconds);
      if (place === lit) return;
      set(lit, false);
      lit = place;
      set(lit, true);
      const block = blocks.find((one) => place >= one.first && place < one.first + one.words.length);
      // A word that is not there yet gets its element once its block is near.
      if (this.follow && block) (elements.get(place) ?? block.body)?.scrollIntoView({ block: "nearest" });
    },
    close() {
      watcher.disconnect();
      cancelAnimationFrame(frame);
    },
  };
}

const unspaced = /[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uff00-\uffef]$/u;
/** Between words; none in scripts that have none. */
const space = (word) => (unspaced.test(word.text) ? "" : " ");
const plain = (words) => words.map((word, index) => (index === 0 ? "" : space(word)) + word.text).join("");

function wordElement(word, place) {
  const doubt = DOUBTS.find(([, below]) => word.confidence < below)?.[0];
  const made = element("span", { class: "word", title: text.playground.wordTitle(word), dataset: { word: place } }, word.text);
  if (doubt) made.dataset.doubt = doubt;
  if (word.language) made.lang = word.language;
  return made;
}

/** A mark where the language changes. */
function languageMark(word, before) {
  if (!word.language || word.language === before?.language) return null;
  return element("span", { class: "badge language", title: text.language(word.language) }, word.language);
}

const sameSpeaker = (a, b) => a.speaker === b.speaker && a.channel === b.channel && a.name === b.name;
/** The colour of a speaker, or of a channel; `null` where there is only one voice. */
const series = ({ speaker, channel, hasChannels }) =>
  (speaker === undefined && !hasChannels ? null : (speaker ?? channel) % SERIES + 1);

function speakerLabel(block, isSame) {
  if (block.speaker === undefined && !block.hasChannels) return null;
  const label = block.name
    ?? (block.speaker === undefined ? text.playground.channel(block.channel + 1) : text.playground.speaker(block.speaker + 1));
  return element("h3", { class: isSame ? "speaker visually-hidden" : "speaker" }, label);
}

function gapElement({ start, end }) {
  return element("p", { class: "gap" }, element("span", { class: "fine number" }, text.clock(start)),
    element("span", {}, text.playground.withoutWords(end - start)));
}
