//! The names of models that OpenAI's clients may use.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a client's `model` means. Clients name models of the hosted service, such as `whisper-1`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Further names of served models, as in `{"whisper-1" = "large-v3"}`. They are listed beside the models.
    pub aliases: BTreeMap<String, String>,
    /// Whether any other name means the loaded model. Default true; with false it is answered with 404.
    pub any_model: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self { aliases: BTreeMap::new(), any_model: true }
    }
}

impl Config {
    /// Whether `asked` means a model that is served; `is_served` knows their own names.
    pub fn means(&self, asked: &str, is_served: impl Fn(&str) -> bool) -> bool {
        match self.aliases.get(asked) {
            Some(target) => is_served(target),
            None => is_served(asked) || self.any_model,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_will_do_unless_settings_say_otherwise() {
        let is_served = |name: &str| name == "base";
        let open = Config::default();
        assert!(open.means("whisper-1", is_served) && open.means("base", is_served));
        let aliases = [("whisper-1", "base"), ("gpt-4o-transcribe", "large-v3")];
        let aliases: BTreeMap<_, _> =
            aliases.map(|(name, target)| (name.to_owned(), target.to_owned())).into();
        let strict = Config { aliases, any_model: false };
        for (name, expected) in
            [("base", true), ("whisper-1", true), ("gpt-4o-transcribe", false), ("other", false)]
        {
            assert_eq!(strict.means(name, is_served), expected, "{name}");
        }
    }
}
