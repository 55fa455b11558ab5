// What a live stream has told so far, on either socket: utterances or turns, one of them open, and what happened when.

/** Older ones leave the page. */
const UTTERANCES_MAX = 400;
const RESULTS_MAX = 200;

/**
 * @typedef {{ start: number, end: number, text: string, words: object[], interim: string, isEnded: boolean,
 *   channel: number | null }} Utterance `text`: what is final; `interim`: what may change; `channel`: where there are several
 * @typedef {{ kind: "interim" | "final" | "turn", start: number, end: number, text: string, latency: number | null,
 *   confidence: number | null }} Result
 * @typedef {{ kind: string, at: number, label?: string }} Mark
 */
export class Heard {
  /** @type {Utterance[]} */
  utterances = [];
  /** @type {Result[]} the newest last */
  results = [];
  /** @type {Mark[]} endpoints and the like, in seconds of the audio */
  marks = [];
  /** @type {{ at: number, value: number }[]} confidence that the turn has ended */
  confidences = [];
  /** Counted from the first result, to find those that are new. */
  count = 0;

  /** @returns {Utterance | null} the one that changed */
  take({ message, latency, offset }) {
    if (message.type === "Results") return this.#results(message, latency, offset);
    if (message.type === "TurnInfo") return this.#turn(message, latency, offset);
    if (message.type === "SpeechStarted") this.#mark("SpeechStarted", offset + message.timestamp);
    if (message.type === "UtteranceEnd" && message.last_word_end >= 0) {
      this.#mark("UtteranceEnd", offset + message.last_word_end);
    }
    return null;
  }

  /** The last utterance of a channel. */
  #last(channel) {
    return this.utterances.findLast((one) => one.channel === channel);
  }

  /** The utterance that goes on, or a new one. */
  #open(start, channel) {
    const last = this.#last(channel);
    if (last && !last.isEnded) return last;
    const made = { start, end: start, text: "", words: [], interim: "", isEnded: false, channel };
    this.utterances.push(made);
    if (this.utterances.length > UTTERANCES_MAX) this.utterances.shift();
    return made;
  }

  #results(message, latency, offset) {
    const said = message.channel?.alternatives?.[0] ?? {};
    const [start, end] = [offset + message.start, offset + message.start + message.duration];
    const words = said.words ?? [];
    const content = said.transcript ?? "";
    const [place, count] = message.channel_index ?? [0, 1];
    const channel = count > 1 ? place : null;
    const last = this.#last(channel);
    if (message.speech_final) this.#mark("speech_final", words.length > 0 ? offset + words.at(-1).end : end);
    if (content === "" && (!last || last.isEnded)) return null;
    const open = this.#open(words.length > 0 ? offset + words[0].start : start, channel);
    open.end = end;
    if (message.is_final) {
      open.text = [open.text, content].filter(Boolean).join(" ");
      open.words.push(...words);
      open.interim = "";
      open.isEnded = message.speech_final === true;
    } else {
      open.interim = content;
    }
    if (content !== "") this.#result(message.is_final ? "final" : "interim", { start, end }, content, latency, null);
    return open;
  }

  #turn(message, latency, offset) {
    const end = offset + message.audio_window_end;
    this.confidences.push({ at: end, value: message.end_of_turn_confidence });
    if (this.confidences.length > 10 * RESULTS_MAX) this.confidences.splice(0, RESULTS_MAX);
    if (message.event !== "Update") this.#mark(message.event, end, message.trigger);
    const isEnd = message.event === "EndOfTurn";
    if (message.transcript === "" && !isEnd) return null;
    const open = this.#open(offset + (message.words[0]?.start ?? message.audio_window_start), null);
    const isNew = message.transcript !== (open.interim || open.text);
    open.end = end;
    open.isEnded = isEnd;
    open.words = isEnd ? message.words : [];
    open.text = isEnd ? message.transcript : "";
    open.interim = isEnd ? "" : message.transcript;
    if (isNew || isEnd) {
      const span = { start: open.start, end };
      this.#result(isEnd ? "turn" : "interim", span, message.transcript, latency, message.end_of_turn_confidence);
    }
    return open;
  }

  #result(kind, { start, end }, content, latency, confidence) {
    this.results.push({ kind, start, end, text: content, latency, confidence });
    if (this.results.length > RESULTS_MAX) this.results.shift();
    this.count += 1;
  }

  #mark(kind, at, label) {
    this.marks.push({ kind, at, label });
    if (this.marks.length > RESULTS_MAX) this.marks.shift();
  }

  /** What was open stays as it is: its socket is gone. */
  interrupt() {
    const open = this.utterances.filter((one) => !one.isEnded);
    for (const one of open) {
      one.text = [one.text, one.interim].filter(Boolean).join(" ");
      one.interim = "";
      one.isEnded = true;
    }
    return open;
  }

  /** The middle of the latencies of results of this kind, in milliseconds. */
  median(kinds) {
    const found = this.results.filter(({ kind, latency }) => kinds.includes(kind) && latency !== null);
    const sorted = found.map(({ latency }) => latency).sort((a, b) => a - b);
    return sorted.length > 0 ? sorted[sorted.length >> 1] : null;
  }
}
