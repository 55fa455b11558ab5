//! Diarization of audio as it comes.

use std::ops::Range;

use crate::transcript::Word;
use crate::vad::{Vad, VadStream};

use super::batching::Batcher;
use super::chunks;
use super::clustering::Count;
use super::diarize::{Diarization, HOP_FRAMES, LOCAL_SHARE, Options, REGION_FRAMES_MAX};
use super::error::Error;
use super::frames::{FRAME_SAMPLES, Tally, Window, frame_at, local_speakers};
use super::memory::Memory;
use super::network::WINDOW_SAMPLES;
use super::regions::{PAUSE_FRAMES, regions};
use super::tail::Tail;
use super::turns::{Timeline, Turn};
use super::vectors::{Pending, blocking, embed};
use super::voice::Voice;

/// Samples that may wait for their speakers: a minute. Older ones, which no final word has asked for, are dropped.
const WAITING_SAMPLES: usize = 60 * 16_000;
/// Seconds before the end of what has no words in which the next word may begin.
const ONSET_SECONDS: f64 = 0.5;
/// Seconds for which turns are remembered, for words that come late.
const TURNS_SECONDS: f64 = 60.0;
/// Windows with speech before two local speakers in them count.
const WINDOWS_HEARD_MIN: usize = 4;

/// The speakers of one stream.
///
/// Nothing is computed before words become final. Then segmentation hears what has come since, in windows of 10 s whose
/// ends are 5 s apart and one that ends with the audio, and the trunk hears it once; so a second of audio costs two
/// fifths of a window and a second of the trunk, or more of a window where words become final more often than every 5 s.
/// Memory is bounded: at most 80 s of audio in 16 bits, 600 chunks, and a minute of turns, 3 MB together.
pub struct Stream {
    batcher: Batcher,
    options: Options,
    audio: Tail,
    /// Listens for speech that segmentation passes over.
    vad: Option<VadStream>,
    voice: Voice,
    tally: Tally,
    /// Frames before this have been in a window.
    segmented: usize,
    /// Frames before this have their speakers.
    settled: usize,
    /// Windows with speech, and those among them with two local speakers.
    heard: usize,
    heard_two: usize,
    memory: Memory,
    recent: Vec<Turn>,
}

impl Stream {
    pub(super) fn new(batcher: Batcher, vad: Option<&Vad>, options: Options) -> Self {
        Self {
            batcher,
            options,
            audio: Tail::default(),
            vad: vad.map(Vad::stream),
            voice: Voice::default(),
            tally: Tally::default(),
            segmented: 0,
            settled: 0,
            heard: 0,
            heard_two: 0,
            memory: Memory::default(),
            recent: Vec::new(),
        }
    }

    /// Takes more audio, mono at 16 kHz.
    pub fn push(&mut self, samples: &[f32]) {
        self.audio.push(samples);
        self.voice.extend(self.vad.iter_mut().flat_map(|vad| vad.push(samples)));
        self.skip_to(self.audio.end().saturating_sub(WAITING_SAMPLES) / FRAME_SAMPLES);
    }

    /// Passes over the audio before `seconds`, where there are no words: it gets no speakers, costs nothing, and is freed.
    pub fn pass_over(&mut self, seconds: f64) {
        // The next word may begin a little earlier than the pause before it ends.
        let sample = ((seconds - ONSET_SECONDS) * 16_000.0) as usize;
        self.skip_to(sample.min(self.audio.end()) / FRAME_SAMPLES);
    }

    /// Frames before `frame` need no speakers any more.
    fn skip_to(&mut self, frame: usize) {
        self.segmented = self.segmented.max(frame);
        self.settled = self.settled.max(frame);
        // Windows reach back 10 s from frames that are new.
        let keep = (self.segmented.min(self.settled) * FRAME_SAMPLES).saturating_sub(WINDOW_SAMPLES);
        // In large steps: each moves all that is kept.
        if keep >= self.audio.start() + WINDOW_SAMPLES {
            self.audio.forget(keep);
            self.voice.forget(keep);
            self.tally.forget(keep / FRAME_SAMPLES);
        }
    }

    /// Labels `words` that become final, whose times are seconds since the stream began. It hears what has been pushed
    /// and waits for no more. Labels once given stay as they are, and mean the same speaker in all later words.
    ///
    /// # Errors
    /// As the networks'; the words then have no speakers, and later calls work.
    pub async fn label(&mut self, words: &mut [Word]) -> Result<(), Error> {
        let last = words.iter().map(|word| word.end).fold(0.0, f64::max);
        let windows = self.segment().await?;
        let (found, settled) = self.ended(frame_at(last));
        if !found.is_empty() {
            self.settle(&found, &windows).await?;
        }
        self.settled = settled;
        let end = self.audio.end() as f64 / 16_000.0;
        self.recent.retain(|turn| turn.end > end - TURNS_SECONDS);
        Diarization { turns: self.recent.clone(), voices: Vec::new() }.label(words);
        Ok(())
    }

    /// The mean embedding of each speaker so far, of unit length.
    pub fn voices(&self) -> Vec<Vec<f32>> {
        self.memory.voices().to_vec()
    }

    /// Segments the audio that is new, to its end.
    async fn segment(&mut self) -> Result<Vec<Window>, Error> {
        let end = self.audio.end() / FRAME_SAMPLES;
        let mut ends: Vec<usize> =
            (1..).map(|hop| self.segmented + hop * HOP_FRAMES).take_while(|&hop| hop <= end).collect();
        if end > ends.last().copied().unwrap_or(self.segmented) {
            ends.push(end);
        }
        if ends.is_empty() {
            return Ok(Vec::new());
        }
        let first = self.audio.start().div_ceil(FRAME_SAMPLES);
        let start = |end: usize| {
            (end * FRAME_SAMPLES).saturating_sub(WINDOW_SAMPLES).div_ceil(FRAME_SAMPLES).max(first)
        };
        let sample = |frame: usize| frame * FRAME_SAMPLES;
        let place = self.batcher.place().await;
        let audio = ends
            .iter()
            .map(|&end| self.audio.samples(sample(start(end))..sample(start(end)) + WINDOW_SAMPLES))
            .collect();
        let classes = place.segment(audio).await?;
        let mut windows: Vec<Window> = Vec::with_capacity(ends.len());
        for (&end, classes) in ends.iter().zip(&classes) {
            let mut speakers = local_speakers(classes);
            // Beyond the end there was silence.
            speakers.truncate(end - start(end));
            windows.push(Window { start: start(end), speakers });
        }
        for window in &windows {
            self.tally.add(window);
            self.heard += usize::from(window.locals() > 0);
            self.heard_two += usize::from(window.locals() > 1);
        }
        self.segmented = ends.last().copied().unwrap_or(self.segmented);
        for unheard in self.voice.unheard(&self.tally, self.settled..self.segmented) {
            self.tally.hear(unheard);
        }
        Ok(windows)
    }

    /// The regions that have ended, and the frame before which all is settled with them. The one that goes on at the end
    /// is cut there if the `last` frame of the final words lies in it.
    fn ended(&self, last: usize) -> (Vec<Range<usize>>, usize) {
        let end = self.tally.end().min(self.segmented);
        let mut found = regions(&self.tally, self.settled..end, REGION_FRAMES_MAX);
        let is_open = |region: &Range<usize>| region.end + PAUSE_FRAMES > end;
        if let Some(open) = found.pop_if(|region| is_open(region) && last <= region.start) {
            return (found, open.start);
        }
        let settled = found.last().map_or(self.settled, |region| region.end);
        (found, settled)
    }

    /// Finds the speakers of `regions`, and adds their turns.
    async fn settle(&mut self, regions: &[Range<usize>], windows: &[Window]) -> Result<(), Error> {
        let samples = self.audio.end();
        let pending = regions.iter().enumerate().map(|(index, region)| Pending {
            chunks: chunks::chunks(index, region, &self.tally),
            pieces: chunks::pieces(region, samples),
        });
        let pending = pending.filter(|region| !region.chunks.is_empty()).collect();
        let (chunks, embedded) = embed(&self.batcher, pending, |range| self.audio.samples(range)).await?;
        let (mut memory, count) = (self.memory.clone(), self.count());
        let turn = self.batcher.clustering().await;
        let learn = move || {
            let _turn = turn;
            let similarities = memory.learn(embedded, count);
            (memory, similarities)
        };
        let (memory, similarities) = blocking(learn).await?;
        self.memory = memory;
        let frames =
            regions.first().map_or(0, |region| region.start)..regions.last().map_or(0, |region| region.end);
        let mut timeline = Timeline::new(frames, regions, &chunks, &similarities, &self.tally);
        timeline.find_overlaps(windows, &self.tally);
        self.recent.extend(timeline.turns(f64::INFINITY));
        self.recent.sort_by(|a, b| a.start.total_cmp(&b.start));
        // A window may still look back at what is settled.
        self.tally.forget(self.settled.saturating_sub(WINDOW_SAMPLES / FRAME_SAMPLES));
        Ok(())
    }

    fn count(&self) -> Count {
        let Options { min_speakers, max_speakers, speakers_expected } = self.options;
        let most = speakers_expected.or(max_speakers).unwrap_or(usize::MAX).max(1);
        let least = speakers_expected.or(min_speakers).unwrap_or(1).clamp(1, most);
        let saw_two =
            self.heard >= WINDOWS_HEARD_MIN && self.heard_two as f64 >= LOCAL_SHARE * self.heard as f64;
        Count { least, most, saw_two }
    }
}
