//! A reply: turns a plan into sentences and clips, some of them ahead of playback.

use std::sync::Arc;

use futures_util::StreamExt as _;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::chat::{Ask, ONE_MOMENT, Outcome, Prompt};
use super::persona::{Called, Persona};
use super::playback::Clip;
use super::responder::{DONT_KNOW, Effect, Facts, Say, respond};
use super::tools::Tools;
use crate::knowledge::sentences;
use crate::session::Handle;
use crate::speech::{Caption, Manner};

/// Clips and sentences that are prepared ahead of playback.
const CLIPS_AHEAD: usize = 2;
const SENTENCES_AHEAD: usize = 8;

/// Something to say.
pub struct Job {
    pub plan: Plan,
    /// When the caller finished the question, if it answers one.
    pub asked: Option<Instant>,
    pub is_interruptible: bool,
}

pub enum Plan {
    Say(Vec<String>),
    Answer(String),
    /// Go on with an answer, now that the client has run functions for it.
    Resume {
        question: String,
        called: Vec<Called>,
    },
}

impl Job {
    pub fn new(plan: Plan) -> Self {
        Self { plan, asked: None, is_interruptible: true }
    }

    pub fn say<T: Into<String>>(lines: impl IntoIterator<Item = T>) -> Self {
        Self::new(Plan::Say(lines.into_iter().map(Into::into).collect()))
    }
}

/// The parts of a reply, in order.
pub enum Spoken {
    /// A clip, and how long its text and its voice took.
    Clip {
        clip: Clip,
        text_seconds: f64,
        voice_seconds: f64,
    },
    Act(Effect),
}

/// A job that is being spoken. Dropping it stops the work on it.
pub struct Reply {
    spoken: mpsc::Receiver<Spoken>,
    _work: DropGuard,
    pub asked: Option<Instant>,
    /// The question that it answers.
    pub question: Option<String>,
    pub is_interruptible: bool,
    pub has_begun: bool,
    /// No more parts will come.
    pub is_whole: bool,
    /// A participant speaks over it.
    pub is_paused: bool,
    pub latency_ms: Option<u64>,
    /// The parts that were heard: before a pause, and after it.
    pub heard: Vec<String>,
}

impl Reply {
    pub fn begin(tools: &Arc<Tools>, handle: &Arc<Handle>, persona: &Persona, job: Job) -> Self {
        let question = match &job.plan {
            Plan::Answer(question) | Plan::Resume { question, .. } => Some(question.clone()),
            Plan::Say(_) => None,
        };
        let (spoken, received) = mpsc::channel(CLIPS_AHEAD);
        let ends = CancellationToken::new();
        let (tools_, handle, ended) = (tools.clone(), handle.clone(), ends.clone());
        let persona = persona.clone();
        rehearse(tools, &persona.manner);
        tools.tasks.spawn(async move {
            let (says, queue) = mpsc::channel(SENTENCES_AHEAD);
            let work = async {
                let thinking = think(&tools_, &handle, &persona, job.plan, says);
                tokio::join!(thinking, speak(&tools_, &persona.manner, queue, spoken));
            };
            tokio::select! {
                () = ended.cancelled() => {}
                () = work => {}
            }
        });
        Self {
            spoken: received,
            _work: ends.drop_guard(),
            asked: job.asked,
            question,
            is_interruptible: job.is_interruptible,
            has_begun: false,
            is_whole: false,
            is_paused: false,
            latency_ms: None,
            heard: Vec::new(),
        }
    }

    /// The next part of the current reply; none after the last. Waits forever without a reply. Cancel-safe.
    pub async fn next(reply: &mut Option<Self>) -> Option<Spoken> {
        match reply {
            Some(reply) if !reply.is_whole => reply.spoken.recv().await,
            _ => std::future::pending().await,
        }
    }
}

/// Has the voice learn the English phrases that it may have to say at once, when there is time.
fn rehearse(tools: &Arc<Tools>, manner: &Manner) {
    let (tools_, manner) = (tools.clone(), manner.clone());
    // Only a model that is slow has it say the latter. No text is nothing to learn.
    let filler = if tools_.chat.is_some() { ONE_MOMENT } else { "" };
    let Some(learning) = tools_.voice.learn("en", [filler, DONT_KNOW], manner) else { return };
    tools.tasks.spawn(async move {
        tokio::select! {
            () = tools_.stop.cancelled() => {}
            () = learning => {}
        }
    });
}

async fn think(tools: &Tools, handle: &Handle, persona: &Persona, plan: Plan, says: mpsc::Sender<Say>) {
    let (question, called) = match plan {
        Plan::Say(lines) => {
            for sentence in lines.iter().flat_map(|line| sentences(line)) {
                if says.send(Say::Sentence(sentence)).await.is_err() {
                    return;
                }
            }
            return;
        }
        Plan::Answer(question) => (question, Vec::new()),
        Plan::Resume { question, called } => (question, called),
    };
    let (setup, knowledge) = (persona.setup(handle.setup()), handle.knowledge());
    let can_text = tools.courier.can_send();
    let embedded = || {
        handle.read(|session| {
            respond(&Facts { setup: &setup, session, knowledge: &knowledge, can_text }, &question)
        })
    };
    if let Some(chat) = &tools.chat {
        let prompt = handle.read(|session| {
            let facts = &Facts { setup: &setup, session, knowledge: &knowledge, can_text };
            let language = &tools.settings.language;
            Prompt::new(&Ask { facts, persona, language, question: &question, called: &called })
        });
        match chat.answer(prompt, &persona.functions, &knowledge, &says).await {
            Outcome::Whole => return,
            Outcome::Unfinished => {
                tracing::warn!(session = handle.id, "the chat interface failed in the middle of an answer");
                return;
            }
            Outcome::Nothing => {
                tracing::warn!(
                    session = handle.id,
                    "the chat interface failed: the embedded responder answers"
                );
            }
        }
    }
    for say in embedded() {
        if says.send(say).await.is_err() {
            return;
        }
    }
}

async fn speak(tools: &Tools, manner: &Manner, mut says: mpsc::Receiver<Say>, spoken: mpsc::Sender<Spoken>) {
    let mut waited = Instant::now();
    while let Some(say) = says.recv().await {
        let mut text_seconds = waited.elapsed().as_secs_f64();
        match say {
            Say::Act(effect) => {
                if spoken.send(Spoken::Act(effect)).await.is_err() {
                    return;
                }
            }
            Say::Sentence(sentence) => {
                let mut line = Some(sentence.clone());
                for piece in tools.voice.pieces(&sentence, manner) {
                    let mut caption = Caption::new(piece);
                    let mut saying = tools.voice.speak(piece, manner);
                    let mut begun = Instant::now();
                    loop {
                        // Without a voice, the words are shown.
                        let part = saying.next().await.and_then(Result::ok);
                        let voice_seconds = begun.elapsed().as_secs_f64();
                        let text = caption.until(part.as_ref().map_or(1.0, |part| part.until)).to_owned();
                        let is_over = part.is_none();
                        let samples: Arc<[f32]> = part.map_or_else(Vec::new, |part| part.samples).into();
                        if is_over && text.is_empty() {
                            break;
                        }
                        let clip = Clip { text, line: line.take(), samples };
                        if spoken.send(Spoken::Clip { clip, text_seconds, voice_seconds }).await.is_err() {
                            return;
                        }
                        if is_over {
                            break;
                        }
                        (text_seconds, begun) = (0.0, Instant::now());
                    }
                }
            }
        }
        waited = Instant::now();
    }
}
