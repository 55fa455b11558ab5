// Live speech as text: what may change is grey, what is final black; and the newest results with the time they took.

import { cell } from "../controls.js";
import { element, replace } from "../elements.js";
import { text } from "../text.js";

const ROWS = 12;
const SERIES = 6;
/** Within this distance of its end, the text follows the speech. */
const NEAR_END_PIXELS = 60;

export function speechView() {
  const empty = element("p", { class: "soft" }, text.live.nothingYet);
  const list = element("div", { class: "speech", tabindex: "0", role: "region", "aria-label": text.live.speech }, empty);
  // Screen readers hear each utterance once, when it is final.
  const said = element("p", { class: "visually-hidden", role: "status" });
  const shown = new Map();

  return {
    element: element("div", {}, list, said),
    reset() {
      shown.clear();
      replace(list, empty);
    },
    /** @param {import("./heard.js").Utterance} utterance */
    show(utterance) {
      const isAtEnd = list.scrollHeight - list.scrollTop - list.clientHeight < NEAR_END_PIXELS;
      empty.remove();
      let row = shown.get(utterance);
      if (!row) {
        row = element("p", { class: "utterance", dir: "auto" });
        shown.set(utterance, row);
        list.append(row);
      }
      row.dataset.ended = String(utterance.isEnded);
      const time = element("span", { class: "fine number" }, text.clock(utterance.start));
      const final = utterance.text === "" ? null : element("span", { class: "final" }, finalText(utterance));
      const interim = utterance.interim === "" ? null : element("span", { class: "interim" }, utterance.interim);
      const channel = utterance.channel === null ? null
        : element("span", { class: "badge speaker-mark", dataset: { speaker: utterance.channel % SERIES + 1 } },
          text.playground.channel(utterance.channel + 1));
      replace(row, time, " ", element("span", { class: "utterance-text" }, channel, channel && " ", final, final && interim ? " " : null, interim));
      if (utterance.isEnded && utterance.text !== "") replace(said, utterance.text);
      if (isAtEnd) list.scrollTop = list.scrollHeight;
    },
    /** Forgets those that `utterances` no longer has. */
    keep(utterances) {
      if (shown.size <= utterances.length) return;
      const kept = new Set(utterances);
      for (const [utterance, row] of shown) {
        if (kept.has(utterance)) continue;
        row.remove();
        shown.delete(utterance);
      }
    },
    /** A note between utterances. */
    note(words) {
      empty.remove();
      list.append(element("p", { class: "gap" }, words));
    },
  };
}

/** With speakers, a mark where the speaker changes. */
function finalText({ text: content, words }) {
  if (!words.some((word) => word.speaker !== undefined)) return content;
  let speaker;
  return words.flatMap((word, index) => {
    const space = index === 0 ? "" : " ";
    const said = word.punctuated_word ?? word.word;
    if (word.speaker === undefined || word.speaker === speaker) return [space + said];
    speaker = word.speaker;
    const label = word.speaker_name ?? text.playground.speaker(speaker + 1);
    return [space, element("span", { class: "badge speaker-mark", dataset: { speaker: speaker % SERIES + 1 } }, label), ` ${said}`];
  });
}

export function resultsTable() {
  const body = element("tbody", { role: "rowgroup" });
  const words = text.live.results;
  const [, seconds, said, end, delay] = words.columns;
  const head = element("tr", { role: "row" }, words.columns.map((name, index) =>
    element("th", { scope: "col", role: "columnheader", class: index === 3 || index === 4 ? "number" : null }, name)));
  const table = element("div", { class: "table", tabindex: "0", role: "region", "aria-label": words.title },
    element("table", { class: "stacked", role: "table" }, element("caption", { class: "visually-hidden" }, words.title),
      element("thead", { role: "rowgroup" }, head), body));
  return {
    element: table,
    /** @param {import("./heard.js").Result[]} results */
    show(results) {
      const rows = results.slice(-ROWS).reverse().map((one) => element("tr", { role: "row" },
        element("td", { role: "cell" }, element("span", { class: "badge",
          dataset: one.kind === "interim" ? {} : { kind: "good" } }, words.kinds[one.kind])),
        cell(seconds, { class: "mono" }, `${one.start.toFixed(2)} – ${one.end.toFixed(2)}`),
        cell(said, { class: "result-text" }, one.text),
        cell(end, { class: "number" }, one.confidence === null ? "–" : one.confidence.toFixed(2)),
        cell(delay, { class: "number" }, one.latency === null ? "–" : text.milliseconds(one.latency))));
      replace(body, rows.length > 0 ? rows : element("tr", { role: "row" },
        element("td", { role: "cell", colspan: words.columns.length, class: "soft" }, words.none)));
    },
  };
}
