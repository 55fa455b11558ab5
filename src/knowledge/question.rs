//! A caller's question: the terms that an answer must have, and the fact that it must state.

use super::fact::Fact;
use super::lexicon::{bare, has_synonyms, is_light, is_place, is_stop_word, stem, ways, words};

#[derive(Debug, Clone, PartialEq)]
pub struct Term {
    /// The stems that stand for it, and how well; its own first.
    pub ways: Vec<(String, f32)>,
    /// It says little about the topic.
    pub is_light: bool,
    /// It names the kind of place that texts may be about as a whole: `the shop`.
    pub is_place: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    pub terms: Vec<Term>,
    pub fact: Option<Fact>,
    /// The place of the term that is to be counted: `how many books`.
    pub counted: Option<usize>,
    /// It asks for more than yes or no.
    pub is_open: bool,
}

/// Words for opening and closing; a question for hours is about them in any form.
const OPEN: &[&str] =
    &["open", "opening", "opened", "opens", "close", "closes", "closed", "closing", "shut", "hours", "times"];
const PRICED: &[&str] = &[
    "price",
    "prices",
    "priced",
    "cost",
    "costs",
    "costing",
    "fee",
    "fees",
    "rate",
    "rates",
    "charge",
    "charges",
    "charged",
    "pay",
    "pays",
    "paying",
    "expensive",
    "cheap",
    "fine",
    "much",
];
const OLD: &[&str] = &["old", "age", "years", "year"];
const REACHED: &[&str] = &["call", "ring", "reach", "contact", "phone", "speak", "talk"];
const NUMBERED: &[&str] = &["phone", "telephone", "number", "call", "ring", "mobile"];

/// How a question begins to ask: the phrases, the earliest of which counts.
const OPENINGS: &[(&str, Opening)] = &[
    ("what time", Opening::Clock),
    ("which time", Opening::Clock),
    ("how late", Opening::Clock),
    ("how early", Opening::Time),
    ("until when", Opening::Time),
    ("since when", Opening::Time),
    ("when", Opening::Time),
    ("what day", Opening::Time),
    ("which day", Opening::Time),
    ("which days", Opening::Time),
    ("how long", Opening::Duration),
    ("how much time", Opening::Duration),
    ("how much", Opening::Price),
    ("how many", Opening::Number),
    ("how old", Opening::Age),
    ("how far", Opening::Distance),
    ("how", Opening::Manner),
    ("whose", Opening::Other),
    ("who", Opening::Person),
    ("whom", Opening::Person),
    ("where", Opening::Place),
    ("which", Opening::Which),
    ("what", Opening::What),
    ("whats", Opening::What),
    ("wheres", Opening::Place),
    ("whos", Opening::Person),
    ("whens", Opening::Time),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Opening {
    Clock,
    Time,
    Duration,
    Price,
    Number,
    Age,
    Distance,
    Manner,
    Person,
    Place,
    Which,
    What,
    /// Yes or no, or no question at all.
    Other,
}

impl Question {
    pub fn read(text: &str) -> Self {
        let spoken: Vec<String> = words(text).collect();
        let asked = Asked::new(&spoken);
        let (fact, settled) = asked.fact();
        let mut rest: Vec<&str> = spoken.iter().map(String::as_str).collect();
        rest.retain(|word| !settled.contains(word));
        let mut terms: Vec<Term> = Vec::new();
        let mut at = 0;
        while let Some(word) = rest.get(at) {
            // `second hand` as recognisers write it.
            let joined = rest.get(at + 1).map(|next| stem(&bare(&format!("{word}{next}"))));
            let term = match joined.filter(|joined| has_synonyms(joined)) {
                Some(joined) => {
                    at += 1;
                    joined
                }
                None => stem(&bare(word)),
            };
            at += 1;
            if !is_stop_word(word)
                && !terms.iter().any(|known| known.ways.first().is_some_and(|way| way.0 == term))
            {
                let (is_place, is_measure) = (is_place(&term), asked.measure() == Some(*word));
                terms.push(Term { is_light: is_light(&term) && !is_measure, is_place, ways: ways(&term) });
            }
        }
        let counted = asked.counted().and_then(|word| {
            let stem = stem(&bare(word));
            terms.iter().position(|term| term.ways.first().is_some_and(|way| way.0 == stem))
        });
        let is_open =
            fact.is_none() && matches!(asked.opening, Opening::What | Opening::Which | Opening::Manner);
        // The place itself is no topic: `where are you`.
        if asked.opening == Opening::Place && fact.is_none() && terms.iter().all(|term| term.is_light) {
            return Self { terms, fact: Some(Fact::Street), counted, is_open };
        }
        Self { terms, fact, counted, is_open }
    }
}

/// The words of a question in order.
struct Asked<'a> {
    /// With a space before, after and between.
    plain: String,
    words: &'a [String],
    opening: Opening,
}

impl<'a> Asked<'a> {
    fn new(words: &'a [String]) -> Self {
        let plain = format!(" {} ", words.join(" "));
        let found = OPENINGS
            .iter()
            .filter_map(|(phrase, opening)| Some((plain.find(&format!(" {phrase} "))?, phrase, opening)));
        // The earliest; of two at the same place the longer one.
        let first = found.min_by_key(|(at, phrase, _)| (*at, usize::MAX - phrase.len()));
        Self { words, opening: first.map_or(Opening::Other, |(_, _, opening)| *opening), plain }
    }

    fn has(&self, phrases: &[&str]) -> bool {
        phrases.iter().any(|phrase| self.plain.contains(&format!(" {phrase} ")))
    }

    fn any(&self, list: &[&str]) -> bool {
        self.words.iter().any(|word| list.contains(&word.as_str()))
    }

    /// The fact that is wanted, and the words that say so and no more.
    fn fact(&self) -> (Option<Fact>, &'static [&'static str]) {
        if self.has(&["email", "e-mail", "email address", "mail address"]) && self.opening != Opening::Person
        {
            return (Some(Fact::Email), &["email", "e-mail", "mail", "address"]);
        }
        if self.has(&["address", "your location", "you located", "where located"]) {
            return (Some(Fact::Street), &["address", "street", "location", "located"]);
        }
        let wants_number =
            self.has(&["phone number", "telephone number", "the number of", "number for", "your number"])
                || (self.any(&["number"]) && self.any(REACHED));
        if wants_number && self.opening != Opening::Number {
            return (Some(Fact::Telephone), NUMBERED);
        }
        match self.opening {
            Opening::Clock | Opening::Time if self.any(OPEN) => (Some(Fact::Hours), OPEN),
            Opening::What | Opening::Which
                if self.has(&[
                    "opening hours",
                    "opening times",
                    "your hours",
                    "business hours",
                    "office hours",
                ]) =>
            {
                (Some(Fact::Hours), OPEN)
            }
            Opening::Clock => (Some(Fact::Clock), &["time", "late"]),
            Opening::Time => (Some(Fact::Time), &[]),
            Opening::Duration => (Some(Fact::Duration), &["long", "time"]),
            Opening::Price if !self.wants_amount() => (Some(Fact::Number), &[]),
            Opening::Price => (Some(Fact::Price), PRICED),
            Opening::Number => (Some(Fact::Number), &[]),
            Opening::Age => (Some(Fact::Age), OLD),
            Opening::Distance => (Some(Fact::Distance), &["far"]),
            Opening::Person if self.any(REACHED) => (Some(Fact::Contact), REACHED),
            Opening::Person => (Some(Fact::Name), &[]),
            Opening::What | Opening::Which | Opening::Manner if self.is_priced() => {
                (Some(Fact::Price), PRICED)
            }
            Opening::What
                if self.has(&["i need", "i bring", "we need", "we bring", "is needed", "need to bring"]) =>
            {
                (Some(Fact::Need), &["bring", "need"])
            }
            Opening::Other if self.wants_hours() => (Some(Fact::Hours), OPEN),
            Opening::Other if self.is_charged() => {
                (Some(Fact::Price), &["pay", "cost", "costs", "charge", "free", "fee"])
            }
            _ => (None, &[]),
        }
    }

    fn after(&self, phrase: &str) -> Option<&str> {
        let (_, rest) = self.plain.split_once(&format!(" {phrase} "))?;
        rest.split(' ').next().filter(|word| !word.is_empty())
    }

    /// `How deep is it`: this it must be about.
    fn measure(&self) -> Option<&str> {
        let word = self.after("how").filter(|_| self.opening == Opening::Manner)?;
        (!is_stop_word(word) && !matches!(word, "often" | "soon" | "come" | "early" | "quickly"))
            .then_some(word)
    }

    fn counted(&self) -> Option<&str> {
        self.after("how many").filter(|_| self.opening == Opening::Number)
    }

    /// `How much is a filling`, but not `how much luggage`.
    fn wants_amount(&self) -> bool {
        self.after("how much").is_none_or(|next| {
            is_stop_word(next) || matches!(next, "cost" | "money" | "extra" | "more" | "per")
        })
    }

    fn is_priced(&self) -> bool {
        self.any(&["price", "prices", "cost", "costs", "fee", "fees", "rates", "expensive", "fare"])
            || self.has(&["you charge", "the charge", "the fine", "the rate"])
            || (self.has(&["i pay", "we pay", "you pay", "to pay"])
                && !self.has(&["pay with", "pay by", "pay in"]))
    }

    fn wants_hours(&self) -> bool {
        let begins = self.has(&["are you", "is the", "are they", "is it", "are the", "you are", "youre"]);
        begins && self.any(&["open", "closed", "opened"]) && !self.has(&["open a", "open an", "open my"])
    }

    fn is_charged(&self) -> bool {
        self.has(&["have to pay", "need to pay", "pay for", "does it cost", "do you charge", "pay extra"])
            || (self.any(&["free"])
                && self.has(&["is it", "is the", "is a", "are the", "is parking", "for free"]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_says_which_fact_it_wants() {
        for (question, fact) in [
            ("How much is a filling?", Some(Fact::Price)),
            ("what do you charge for a crown", Some(Fact::Price)),
            ("How much luggage may I bring?", Some(Fact::Number)),
            ("Can I charge my electric car?", None),
            ("Can I pay by card?", None),
            ("Is parking free?", Some(Fact::Price)),
            ("do i have to pay for parking", Some(Fact::Price)),
            ("When are you open?", Some(Fact::Hours)),
            ("are you open on sunday", Some(Fact::Hours)),
            ("Can I open an account?", None),
            ("how can i return books when you're closed", None),
            ("What time is breakfast?", Some(Fact::Clock)),
            ("Who runs the house?", Some(Fact::Name)),
            ("Who can I call at night?", Some(Fact::Contact)),
            ("What do I need for the first visit?", Some(Fact::Need)),
            ("where are you", Some(Fact::Street)),
            ("Where is the lift?", None),
            ("what's your phone number", Some(Fact::Telephone)),
        ] {
            assert_eq!(Question::read(question).fact, fact, "{question}");
        }
    }

    #[test]
    fn words_that_only_ask_are_no_terms() {
        let heavy = |text: &str| {
            let terms = Question::read(text).terms.into_iter().filter(|term| !term.is_light);
            terms.filter_map(|term| term.ways.into_iter().next()).map(|(way, _)| way).collect::<Vec<_>>()
        };
        assert_eq!(heavy("Hi, um, how much is a filling please?"), ["fill"]);
        assert_eq!(heavy("do you buy second hand bikes"), ["buy", "secondhand", "bike"]);
        assert!(heavy("When are you open?").is_empty());
    }
}
