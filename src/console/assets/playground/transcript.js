// An answer of /v1/listen as the page reads it: all words in the order of time, in paragraphs or utterances.

import { SPAN_SECONDS } from "./peaks.js";

/** Without paragraphs in the answer, one ends at a pause of this length after a sentence. */
const PARAGRAPH_PAUSE_SECONDS = 1;
const PARAGRAPH_WORDS = 80;
/** Longer ones are shown in several blocks, so that few elements are made at a time. */
const BLOCK_WORDS = 160;
const UTTERANCE_PAUSE_SECONDS = 0.8;
/** Shorter gaps between words are breath. */
const GAP_SECONDS = 0.7;

/**
 * @typedef {object} Word
 * @property {string} text with its punctuation
 * @property {number} start in seconds
 * @property {number} end
 * @property {number} confidence from 0 to 1
 * @property {number} channel
 * @property {number | undefined} speaker
 * @property {string | undefined} name of the speaker
 * @property {string | undefined} language
 *
 * @typedef {{ words: Word[], first: number, speaker?: number, name?: string, channel: number, hasChannels: boolean }} Block
 *   `first`: the place of its first word among all
 */

/** @returns {{ words: Word[], channels: number, languages: string[], duration: number, withoutWords: number, text: string }} */
export function transcriptOf(answer) {
  const channels = answer.results?.channels ?? [];
  const words = channels.flatMap((channel, index) => wordsOf(channel, index));
  if (channels.length > 1) words.sort((a, b) => a.start - b.start);
  const languages = channels.flatMap((channel) =>
    channel.alternatives?.[0]?.languages ?? (channel.detected_language ? [channel.detected_language] : []));
  return {
    words,
    channels: channels.length,
    languages: [...new Set(languages)],
    duration: answer.metadata?.duration ?? words.at(-1)?.end ?? 0,
    withoutWords: answer.metadata?.voice_without_words ?? 0,
    text: channels.map((channel) => channel.alternatives?.[0]?.transcript ?? "").join("\n"),
  };
}

function wordsOf(channel, index) {
  const { words = [], transcript = "" } = channel.alternatives?.[0] ?? {};
  // Words are bare unless punctuation was asked for; the transcript has them as they are written.
  const written = transcript.split(/\s+/).filter(Boolean);
  const isWritten = written.length === words.length;
  return words.map((word, place) => ({
    text: word.punctuated_word ?? (isWritten ? written[place] : word.word),
    start: word.start,
    end: word.end,
    confidence: word.confidence,
    speaker: word.speaker,
    name: word.speaker_name,
    language: word.language,
    channel: index,
  }));
}

/** The words in paragraphs: those of the answer where it has some, for one channel. */
export function paragraphs(answer, { words, channels }) {
  const given = answer.results?.channels?.[0]?.alternatives?.[0]?.paragraphs?.paragraphs ?? [];
  const counts = given.map((paragraph) => paragraph.num_words);
  if (channels === 1 && counts.length > 0 && counts.reduce((a, b) => a + b) === words.length) {
    const ends = new Set();
    counts.reduce((sum, count) => {
      ends.add(sum + count);
      return sum + count;
    }, 0);
    return cut(words, (_, index) => ends.has(index));
  }
  let length = 0;
  return cut(words, (word, index) => {
    length += 1;
    const before = words[index - 1];
    const isSentence = /[.!?…。！？।]["'”’»)]*$/.test(before.text);
    const pause = word.start - before.end;
    const ends = differs(before, word) || isSentence && (pause >= PARAGRAPH_PAUSE_SECONDS || length >= PARAGRAPH_WORDS);
    if (ends) length = 0;
    return ends;
  });
}

/** The words between pauses. */
export function utterances({ words }, pause = UTTERANCE_PAUSE_SECONDS) {
  return cut(words, (word, index) => differs(words[index - 1], word) || word.start - words[index - 1].end >= pause);
}

const differs = (before, word) => before.speaker !== word.speaker || before.channel !== word.channel;

/** @returns {Block[]} */
function cut(words, begins) {
  const blocks = [];
  const hasChannels = words.some((word) => word.channel > 0);
  let from = 0;
  for (let index = 1; index <= words.length; index++) {
    const isEnd = index === words.length || begins(words[index], index) || index - from >= BLOCK_WORDS;
    if (!isEnd) continue;
    const { speaker, name, channel } = words[from];
    blocks.push({ words: words.slice(from, index), first: from, speaker, name, channel, hasChannels });
    from = index;
  }
  return blocks;
}

/**
 * Where the voice was that gave no words. The server says for how many seconds there was some; the loudest of the gaps
 * between words are the likely places.
 *
 * @param {ReturnType<typeof transcriptOf>} transcript
 * @param {Float32Array} loudness as `peaksOf` gives it
 * @returns {{ start: number, end: number }[]} in the order of time
 */
export function stretchesWithoutWords({ words, duration, withoutWords }, loudness) {
  if (!(withoutWords > 0)) return [];
  const gaps = [];
  let end = 0;
  for (const word of [...words, { start: duration, end: duration }]) {
    if (word.start - end >= GAP_SECONDS) gaps.push(trimmed({ start: end, end: word.start }, loudness));
    end = Math.max(end, word.end);
  }
  const found = [];
  let left = withoutWords;
  for (const gap of gaps.filter((one) => one.end > one.start).sort((a, b) => b.level - a.level)) {
    if (left <= 0) break;
    found.push(gap);
    left -= gap.end - gap.start;
  }
  return found.sort((a, b) => a.start - b.start);
}

/** The gap without the silence at its ends. */
function trimmed({ start, end }, loudness) {
  const [from, to] = [Math.ceil(start / SPAN_SECONDS), Math.min(loudness.length, Math.floor(end / SPAN_SECONDS))];
  let level = 0;
  for (let index = from; index < to; index++) level = Math.max(level, loudness[index]);
  let [first, last] = [from, to];
  while (first < last && loudness[first] < level / 8) first++;
  while (last > first && loudness[last - 1] < level / 8) last--;
  return { start: first * SPAN_SECONDS, end: last * SPAN_SECONDS, level };
}

/** The place of the word that is said at `seconds`, or the last before it; -1 before the first. */
export function wordAt(words, seconds) {
  let [low, high] = [0, words.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (words[middle].start <= seconds) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}
