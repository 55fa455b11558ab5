//! Words to expect, told to the model as the text that came before the audio. Pure.
//!
//! Whisper takes names and their spelling from the text before (openai/whisper, discussion 117): a list
//! of terms there makes them likelier, and leaves common speech alone. It reads the last tokens of that
//! text best and drops the first where they are too many, so terms are put in rising order of weight, and
//! those for which there is surely no room are left out here, where the caller can be told.

use super::parameters::Parameters;

/// The model keeps 223 tokens of a prompt (half of its text positions, less one).
const TOKENS_MAX: usize = 223;
/// English has about four bytes to a token, names fewer: an estimate that is rather too high.
const BYTES_PER_TOKEN: usize = 2;

/// What is told to the model, and what was asked for in vain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prompt {
    pub text: Option<String>,
    /// Of `keywords` and of `keyterm`: left out for want of room, or of a positive intensifier.
    pub keywords_left_out: usize,
    pub keyterms_left_out: usize,
}

/// A term with its weight.
struct Term<'a> {
    text: &'a str,
    weight: f64,
    keyterm: bool,
}

/// The prompt for `parameters`: key terms first, then keywords by intensifier, as many as fit.
pub fn prompt(parameters: &Parameters) -> Prompt {
    let keyterms =
        parameters.keyterms.iter().map(|term| Term { text: term, weight: f64::INFINITY, keyterm: true });
    let keywords = parameters.keywords.iter().map(|keyword| Term {
        text: &keyword.word,
        weight: keyword.intensifier,
        keyterm: false,
    });
    let mut terms: Vec<Term<'_>> = keyterms.chain(keywords).collect();
    terms.sort_by(|a, b| b.weight.total_cmp(&a.weight));
    let mut prompt = Prompt::default();
    let mut tokens = 0;
    let mut told: Vec<&str> = Vec::new();
    for term in terms {
        let text = term.text.trim();
        if told.contains(&text) {
            continue;
        }
        // The comma after it is a token too.
        let cost = text.len().div_ceil(BYTES_PER_TOKEN) + 1;
        if term.weight > 0.0 && tokens + cost <= TOKENS_MAX {
            tokens += cost;
            told.push(text);
        } else if term.keyterm {
            prompt.keyterms_left_out += 1;
        } else {
            prompt.keywords_left_out += 1;
        }
    }
    told.reverse();
    prompt.text = Some(told.join(", ")).filter(|text| !text.is_empty()).map(|text| format!("{text}."));
    prompt
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(query: &str) -> Prompt {
        prompt(&Parameters::parse(query).unwrap())
    }

    #[test]
    fn the_weightiest_stand_last() {
        assert_eq!(of("").text, None);
        let prompt = of("keywords=krieger:2,systrom:5&keyterm=Deepgram&keywords=kansas&keyterm=Dr.+Smith");
        assert_eq!(prompt.text.as_deref(), Some("kansas, krieger, systrom, Dr. Smith, Deepgram."));
        assert_eq!((prompt.keywords_left_out, prompt.keyterms_left_out), (0, 0));
    }

    #[test]
    fn what_cannot_be_told_is_counted() {
        let prompt = of("keywords=kansas:-10,oz:0,toto");
        assert_eq!((prompt.text.as_deref(), prompt.keywords_left_out), (Some("toto."), 2));
        let many: Vec<String> = (0..90).map(|number| format!("term{number:04}")).collect();
        let prompt = of(&format!("keyterm={}", many.join("&keyterm=")));
        assert_eq!(prompt.keyterms_left_out, 90 - 223 / 5);
        assert!(prompt.text.unwrap().ends_with("term0001, term0000."));
    }
}
