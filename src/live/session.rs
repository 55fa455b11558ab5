//! One stream: carries audio to its channels, their requests to the engine, and events to the caller.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::BoxFuture;

use super::channel::{Channel, Request};
use super::voice::Voice;
use super::{Error, Event, Options, Place, Results, Shared};
use crate::audio::{PcmStream, Piece, StreamOptions};
use crate::engine::{self, Class, Recognition, Window};

/// More channels of one stream are not heard.
const CHANNELS_MAX: usize = 8;

type Answer = (Result<Recognition, engine::Error>, Duration);

/// What has happened to a stream.
#[derive(Debug, PartialEq)]
pub enum Progress {
    Event(Event),
    /// Nothing to tell; [`Session::wants_audio`] may have changed.
    Moved,
    /// All is told.
    Ended,
}

/// An open stream. Dropping it ends it, and frees what it holds of the engine.
pub struct Session {
    shared: Arc<Shared>,
    place: Arc<Place>,
    options: Options,
    audio: PcmStream,
    /// None before there is any audio.
    channels: Vec<Channel>,
    /// For each channel, the window that is being recognised.
    windows: Vec<Option<BoxFuture<'static, Answer>>>,
    events: VecDeque<Event>,
    /// Finalize that waits for audio on its way: which channel, or all.
    finalize: Vec<Option<usize>>,
    audio_has_ended: bool,
}

impl Session {
    pub(super) fn new(shared: Arc<Shared>, place: Place, options: Options) -> Self {
        let audio = PcmStream::new(StreamOptions {
            format: options.format,
            split_channels: options.multichannel,
            max_channels: CHANNELS_MAX,
            readers: shared.readers.clone(),
        });
        Self {
            shared,
            place: Arc::new(place),
            options,
            audio,
            channels: Vec::new(),
            windows: Vec::new(),
            events: VecDeque::new(),
            finalize: Vec::new(),
            audio_has_ended: false,
        }
    }

    /// Whether more audio may be pushed: otherwise call [`Self::next`] first.
    pub fn wants_audio(&self) -> bool {
        self.audio.is_hungry() && self.has_room()
    }

    fn has_room(&self) -> bool {
        let waiting = self.channels.iter().map(Channel::waiting_seconds).fold(0.0, f64::max);
        waiting < self.shared.config.ahead_seconds.max(35.0)
    }

    /// Takes the next bytes of audio, cut anywhere.
    ///
    /// # Errors
    /// Bytes that are no audio.
    pub fn push(&mut self, bytes: Bytes) -> Result<(), Error> {
        Ok(self.audio.push(bytes)?)
    }

    /// Closes the open span of `channel`, or of all, once what was pushed is recognised.
    pub fn finalize(&mut self, channel: Option<usize>) {
        self.finalize.push(channel);
        if matches!(self.options.format, crate::audio::StreamFormat::Raw(_)) && self.audio.is_hungry() {
            self.apply_finalize();
        }
    }

    /// There is no more audio; [`Self::next`] ends when all of it is told.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub fn finish(&mut self) -> Result<(), Error> {
        Ok(self.audio.finish()?)
    }

    /// Seconds of audio so far.
    pub fn duration(&self) -> f64 {
        self.channels.first().map_or(0.0, Channel::duration)
    }

    /// Channels of the source; 0 before there is any audio.
    pub fn source_channels(&self) -> u16 {
        self.audio.source_channels().unwrap_or(0)
    }

    /// Channels that are heard apart; 1 before there is any audio.
    pub fn channels(&self) -> usize {
        self.channels.len().max(1)
    }

    /// Goes on until something has happened; pending while nothing can without more audio.
    /// Cancel-safe.
    ///
    /// # Errors
    /// [`Error`]; the stream is over then.
    pub async fn next(&mut self) -> Result<Progress, Error> {
        for index in 0..self.channels.len() {
            if let Some(request) = self.channels[index].advance(&mut self.events) {
                self.windows[index] = Some(self.recognise(request));
            }
        }
        if let Some(event) = self.events.pop_front() {
            return Ok(Progress::Event(event));
        }
        if self.audio_has_ended && self.channels.iter().all(Channel::has_ended) {
            return Ok(Progress::Ended);
        }
        let hears = !self.audio_has_ended && self.has_room();
        let windows = &mut self.windows;
        tokio::select! {
            piece = self.audio.next(), if hears => self.heard(piece?),
            (index, (answer, took)) = first_ready(windows) => {
                windows[index] = None;
                self.shared.lag.measured(took);
                let request = self.channels[index].recognised(answer?, took, &mut self.events);
                if let Some(request) = request {
                    self.windows[index] = Some(self.recognise(request));
                }
            }
        }
        Ok(Progress::Moved)
    }

    fn heard(&mut self, piece: Piece) {
        match piece {
            Piece::Pcm(pcm) => {
                if self.channels.is_empty() {
                    let shared = &self.shared;
                    let channel = |index| {
                        Channel::new(index, &self.options, Voice::new(shared.vad.as_ref()), &shared.config)
                    };
                    self.channels = (0..pcm.len()).map(channel).collect();
                    self.windows = pcm.iter().map(|_| None).collect();
                }
                for (channel, samples) in self.channels.iter_mut().zip(&pcm) {
                    channel.push(samples);
                }
            }
            Piece::CaughtUp => self.apply_finalize(),
            Piece::End => {
                self.apply_finalize();
                self.audio_has_ended = true;
                self.channels.iter_mut().for_each(Channel::end);
            }
        }
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
        let (shared, place) = (self.shared.clone(), self.place.clone());
        let window = Window {
            pcm: request.pcm,
            options: request.options,
            class: Class::Live,
            tenant: self.options.tenant,
            deadline: None,
        };
        Box::pin(async move {
            let begun = Instant::now();
            let answer = shared.engine.recognize(&place.admission, window).await;
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
