//! One stream: it carries audio to the channels, their requests to the engine, and events to the caller.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::BoxFuture;

use super::activity::Activity;
use super::channel::{Channel, Request};
use super::event::{Error, Event, Results};
use super::labelling::{Labelling, Shortfall};
use super::options::Options;
use super::settings::Settings;
use super::shared::{Shared, StreamPermit};
use crate::audio::{PcmStream, Piece, SAMPLE_RATE, StreamOptions};
use crate::engine::{self, Class, LanguageChoice, Recognition, Term, Window};
use crate::telemetry::hosted::STREAM_LATENCY;
use crate::telemetry::metrics::VOICE_WITHOUT_WORDS;
use crate::usage::{self, Work};
use crate::voices::Naming;

/// Further channels of a stream are ignored.
const CHANNELS_MAX: usize = 8;

/// Audio of an open stream counts as use after so much of it, so that quotas notice long streams while they run.
const COUNT_EVERY_SECONDS: f64 = 10.0;

type Answer = (Result<Recognition, engine::Error>, Duration);

/// The outcome of one step of a stream.
#[derive(Debug, PartialEq)]
pub enum Progress {
    Event(Event),
    /// No event; [`Session::wants_audio`] may have changed.
    Moved,
    /// There are no more events.
    Ended,
}

/// An open stream. Dropping it ends it, and frees its share of the engine.
pub struct Session {
    shared: Arc<Shared>,
    /// `None` once it is given back.
    permit: Option<Arc<StreamPermit>>,
    options: Options,
    audio: PcmStream,
    /// Empty before there is any audio.
    channels: Vec<Channel>,
    /// For each channel, the window that is being recognised.
    windows: Vec<Option<BoxFuture<'static, Answer>>>,
    /// For each channel, if speakers were asked for.
    labelling: Vec<Labelling>,
    events: VecDeque<Event>,
    /// Those whose words have their speakers.
    labelled: VecDeque<Event>,
    /// Finalize messages that wait for audio still being read: one channel each, or all.
    finalize: Vec<Option<usize>>,
    audio_has_ended: bool,
    /// The error that ended the audio, returned after all events before it.
    failure: Option<Error>,
    /// Seconds of the audio that count as use of the request already.
    counted: f64,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.count();
    }
}

impl Session {
    pub(super) fn new(shared: Arc<Shared>, permit: StreamPermit, options: Options) -> Self {
        let audio = PcmStream::new(StreamOptions {
            format: options.format,
            split_channels: options.multichannel,
            max_channels: CHANNELS_MAX,
            readers: shared.readers.clone(),
        });
        Self {
            shared,
            permit: Some(Arc::new(permit)),
            options,
            audio,
            channels: Vec::new(),
            windows: Vec::new(),
            labelling: Vec::new(),
            events: VecDeque::new(),
            labelled: VecDeque::new(),
            finalize: Vec::new(),
            audio_has_ended: false,
            failure: None,
            counted: 0.0,
        }
    }

    /// Whether more audio may be pushed; if not, call [`Self::next`] first.
    pub fn wants_audio(&self) -> bool {
        self.audio.is_hungry() && self.has_room()
    }

    fn has_room(&self) -> bool {
        let unrecognised = self.channels.iter().map(Channel::waiting_seconds);
        let unlabelled = self.labelling.iter().map(Labelling::waiting_seconds);
        let waiting = unrecognised.chain(unlabelled).fold(0.0, f64::max);
        waiting < self.shared.config.ahead_seconds.max(35.0)
    }

    /// Takes the next bytes of audio, cut anywhere, or the next packet of a format in packets.
    ///
    /// # Errors
    /// The first bytes are not audio. For later ones, [`Self::next`] returns the error after all events of the
    /// audio before them.
    pub fn push(&mut self, bytes: Bytes) -> Result<(), Error> {
        let pushed = self.audio.push(bytes);
        pushed.or_else(|error| self.broke(error.into()))
    }

    /// Other options from here on, for the open span as well; the format, the channels and the speakers stay.
    pub fn configure(&mut self, options: Options) {
        let Options { format, multichannel, speakers, voices, tenant, .. } = &self.options;
        let (format, multichannel, speakers) = (*format, *multichannel, *speakers);
        let (voices, tenant) = (voices.clone(), *tenant);
        self.options = Options { format, multichannel, speakers, voices, tenant, ..options };
        self.reconfigure();
    }

    /// Names and terms to expect from here on.
    pub fn set_bias(&mut self, bias: &Arc<[Term]>) {
        self.options.bias = bias.clone();
        self.reconfigure();
    }

    fn reconfigure(&mut self) {
        let settings = self.settings();
        self.channels.iter_mut().for_each(|channel| channel.configure(settings.clone()));
    }

    fn settings(&self) -> Settings {
        let config = &self.shared.config;
        Settings::new(&self.options, config.min_pause_ms, config.hop_ms)
    }

    /// The language to expect from here on.
    pub fn set_language(&mut self, language: &LanguageChoice) {
        self.options.language = language.clone();
        self.reconfigure();
    }

    /// Closes the open span of `channel`, or of all, once the audio pushed so far is recognised.
    pub fn finalize(&mut self, channel: Option<usize>) {
        self.finalize.push(channel);
        if self.audio.is_caught_up() {
            self.apply_finalize();
        }
    }

    /// Whether a [`Self::finalize`] has no place in the audio yet: audio pushed now would come before it.
    pub fn is_finalizing(&self) -> bool {
        !self.finalize.is_empty()
    }

    /// Ends the audio; [`Self::next`] returns [`Progress::Ended`] after the last event.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub fn finish(&mut self) -> Result<(), Error> {
        let finished = self.audio.finish();
        finished.or_else(|error| self.broke(error.into()))
    }

    /// Seconds of audio so far.
    pub fn duration(&self) -> f64 {
        self.channels.first().map_or(0.0, Channel::duration)
    }

    /// Channels of the source; 0 before there is any audio.
    pub fn source_channels(&self) -> u16 {
        self.audio.source_channels().unwrap_or(0)
    }

    /// Channels that are recognised separately; 1 before there is any audio.
    pub fn channels(&self) -> usize {
        self.channels.len().max(1)
    }

    /// Seconds of voice that gave no words, all channels added up: of the audio before each one's last final result.
    pub fn voice_without_words(&self) -> f64 {
        self.channels.iter().map(Channel::voice_without_words).sum()
    }

    /// Results whose words lack the speakers that were asked for.
    pub fn shortfall(&self) -> Shortfall {
        let mut all = Shortfall::default();
        self.labelling.iter().for_each(|labelling| all += labelling.shortfall());
        all
    }

    /// Works until there is something to report; pending while that takes more audio. Cancel-safe.
    ///
    /// # Errors
    /// [`Error`]; the stream is over then.
    pub async fn next(&mut self) -> Result<Progress, Error> {
        for index in 0..self.channels.len() {
            if let Some(request) = self.channels[index].advance(&mut self.events) {
                self.windows[index] = Some(self.recognise(request));
            }
        }
        if let Some(event) = self.next_event() {
            return Ok(Progress::Event(event));
        }
        if self.audio_has_ended && self.is_done() {
            for channel in &self.channels {
                VOICE_WITHOUT_WORDS.with(&[]).record(channel.voice_without_words());
            }
            return self.failure.take().map_or(Ok(Progress::Ended), Err);
        }
        let hears = !self.audio_has_ended && self.has_room();
        let windows = &mut self.windows;
        tokio::select! {
            piece = self.audio.next(), if hears => match piece {
                Ok(piece) => self.heard(piece),
                Err(error) => self.broke(error.into())?,
            },
            (index, (answer, took)) = first_ready(windows) => {
                windows[index] = None;
                let timings = answer.as_ref().ok().map(|recognition| recognition.timings);
                self.shared.lag.measured(self.options.tenant, took, timings, Instant::now());
                if let Some(timings) = timings {
                    self.shared.capacity.spent(timings.busy.as_secs_f64());
                    STREAM_LATENCY.with(&[]).record(took);
                }
                let request = self.channels[index].recognised(answer?, took, &mut self.events);
                if let Some(request) = request {
                    self.windows[index] = Some(self.recognise(request));
                }
            }
            () = any_labelled(&mut self.labelling, &mut self.labelled) => {}
        }
        Ok(Progress::Moved)
    }

    /// Whether all audio is recognised, and all words have their speakers.
    fn is_done(&self) -> bool {
        self.channels.iter().all(Channel::has_ended) && self.labelling.iter().all(Labelling::is_empty)
    }

    fn next_event(&mut self) -> Option<Event> {
        if self.labelling.is_empty() {
            return self.events.pop_front();
        }
        for event in self.events.drain(..) {
            match self.labelling.get_mut(event.channel()) {
                Some(labelling) => labelling.take(event, &mut self.labelled),
                None => self.labelled.push_back(event),
            }
        }
        self.labelled.pop_front()
    }

    /// What was heard since the last call counts as use of the request that opened the stream. After closing that is nothing.
    fn count(&mut self) {
        let duration = self.duration();
        let audio_seconds = (duration - self.counted).max(0.0);
        self.counted = self.counted.max(duration);
        let model = self.shared.engine.model();
        usage::worked(Work {
            audio_seconds,
            channels: u32::try_from(self.channels()).unwrap_or(u32::MAX),
            model: Some(usage::Model { id: model.uuid, name: model.name.clone() }),
            ..Work::default()
        });
    }

    /// Gives back its share of the engine, and the audio; there are no more events.
    pub fn close(&mut self) {
        self.count();
        self.windows.clear();
        self.channels = Vec::new();
        self.labelling = Vec::new();
        self.events = VecDeque::new();
        self.labelled = VecDeque::new();
        self.audio_has_ended = true;
        self.permit = None;
    }

    fn heard(&mut self, piece: Piece) {
        match piece {
            Piece::Pcm(pcm) => {
                if self.channels.is_empty() {
                    let Shared { vad, diarizer, config, .. } = &*self.shared;
                    let settings = self.settings();
                    let channel = |index| Channel::new(index, settings.clone(), Activity::new(vad.as_ref()));
                    self.channels = (0..pcm.len()).map(channel).collect();
                    self.windows = pcm.iter().map(|_| None).collect();
                    if let (Some(diarizer), Some(options)) = (diarizer, self.options.speakers) {
                        let diarizer = diarizer.for_tenant(self.options.tenant.0);
                        let patience = Duration::from_millis(config.speakers_timeout_ms);
                        let naming = || self.options.voices.clone().map(Naming::new);
                        let labelling =
                            |_| Labelling::new(Box::new(diarizer.stream(options)), patience, naming());
                        self.labelling = pcm.iter().map(labelling).collect();
                    }
                }
                let samples = pcm.first().map_or(0, Vec::len);
                self.shared.capacity.heard(samples as f64 / f64::from(SAMPLE_RATE));
                for (channel, samples) in self.channels.iter_mut().zip(&pcm) {
                    channel.push(samples);
                }
                for (labelling, samples) in self.labelling.iter_mut().zip(&pcm) {
                    labelling.push(samples);
                }
                if self.duration() - self.counted >= COUNT_EVERY_SECONDS {
                    self.count();
                }
            }
            Piece::CaughtUp => self.apply_finalize(),
            Piece::End => self.end(),
        }
    }

    fn end(&mut self) {
        self.apply_finalize();
        self.audio_has_ended = true;
        self.channels.iter_mut().for_each(Channel::end);
    }

    /// Ends the audio at bytes that can't be decoded; events of the audio before them come first.
    fn broke(&mut self, error: Error) -> Result<(), Error> {
        if self.channels.is_empty() {
            return Err(error);
        }
        if !self.audio_has_ended {
            self.failure = Some(error);
            self.end();
        }
        Ok(())
    }

    fn apply_finalize(&mut self) {
        for asked in self.finalize.drain(..) {
            if self.channels.is_empty() {
                self.events.push_back(Event::Results(Results::nothing_finalized()));
            }
            for (index, channel) in self.channels.iter_mut().enumerate() {
                if asked.is_none_or(|asked| asked == index) {
                    channel.finalize();
                }
            }
        }
    }

    fn recognise(&self, request: Request) -> BoxFuture<'static, Answer> {
        let (shared, permit) = (self.shared.clone(), self.permit.clone());
        let window = Window {
            pcm: request.pcm,
            options: request.options,
            class: Class::Live,
            tenant: self.options.tenant,
            deadline: None,
        };
        Box::pin(async move {
            let begun = Instant::now();
            // A closed stream has no share of the engine any more.
            let answer = match &permit {
                Some(permit) => shared.engine.recognize(&permit.admission, window).await,
                None => Err(engine::Error::ShuttingDown),
            };
            (answer, begun.elapsed())
        })
    }
}

/// The first of `windows` to be recognised; pending where there are none. Cancel-safe.
async fn first_ready(windows: &mut [Option<BoxFuture<'static, Answer>>]) -> (usize, Answer) {
    poll_fn(|cx| {
        for (index, window) in windows.iter_mut().enumerate() {
            if let Some(window) = window
                && let Poll::Ready(answer) = window.as_mut().poll(cx)
            {
                return Poll::Ready((index, answer));
            }
        }
        Poll::Pending
    })
    .await
}

/// Goes on with the labelling of all channels, until that of one has. Cancel-safe.
async fn any_labelled(labelling: &mut [Labelling], ready: &mut VecDeque<Event>) {
    poll_fn(|cx| {
        let mut any = Poll::Pending;
        for each in labelling.iter_mut() {
            if each.poll(cx, ready).is_ready() {
                any = Poll::Ready(());
            }
        }
        any
    })
    .await;
}
