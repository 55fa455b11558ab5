//! Names of models in requests: which served model each means. Pure.

use std::collections::BTreeMap;

use uuid::Uuid;

/// The served models by name; the first is the default.
#[derive(Debug, Clone)]
pub struct Names {
    served: Vec<(String, Uuid)>,
    /// Further names, each of a served model.
    others: BTreeMap<String, usize>,
}

impl Names {
    /// `others`: further names, each with the name of the model that it means; those of models that are not served are
    /// dropped.
    pub fn new(served: Vec<(String, Uuid)>, others: &BTreeMap<String, String>) -> Self {
        let place = |name: &String| served.iter().position(|(served, _)| served == name);
        let others = others.iter().filter_map(|(name, model)| Some((name.clone(), place(model)?))).collect();
        Self { served, others }
    }

    /// The number of the model that `asked` means; `None` if it names a model that is not served. One SDK sends `None` for
    /// no model in particular. A size without a version means any of its versions: `whisper-large` is `large-v3`.
    pub fn find(&self, asked: Option<&str>) -> Option<usize> {
        let asked = asked.unwrap_or_default();
        if let Some(place) = self.others.get(asked) {
            return Some(*place);
        }
        if matches!(asked, "" | "None" | "whisper") {
            return Some(0);
        }
        let name = asked.strip_prefix("whisper-").unwrap_or(asked);
        let uuid = Uuid::parse_str(asked).ok();
        let is_it = |(served, id): &(String, Uuid)| served == name || served == asked || Some(*id) == uuid;
        let is_its_size = |(served, _): &(String, Uuid)| served.split(['-', '.']).next() == Some(name);
        self.served.iter().position(is_it).or_else(|| self.served.iter().position(is_its_size))
    }

    pub fn name(&self, place: usize) -> &str {
        self.served.get(place).map_or("", |(name, _)| name)
    }

    /// All names that requests may use, those of models first.
    pub fn all(&self) -> impl Iterator<Item = &str> {
        let is_new = |name: &&String| self.served.iter().all(|(served, _)| served != *name);
        let others = self.others.keys().filter(is_new);
        self.served.iter().map(|(name, _)| name.as_str()).chain(others.map(String::as_str))
    }

    pub fn served(&self) -> impl Iterator<Item = (&str, Uuid)> {
        self.served.iter().map(|(name, uuid)| (name.as_str(), *uuid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_means_the_model_itself_or_its_size_or_none_in_particular() {
        let served = ["base", "tiny.en", "large-v3", "tiny"];
        let served = served.iter().zip(1..).map(|(name, id)| ((*name).to_owned(), Uuid::from_u128(id)));
        let others = [("whisper-1", "tiny"), ("gpt-4o-transcribe", "large-v3"), ("x", "medium")];
        let others = others.map(|(name, model)| (name.to_owned(), model.to_owned())).into();
        let names = Names::new(served.collect(), &others);
        for (asked, place) in [
            (None, Some(0)),
            (Some(""), Some(0)),
            (Some("None"), Some(0)),
            (Some("whisper"), Some(0)),
            (Some("base"), Some(0)),
            (Some("whisper-tiny.en"), Some(1)),
            (Some("00000000-0000-0000-0000-000000000003"), Some(2)),
            (Some("whisper-large"), Some(2)),
            (Some("large"), Some(2)),
            // Its own name goes before the size of another.
            (Some("tiny"), Some(3)),
            (Some("whisper-1"), Some(3)),
            (Some("gpt-4o-transcribe"), Some(2)),
            (Some("nova-3"), None),
            (Some("x"), None),
            (Some("whisper-medium"), None),
        ] {
            assert_eq!(names.find(asked), place, "{asked:?}");
        }
    }
}
