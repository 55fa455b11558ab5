// The smallest pieces of text with which a caption may end, and the division of a caption into lines.

import { endsClause, leansOnNext } from "./caption-phrases.js";

const LINE = 42;
const LINES = 2;
const SLOW_WORD_SECONDS = 0.5;
const SLOW_COLUMN_SECONDS = 0.15;
const COST = { noPunctuation: 12, partsPhrase: 10, topHeavy: 2 };

/** Scripts without spaces; full-width signs take two columns. */
const UNSPACED = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}]/u;
const WIDE = /[\u1100-\u115f\u2e80-\u303e\u3041-\u33ff\u3400-\u4dbf\u4e00-\u9fff\ua000-\ua4cf\ua960-\ua97f\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{1f300}-\u{1faff}\u{20000}-\u{3fffd}]/u;
const MARK = /^[\p{Mn}\p{Me}\p{Cf}]/u;
const SOUTHEAST_ASIAN = /[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]/u;
/** Thai and Lao signs that belong to the letter before them, and vowels that are written before theirs. */
const CLINGS = /[\u0e30-\u0e3a\u0e45-\u0e4e\u0eb0-\u0ebd\u0ec6-\u0ece]/u;
const LEADS = /[\u0e40-\u0e44\u0ec0-\u0ec4]/u;
/** No line begins with a mark that closes, a small kana or a mark of length; none ends with one that opens. */
const KANA = /[ー々ゝゞヽヾぁぃぅぇぉっゃゅょゎァィゥェォッャュョヮヵヶ]/u;
const OPENS = /[([{«‹“‘「『（［｛〈《【〔¿¡$£€#@]/u;
const STANDS = /[\p{Alphabetic}\p{N}$£€#@&]/u;

const graphemes = new Intl.Segmenter("und", { granularity: "grapheme" });
const isSpaceless = (letter) => UNSPACED.test(letter) || WIDE.test(letter);
const widthOf = (text) => [...text].reduce((sum, sign) => sum + (MARK.test(sign) ? 0 : WIDE.test(sign) ? 2 : 1), 0);
const lastOf = (text) => [...text].at(-1);
const firstOf = (text) => [...text][0];

/**
 * @returns {Promise<{ text: string, isSpaced: boolean, start: number, end: number, columns: number, speaker?: number }[]>}
 */
export async function atoms(words, breathe) {
  const found = [];
  for (const [index, word] of words.entries()) {
    await breathe();
    const before = words[index - 1];
    const isSpaced = index === 0 || !(isSpaceless(lastOf(before.text)) && isSpaceless(firstOf(word.text)));
    const pieces = word.text.split(/\s+/).filter(Boolean);
    const at = (letter) => word.start + (Math.max(0, word.end - word.start) * letter) / Math.max(1, word.text.length);
    let from = 0;
    pieces.forEach((piece, place) => {
      const to = from + piece.length + (place + 1 < pieces.length ? 1 : 0);
      pushWord(found, piece, at(from), at(to), isSpaced || place > 0, word.speaker);
      from = to;
    });
  }
  let last = 0;
  let begins = true;
  for (const atom of found) {
    shorten(atom, begins);
    begins = endsClause(atom.text);
    atom.start = Math.max(atom.start, last);
    atom.end = Math.max(atom.end, atom.start);
    last = atom.start;
  }
  return found;
}

/** A word whose time spans a silence belongs to the end of it that is nearer to its sentence. */
function shorten(atom, begins) {
  const longest = SLOW_WORD_SECONDS + SLOW_COLUMN_SECONDS * atom.columns;
  if (atom.end - atom.start <= longest) return;
  if (begins && !endsClause(atom.text)) atom.start = atom.end - longest;
  else atom.end = atom.start + longest;
}

/** Splits a word where a line may break within it. */
function pushWord(found, word, start, end, isSpaced, speaker) {
  const pieces = Array.from(graphemes.segment(word), ({ segment }) => segment);
  const at = (index) => start + ((end - start) * index) / Math.max(1, pieces.length);
  pieces.forEach((piece, index) => {
    const isFirst = index === 0;
    const last = found.at(-1);
    const joins = last && !(isFirst && isSpaced) && last.speaker === speaker && !mayBreak(last.text, piece, isFirst)
      && last.columns + widthOf(piece) <= LINE;
    if (joins) {
      last.text += piece;
      last.columns = widthOf(last.text);
      last.end = at(index + 1);
    } else {
      found.push({ text: piece, isSpaced: isFirst && isSpaced, start: at(index), end: at(index + 1),
        columns: widthOf(piece), speaker });
    }
  });
}

/** Whether a line may break between two pieces without a space; `isWord`: the model ended a word here. */
function mayBreak(before, after, isWord) {
  const [last, first] = [lastOf(before), firstOf(after)];
  if (!isSpaceless(last) && !isSpaceless(first)) return false;
  if (SOUTHEAST_ASIAN.test(last) && SOUTHEAST_ASIAN.test(first) && !isWord || CLINGS.test(first) || LEADS.test(last)) {
    return false;
  }
  const closes = !STANDS.test(first) && !OPENS.test(first) || KANA.test(first);
  return !closes && !OPENS.test(last);
}

/** Columns of atoms on one line. */
export function columns(part) {
  return part.reduce((sum, atom, index) => sum + atom.columns + (index > 0 && atom.isSpaced ? 1 : 0), 0);
}

/** The number of atoms from `start` that one caption can hold. */
export function fitting(all, start) {
  let count = 0;
  for (let line = 0; line < LINES; line++) {
    let width = 0;
    for (let index = start + count, isFirst = true; index < all.length; index++, isFirst = false) {
      width += all[index].columns + (!isFirst && all[index].isSpaced ? 1 : 0);
      if (width > LINE && !isFirst) break;
      count += 1;
    }
  }
  return count;
}

/** Atoms that fit, on as many lines as they need. */
export function linesOf(part) {
  if (columns(part) <= LINE) return [joined(part)];
  let best = null;
  for (let at = 1; at < part.length; at++) {
    const [top, bottom] = [part.slice(0, at), part.slice(at)];
    if (columns(top) > LINE || columns(bottom) > LINE) continue;
    const cost = costOf(top, bottom);
    if (best === null || cost < best.cost) best = { cost, top, bottom };
  }
  return best ? [joined(best.top), joined(best.bottom)] : [joined(part)];
}

function costOf(top, bottom) {
  const [above, below] = [columns(top), columns(bottom)];
  const last = top.at(-1).text;
  return Math.abs(above - below) + (above > below ? COST.topHeavy : 0)
    + (endsClause(last) ? 0 : COST.noPunctuation) + (leansOnNext(last) ? COST.partsPhrase : 0);
}

const joined = (part) => part.map((atom, index) => (index > 0 && atom.isSpaced ? " " : "") + atom.text).join("");
