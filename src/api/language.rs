//! BCP-47 tags to the model's language codes. Pure.

use super::parameters::{DetectLanguage, Parameters};
use crate::engine::{LanguageChoice, ModelInfo};

/// A language that the model was not trained for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the model does not know language `{0}`")]
pub struct UnknownLanguage(pub String);

/// The language of a request, for `model`.
///
/// Without any parameter the language is detected; `detect_language` overrides `language`, as in the wire
/// format; `multi` also means detection.
///
/// # Errors
/// [`UnknownLanguage`].
pub fn choice(parameters: &Parameters, model: &ModelInfo) -> Result<LanguageChoice, UnknownLanguage> {
    let detect = match (&parameters.detect_language, parameters.language.as_deref()) {
        (DetectLanguage::Among(tags), _) => {
            let among = tags.iter().map(|tag| code(tag, model)).collect::<Result<_, _>>()?;
            LanguageChoice::Detect { among, expected: None }
        }
        (DetectLanguage::Off, Some(tag)) if !tag.eq_ignore_ascii_case("multi") => {
            return code(tag, model).map(LanguageChoice::Named);
        }
        _ => LanguageChoice::Detect { among: Vec::new(), expected: None },
    };
    // There is nothing to detect.
    match model.languages.as_slice() {
        [only] => Ok(LanguageChoice::Named(only.clone())),
        _ => Ok(detect),
    }
}

/// The model's code for a BCP-47 tag: its primary language, except for the few that the model spells
/// differently or distinguishes by region.
///
/// # Errors
/// [`UnknownLanguage`].
pub(super) fn code(tag: &str, model: &ModelInfo) -> Result<String, UnknownLanguage> {
    let tag = tag.trim().to_ascii_lowercase().replace('_', "-");
    let (primary, rest) = tag.split_once('-').unwrap_or((&tag, ""));
    let known = |code: &&str| model.languages.iter().any(|language| language == code);
    let candidates: &[&str] = match primary {
        // Spoken in Hong Kong; models without a code for it write it as Chinese.
        "zh" if rest.split('-').any(|part| part == "hk") => &["yue", "zh"],
        "yue" => &["yue", "zh"],
        "cmn" => &["zh"],
        // Norwegian means Bokmål.
        "nb" => &["no"],
        "fil" => &["tl"],
        // Codes that ISO 639 has since replaced, on either side.
        "jv" => &["jw", "jv"],
        "iw" => &["he"],
        "in" => &["id"],
        primary => &[primary],
    };
    candidates
        .iter()
        .find(|code| known(code))
        .map(|code| (*code).to_owned())
        .ok_or(UnknownLanguage(tag.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(languages: &[&str]) -> ModelInfo {
        ModelInfo {
            name: "m".into(),
            uuid: uuid::Uuid::nil(),
            languages: languages.iter().map(|language| (*language).to_owned()).collect(),
            slots: 1,
            encode_batch: 1,
            device: String::new(),
            prompt_tokens: Default::default(),
        }
    }

    fn choose(query: &str, languages: &[&str]) -> Result<LanguageChoice, UnknownLanguage> {
        choice(&Parameters::parse(query).unwrap(), &model(languages))
    }

    const MANY: &[&str] = &["en", "es", "zh", "no", "nn", "tl", "jw", "he", "id", "pt"];

    #[test]
    fn tags_become_codes() {
        for (tag, code) in [
            ("en", "en"),
            ("EN-us", "en"),
            ("en_GB", "en"),
            ("es-419", "es"),
            ("zh-CN", "zh"),
            ("zh-Hans", "zh"),
            ("zh-Hant-TW", "zh"),
            ("zh-HK", "zh"),
            ("cmn-Hans-CN", "zh"),
            ("no", "no"),
            ("nb-NO", "no"),
            ("nn", "nn"),
            ("fil", "tl"),
            ("jv", "jw"),
            ("iw", "he"),
            ("in", "id"),
            ("pt-BR", "pt"),
        ] {
            let named = LanguageChoice::Named(code.to_owned());
            assert_eq!(choose(&format!("language={tag}"), MANY), Ok(named.clone()), "{tag}");
            assert_eq!(choose(&format!("lang={tag}"), MANY), Ok(named), "{tag}");
        }
        let cantonese = LanguageChoice::Named("yue".into());
        assert_eq!(choose("language=zh-HK", &["en", "zh", "yue"]), Ok(cantonese));
    }

    #[test]
    fn detection_is_the_default_and_overrides() {
        let any = || Ok(LanguageChoice::Detect { among: Vec::new(), expected: None });
        for query in ["", "language=multi", "detect_language=true", "detect_language=true&language=es"] {
            assert_eq!(choose(query, MANY), any(), "{query}");
        }
        assert_eq!(
            choose("detect_language=es-419&detect_language=en&language=zh", MANY),
            Ok(LanguageChoice::Detect { among: vec!["es".into(), "en".into()], expected: None })
        );
        assert_eq!(choose("detect_language=false&language=es", MANY), Ok(LanguageChoice::Named("es".into())));
    }

    #[test]
    fn others_are_unknown() {
        for query in [
            "language=xx",
            "language=",
            "language=english",
            "language=-",
            "detect_language=en&detect_language=xx",
        ] {
            assert!(choose(query, MANY).is_err(), "{query}");
        }
        assert_eq!(choose("language=ES-mx", &["en"]), Err(UnknownLanguage("es-mx".into())));
    }

    #[test]
    fn a_model_of_one_language_has_nothing_to_detect() {
        for query in ["", "language=multi", "language=en-AU", "detect_language=true"] {
            assert_eq!(choose(query, &["en"]), Ok(LanguageChoice::Named("en".into())), "{query}");
        }
    }
}
