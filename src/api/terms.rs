//! Terms to expect, from `keyterm` and `keywords`, as the model takes them. Pure.
//!
//! The decoder writes them where the audio nearly says them (see [`crate::engine::DecodingOptions::bias`]).
//! Given as a text before the audio they would be found more often, but other words would change too;
//! benches/RESULTS.md has the figures.

use std::sync::Arc;

use super::parameters::Parameters;
use crate::engine::Term;

/// The terms of `parameters`: key terms weigh 1, keywords their intensifier.
pub fn terms(parameters: &Parameters) -> Arc<[Term]> {
    let keyterms = parameters.keyterms.iter().map(|text| Term { text: text.clone(), weight: 1.0 });
    let keywords = parameters
        .keywords
        .iter()
        .map(|keyword| Term { text: keyword.word.clone(), weight: keyword.intensifier as f32 });
    keyterms.chain(keywords).filter(|term| term.weight != 0.0).collect()
}

/// How many of `keywords` ask for nothing.
pub fn keywords_without_effect(parameters: &Parameters) -> usize {
    parameters.keywords.iter().filter(|keyword| keyword.intensifier == 0.0).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(query: &str) -> (Vec<(String, f32)>, usize) {
        let parameters = Parameters::parse(query).unwrap();
        let terms = terms(&parameters).iter().map(|term| (term.text.clone(), term.weight)).collect();
        (terms, keywords_without_effect(&parameters))
    }

    #[test]
    fn terms_have_their_weights() {
        assert_eq!(of(""), (vec![], 0));
        let (terms, without_effect) = of("keywords=krieger:2,oz:0,toto:-10&keyterm=Dr.+Smith");
        let expected = [("Dr. Smith", 1.0), ("krieger", 2.0), ("toto", -10.0)];
        assert_eq!(terms, expected.map(|(text, weight)| (text.to_owned(), weight)));
        assert_eq!(without_effect, 1);
    }
}
