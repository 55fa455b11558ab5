//! Answers: the one or two sentences that answer a question, word for word, or none.
//!
//! A sentence answers if it states the [`Fact`] that is asked for and, together with its headings and the sentences
//! before it, has the terms of the question. A term without any trace there means that the sentence is about
//! something else, however rare the words are that both share; only long questions may have such a term.

use std::collections::HashSet;

use super::fact::{Fact, MONTHS, WEEKDAYS, counts};
use super::lexicon::{stem, terms, words};
use super::passage::{Passage, sentences};
use super::question::{Question, Term};
use super::search::Knowledge;

/// Passages that are looked at.
const PASSAGES_MAX: usize = 24;
/// How much a term counts in the headings above a sentence, and in the sentences before it.
const IN_TITLE: f32 = 0.85;
const BEFORE: f32 = 0.6;
/// Rows of tables are where prices and times stand.
const ENTRY: f32 = 0.1;
/// A sentence that states the fact beyond doubt.
const EXACT: f32 = 0.3;
/// `Without an appointment …` tells what else there is.
const WITHOUT: f32 = -0.5;
/// Beginnings of sentences that go on about what the one before them names.
const GOES_ON: &[&str] =
    &["it", "its", "they", "their", "this", "these", "that", "he", "she", "each", "both", "there"];
/// If headings have part of the question, sentences are read out up to so many words: all of it may be wanted.
const SECTION_WORDS_MAX: usize = 30;
/// The share of the question's weight that may be missing, if it has more than [`TERMS_FEW`] terms.
const MISSING_MAX: f32 = 0.25;
const TERMS_FEW: usize = 3;
/// The least that the terms must count, weighted: 0 to 1.
const COVERAGE_MIN: f32 = 0.5;
/// A light term that the texts know counts so much of its weight.
const LIGHT: f32 = 0.25;
/// A sentence with so much of the question in it continues an answer.
const CONTINUES: f32 = 0.45;
/// Two passages whose scores differ by less answer equally well.
const CLOSE: f32 = 0.05;
/// Terms that a question and its heading share, at least.
const SAME_TERMS_MIN: usize = 3;
/// Words that one can listen to at once.
const WORDS_MAX: usize = 45;
/// A shorter sentence, such as a heading, needs the next one.
const SENTENCE_WORDS_MIN: usize = 7;

/// A sentence's place among the candidates.
struct Candidate {
    score: f32,
    sentences: Vec<String>,
}

impl Knowledge {
    /// The sentences that answer `text`. `is_answer` says which sentences of a passage may be one.
    pub fn answer(&self, text: &str, is_answer: impl Fn(&Passage, &str) -> bool) -> Option<Vec<String>> {
        let question = self.weighed(Question::read(text))?;
        let hits = self.find(&question.searched(), PASSAGES_MAX);
        let mut candidates: Vec<Candidate> = Vec::new();
        for hit in &hits {
            let mut best: Option<Candidate> = None;
            let said: Vec<String> = sentences(&hit.passage.text)
                .into_iter()
                .filter(|sentence| is_answer(hit.passage, sentence))
                .collect();
            let title = spoken(&hit.passage.title);
            let is_asked = is_same(text, &hit.passage.title);
            let mut before: HashSet<String> = HashSet::new();
            for (at, sentence) in said.iter().enumerate() {
                let own = spoken(sentence);
                let first = words(sentence).next().unwrap_or_default();
                if !GOES_ON.contains(&first.as_str()) {
                    before.clear();
                }
                let fit = question.fit(&own, &title, &before);
                let states = is_asked || question.is_stated(sentence, &hit.passage.title);
                if let Some(fit) = fit.filter(|_| states) {
                    let is_row =
                        is_entry(sentence) && matches!(question.fact, Some(Fact::Price | Fact::Hours));
                    let is_exact = question.fact.is_some_and(|fact| fact.is_exact(sentence));
                    let extras = [(is_row, ENTRY), (is_exact, EXACT), (first == "without", WITHOUT)];
                    let extra: f32 = extras.iter().filter(|(is, _)| *is).map(|(_, extra)| extra).sum();
                    let score = fit.score + 0.01 * hit.score + extra;
                    if best.as_ref().is_none_or(|best| score > best.score) {
                        let sentences = question.told(&said, at, fit.own);
                        best = Some(Candidate { score, sentences });
                    }
                }
                before.extend(own);
            }
            candidates.extend(best);
        }
        candidates.sort_by(|a, b| b.score.total_cmp(&a.score));
        let mut candidates = candidates.into_iter();
        let Candidate { score, mut sentences } = candidates.next()?;
        // Another passage answers as well: the caller hears both.
        let is_close = |other: &Candidate| other.score >= score - CLOSE && other.sentences != sentences;
        if let Some(other) = candidates.next().filter(is_close)
            && count(&sentences) + count(&other.sentences) <= WORDS_MAX
        {
            sentences.extend(other.sentences);
        }
        Some(sentences)
    }

    /// The question with the weights that its terms have here; none if no passage can answer it.
    fn weighed(&self, question: Question) -> Option<Weighed> {
        let counted = question.counted.and_then(|at| question.terms.get(at)).cloned();
        let mut terms: Vec<(Term, f32)> = Vec::new();
        for mut term in question.terms {
            if term.is_place {
                term.is_light = self.is_about(&term);
            }
            let known = term.ways.iter().filter(|(way, _)| self.knows(way));
            let weight = known.map(|(way, _)| self.weight(way)).reduce(f32::min);
            terms.push(match weight {
                Some(weight) if term.is_light => (term, LIGHT * weight),
                Some(weight) => (term, weight),
                None if term.is_light => continue,
                None => (term, self.weight("")),
            });
        }
        // `Which services do you offer?` has light words only: then these are the topic.
        let is_light = question.fact.is_none() && terms.iter().all(|(term, _)| term.is_light);
        for (term, weight) in terms.iter_mut().filter(|_| is_light) {
            term.is_light = false;
            *weight /= LIGHT;
        }
        let can_answer = !terms.is_empty() || question.fact.is_some();
        can_answer.then_some(Weighed { terms, fact: question.fact, counted, is_open: question.is_open })
    }

    /// Whether the texts are about such a place themselves: a title names it, or none of them does.
    fn is_about(&self, place: &Term) -> bool {
        let is_known = place.ways.iter().any(|(way, _)| self.knows(way));
        !is_known || self.passages().iter().any(|passage| place.value(&spoken(&passage.title)) > 0.0)
    }
}

struct Weighed {
    terms: Vec<(Term, f32)>,
    fact: Option<Fact>,
    counted: Option<Term>,
    is_open: bool,
}

struct Fit {
    score: f32,
    /// The share of the question that the sentence alone has.
    own: f32,
}

impl Weighed {
    /// The ways of all terms, and the words that texts have beside the fact.
    fn searched(&self) -> Vec<Vec<(String, f32)>> {
        let hints = self.fact.into_iter().flat_map(Fact::hints).map(|hint| vec![(hint, LIGHT)]);
        self.terms.iter().map(|(term, _)| term.ways.clone()).chain(hints).collect()
    }

    /// Whether the sentence states the fact that is asked for.
    fn is_stated(&self, sentence: &str, title: &str) -> bool {
        let is_counted =
            |word: &str| self.counted.iter().any(|term| term.ways.iter().any(|(way, _)| *way == stem(word)));
        // `Fish soup: €9` does not say what it is.
        if self.is_open && is_entry(sentence) && sentence.rsplit(':').next().is_some_and(is_bare_number) {
            return false;
        }
        (self.counted.is_none() || counts(sentence, is_counted))
            && self.fact.is_none_or(|fact| fact.is_in(sentence, title))
    }

    /// How well a sentence fits; none if it is about something else.
    fn fit(&self, own: &HashSet<String>, title: &HashSet<String>, before: &HashSet<String>) -> Option<Fit> {
        let (mut whole, mut heavy, mut missing, mut covered, mut alone) = (0.0, 0.0, 0.0, 0.0, 0.0);
        let mut count = 0;
        for (term, weight) in &self.terms {
            let in_own = term.value(own);
            let value = in_own.max(IN_TITLE * term.value(title)).max(BEFORE * term.value(before));
            whole += weight;
            covered += weight * value;
            alone += weight * in_own;
            if !term.is_light {
                count += 1;
                heavy += weight;
                missing += if value > 0.0 { 0.0 } else { *weight };
            }
        }
        let missing_max = if count > TERMS_FEW { MISSING_MAX * heavy } else { 0.0 };
        let share = |part: f32| if whole > 0.0 { part / whole } else { 0.0 };
        let is_about = missing <= missing_max && (count == 0 || share(covered) >= COVERAGE_MIN);
        let hinted = |hint: &String| own.contains(hint) || title.contains(hint);
        let is_hinted = self.fact.is_some_and(|fact| fact.hints().iter().any(hinted));
        let hint = if is_hinted { 0.2 } else { 0.0 };
        is_about.then(|| Fit { score: share(covered) + 0.3 * share(alone) + hint, own: share(alone) })
    }

    /// The sentence at `at`, with those after it that belong to the answer.
    fn told(&self, said: &[String], at: usize, own: f32) -> Vec<String> {
        let Some((first, rest)) = said.get(at..).and_then(<[String]>::split_first) else { return Vec::new() };
        // If the question is about the title, the whole list below it is the answer.
        let is_list = own < 0.3 && is_fragment(first);
        let is_entry = is_entry(first);
        let is_titled = !self.terms.is_empty() && own < 0.999 && !is_entry;
        if is_titled && count(said) <= SECTION_WORDS_MAX && !said.iter().any(|sentence| is_fragment(sentence))
        {
            return said.to_vec();
        }
        let mut answer = vec![ended(first)];
        let mut spoken_words = first.split_whitespace().count();
        for next in rest {
            let more = next.split_whitespace().count();
            let is_wanted = (spoken_words < SENTENCE_WORDS_MIN && !is_entry)
                || (is_list && is_fragment(next))
                || (is_titled && !is_fragment(next) && spoken_words + more <= SECTION_WORDS_MAX)
                || self.share(&spoken(next)) >= CONTINUES;
            if !is_wanted || spoken_words + more > WORDS_MAX {
                break;
            }
            answer.push(ended(next));
            spoken_words += more;
        }
        answer
    }

    /// The share of the terms' weight that a sentence has.
    fn share(&self, own: &HashSet<String>) -> f32 {
        let whole: f32 = self.terms.iter().map(|(_, weight)| weight).sum();
        let covered: f32 = self.terms.iter().map(|(term, weight)| weight * term.value(own)).sum();
        if whole > 0.0 { covered / whole } else { 0.0 }
    }
}

impl Term {
    /// How well the words stand for this term: 0 to 1.
    fn value(&self, words: &HashSet<String>) -> f32 {
        self.ways.iter().filter(|(way, _)| words.contains(way)).map(|(_, value)| *value).fold(0.0, f32::max)
    }
}

/// The terms of a text, with the days and months between two that it names, and neighbours joined: callers say
/// `carpark` where texts have `car park`.
fn spoken(text: &str) -> HashSet<String> {
    let found = terms(text);
    let mut all: HashSet<String> = found.windows(2).map(|pair| pair.concat()).collect();
    all.extend(found);
    let plain: Vec<String> = words(text).map(|word| word.replace("weekdays", "weekday")).collect();
    for cycle in [WEEKDAYS.as_slice(), MONTHS.as_slice()] {
        let mut named = plain.iter().enumerate().filter_map(|(at, word)| {
            let name = word.strip_suffix('s').unwrap_or(word);
            cycle.iter().position(|day| *day == name).map(|index| (at, index))
        });
        let mut last: Option<(usize, usize)> = None;
        for (at, index) in named.by_ref() {
            if let Some((before, from)) = last {
                let between = plain.get(before + 1..at).unwrap_or_default();
                let is_range = between.is_empty() && is_dashed(text)
                    || between
                        .iter()
                        .any(|word| matches!(word.as_str(), "to" | "until" | "till" | "through"));
                if is_range && between.len() <= 3 {
                    let steps = (index + cycle.len() - from) % cycle.len();
                    all.extend(
                        (0..steps)
                            .filter_map(|step| cycle.get((from + step) % cycle.len()))
                            .map(|day| stem(day)),
                    );
                }
            }
            last = Some((at, index));
        }
    }
    let days: &[&str] = match () {
        () if plain.iter().any(|word| word == "daily") || text.to_lowercase().contains("every day") => {
            &WEEKDAYS
        }
        () if plain.iter().any(|word| word == "weekday") => WEEKDAYS.get(..5).unwrap_or_default(),
        () if plain.iter().any(|word| word.starts_with("weekend")) => WEEKDAYS.get(5..).unwrap_or_default(),
        () => &[],
    };
    all.extend(days.iter().map(|day| stem(day)));
    all
}

/// How many words the sentences have.
fn count(sentences: &[String]) -> usize {
    sentences.iter().map(|sentence| sentence.split_whitespace().count()).sum()
}

fn is_dashed(text: &str) -> bool {
    text.contains(['–', '—', '-'])
}

/// Whether the innermost heading is the question itself, as in lists of frequent questions: then what follows answers
/// it, whatever it states.
fn is_same(question: &str, title: &str) -> bool {
    let heading = title.rsplit(" – ").next().unwrap_or_default();
    let [asked, headed]: [HashSet<String>; 2] =
        [question, heading].map(|text| terms(text).into_iter().collect());
    let both = asked.intersection(&headed).count();
    both >= SAME_TERMS_MIN && both * 4 >= asked.union(&headed).count() * 3
}

/// A list item, a row or a heading: a line that does not end like a sentence.
fn is_fragment(line: &str) -> bool {
    !line.trim_end_matches(['"', ')', '\'', '”', '’']).ends_with(['.', '!', '?', '…'])
}

/// A row such as `Monday: 9 to 5`, which is complete.
fn is_entry(line: &str) -> bool {
    is_fragment(line) && line.trim_end_matches(':').contains(':')
}

/// A price or a number without words.
fn is_bare_number(text: &str) -> bool {
    text.contains(|c: char| c.is_ascii_digit()) && !text.contains(char::is_alphabetic)
}

/// Ends `line` so that the next line does not seem part of it.
fn ended(line: &str) -> String {
    if !is_fragment(line) || line.ends_with(':') {
        return line.to_owned();
    }
    format!("{}.", line.trim_end_matches([',', ';', '–', '-', ' ']))
}

#[cfg(test)]
mod tests;
