//! The fixed sets of questions about eight made websites, in `tests/fixtures/sites`. The sites `guesthouse` and `pool`
//! were written before any of this was tuned, and nothing was tuned on them. `SHOW=dentist` shows the failures of a site.

use serde::Deserialize;

use super::super::passage::of_sections;
use super::super::search::Rationed;
use super::*;
use crate::knowledge::html;

#[derive(Deserialize)]
struct Asked {
    question: String,
    /// What a right answer has in it, one of these; none if the site does not say.
    answer: Option<Vec<String>>,
}

fn site(name: &str) -> (Knowledge, Vec<Asked>) {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/sites").join(name);
    let mut pages: Vec<_> = std::fs::read_dir(&folder)
        .expect("a site")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "html"))
        .collect();
    pages.sort();
    let passages = pages.iter().flat_map(|path| {
        let page = html::read(&std::fs::read_to_string(path).expect("a page"));
        of_sections(&path.to_string_lossy(), &page.title, &page.sections)
    });
    let questions = std::fs::read_to_string(folder.join("questions.jsonl")).expect("questions");
    let questions = questions.lines().map(|line| serde_json::from_str(line).expect("a question")).collect();
    (Knowledge::new(passages.collect(), Rationed::default()), questions)
}

/// Counts of one or more sites.
#[derive(Debug, Default)]
struct Score {
    right: usize,
    wrong: usize,
    /// Questions that the site answers.
    answerable: usize,
    /// Questions that it does not answer, and those of them that got no answer.
    unanswerable: usize,
    admitted: usize,
}

impl Score {
    fn add(&mut self, name: &str) {
        let (knowledge, questions) = site(name);
        for Asked { question, answer } in questions {
            let given = knowledge.answer(&question, |_, _| true).map(|answer| answer.join(" "));
            let is_right = answer.as_ref().zip(given.as_ref()).is_some_and(|(answer, given)| {
                answer.iter().any(|part| given.to_lowercase().contains(part.as_str()))
            });
            self.answerable += usize::from(answer.is_some());
            self.unanswerable += usize::from(answer.is_none());
            self.admitted += usize::from(answer.is_none() && given.is_none());
            self.right += usize::from(is_right);
            self.wrong += usize::from(given.is_some() && !is_right);
            let is_shown = std::env::var("SHOW").is_ok_and(|sites| sites.contains(name));
            if is_shown && (given.is_some() != answer.is_some() || (given.is_some() && !is_right)) {
                println!("{name}: {question} -> {given:?}");
            }
        }
    }

    fn precision(&self) -> f64 {
        self.right as f64 / (self.right + self.wrong) as f64
    }

    fn recall(&self) -> f64 {
        self.right as f64 / self.answerable as f64
    }

    fn admits(&self) -> f64 {
        self.admitted as f64 / self.unanswerable as f64
    }
}

#[test]
fn answers_are_right_or_not_given() {
    for (sites, precision_min) in [
        (&["dentist", "bicycles", "library", "vet", "restaurant", "campsite"][..], 0.95),
        // On these nothing was tuned. It falls short of the aim of 0.95: 0.91 when this was written.
        (&["guesthouse", "pool"], 0.9),
    ] {
        let mut score = Score::default();
        sites.iter().for_each(|site| score.add(site));
        println!(
            "{sites:?}: precision {:.3}, right {:.3}, admitted {:.3}, {score:?}",
            score.precision(),
            score.recall(),
            score.admits()
        );
        assert!(score.precision() >= precision_min, "{sites:?}: {score:?}");
        assert!(score.admits() >= 0.95, "{sites:?}: {score:?}");
    }
}
