//! Which languages a channel's windows are in. Pure.
//!
//! The model names a language for each window. On its own it errs on short, noisy or foreign-accented ones, so a language
//! stays until another one is sure, and a window in doubt among surer ones gets their language.

use super::window_plan::WindowPlan;
use crate::transcript::{DetectedLanguage, LanguageChange, Segment};

/// The first window's language is expected of the others if it has this probability.
const EXPECTED: f32 = 0.5;
/// A language other than the channel's is believed from this probability on.
const SURE: f32 = 0.8;
/// A window below this probability may be in two languages.
const DOUBTFUL: f32 = 0.7;
/// So may one with as many seconds of voice without words.
const UNHEARD: f64 = 2.0;

/// A window as it was recognised.
#[derive(Debug, Clone)]
pub struct Heard {
    pub plan: WindowPlan,
    pub language: DetectedLanguage,
    pub segments: Vec<Segment>,
    /// Seconds of voice that gave no words.
    pub voice_without_words: f64,
    /// The detector was nowhere sure of voice, or in a small part of it: there may be speech around what it found.
    pub in_pieces: bool,
}

impl Heard {
    /// Whether its language counts: without words it is that of a sound.
    pub fn has_words(&self) -> bool {
        !self.segments.is_empty()
    }
}

/// The language to expect after the first window.
pub fn expected(first: &Heard) -> Option<String> {
    (first.has_words() && first.language.probability >= EXPECTED).then(|| first.language.code.clone())
}

/// The language of most of the audio, by its probability; `None` without words.
pub fn main(windows: &[Heard]) -> Option<DetectedLanguage> {
    let windows: Vec<&Heard> = windows.iter().filter(|heard| heard.has_words()).collect();
    let weight = |code: &str| {
        let of_code = windows.iter().filter(|heard| heard.language.code == code);
        of_code.map(|heard| heard.plan.samples() as f64 * f64::from(heard.language.probability)).sum::<f64>()
    };
    let most =
        windows.iter().map(|heard| &heard.language.code).max_by(|a, b| weight(a).total_cmp(&weight(b)))?;
    let of_code = windows.iter().map(|heard| &heard.language).filter(|language| language.code == *most);
    of_code.max_by(|a, b| a.probability.total_cmp(&b.probability)).cloned()
}

/// Whether `heard` is to be recognised again in the channel's `main` language.
pub fn is_misheard(heard: &Heard, main: &DetectedLanguage) -> bool {
    heard.language.code != main.code && heard.language.probability < SURE
}

/// For each window whether it may hold two languages: it is in doubt, voice in it gave no words, or a neighbour is in
/// another language.
pub fn may_change(windows: &[Heard]) -> Vec<bool> {
    let code =
        |index: usize| windows.get(index).filter(|heard| heard.has_words()).map(|heard| &heard.language.code);
    let differs = |index: usize, other: Option<usize>| {
        other.and_then(code).is_some_and(|other| Some(other) != code(index))
    };
    (0..windows.len())
        .map(|index| {
            let heard = &windows[index];
            let differs = |other| heard.has_words() && differs(index, other);
            (heard.has_words() && heard.language.probability < DOUBTFUL)
                || heard.voice_without_words >= UNHEARD
                || differs(index.checked_sub(1))
                || differs(Some(index + 1))
        })
        .collect()
}

/// The stretches of one language each in a window with these `parts` and their `languages`. A doubtful part has the
/// language of the part before it, and a doubtful first part that of the `whole` window.
pub fn stretches(
    parts: Vec<WindowPlan>,
    languages: &[DetectedLanguage],
    whole: &DetectedLanguage,
) -> Vec<(DetectedLanguage, WindowPlan)> {
    let is_known = |code: &String| {
        let is_sure = |language: &DetectedLanguage| language.code == *code && language.probability >= SURE;
        whole.code == *code || languages.iter().any(is_sure)
    };
    let mut stretches: Vec<(DetectedLanguage, WindowPlan)> = Vec::new();
    for (part, language) in parts.into_iter().zip(languages) {
        let DetectedLanguage { code, probability } = language;
        let is_believed = *probability >= SURE || (*probability >= EXPECTED && is_known(code));
        let before = stretches.last().map_or(whole, |(language, _)| language);
        let language = if is_believed { language } else { before }.clone();
        match stretches.last_mut() {
            Some((last, plan)) if last.code == language.code => {
                last.probability = last.probability.max(language.probability);
                *plan = plan.then(&part);
            }
            _ => stretches.push((language, part)),
        }
    }
    stretches
}

/// The languages in the order in which they begin.
pub fn changes(windows: &[Heard]) -> Vec<LanguageChange> {
    let mut changes: Vec<LanguageChange> = Vec::new();
    for heard in windows.iter().filter(|heard| heard.has_words()) {
        if changes.last().is_none_or(|last| last.code != heard.language.code) {
            changes.push(LanguageChange {
                start: heard.plan.to_file_time(0.0),
                code: heard.language.code.clone(),
            });
        }
    }
    changes
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "one stretch is a list of stretches too")]
mod tests {
    use super::*;

    fn heard(start: usize, code: &str, probability: f32) -> Heard {
        let plan = WindowPlan::new([start * 16_000..(start + 30) * 16_000]);
        let language = DetectedLanguage { code: code.into(), probability };
        let segments = vec![Segment::default()];
        Heard { plan, language, segments, voice_without_words: 0.0, in_pieces: false }
    }

    #[test]
    fn one_doubtful_window_does_not_change_the_language_and_a_sure_one_does() {
        let windows =
            [heard(0, "en", 0.9), heard(30, "cy", 0.5), heard(60, "de", 0.95), heard(90, "en", 0.9)];
        let main = main(&windows).expect("there are windows");
        assert_eq!((main.code.as_str(), main.probability), ("en", 0.9));
        assert_eq!(windows.each_ref().map(|heard| is_misheard(heard, &main)), [false, true, false, false]);
        let changes: Vec<(f64, String)> =
            changes(&windows).into_iter().map(|change| (change.start, change.code)).collect();
        let named = [(0.0, "en"), (30.0, "cy"), (60.0, "de"), (90.0, "en")];
        assert_eq!(changes, named.map(|(start, code)| (start, code.to_owned())));
    }

    #[test]
    fn parts_of_one_language_are_joined_and_doubtful_ones_have_the_language_before() {
        let named = |code: &str, probability| DetectedLanguage { code: code.into(), probability };
        let parts: Vec<WindowPlan> =
            (0..5).map(|index| WindowPlan::new([index * 80_000..(index + 1) * 80_000])).collect();
        let languages =
            [named("en", 0.9), named("cy", 0.4), named("de", 0.9), named("de", 0.6), named("en", 0.7)];
        let whole = named("en", 0.6);
        let expected = [
            (named("en", 0.9), WindowPlan::new([0..160_000])),
            (named("de", 0.9), WindowPlan::new([160_000..320_000])),
            (named("en", 0.7), WindowPlan::new([320_000..400_000])),
        ];
        assert_eq!(stretches(parts.clone(), &languages, &whole), expected);
        let other = stretches(parts[2..4].to_vec(), &languages[2..4], &whole);
        assert_eq!(
            other,
            [(named("de", 0.9), WindowPlan::new([160_000..320_000]))],
            "not the whole's language"
        );
    }

    #[test]
    fn a_change_lies_in_one_of_two_neighbours_or_in_a_doubtful_window() {
        let windows = [
            heard(0, "en", 0.9),
            heard(30, "en", 0.9),
            heard(60, "de", 0.9),
            heard(90, "de", 0.9),
            heard(120, "de", 0.6),
        ];
        assert_eq!(may_change(&windows), [false, true, true, false, true]);
        let unheard = Heard { voice_without_words: 8.0, ..heard(0, "en", 0.9) };
        assert_eq!(may_change(&[unheard]), [true]);
        let sound = Heard { segments: Vec::new(), ..heard(30, "cy", 0.5) };
        assert_eq!(
            may_change(&[heard(0, "en", 0.9), sound.clone()]),
            [false, false],
            "no words, no language"
        );
        assert!(main(&[sound]).is_none());
        assert!(may_change(&[]).is_empty() && main(&[]).is_none());
        assert_eq!(expected(&windows[0]).as_deref(), Some("en"));
        assert_eq!(expected(&heard(0, "nn", 0.3)), None);
    }
}
