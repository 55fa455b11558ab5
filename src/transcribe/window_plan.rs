//! A window as pieces of the file, with conversion of times between the two. Pure.

use std::ops::Range;

use crate::audio::{Pcm, SAMPLE_RATE, Sound};
use crate::vad::{FRAME_SAMPLES, smoothed_at};

/// The least audio whose language is judged by itself: 4 s.
const HALF_MIN: usize = 4 * SAMPLE_RATE as usize;

/// A stretch of the file within a window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Its start in the window, in samples.
    pub window_start: usize,
    /// Its range in the file, in samples. Never empty.
    pub file: Range<usize>,
}

impl Piece {
    fn window_end(&self) -> usize {
        self.window_start + self.file.len()
    }

    /// `seconds` of the window as seconds of the file, clamped to this piece.
    fn to_file(&self, seconds: f64) -> f64 {
        let [start, end] = [self.file.start, self.file.end].map(to_seconds);
        (start + (seconds - to_seconds(self.window_start))).clamp(start, end)
    }
}

/// The audio of one window: pieces of the file, in order, side by side. At least one.
///
/// Where two pieces join, one moment of the window is two of the file: things start in the later
/// piece and end in the earlier one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowPlan {
    pieces: Vec<Piece>,
}

impl WindowPlan {
    /// `stretches` of the file, in samples: in order, none empty, at least one.
    pub(super) fn new(stretches: impl IntoIterator<Item = Range<usize>>) -> Self {
        let mut window_start = 0;
        let pieces = stretches
            .into_iter()
            .map(|file| {
                let piece = Piece { window_start, file };
                window_start = piece.window_end();
                piece
            })
            .collect();
        Self { pieces }
    }

    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// The window's length in samples.
    pub fn samples(&self) -> usize {
        self.pieces.last().map_or(0, Piece::window_end)
    }

    /// The window's audio. It is a copy: make it when the engine has room for it.
    pub fn pcm(&self, file: &Sound) -> Pcm {
        let mut samples = Vec::with_capacity(self.samples());
        for piece in &self.pieces {
            file.append(piece.file.clone(), &mut samples);
        }
        Pcm::new(samples)
    }

    /// The rest of the window after its first `consumed_samples`; `None` if nothing is left.
    pub fn after(&self, consumed_samples: usize) -> Option<Self> {
        let left = self.pieces.iter().filter(|piece| piece.window_end() > consumed_samples);
        let stretches = left.map(|piece| {
            piece.file.start + consumed_samples.saturating_sub(piece.window_start)..piece.file.end
        });
        Some(Self::new(stretches)).filter(|rest| !rest.pieces.is_empty())
    }

    /// The window in parts of 4 to 8 s, cut in its deepest pauses. `probabilities`: of speech in each frame of the file.
    pub fn parts(&self, probabilities: &[f32]) -> Vec<Self> {
        match self.halves(probabilities) {
            None => vec![self.clone()],
            Some(halves) => halves.iter().flat_map(|half| half.parts(probabilities)).collect(),
        }
    }

    /// This window and `next`, which follows it in the file.
    pub fn then(&self, next: &Self) -> Self {
        let mut stretches: Vec<Range<usize>> = self.pieces.iter().map(|piece| piece.file.clone()).collect();
        for piece in &next.pieces {
            match stretches.last_mut() {
                Some(last) if last.end == piece.file.start => last.end = piece.file.end,
                _ => stretches.push(piece.file.clone()),
            }
        }
        Self::new(stretches)
    }

    /// The window in two, cut in the deepest pause of its middle half; `None` if one would be too short.
    fn halves(&self, probabilities: &[f32]) -> Option<[Self; 2]> {
        let samples = self.samples();
        let middle = (samples / 4).max(HALF_MIN)..(3 * samples / 4).min(samples.checked_sub(HALF_MIN)?);
        let joints = self.pieces.iter().skip(1).map(|piece| piece.window_start);
        let joint = joints.filter(|at| middle.contains(at)).min_by_key(|at| at.abs_diff(samples / 2));
        let places = || {
            middle.clone().step_by(FRAME_SAMPLES).min_by(|a, b| {
                let voice = |at: usize| smoothed_at(probabilities, self.sample_of_file(at) / FRAME_SAMPLES);
                voice(*a).total_cmp(&voice(*b))
            })
        };
        let cut = joint.or_else(places)?;
        let before = self.pieces.iter().filter(|piece| piece.window_start < cut);
        let before = before
            .map(|piece| piece.file.start..piece.file.end.min(piece.file.start + cut - piece.window_start));
        Some([Self::new(before), self.after(cut)?])
    }

    /// The sample of the file that is at `sample` of the window.
    fn sample_of_file(&self, sample: usize) -> usize {
        let after = self.pieces.partition_point(|piece| piece.window_start <= sample);
        let piece = self.pieces.get(after.saturating_sub(1));
        piece.map_or(0, |piece| (piece.file.start + sample - piece.window_start).min(piece.file.end))
    }

    /// The time in the file of something that starts at `seconds` of the window. Never outside the window's
    /// pieces, and monotonic; at a piece's start exactly its start.
    pub fn to_file_time(&self, seconds: f64) -> f64 {
        let after = self.pieces.partition_point(|piece| to_seconds(piece.window_start) <= seconds);
        self.pieces.get(after.saturating_sub(1)).map_or(0.0, |piece| piece.to_file(seconds))
    }

    /// The time in the file of something that ends at `seconds` of the window. As [`Self::to_file_time`], but
    /// exact at a piece's end.
    pub fn to_file_end(&self, seconds: f64) -> f64 {
        let after = self.pieces.partition_point(|piece| to_seconds(piece.window_start) < seconds);
        self.pieces.get(after.saturating_sub(1)).map_or(0.0, |piece| piece.to_file(seconds))
    }

    /// The range in the file of a word with these seconds in the window. No word spans the silence that was
    /// left out where pieces join: it stays in the piece that holds more of its voice, or more of it if neither
    /// holds more. `voice` measures the voice in seconds of the file.
    pub fn word_to_file(&self, seconds: Range<f64>, voice: impl Fn(Range<f64>) -> usize) -> Range<f64> {
        let share = |piece: &Piece| {
            let [start, end] = [piece.window_start, piece.window_end()].map(to_seconds);
            let length = seconds.end.min(end) - seconds.start.max(start);
            let voice = if length > 0.0 {
                voice(piece.to_file(seconds.start)..piece.to_file(seconds.end))
            } else {
                0
            };
            (voice, length)
        };
        let most =
            self.pieces.iter().reduce(|most, piece| if share(piece) > share(most) { piece } else { most });
        most.map_or(0.0..0.0, |piece| piece.to_file(seconds.start)..piece.to_file(seconds.end))
    }
}

fn to_seconds(samples: usize) -> f64 {
    samples as f64 / f64::from(SAMPLE_RATE)
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "one span is a list of spans too")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// 0 to 2 s of the window are 10 to 12 s of the file, 2 to 5 s are 20 to 23 s.
    fn two_pieces() -> WindowPlan {
        WindowPlan::new([160_000..192_000, 320_000..368_000])
    }

    #[test]
    fn things_start_after_a_joint_and_end_before_it() {
        let window = two_pieces();
        for (seconds, start, end) in
            [(0.0, 10.0, 10.0), (1.5, 11.5, 11.5), (2.0, 20.0, 12.0), (5.0, 23.0, 23.0)]
        {
            assert_eq!(window.to_file_time(seconds), start);
            assert_eq!(window.to_file_end(seconds), end);
        }
    }

    #[test]
    fn times_outside_the_window_are_cut_to_it() {
        let window = two_pieces();
        assert_eq!((window.to_file_time(-1.0), window.to_file_end(-1.0)), (10.0, 10.0));
        assert_eq!((window.to_file_time(30.0), window.to_file_end(30.0)), (23.0, 23.0));
        assert_eq!(window.word_to_file(6.0..7.0, |_| 0), 23.0..23.0);
    }

    #[test]
    fn a_word_over_a_joint_stays_where_more_of_it_is() {
        let window = two_pieces();
        assert_eq!(window.word_to_file(1.5..2.25, |_| 0), 11.5..12.0);
        assert_eq!(window.word_to_file(1.75..2.5, |_| 0), 20.0..20.5);
        assert_eq!(window.word_to_file(2.0..2.0, |_| 0), 12.0..12.0);
        let later = |range: Range<f64>| usize::from(range.start >= 20.0);
        assert_eq!(window.word_to_file(0.5..2.25, later), 20.0..20.25, "its voice is there");
    }

    #[test]
    fn audio_is_that_of_the_pieces() {
        let samples: Vec<f32> = (0..400_000).map(|i| (i % 32_003) as f32 / 32_768.0).collect();
        let file = Sound::from(&samples[..]);
        let pcm = two_pieces().pcm(&file);
        assert_eq!(pcm.len(), 80_000);
        let of_file = [160_000, 191_999, 320_000, 367_999].map(|i| samples[i]);
        assert_eq!([0, 31_999, 32_000, 79_999].map(|i| pcm.samples()[i]), of_file);
        assert_eq!(WindowPlan::new([5..9]).pcm(&file).samples(), &samples[5..9]);
    }

    #[test]
    fn a_window_is_halved_at_a_joint_or_in_its_deepest_pause() {
        let second = SAMPLE_RATE as usize;
        let joined = WindowPlan::new([0..12 * second, 40 * second..52 * second]);
        let halves = joined.halves(&[]).expect("long enough");
        assert_eq!(halves, [WindowPlan::new([0..12 * second]), WindowPlan::new([40 * second..52 * second])]);
        let one = WindowPlan::new([0..24 * second]);
        let mut probabilities = vec![0.9; 24 * second / FRAME_SAMPLES];
        let pause = 9 * second / FRAME_SAMPLES;
        probabilities[pause - 8..pause + 8].fill(0.1);
        let [first, second_half] = one.halves(&probabilities).expect("long enough");
        assert!(first.samples().abs_diff(9 * second) < second / 2, "{}", first.samples());
        assert_eq!(first.samples() + second_half.samples(), 24 * second);
        let parts = one.parts(&probabilities);
        assert!(parts.iter().all(|part| (4 * second..9 * second).contains(&part.samples())), "{parts:?}");
        assert_eq!(parts.iter().skip(1).fold(parts[0].clone(), |all, part| all.then(part)), one);
        assert_eq!(WindowPlan::new([0..7 * second]).halves(&[]), None);
    }

    #[test]
    fn the_rest_begins_where_the_consumed_ended() {
        let window = two_pieces();
        assert_eq!(window.after(0), Some(window.clone()));
        assert_eq!(window.after(16_000), Some(WindowPlan::new([176_000..192_000, 320_000..368_000])));
        assert_eq!(window.after(32_000), Some(WindowPlan::new([320_000..368_000])));
        assert_eq!(window.after(79_999), Some(WindowPlan::new([367_999..368_000])));
        assert_eq!(window.after(80_000), None);
    }

    prop_compose! {
        fn any_window()(gaps in prop::collection::vec((0_usize..100_000, 1_usize..100_000), 1..6)) -> WindowPlan {
            let mut end = 0;
            WindowPlan::new(gaps.into_iter().map(|(gap, length)| {
                let start = end + gap;
                end = start + length;
                start..end
            }))
        }
    }

    proptest! {
        #[test]
        fn file_time_never_goes_back_nor_leaves_the_pieces(
            window in any_window(), mut times in prop::collection::vec(-1.0_f64..40.0, 2..20),
        ) {
            times.sort_by(f64::total_cmp);
            let inside = |time: f64| window.pieces().iter().any(|piece| {
                to_seconds(piece.file.start) <= time && time <= to_seconds(piece.file.end)
            });
            for map in [WindowPlan::to_file_time, WindowPlan::to_file_end] {
                let mapped: Vec<f64> = times.iter().map(|time| map(&window, *time)).collect();
                prop_assert!(mapped.is_sorted(), "{:?}", mapped);
                prop_assert!(mapped.iter().all(|time| inside(*time)), "{:?}", mapped);
            }
            let words: Vec<f64> = times.windows(2).map(|t| window.word_to_file(t[0]..t[1], |_| 0)).flat_map(|w| [w.start, w.end]).collect();
            prop_assert!(words.is_sorted(), "{:?}", words);
            prop_assert!(words.iter().all(|time| inside(*time)), "{:?}", words);
        }

        #[test]
        fn the_edges_of_pieces_are_exact(window in any_window()) {
            for piece in window.pieces() {
                prop_assert_eq!(window.to_file_time(to_seconds(piece.window_start)), to_seconds(piece.file.start));
                let end = to_seconds(piece.window_end());
                let expected = to_seconds(piece.file.end);
                prop_assert!((window.to_file_end(end) - expected).abs() < 1e-9);
            }
        }
    }
}
