//! Playback of the agent's speech: which audio is due, and how much was heard. Pure: the time is an argument.
//!
//! Audio is sent only slightly ahead of real time, because audio that was sent to a telephone line cannot always
//! be taken back.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::speech::VOICE_RATE;

/// How far ahead of real time audio is sent.
const AHEAD: Duration = Duration::from_millis(250);
/// Samples sent at a time: 20 ms.
const FRAME: usize = VOICE_RATE as usize / 50;
/// A word begins at most so far from where its letters say: 120 ms.
const WORD_AROUND: usize = VOICE_RATE as usize * 3 / 25;
/// Between two words it is quiet for so many samples: 10 ms.
const QUIET: usize = VOICE_RATE as usize / 100;
/// How late a mark may arrive.
const MARKS_LATE: Duration = Duration::from_millis(1500);

/// A sentence to be played, or a piece of one.
#[derive(Clone)]
pub struct Clip {
    pub text: String,
    /// The line to show when it begins; none if an earlier piece has shown it.
    pub line: Option<String>,
    /// At [`VOICE_RATE`]; empty if there is no voice.
    pub samples: Arc<[f32]>,
}

struct Playing {
    clip: Clip,
    mark: u64,
    /// Samples sent.
    sent: usize,
    /// The index of its first sample in the talk.
    begins: usize,
    is_announced: bool,
    is_echoed: bool,
}

/// Something that is due now.
pub enum Due {
    /// A sentence begins.
    Begin(String),
    /// Samples, and when the first of them is heard if they are played at once.
    Audio { samples: Arc<[f32]>, range: Range<usize>, heard_at: Instant },
    /// A sentence has been sent; the listener returns the mark when it has been played.
    Mark(u64),
}

/// The state of a talk that was stopped.
#[derive(Default)]
pub struct Stopped {
    /// The part that was heard, to the word.
    pub heard: String,
    /// The rest, from the word that was cut.
    pub rest: Vec<Clip>,
}

#[derive(Default)]
pub struct Playback {
    playing: VecDeque<Playing>,
    /// Sentences that were heard completely.
    heard: Vec<String>,
    /// When the first sample of the talk is heard.
    begun: Option<Instant>,
    /// Samples of the talk that were sent.
    sent: usize,
    marks: u64,
}

fn samples_in(time: Duration) -> usize {
    (time.as_secs_f64() * f64::from(VOICE_RATE)) as usize
}

fn time_of(samples: usize) -> Duration {
    Duration::from_secs_f64(samples as f64 / f64::from(VOICE_RATE))
}

impl Playback {
    pub fn push(&mut self, clip: Clip) {
        self.marks += 1;
        self.playing.push_back(Playing {
            clip,
            mark: self.marks,
            sent: 0,
            begins: 0,
            is_announced: false,
            is_echoed: false,
        });
    }

    /// Everything that is due by `now`.
    pub fn due(&mut self, now: Instant) -> Vec<Due> {
        let mut due = Vec::new();
        // After a gap the clock restarts.
        if let Some(begun) = self.begun
            && begun + time_of(self.sent) < now
            && self.playing.iter().all(|playing| playing.sent == playing.clip.samples.len())
        {
            self.settle(now, false);
        }
        for at in 0..self.playing.len() {
            let begun = *self.begun.get_or_insert(now);
            let target = samples_in(now.saturating_duration_since(begun) + AHEAD);
            let Some(playing) = self.playing.get_mut(at) else { break };
            if !playing.is_announced {
                if self.sent > target {
                    break;
                }
                (playing.is_announced, playing.begins) = (true, self.sent);
                due.extend(playing.clip.line.clone().map(Due::Begin));
                if playing.clip.samples.is_empty() {
                    due.push(Due::Mark(playing.mark));
                }
            }
            let length = playing.clip.samples.len();
            while playing.sent < length && self.sent < target {
                let end = (playing.sent + FRAME).min(length);
                let (samples, range) = (playing.clip.samples.clone(), playing.sent..end);
                due.push(Due::Audio { samples, range, heard_at: begun + time_of(self.sent) });
                self.sent += end - playing.sent;
                playing.sent = end;
                if end == length {
                    due.push(Due::Mark(playing.mark));
                }
            }
            if playing.sent < length {
                break;
            }
        }
        due
    }

    /// A listener reports that a sentence was played to its end.
    pub fn echoed(&mut self, mark: u64) {
        if let Some(playing) = self.playing.iter_mut().find(|playing| playing.mark == mark) {
            playing.is_echoed = true;
        }
    }

    /// Whether everything has been heard. `waits_for_marks`: a listener reports playback, which counts more than the
    /// clock.
    pub fn is_over(&mut self, now: Instant, waits_for_marks: bool) -> bool {
        self.settle(now, waits_for_marks);
        self.playing.is_empty()
    }

    /// Moves clips that were heard out of the queue.
    fn settle(&mut self, now: Instant, waits_for_marks: bool) {
        let Some(begun) = self.begun else { return };
        while let Some(first) = self.playing.front() {
            let end = begun + time_of(first.begins + first.clip.samples.len());
            let is_heard = match waits_for_marks {
                false => now >= end,
                true => first.is_echoed || now >= end + MARKS_LATE,
            };
            if !first.is_announced || first.sent < first.clip.samples.len() || !is_heard {
                return;
            }
            if let Some(first) = self.playing.pop_front() {
                // A clip may be the end of a word whose text went before.
                self.heard.extend(Some(first.clip.text).filter(|text| !text.is_empty()));
            }
        }
        (self.begun, self.sent) = (None, 0);
    }

    /// The whole text that was heard so far, and a new begin. To be asked when it is over.
    pub fn take_heard(&mut self) -> String {
        std::mem::take(&mut self.heard).join(" ")
    }

    /// Stops at once.
    pub fn stop(&mut self, now: Instant) -> Stopped {
        self.settle(now, false);
        let mut heard = std::mem::take(&mut self.heard);
        let mut rest: Vec<Clip> = Vec::new();
        let position = self.begun.map_or(0, |begun| samples_in(now.saturating_duration_since(begun)));
        for playing in std::mem::take(&mut self.playing) {
            let length = playing.clip.samples.len();
            let played = match playing.is_announced {
                _ if playing.is_echoed => length,
                true => position.saturating_sub(playing.begins).min(playing.sent),
                false => 0,
            };
            if played == 0 {
                rest.push(playing.clip);
                continue;
            }
            // As if every character took as long as the next.
            let text = &playing.clip.text;
            let (before, after) = split_at_word(text, played as f64 / length.max(1) as f64);
            if !before.is_empty() {
                heard.push(before.to_owned());
            }
            if !after.is_empty() {
                let share = (text.len() - after.len()) as f64 / text.len().max(1) as f64;
                let from = word_begin(&playing.clip.samples, (length as f64 * share) as usize, played);
                let samples: Arc<[f32]> = playing.clip.samples.get(from..).unwrap_or_default().into();
                rest.push(Clip { text: after.to_owned(), line: None, samples });
            }
        }
        show_anew(&mut rest);
        (self.begun, self.sent) = (None, 0);
        Stopped { heard: heard.join(" "), rest }
    }
}

/// The begin of the word that was cut at the sample `played`: the quietest moment around the `estimate`.
fn word_begin(samples: &[f32], estimate: usize, played: usize) -> usize {
    let estimate = estimate.min(played);
    let around = estimate.saturating_sub(WORD_AROUND)..(estimate + WORD_AROUND).min(played);
    let energy = |frame: &[f32]| frame.iter().map(|sample| sample * sample).sum::<f32>();
    let frames = samples.get(around.clone()).unwrap_or_default().chunks_exact(QUIET).enumerate();
    // Where several are equally quiet, the nearest to the estimate is taken.
    let distance = |index: usize| (around.start + index * QUIET).abs_diff(estimate);
    let quietest = frames.min_by(|(a, one), (b, other)| {
        energy(one).total_cmp(&energy(other)).then(distance(*a).cmp(&distance(*b)))
    });
    quietest.map_or(estimate, |(index, _)| around.start + index * QUIET)
}

/// Where the rest begins in the middle of a sentence, that is what its first clip shows.
fn show_anew(rest: &mut [Clip]) {
    let pieces = rest.iter().take_while(|clip| clip.line.is_none());
    let texts = pieces.map(|clip| clip.text.as_str()).filter(|text| !text.is_empty());
    let line = texts.collect::<Vec<_>>().join(" ");
    if let Some(first) = rest.first_mut().filter(|_| !line.is_empty()) {
        first.line = Some(line);
    }
}

/// `text` in two at the last space before `share` of it.
fn split_at_word(text: &str, share: f64) -> (&str, &str) {
    if share >= 1.0 {
        return (text, "");
    }
    let at = (text.len() as f64 * share.max(0.0)) as usize;
    let space = text.char_indices().rfind(|(index, c)| c.is_whitespace() && *index <= at);
    space.map_or(("", text), |(index, _)| (text[..index].trim_end(), text[index..].trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clip(text: &str, seconds: f64) -> Clip {
        Clip { line: Some(text.into()), ..piece(text, seconds) }
    }

    /// A clip of a sentence that was shown before.
    fn piece(text: &str, seconds: f64) -> Clip {
        let samples = vec![0.5; samples_in(Duration::from_secs_f64(seconds))].into();
        Clip { text: text.into(), line: None, samples }
    }

    /// Seconds of audio that went out, sentences that began and marks.
    fn count(due: &[Due]) -> (f64, usize, usize) {
        due.iter().fold((0.0, 0, 0), |(seconds, begun, marks), due| match due {
            Due::Begin(_) => (seconds, begun + 1, marks),
            Due::Audio { range, .. } => (seconds + time_of(range.len()).as_secs_f64(), begun, marks),
            Due::Mark(_) => (seconds, begun, marks + 1),
        })
    }

    #[test]
    fn audio_goes_out_no_more_than_a_little_ahead() {
        let (mut playback, start) = (Playback::default(), Instant::now());
        playback.push(clip("One two three.", 1.0));
        playback.push(clip("Four.", 0.5));
        let mut out = 0.0;
        let mut all = (0, 0);
        for step in 0..100_u64 {
            let now = start + Duration::from_millis(20 * step);
            let (seconds, begun, marks) = count(&playback.due(now));
            out += seconds;
            all = (all.0 + begun, all.1 + marks);
            let elapsed = (now - start).as_secs_f64();
            assert!(out <= elapsed + 0.28, "{out} s after {elapsed} s");
            assert!(out >= elapsed.min(1.5) - 0.001, "{out} s after {elapsed} s");
            assert_eq!(playback.is_over(now, false), elapsed >= 1.5, "after {elapsed} s");
        }
        assert_eq!(all, (2, 2));
        assert_eq!(playback.take_heard(), "One two three. Four.");
    }

    #[test]
    fn what_is_stopped_was_heard_to_a_word_and_can_go_on() {
        let (mut playback, start) = (Playback::default(), Instant::now());
        playback.push(clip("aaaa bbbb cccc dddd", 2.0));
        playback.push(clip("Never heard.", 1.0));
        playback.due(start);
        playback.due(start + Duration::from_millis(1000));
        let stopped = playback.stop(start + Duration::from_millis(1100));
        assert_eq!(stopped.heard, "aaaa bbbb");
        let rest: Vec<&str> = stopped.rest.iter().map(|clip| clip.text.as_str()).collect();
        assert_eq!(rest, ["cccc dddd", "Never heard."]);
        assert!(playback.is_over(start + Duration::from_millis(1100), true));
    }

    #[test]
    fn a_sentence_in_pieces_is_shown_once_and_its_rest_once_more() {
        let (mut playback, start) = (Playback::default(), Instant::now());
        playback.push(Clip { line: Some("Aaaa bbbb, cccc, dddd.".into()), ..piece("Aaaa bbbb,", 1.0) });
        playback.push(piece("cccc,", 1.0));
        playback.push(piece("dddd.", 1.0));
        playback.push(clip("Eeee.", 1.0));
        let lines = |due: Vec<Due>| {
            let line = |due| if let Due::Begin(line) = due { Some(line) } else { None };
            due.into_iter().filter_map(line).collect::<Vec<_>>()
        };
        assert_eq!(lines(playback.due(start)), ["Aaaa bbbb, cccc, dddd."]);
        assert!(lines(playback.due(start + Duration::from_millis(900))).is_empty());
        let stopped = playback.stop(start + Duration::from_millis(600));
        assert_eq!(stopped.heard, "Aaaa");
        let rest: Vec<_> =
            stopped.rest.iter().map(|clip| (clip.text.as_str(), clip.line.as_deref())).collect();
        assert_eq!(
            rest,
            [
                ("bbbb,", Some("bbbb, cccc, dddd.")),
                ("cccc,", None),
                ("dddd.", None),
                ("Eeee.", Some("Eeee."))
            ]
        );
    }

    #[test]
    fn marks_are_believed_and_missing_ones_are_not_waited_for_forever() {
        let (mut playback, start) = (Playback::default(), Instant::now());
        playback.push(clip("Hello.", 0.2));
        let due = playback.due(start);
        let mark =
            due.iter().find_map(|due| if let Due::Mark(mark) = due { Some(*mark) } else { None }).unwrap();
        let later = start + Duration::from_millis(600);
        let mut playback = Playback::default();
        playback.push(clip("Hello.", 0.2));
        playback.due(start);
        assert!(!playback.is_over(later, true));
        playback.echoed(mark);
        assert!(playback.is_over(later, true));
        playback.push(clip("Again.", 0.2));
        playback.due(later);
        assert!(playback.is_over(later + Duration::from_secs(2), true));
    }

    #[test]
    fn a_sentence_without_a_voice_is_over_at_once() {
        let (mut playback, now) = (Playback::default(), Instant::now());
        playback.push(clip("Read me.", 0.0));
        assert_eq!(count(&playback.due(now)), (0.0, 1, 1));
        assert!(playback.is_over(now, false));
        assert_eq!(playback.take_heard(), "Read me.");
    }

    #[test]
    fn texts_are_cut_between_words() {
        assert_eq!(split_at_word("aaa bbb", 0.99), ("aaa", "bbb"));
        assert_eq!(split_at_word("aaa", 0.5), ("", "aaa"));
        assert_eq!(split_at_word("ä ö ü", 1.0), ("ä ö ü", ""));
        assert_eq!(split_at_word("", 0.3), ("", ""));
    }
}
