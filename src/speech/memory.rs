//! Speech that is kept: greetings and prompts repeat.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use super::synthesizer::Part;
use super::wav::VOICE_RATE;

/// The longest text that is kept, in bytes.
const TEXT_BYTES_MAX: usize = 300;
/// Samples of all kept speech: 5 minutes, 29 MB.
const SAMPLES_MAX: usize = 300 * VOICE_RATE as usize;

/// The voice, the pace in thousandths, and the text.
pub type Key = (Option<String>, u32, String);

/// Kept speech; the oldest goes first. Cheap handle.
#[derive(Clone, Default)]
pub struct Memory(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    speech: HashMap<Key, Arc<[Part]>>,
    order: VecDeque<Key>,
    samples: usize,
}

impl Memory {
    pub fn recall(&self, key: &Key) -> Option<Arc<[Part]>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).speech.get(key).cloned()
    }

    /// Keeps what was said, unless it is long or silent.
    pub fn keep(&self, key: Key, parts: Vec<Part>) {
        let samples = length(&parts);
        if samples == 0 || samples > SAMPLES_MAX || key.2.len() > TEXT_BYTES_MAX {
            return;
        }
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.speech.contains_key(&key) {
            return;
        }
        while kept.samples + samples > SAMPLES_MAX
            && let Some(oldest) = kept.order.pop_front()
        {
            let gone = kept.speech.remove(&oldest).map_or(0, |parts| length(&parts));
            kept.samples -= gone;
        }
        kept.samples += samples;
        kept.order.push_back(key.clone());
        kept.speech.insert(key, parts.into());
    }
}

fn length(parts: &[Part]) -> usize {
    parts.iter().map(|part| part.samples.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(seconds: usize) -> Vec<Part> {
        vec![Part { samples: vec![0.5; seconds * VOICE_RATE as usize], until: 1.0 }]
    }

    fn key(text: &str) -> Key {
        (None, 1000, text.to_owned())
    }

    #[test]
    fn the_oldest_goes_first_and_the_bound_holds() {
        let memory = Memory::default();
        for text in ["one", "two", "three"] {
            memory.keep(key(text), parts(120));
        }
        let is_kept = |text: &str| memory.recall(&key(text)).is_some();
        assert!(!is_kept("one") && is_kept("two") && is_kept("three"));
        assert_eq!(memory.0.lock().expect("lock").samples, 240 * VOICE_RATE as usize);
    }

    #[test]
    fn silence_and_long_texts_are_not_kept_and_manners_differ() {
        let memory = Memory::default();
        memory.keep(key("silent"), vec![]);
        memory.keep(key("long"), parts(301));
        memory.keep(key(&"x".repeat(301)), parts(1));
        memory.keep(key("hello"), parts(1));
        assert!(memory.recall(&key("silent")).is_none() && memory.recall(&key("long")).is_none());
        assert!(memory.recall(&key(&"x".repeat(301))).is_none());
        assert!(memory.recall(&(Some("bm_george".into()), 1000, "hello".into())).is_none());
        assert!(memory.recall(&key("hello")).is_some());
    }
}
