//! Which enrolled voice a speaker is: cosine similarity of embeddings, with a threshold and a margin, one voice to one
//! speaker. Pure.

use std::sync::Arc;

use super::store::Voice;
use crate::speakers::similarity;

/// The least cosine between a speaker and the voice that names it. With three readers enrolled by one clip each, 22 of their 22
/// other clips of 4 to 35 s were named rightly, and none of 15 clips of strangers (clean recordings, over POST).
const SIMILAR: f32 = 0.65;
/// The least lead over the second most similar voice.
const MARGIN: f32 = 0.08;
/// How fast confidence rises with similarity: 0.5 at [`SIMILAR`], 0.95 at 0.2 above it.
const STEEPNESS: f32 = 15.0;

/// A speaker's enrolled voice.
#[derive(Debug, Clone, PartialEq)]
pub struct Identified {
    pub name: Arc<str>,
    /// 0 to 1.
    pub confidence: f32,
}

/// The names of speakers, by their mean embeddings; `None` for those who are like no voice, or like several.
pub fn identify(voices: &[Voice], speakers: &[Vec<f32>]) -> Vec<Option<Identified>> {
    let mut naming = Naming::new(voices.into());
    naming.update(speakers);
    naming.names
}

/// The names of a stream's speakers. A name once given to a speaker is kept.
#[derive(Debug)]
pub struct Naming {
    voices: Arc<[Voice]>,
    /// Whose voices were found.
    taken: Vec<bool>,
    names: Vec<Option<Identified>>,
}

impl Naming {
    pub fn new(voices: Arc<[Voice]>) -> Self {
        Self { taken: vec![false; voices.len()], voices, names: Vec::new() }
    }

    /// By speaker, as far as they are known.
    pub fn names(&self) -> &[Option<Identified>] {
        &self.names
    }

    /// Looks for the names of speakers without one, by the mean embeddings of all.
    pub fn update(&mut self, speakers: &[Vec<f32>]) {
        self.names.resize(speakers.len().max(self.names.len()), None);
        let unnamed = (0..speakers.len()).filter(|&speaker| self.names[speaker].is_none());
        let mut found: Vec<(usize, usize, f32)> =
            unnamed.filter_map(|speaker| self.nearest(speaker, &speakers[speaker])).collect();
        found.sort_by(|a, b| b.2.total_cmp(&a.2));
        for (speaker, voice, similarity) in found {
            if !std::mem::replace(&mut self.taken[voice], true) {
                let confidence = 1.0 / (1.0 + (-STEEPNESS * (similarity - SIMILAR)).exp());
                let name = self.voices[voice].name.as_str().into();
                self.names[speaker] = Some(Identified { name, confidence });
            }
        }
    }

    /// The speaker, the voice that it is most like, and how much, if it is that voice. Voices of other speakers count
    /// as well: who is like them has no name.
    fn nearest(&self, speaker: usize, embedding: &[f32]) -> Option<(usize, usize, f32)> {
        let mut similarities: Vec<(usize, f32)> =
            self.voices.iter().map(|voice| similarity(&voice.embedding, embedding)).enumerate().collect();
        similarities.sort_by(|a, b| b.1.total_cmp(&a.1));
        let &(voice, similarity) = similarities.first()?;
        let next = similarities.get(1).map_or(-1.0, |&(_, similarity)| similarity);
        let is_sure = similarity >= SIMILAR && similarity - next >= MARGIN && !self.taken[voice];
        is_sure.then_some((speaker, voice, similarity))
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use uuid::Uuid;

    use super::*;

    fn voice(name: &str, embedding: Vec<f32>) -> Voice {
        Voice { id: Uuid::new_v4(), name: name.into(), created: UNIX_EPOCH, embedding }
    }

    /// A unit vector that is this similar to the axis, with the rest on another.
    fn near(axis: usize, similarity: f32, other: usize) -> Vec<f32> {
        let mut vector = vec![0.0; 6];
        vector[axis] = similarity;
        vector[other] = (1.0 - similarity * similarity).sqrt();
        vector
    }

    fn two() -> Vec<Voice> {
        vec![voice("Ada", near(0, 1.0, 5)), voice("Bo", near(1, 1.0, 5))]
    }

    fn names(found: &[Option<Identified>]) -> Vec<Option<&str>> {
        found.iter().map(|found| found.as_ref().map(|found| &*found.name)).collect()
    }

    #[test]
    fn speakers_get_the_names_of_their_voices() {
        let speakers = [near(1, 0.8, 4), near(2, 0.9, 4), near(0, 0.7, 4)];
        let found = identify(&two(), &speakers);
        assert_eq!(names(&found), [Some("Bo"), None, Some("Ada")]);
        let confidence = |index: usize| found[index].as_ref().unwrap().confidence;
        assert!(confidence(0) > confidence(2) && confidence(2) > 0.5 && confidence(0) < 1.0);
        assert!(identify(&[], &speakers).iter().all(Option::is_none));
        assert!(identify(&two(), &[]).is_empty());
    }

    #[test]
    fn who_is_like_none_or_like_two_has_no_name() {
        let between = near(0, 0.5f32.sqrt(), 1);
        assert_eq!(names(&identify(&two(), &[near(0, 0.4, 4), between])), [None, None]);
    }

    #[test]
    fn a_voice_belongs_to_the_speaker_that_is_most_like_it() {
        let speakers = [near(0, 0.7, 4), near(0, 0.9, 3)];
        assert_eq!(names(&identify(&two(), &speakers)), [None, Some("Ada")]);
    }

    #[test]
    fn a_name_once_given_is_kept_and_given_to_no_other() {
        let mut naming = Naming::new(two().into());
        naming.update(&[near(0, 0.7, 4)]);
        // Now another one is more like it, and the first like another voice.
        naming.update(&[near(1, 0.9, 4), near(0, 0.95, 3)]);
        assert_eq!(names(naming.names()), [Some("Ada"), None]);
        naming.update(&[]);
        assert_eq!(names(naming.names()), [Some("Ada"), None]);
    }
}
