//! Answers by a chat model through an interface like OpenAI's, streamed.
//!
//! The model gets the session's instructions and the passages that match the question, as data. Its tool calls are
//! only requests: code decides, so the model can neither verify a caller nor choose a telephone number.
//!
//! A slow model is covered by a spoken «One moment.», and by limits; see [`ChatConfig`].

mod calls;
mod patient;
mod prompt;
mod sentences;
mod wire;

use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Response};
use serde_json::Value;
use tokio::sync::mpsc;
use url::Url;

use super::config::ChatConfig;
use super::responder::Say;
use crate::knowledge::Knowledge;
use crate::outbound;
use crate::room::Function;
use crate::secret::Secret;
use calls::{Calls, Wish};
pub use patient::ONE_MOMENT;
use patient::Patient;
pub use prompt::{Ask, Item, Prompt};
use sentences::Sentences;
use wire::Part;

const LINE_BYTES_MAX: usize = 256 << 10;
const ANSWER_BYTES_MAX: usize = 16 << 10;
/// Requests for one answer: each search of the model needs one more.
const ROUNDS_MAX: usize = 4;
/// The end of an answer that broke off.
const UNFINISHED: &str = "I'm sorry, I can't finish that answer. Please ask me again.";

#[derive(Debug, thiserror::Error)]
pub enum ChatError {
    #[error("`sts.chat.base_url` is no http or https address")]
    Address,
    #[error("cannot set up the HTTP client")]
    Client(#[from] reqwest::Error),
}

pub struct Chat {
    client: Client,
    url: Url,
    key: Option<Secret>,
    config: ChatConfig,
}

/// How an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Whole,
    /// The model failed after its first words; the caller was told.
    Unfinished,
    /// The model failed before its first words.
    Nothing,
}

/// An answer has failed: the model is silent for too long, broke off or gave up.
struct Failed;

impl Chat {
    /// None if no interface is configured.
    ///
    /// # Errors
    /// [`ChatError`].
    pub fn open(config: &ChatConfig) -> Result<Option<Self>, ChatError> {
        let Some(base) = &config.base_url else { return Ok(None) };
        let mut url = Url::parse(base).map_err(|_| ChatError::Address)?;
        let mut path = url.path_segments_mut().map_err(|()| ChatError::Address)?;
        path.pop_if_empty().extend(config.interface.path());
        drop(path);
        let key = config.api_key.clone();
        Ok(Some(Self { client: outbound::client()?, url, key, config: config.clone() }))
    }

    /// The name of the model.
    pub fn model(&self) -> &str {
        &self.config.model
    }

    /// Sends sentences as they arrive, then effects. `functions`: those that the client runs. Dropping the future
    /// ends the request.
    pub async fn answer(
        &self,
        mut prompt: Prompt,
        functions: &[Function],
        knowledge: &Knowledge,
        says: &mpsc::Sender<Say>,
    ) -> Outcome {
        let mut patient = Patient::new(&self.config, says);
        for _ in 0..ROUNDS_MAX {
            let Ok(calls) = self.round(&prompt, &mut patient).await else { break };
            match calls.wishes(functions, knowledge, patient.has_spoken()) {
                Wish::Act(wishes) => {
                    for say in wishes {
                        patient.say(say).await;
                    }
                    // A model that neither says nor does anything has failed.
                    return if patient.has_spoken() { Outcome::Whole } else { Outcome::Nothing };
                }
                Wish::Search(searched) => prompt.items.push(Item::Called(searched)),
            }
        }
        if !patient.has_spoken() {
            return Outcome::Nothing;
        }
        patient.say(Say::Sentence(UNFINISHED.into())).await;
        Outcome::Unfinished
    }

    /// Sends the sentences of a text that no caller waits for. Returns whether it is whole.
    pub async fn write(&self, prompt: &Prompt, limit: Duration, says: &mpsc::Sender<Say>) -> bool {
        self.round(prompt, &mut Patient::of_writing(limit, says)).await.is_ok()
    }

    /// One request: its sentences are said, its calls returned.
    async fn round(&self, prompt: &Prompt, patient: &mut Patient<'_>) -> Result<Calls, Failed> {
        let request = self.config.interface.request(&self.config.model, prompt);
        let mut post = self.client.post(self.url.clone()).header(CONTENT_TYPE, "application/json");
        if let Some(key) = &self.key {
            post = post.bearer_auth(key.expose());
        }
        let sent = patient.wait(post.body(request.to_string()).send()).await;
        let mut response = match sent {
            Some(Ok(response)) if response.status().is_success() => response,
            _ => return Err(Failed),
        };
        let (mut lines, mut sentences, mut calls) =
            (Lines::default(), Sentences::default(), Calls::default());
        while sentences.bytes < ANSWER_BYTES_MAX {
            let Some(event) = lines.next(&mut response, patient).await? else { break };
            let mut is_whole = false;
            for part in self.config.interface.parts(&event) {
                match part {
                    Part::Text(text) => {
                        for sentence in sentences.take(&text) {
                            patient.say(Say::Sentence(sentence)).await;
                        }
                    }
                    Part::Call { index, id, name, arguments } => calls.take(index, &id, &name, &arguments),
                    Part::End => is_whole = true,
                    Part::Failure => return Err(Failed),
                }
            }
            if is_whole {
                break;
            }
        }
        if let Some(sentence) = sentences.finish() {
            patient.say(Say::Sentence(sentence)).await;
        }
        Ok(calls)
    }
}

/// The events of a stream (<https://html.spec.whatwg.org/multipage/server-sent-events.html>), whose data is JSON.
#[derive(Default)]
struct Lines {
    buffer: Vec<u8>,
}

impl Lines {
    /// The next event; none after `[DONE]`.
    async fn next(
        &mut self,
        response: &mut Response,
        patient: &mut Patient<'_>,
    ) -> Result<Option<Value>, Failed> {
        loop {
            while let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                let Some(data) = line.strip_prefix(b"data:") else { continue };
                if data.trim_ascii() == b"[DONE]" {
                    return Ok(None);
                }
                if let Ok(event) = serde_json::from_slice(data) {
                    return Ok(Some(event));
                }
            }
            if self.buffer.len() > LINE_BYTES_MAX {
                return Err(Failed);
            }
            match patient.wait(response.chunk()).await {
                Some(Ok(Some(chunk))) => self.buffer.extend_from_slice(&chunk),
                // It broke off: neither `[DONE]` nor a reason for the end came.
                _ => return Err(Failed),
            }
        }
    }
}
