//! The plan of a file's windows, from its spans of speech. Pure.
//!
//! A window costs an encoder pass, however full it is, and a cut inside a word costs the word. So the
//! plan is the cheapest way through the file: a shortest path over places to cut, where a window costs
//! 1, a cut the probability of speech there, and uneven windows very little. Silence that is left out costs
//! nothing; short silence is kept as long as it doesn't take another window.
//!
//! ```text
//! file      ....####..###......####..................#####..####....
//! spans        [#########]    [####]                [###########]
//! windows      |0: two pieces, joined |             |1: one piece  |
//! ```

use std::ops::Range;

use super::window_plan::WindowPlan;
use crate::audio::SAMPLE_RATE;
use crate::engine::WINDOW_SAMPLES;
use crate::vad::{FRAME_SAMPLES, smoothed};

/// The silence that may be left out between the first and the last speech of a window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Policy {
    /// Long silence: a window joins pieces of the file, so that fewer windows are needed and none
    /// tempts the model to fill a silence.
    #[default]
    Pack,
    /// Nothing: a window is one piece of the file.
    Contiguous,
}

/// The longest silence that is kept beside speech, in samples: the longest of these that costs least. The
/// rhythm of speech helps the model with sentences, and silence may hold speech too faint to be found.
const KEPT_SILENCES: [usize; 4] =
    [2 * SAMPLE_RATE as usize, SAMPLE_RATE as usize, SAMPLE_RATE as usize / 2, 0];

/// Frames among which one place to cut is chosen: 320 ms, a syllable or two.
const CUT_FRAMES: usize = 10;

/// The cost of a full window over an empty one, where another window costs 1: even windows are worth
/// little, and never a further window.
const UNEVENNESS: f64 = 0.25;

/// The cost of leaving a silence out of a window: word times near a joint are less sure.
const JOINT: f64 = 0.01;

/// Windows that hold all of `speech`, each sample once and in order.
///
/// - `speech`: ranges of samples in order, with the silence that must stay around them.
/// - `probabilities`: of speech in each frame of [`FRAME_SAMPLES`], from which the ranges were made.
/// - `samples`: the length of the file.
pub fn plan_windows(
    speech: &[Range<usize>],
    probabilities: &[f32],
    samples: usize,
    policy: Policy,
) -> Vec<WindowPlan> {
    let smoothed = smoothed(probabilities);
    let plans = KEPT_SILENCES.map(|kept| cheapest_plan(&bridged(speech, samples, kept), &smoothed, policy));
    let cheapest = plans.into_iter().min_by(|a, b| a.0.total_cmp(&b.0));
    cheapest.map(|(_, windows)| windows).unwrap_or_default()
}

/// The windows over `spans`, and their cost without that of unevenness.
fn cheapest_plan(spans: &[Range<usize>], smoothed: &[f32], policy: Policy) -> (f64, Vec<WindowPlan>) {
    let cuts = places_to_cut(spans, smoothed);
    let path = cheapest_path(&cuts, policy);
    let windows: Vec<WindowPlan> = path
        .windows(2)
        .map(|ends| cuts[ends[0]].next..cuts[ends[1]].previous)
        .map(|window| match policy {
            Policy::Pack => WindowPlan::new(within(spans, &window)),
            Policy::Contiguous => WindowPlan::new([window]),
        })
        .collect();
    let prices: f64 = path.iter().map(|cut| cuts[*cut].price).sum();
    let joints: usize = windows.iter().map(|window| window.pieces().len() - 1).sum();
    (windows.len() as f64 + prices + JOINT * joints as f64, windows)
}

/// `spans` inside the file, and the silence of at most `kept` samples between and around them.
fn bridged(spans: &[Range<usize>], samples: usize, kept: usize) -> Vec<Range<usize>> {
    let mut bridged: Vec<Range<usize>> = Vec::with_capacity(spans.len());
    for span in spans {
        let end = span.end.min(samples);
        if span.start >= end {
            continue;
        }
        match bridged.last_mut() {
            Some(last) if span.start <= last.end.saturating_add(kept) => last.end = last.end.max(end),
            None if span.start <= kept => bridged.push(0..end),
            _ => bridged.push(span.start..end),
        }
    }
    if let Some(last) = bridged.last_mut().filter(|last| samples - last.end <= kept) {
        last.end = samples;
    }
    bridged
}

/// The parts of `spans` that lie in `window`.
fn within(spans: &[Range<usize>], window: &Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let first = spans.partition_point(|span| span.end <= window.start);
    let met = spans[first..].iter().take_while(|span| span.start < window.end);
    met.map(|span| span.start.max(window.start)..span.end.min(window.end))
}

/// A place where one window may end and the next begin.
#[derive(Debug)]
struct Cut {
    /// The end of the window before, in the file.
    previous: usize,
    /// The start of the window after: later than `previous` if silence lies between.
    next: usize,
    /// Samples of speech in the file up to here.
    speech: usize,
    /// The probability of speech here, 0 to 1.
    price: f64,
}

/// The start of speech, a place in every [`CUT_FRAMES`] of it, each span's end.
fn places_to_cut(spans: &[Range<usize>], smoothed: &[f32]) -> Vec<Cut> {
    let price = |frame: usize| f64::from(smoothed.get(frame).copied().unwrap_or(1.0));
    let start =
        spans.first().map(|span| Cut { previous: span.start, next: span.start, speech: 0, price: 0.0 });
    let mut cuts: Vec<Cut> = start.into_iter().collect();
    let mut speech = 0;
    for (index, span) in spans.iter().enumerate() {
        let frames: Vec<usize> = (span.start.div_ceil(FRAME_SAMPLES)..span.end / FRAME_SAMPLES).collect();
        for block in frames.chunks(CUT_FRAMES) {
            if let Some(&frame) = block.iter().min_by(|a, b| price(**a).total_cmp(&price(**b))) {
                let sample = frame * FRAME_SAMPLES + FRAME_SAMPLES / 2;
                cuts.push(Cut {
                    previous: sample,
                    next: sample,
                    speech: speech + sample - span.start,
                    price: price(frame),
                });
            }
        }
        speech += span.len();
        let next = spans.get(index + 1).map(|next| next.start);
        let price = next.map_or(0.0, |next| price(span.end.midpoint(next) / FRAME_SAMPLES));
        cuts.push(Cut { previous: span.end, next: next.unwrap_or(span.end), speech, price });
    }
    cuts
}

/// The cuts around the cheapest windows, including the first and the last.
fn cheapest_path(cuts: &[Cut], policy: Policy) -> Vec<usize> {
    let length = |from: &Cut, to: &Cut| match policy {
        Policy::Pack => to.speech - from.speech,
        Policy::Contiguous => to.previous - from.next,
    };
    // For each cut, what it costs to get there and the cut before.
    let mut best: Vec<(f64, usize)> = Vec::with_capacity(cuts.len());
    for (index, to) in cuts.iter().enumerate() {
        let way = (0..index)
            .rev()
            .map(|from| (from, length(&cuts[from], to)))
            .take_while(|(_, length)| *length <= WINDOW_SAMPLES)
            .map(|(from, length)| {
                let fullness = length as f64 / WINDOW_SAMPLES as f64;
                (best[from].0 + 1.0 + UNEVENNESS * fullness * fullness + to.price, from)
            })
            .min_by(|a, b| a.0.total_cmp(&b.0));
        best.push(way.unwrap_or((0.0, 0)));
    }
    let last = cuts.len().checked_sub(1);
    let mut path: Vec<usize> = std::iter::successors(last, |&cut| (cut > 0).then(|| best[cut].1)).collect();
    path.reverse();
    path
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "one span is a list of spans too")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: usize = SAMPLE_RATE as usize;

    fn seconds(range: Range<f64>) -> Range<usize> {
        (range.start * SECOND as f64) as usize..(range.end * SECOND as f64) as usize
    }

    /// Probabilities that go with `speech`: 1 in it and 0 elsewhere.
    fn probabilities(speech: &[Range<usize>], samples: usize) -> Vec<f32> {
        let spoken = |frame: usize| speech.iter().any(|span| span.contains(&(frame * FRAME_SAMPLES)));
        (0..samples.div_ceil(FRAME_SAMPLES)).map(|frame| f32::from(u8::from(spoken(frame)))).collect()
    }

    /// The windows' stretches of the file.
    fn plan(speech: &[Range<usize>], samples: usize, policy: Policy) -> Vec<Vec<Range<usize>>> {
        let windows = plan_windows(speech, &probabilities(speech, samples), samples, policy);
        windows
            .iter()
            .map(|window| window.pieces().iter().map(|piece| piece.file.clone()).collect())
            .collect()
    }

    #[test]
    fn silence_gives_no_window() {
        assert!(plan(&[], 60 * SECOND, Policy::Pack).is_empty());
        assert!(plan(&[], 0, Policy::Contiguous).is_empty());
    }

    #[test]
    fn a_short_file_is_one_window_with_its_short_silence() {
        let speech = [seconds(1.5..8.0), seconds(9.5..20.0)];
        for policy in [Policy::Pack, Policy::Contiguous] {
            assert_eq!(plan(&speech, 21 * SECOND, policy), [[0..21 * SECOND]]);
        }
    }

    #[test]
    fn long_silence_is_left_out_and_its_neighbours_joined() {
        let speech = [seconds(10.0..15.0), seconds(60.0..70.0)];
        assert_eq!(plan(&speech, 100 * SECOND, Policy::Pack), [speech.to_vec()]);
        let apart = [[seconds(10.0..15.0)], [seconds(60.0..70.0)]];
        assert_eq!(plan(&speech, 100 * SECOND, Policy::Contiguous), apart);
    }

    #[test]
    fn short_silence_goes_where_it_would_take_a_window() {
        let speech = [seconds(0.0..15.0), seconds(16.2..31.0)];
        assert_eq!(plan(&speech, 31 * SECOND, Policy::Pack), [speech.to_vec()]);
    }

    #[test]
    fn windows_are_cut_in_the_silence_between_spans() {
        let speech = [seconds(0.0..10.0), seconds(10.4..19.0), seconds(19.4..40.0)];
        let mut probabilities = probabilities(&speech, 40 * SECOND);
        // Never quite silent, but quietest at 19.2 s.
        probabilities.iter_mut().for_each(|p| *p = p.max(0.05));
        let windows = plan_windows(&speech, &probabilities, 40 * SECOND, Policy::Pack);
        assert_eq!(windows.len(), 2);
        let cut = windows[0].pieces()[0].file.end;
        assert!(seconds(19.0..19.4).contains(&cut), "cut at {cut}");
    }

    #[test]
    fn a_span_longer_than_a_window_is_cut_where_speech_is_least_probable() {
        let samples = 50 * SECOND;
        let mut probabilities = vec![1.0; samples.div_ceil(FRAME_SAMPLES)];
        probabilities[800..806].fill(0.3);
        let windows = plan_windows(&[0..samples], &probabilities, samples, Policy::Pack);
        assert_eq!(windows.len(), 2);
        let cut = windows[0].pieces()[0].file.end / FRAME_SAMPLES;
        assert!((800..806).contains(&cut), "cut in frame {cut}");
    }

    #[test]
    fn windows_are_even_where_every_cut_is_as_good() {
        let samples = 66 * SECOND;
        let windows =
            plan_windows(&[0..samples], &vec![0.5; samples / FRAME_SAMPLES + 1], samples, Policy::Pack);
        assert_eq!(windows.len(), 3);
        assert!(windows.iter().all(|window| window.samples().abs_diff(22 * SECOND) < SECOND));
    }

    #[test]
    fn evenness_adds_no_window() {
        let speech: Vec<Range<usize>> =
            (0..20).map(|i| seconds(f64::from(i) * 15.0..f64::from(i) * 15.0 + 14.9)).collect();
        assert_eq!(plan(&speech, 300 * SECOND, Policy::Pack).len(), 10);
    }

    #[test]
    fn hours_of_speech_are_planned_in_a_blink() {
        let samples = 3 * 3600 * SECOND;
        let windows = plan_windows(&[0..samples], &vec![0.9; samples / FRAME_SAMPLES], samples, Policy::Pack);
        assert!((360..=364).contains(&windows.len()), "{} windows", windows.len());
    }

    prop_compose! {
        /// Spans of up to a minute with silence of up to 10 s before each, and the file's length.
        fn any_speech()(
            lengths in prop::collection::vec((0_usize..160_000, 1_usize..960_000), 0..12), tail in 0_usize..160_000,
        ) -> (Vec<Range<usize>>, usize) {
            let mut end = 0;
            let spans = lengths.into_iter().map(|(silence, length)| {
                let start = end + silence;
                end = start + length;
                start..end
            });
            (spans.collect(), end + tail)
        }
    }

    proptest! {
        #[test]
        fn every_sample_of_speech_is_in_one_window_in_order(
            (speech, samples) in any_speech(), noise in prop::collection::vec(0.0_f32..1.0, 0..4000),
            policy in prop_oneof![Just(Policy::Pack), Just(Policy::Contiguous)],
        ) {
            let windows = plan_windows(&speech, &noise, samples, policy);
            let mut stretches: Vec<Range<usize>> = Vec::new();
            for window in &windows {
                prop_assert!(!window.pieces().is_empty() && window.samples() <= WINDOW_SAMPLES);
                prop_assert!(policy == Policy::Pack || window.pieces().len() == 1);
                let mut window_start = 0;
                for piece in window.pieces() {
                    prop_assert_eq!(piece.window_start, window_start);
                    prop_assert!(!piece.file.is_empty());
                    window_start += piece.file.len();
                    // In order and nothing twice.
                    prop_assert!(stretches.last().is_none_or(|last| last.end <= piece.file.start));
                    stretches.push(piece.file.clone());
                }
            }
            prop_assert!(stretches.last().is_none_or(|last| last.end <= samples));
            for span in &speech {
                let held: usize = stretches.iter().map(|stretch| {
                    span.end.min(stretch.end).saturating_sub(span.start.max(stretch.start))
                }).sum();
                prop_assert_eq!(held, span.len());
            }
        }

        #[test]
        fn spans_that_break_the_promise_break_nothing(
            spans in prop::collection::vec((0_usize..1_000_000, 0_usize..1_000_000), 0..10), samples in 0_usize..900_000,
        ) {
            let spans: Vec<Range<usize>> = spans.into_iter().map(|(start, end)| start..end).collect();
            for policy in [Policy::Pack, Policy::Contiguous] {
                for window in plan_windows(&spans, &[], samples, policy) {
                    prop_assert!(window.samples() <= WINDOW_SAMPLES);
                    prop_assert!(window.pieces().iter().all(|piece| piece.file.end <= samples));
                }
            }
        }
    }
}
