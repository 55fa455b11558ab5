// Transcripts as text, SubRip and WebVTT, by the rules of the program's own captions (src/format/captions): there the
// reasons stand. Times are in seconds, widths in columns.

import { slices } from "./slices.js";
import { atoms, columns, fitting, linesOf } from "./caption-lines.js";
import { endsClause, endsSentence, leansOnNext } from "./caption-phrases.js";

const MAX = 7;
const GOOD = 1;
const MIN = 5 / 6;
const MIN_GAP = 0.083;
const FLICKER = 0.5;
const COLUMNS_PER_SECOND = 20;
const EARLY = 0.5;
const LATE = 1.5;
const PAUSE = 0.6;

const COST = {
  overlong: 40, short: 30, missing: 6, paused: 4, endsInClause: 1.2, endsInPhrase: 2.4, endsOnLeaningWord: 3.2,
  innerSentence: 1.2, brief: 0.5, briefBelow: 2,
};

/** Plain text; with speakers, a line for each turn. */
export function plainText(transcript) {
  if (transcript.words.every((word) => word.speaker === undefined)) return `${transcript.text.trim()}\n`;
  const turns = [];
  for (const word of transcript.words) {
    const last = turns.at(-1);
    if (last && last.speaker === word.speaker) last.words.push(word.text);
    else turns.push({ speaker: word.speaker, start: word.start, words: [word.text] });
  }
  return turns.map(({ speaker, start, words }) =>
    `[${stamp(Math.floor(start) * 1000, "").slice(0, 8)}${speaker === undefined ? "" : ` speaker ${speaker}`}] ${words.join(" ")}\n`)
    .join("");
}

/** @returns {Promise<string>} */
export async function srt(words) {
  let speaking;
  return (await cues(words)).map(({ start, end, lines, speaker }, index) => {
    // A `-->` in the text would be read as times.
    const content = lines.join("\n").replaceAll("-->", "->");
    const name = speaker !== undefined && speaker !== speaking ? `[speaker ${speaker}]\n` : "";
    speaking = speaker;
    return `${index + 1}\n${stamp(start, ",")} --> ${stamp(end, ",")}\n${name}${content}\n\n`;
  }).join("");
}

/** @returns {Promise<string>} */
export async function vtt(words) {
  const body = (await cues(words)).map(({ start, end, lines, speaker }) => {
    const content = lines.join("\n").replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
    const voice = speaker === undefined ? "" : `<v Speaker ${speaker}>`;
    return `${stamp(start, ".")} --> ${stamp(end, ".")}\n${voice}${content}\n\n`;
  });
  return `WEBVTT\n\n${body.join("")}`;
}

function stamp(milliseconds, separator) {
  const pad = (value, size = 2) => String(value).padStart(size, "0");
  const seconds = Math.floor(milliseconds / 1000);
  const clock = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60].map((part) => pad(part)).join(":");
  return `${clock}${separator}${pad(milliseconds % 1000, 3)}`;
}

/** @returns {Promise<{ start: number, end: number, lines: string[], speaker?: number }[]>} times in milliseconds */
export async function cues(words) {
  const breathe = slices();
  const parts = await partsOf(await atoms(words, breathe), breathe);
  let last = 0;
  return timesOf(parts).map(([from, to], index) => {
    const start = Math.max(Math.round(Math.max(0, from) * 1000), last);
    const end = Math.max(Math.round(Math.max(0, to) * 1000), start + 1);
    last = end;
    return { start, end, lines: linesOf(parts[index]), speaker: parts[index][0].speaker };
  });
}

/** The cheapest cut into captions, each of one speaker: a shortest path over all places where one may end. */
async function partsOf(all, breathe) {
  const best = Array.from({ length: all.length + 1 }, () => ({ cost: Infinity, start: 0 }));
  best[0].cost = 0;
  for (let start = 0; start < all.length; start++) {
    await breathe();
    const most = fitting(all, start);
    const body = new Body();
    for (let index = 0; index < most && all[start + index].speaker === all[start].speaker; index++) {
      const end = start + index + 1;
      body.push(index > 0 ? all[end - 2] : null, all[end - 1]);
      const cost = best[start].cost + body.cost(all[end]);
      if (cost < best[end].cost) best[end] = { cost, start };
    }
  }
  const parts = [];
  for (let end = all.length; end > 0; end = best[end].start) parts.push(all.slice(best[end].start, end));
  return parts.reverse();
}

/** A caption under construction. */
class Body {
  start = 0;
  end = 0;
  columns = 0;
  paused = 0;
  sentences = 0;
  isLeaning = false;
  ends = "word";

  push(before, atom) {
    if (before === null) {
      [this.start, this.columns] = [atom.start, atom.columns];
    } else {
      this.columns += atom.columns + (atom.isSpaced ? 1 : 0);
      this.paused += Math.max(0, atom.start - before.end - PAUSE);
      this.sentences += this.ends === "sentence" && atom.isSpaced ? 1 : 0;
    }
    this.end = Math.max(atom.end, atom.start);
    this.isLeaning = leansOnNext(atom.text);
    this.ends = this.isLeaning ? "word" : endsSentence(atom.text) ? "sentence" : endsClause(atom.text) ? "clause" : "word";
  }

  cost(next) {
    const latest = this.end + LATE;
    const room = (next ? Math.min(latest, next.start - MIN_GAP) : latest) - this.start;
    const spoken = Math.max(0, this.end - this.start);
    const needed = this.columns / COLUMNS_PER_SECOND;
    const pause = next ? next.start - this.end : Infinity;
    return 1 + this.#ending(pause)
      + COST.overlong * Math.max(0, spoken - MAX)
      + COST.short * Math.max(0, GOOD - room)
      + COST.brief * Math.max(0, COST.briefBelow - room)
      + COST.missing * Math.max(0, Math.min(needed, MAX) - room)
      + COST.paused * this.paused
      + COST.innerSentence * this.sentences;
  }

  #ending(pause) {
    if (pause >= PAUSE || this.ends === "sentence") return 0;
    if (this.ends === "clause") return COST.endsInClause;
    return this.isLeaning ? COST.endsOnLeaningWord : COST.endsInPhrase;
  }
}

/** The time of each part on the screen. */
function timesOf(parts) {
  const spoken = parts.map((part) => [part[0].start, Math.max(part.at(-1).end, part[0].start)]);
  const starts = startsOf(spoken);
  const times = [];
  parts.forEach((part, index) => {
    let start = starts[index];
    const speechEnd = Math.max(spoken[index][1], start);
    const wanted = Math.min(MAX, Math.max(GOOD, columns(part) / COLUMNS_PER_SECOND));
    const limit = index + 1 < starts.length ? starts[index + 1] - MIN_GAP : Infinity;
    const late = Math.min(start + wanted, speechEnd + LATE);
    let end = Math.min(Math.max(speechEnd, late), limit, start + MAX);
    const free = times.length > 0 ? times.at(-1)[1] + MIN_GAP : 0;
    if (end - start < wanted) start = Math.min(Math.max(end - wanted, start - EARLY, free), start);
    if (limit - end < FLICKER) end = Math.min(limit, start + MAX);
    times.push([start, end]);
  });
  return times;
}

/** The start of each part: with its speech, but late enough that the one before can be read. */
function startsOf(spoken) {
  const slot = MIN + MIN_GAP;
  const starts = spoken.map(([start]) => start);
  for (let index = starts.length - 1; index > 0; index--) {
    const latest = Math.max(starts[index] - slot, spoken[index - 1][0] - EARLY);
    starts[index - 1] = Math.max(0, Math.min(starts[index - 1], latest));
  }
  for (let index = 1; index < starts.length; index++) starts[index] = Math.max(starts[index], starts[index - 1] + slot);
  return starts;
}
