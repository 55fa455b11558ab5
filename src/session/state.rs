//! The state of one session and its transitions. Pure: the time is an argument.
//!
//! ```text
//! created ─ a participant joins ─▶ active ─ completion ─▶ completed
//!    └──────── time, the last one left, the call is over ────────▶ ended
//! ```
//! `completed` means that the client's flow is complete; the talk continues until it ends.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::concealed::{Caution, Given};
use super::error::Error;
use super::event::{EndReason, Event, Line, Notice};
use super::held;
use super::message::{Sms, SmsStatus};
use super::setup::{Channel, Setup, Start};
use super::summary::Summary;
use crate::clock::Millis;
use crate::fields;
use crate::knowledge::{CrawlError, unread_website};

/// The last lines of the talk, which snapshots show and remains keep.
pub const LINES_SHOWN: usize = 20;
/// Lines of the talk that an open session keeps; older ones go.
const TRANSCRIPT_LINES_MAX: usize = 500;
/// Messages per session: each costs money.
const MESSAGES_MAX: usize = 20;
/// Completions that can wait to be announced.
const ANNOUNCEMENTS_MAX: usize = 8;
/// Warnings per session, and characters of a client's name that they show.
const WARNINGS_MAX: usize = 1000;
const NAME_CHARACTERS_SHOWN: usize = 80;
/// Details of all verifications of one session as JSON, in bytes.
const DETAILS_BYTES_MAX: u64 = 64 << 10;
/// Wrong answers after which a category is locked, unless its rule says otherwise.
const ATTEMPTS_MAX: u32 = 3;
const CATEGORIES_MAX: usize = 50;
/// A caller is handed over within moments of the session's end, or not at all.
const TRANSFER_MS_MAX: Millis = 120_000;
/// Announces a completion that has no message.
const COMPLETED: &str = "That is done. Is there anything else?";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Created,
    Active,
    Completed,
    Ended,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Session {
    pub id: String,
    pub room: String,
    /// The tenant that owns it.
    pub tenant: u64,
    /// The public id of the key that started it; none if it needed none, or is of an earlier version.
    #[serde(default)]
    pub key: Option<Uuid>,
    /// Whether the room is someone else's: its name is no secret, and it stays.
    #[serde(default)]
    pub is_guest: bool,
    pub channel: Channel,
    pub status: Status,
    pub created: Millis,
    pub updated: Millis,
    pub expires: Millis,
    pub ended: Option<(Millis, EndReason)>,
    /// Number of changes so far.
    pub revision: u64,
    pub caller_number: Option<String>,
    pub verifications: BTreeMap<String, Verification>,
    /// The category for which the agent waits for a proof.
    pub pending_verification: Option<String>,
    /// Categories for which the agent has asked for a proof.
    #[serde(default)]
    pub asked: BTreeSet<String>,
    /// Proofs that callers have given. Never written to disk.
    #[serde(skip)]
    pub given: Given,
    pub page: Option<Page>,
    pub messages: Vec<Sms>,
    pub completion: Option<Completion>,
    /// Lines about completions that the agent says as soon as a participant can hear them.
    #[serde(default)]
    pub announcements: Vec<String>,
    pub transcript: Vec<Line>,
    pub call: Option<Call>,
    pub knowledge: KnowledgeState,
    pub warnings: Vec<String>,
    /// Once it has ended.
    #[serde(default)]
    pub summary: Option<Summary>,
    #[serde(default)]
    pub transfer: Option<Transfer>,
}

/// The caller is to be connected with another number, as soon as the agent has said so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    pub to: String,
    /// The participant who calls by telephone.
    pub identity: String,
    pub at: Millis,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Verification {
    pub verified: bool,
    pub at: Millis,
    pub source: Source,
    /// Wrong answers so far.
    pub attempts: u32,
    pub locked: bool,
    pub details: Value,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The `verification` action.
    #[default]
    Action,
    /// The verification hook.
    Hook,
    /// The built-in matcher.
    Inline,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Page {
    pub context: Value,
    pub version: u64,
    pub updated: Millis,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Completion {
    pub status: String,
    pub message: Option<String>,
    pub updated_fields: Value,
    pub at: Millis,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    pub call_sid: String,
    pub stream_sid: String,
    pub started: Millis,
    pub ended: Option<Millis>,
}

/// Progress in reading documents and website.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnowledgeState {
    pub is_ready: bool,
    pub passages: usize,
    pub documents: usize,
    pub website: Option<Website>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Website {
    pub url: String,
    pub status: CrawlStatus,
    pub pages: usize,
    pub error: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CrawlStatus {
    Pending,
    Ready,
    Failed,
}

/// The result of one check of a proof.
pub struct Checked {
    pub verified: bool,
    pub source: Source,
    pub details: Value,
}

impl Session {
    /// A new session. Its `id` and `room` come from [`new_id`] and [`new_room`].
    pub fn new(tenant: u64, start: &Start, now: Millis, ttl_ms: u64) -> Self {
        let website = start.setup.website_url.as_ref().map(|url| Website {
            url: url.clone(),
            status: CrawlStatus::Pending,
            pages: 0,
            error: None,
        });
        Self {
            id: new_id(),
            room: start.room.clone().unwrap_or_else(new_room),
            tenant,
            key: start.key,
            is_guest: start.room.is_some(),
            channel: start.channel,
            status: Status::Created,
            created: now,
            updated: now,
            expires: now + ttl_ms,
            ended: None,
            revision: 0,
            caller_number: start.caller_number.clone(),
            verifications: BTreeMap::new(),
            pending_verification: None,
            asked: BTreeSet::new(),
            given: Given::default(),
            page: None,
            messages: Vec::new(),
            completion: None,
            announcements: Vec::new(),
            transcript: Vec::new(),
            call: None,
            knowledge: KnowledgeState { website, ..KnowledgeState::default() },
            warnings: start.warnings.clone(),
            summary: None,
            transfer: None,
        }
    }

    /// # Errors
    /// [`Error::Ended`].
    pub fn check_open(&self) -> Result<(), Error> {
        if self.status == Status::Ended { Err(Error::Ended) } else { Ok(()) }
    }

    pub fn is_verified(&self, category: &str) -> bool {
        self.verifications.get(category).is_some_and(|state| state.verified)
    }

    /// Which digits in a caller's words are hidden. Callers who failed to verify may try again unasked.
    pub fn caution(&self, setup: &Setup) -> Caution {
        let is_owed = self.asked.iter().any(|category| !self.is_verified(category))
            || self.verifications.values().any(|state| state.locked);
        match (is_owed, setup.verification_rules.is_empty()) {
            (true, _) => Caution::Digits,
            (false, true) => Caution::None,
            (false, false) => Caution::Codes,
        }
    }

    /// Asks for a proof for a category, and waits for it.
    pub fn ask(&mut self, category: &str, events: &mut Vec<Event>) {
        self.asked.insert(category.to_owned());
        self.pending_verification = Some(category.to_owned());
        events.push(Event::VerificationRequested { category: category.to_owned() });
    }

    /// Binds the caller's number and queues the messages that waited for one. Verifications of another number do
    /// not carry over.
    pub fn bind_caller(&mut self, number: &str, events: &mut Vec<Event>) {
        let is_another = self.caller_number.as_deref().is_some_and(|bound| bound != number);
        self.caller_number = Some(number.to_owned());
        if is_another {
            self.verifications.retain(|_, state| state.locked);
        }
        events.push(Event::CallerBound { verifications_reset: is_another });
        for message in &mut self.messages {
            if message.status == SmsStatus::AwaitingNumber {
                message.status = SmsStatus::Queued;
                message.to = Some(number.to_owned());
                events.push(Event::SmsUpdated(Box::new(message.clone())));
            }
        }
    }

    /// Replaces the state of the caller's page and returns its version.
    pub fn show_page(&mut self, context: &Value, now: Millis, events: &mut Vec<Event>) -> u64 {
        let version = self.page.as_ref().map_or(0, |page| page.version) + 1;
        let context = self.given.concealed_within(context);
        self.page = Some(Page { context: context.clone(), version, updated: now });
        events.push(Event::PageContextUpdated { version, page_context: context });
        version
    }

    /// Notes the result of a check by the client, the hook or the matcher. A category that becomes verified can
    /// cause a text message.
    ///
    /// # Errors
    /// [`fields::Error::TooMany`] categories.
    pub fn verify(
        &mut self,
        category: &str,
        checked: Checked,
        setup: &Setup,
        now: Millis,
        events: &mut Vec<Event>,
    ) -> Result<(), Error> {
        if self.verifications.len() >= CATEGORIES_MAX && !self.verifications.contains_key(category) {
            return Err(fields::Error::TooMany { field: "category", count_max: CATEGORIES_MAX }.into());
        }
        let rule = setup.verification_rules.get(category);
        let attempts_max = rule.and_then(|rule| rule.max_attempts).unwrap_or(ATTEMPTS_MAX);
        let state = self.verifications.entry(category.to_owned()).or_default();
        state.verified = checked.verified;
        state.at = now;
        state.source = checked.source;
        if checked.verified {
            (state.attempts, state.locked) = (0, false);
        } else if checked.source != Source::Action {
            state.attempts += 1;
            state.locked = state.attempts >= attempts_max;
        }
        let (attempts, locked) = (state.attempts, state.locked);
        state.details = self.given.concealed_within(&checked.details);
        let key = state.details.get("sms_catalog_key").and_then(Value::as_str);
        let key = key.or(rule.and_then(|rule| rule.sms_catalog_key.as_deref())).map(str::to_owned);
        let bytes: u64 = self.verifications.values().map(|state| held::json(&state.details)).sum();
        if bytes > DETAILS_BYTES_MAX
            && let Some(state) = self.verifications.get_mut(category)
        {
            state.details = Value::Null;
            self.warn(format!("the `details` of `{category}` were too long and are not kept"));
        }
        let verified = checked.verified;
        if (verified || locked) && self.pending_verification.as_deref() == Some(category) {
            self.pending_verification = None;
        }
        let category = category.to_owned();
        events.push(Event::VerificationUpdated { category: category.clone(), verified, attempts, locked });
        if let (true, Some(key)) = (verified, key) {
            self.send_link(&category, &key, setup, events);
        }
        Ok(())
    }

    /// Queues a link of the catalogue for sending to the caller, once per category and link. Returns whether
    /// there is such a message now.
    pub fn send_link(&mut self, category: &str, key: &str, setup: &Setup, events: &mut Vec<Event>) -> bool {
        if !setup.sends_sms() {
            return false;
        }
        let id = format!("{category}:{key}");
        if self.messages.iter().any(|message| message.id == id) {
            return true;
        }
        if !setup.link_catalog.contains_key(key) {
            let shown: String = key.chars().take(NAME_CHARACTERS_SHOWN).collect();
            self.warn(format!("`{shown}` is not in `link_catalog`: nothing was sent"));
            return false;
        }
        if self.messages.len() >= MESSAGES_MAX {
            return false;
        }
        let status = if self.caller_number.is_some() { SmsStatus::Queued } else { SmsStatus::AwaitingNumber };
        let message = Sms {
            id,
            category: category.to_owned(),
            sms_catalog_key: key.to_owned(),
            status,
            sid: None,
            error: None,
            to: self.caller_number.clone(),
            attempts: 0,
            retry_at_ms: None,
        };
        events.push(Event::SmsUpdated(Box::new(message.clone())));
        self.messages.push(message);
        true
    }

    /// Adds a warning, once.
    pub fn warn(&mut self, warning: String) {
        if self.warnings.len() < WARNINGS_MAX && !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// Wrong answers in all categories since the last right one.
    pub fn wrong_answers(&self) -> u32 {
        self.verifications.values().map(|state| state.attempts).fold(0, u32::saturating_add)
    }

    pub fn complete(&mut self, notice: &Notice, now: Millis, events: &mut Vec<Event>) {
        let notice = Notice {
            message: notice.message.as_deref().map(|message| self.given.concealed(message)),
            updated_fields: self.given.concealed_within(&notice.updated_fields),
            ..notice.clone()
        };
        let line = notice.message.as_deref().unwrap_or(COMPLETED).to_owned();
        // A line that came several times in a row before a participant was there is said once.
        if self.announcements.len() < ANNOUNCEMENTS_MAX && self.announcements.last() != Some(&line) {
            self.announcements.push(line);
        }
        self.completion = Some(Completion {
            status: notice.status.clone(),
            message: notice.message.clone(),
            updated_fields: notice.updated_fields.clone(),
            at: now,
        });
        self.status = Status::Completed;
        events.push(Event::CompletionNotice(notice));
    }

    /// Notes how much of its sources was read. `website`: how many pages, if the setup names a website.
    pub fn note_reading(
        &mut self,
        setup: &Setup,
        passages: usize,
        website: Option<&Result<usize, CrawlError>>,
        events: &mut Vec<Event>,
    ) {
        let knowledge = &mut self.knowledge;
        (knowledge.is_ready, knowledge.passages) = (true, passages);
        knowledge.documents = setup.documents.len() + setup.rag_doc_ids.len();
        let mut status = None;
        if let (Some(shown), Some(read)) = (&mut knowledge.website, website) {
            match read {
                Ok(pages) => (shown.status, shown.pages) = (CrawlStatus::Ready, *pages),
                Err(error) => {
                    shown.status = CrawlStatus::Failed;
                    shown.error = Some(error.to_string());
                    self.warn(unread_website(error));
                }
            }
            status = Some(if read.is_ok() { "ready" } else { "failed" });
        }
        events.push(Event::KnowledgeUpdated { passages, website: status });
    }

    /// Asks the agent to hand the caller over. The first request counts.
    pub fn hand_over(&mut self, to: &str, identity: &str, now: Millis, events: &mut Vec<Event>) {
        if self.transfer.is_none() {
            self.transfer = Some(Transfer { to: to.to_owned(), identity: identity.to_owned(), at: now });
            events.push(Event::TransferRequested);
        }
    }

    /// The transfer of a session that has just ended for it.
    pub fn transfer_due(&self, now: Millis) -> Option<&Transfer> {
        let (at, reason) = self.ended?;
        let is_due = reason == EndReason::Transferred && now.saturating_sub(at) < TRANSFER_MS_MAX;
        self.transfer.as_ref().filter(|_| is_due)
    }

    /// Adds a line of the talk.
    pub fn say(&mut self, mut line: Line, events: &mut Vec<Event>) {
        line.id = self.transcript.last().map_or(0, |last| last.id) + 1;
        line.content = self.given.concealed(&line.content);
        if self.transcript.len() >= TRANSCRIPT_LINES_MAX {
            self.transcript.remove(0);
        }
        self.transcript.push(line.clone());
        events.push(Event::ConversationText(Box::new(line)));
    }

    pub fn end(&mut self, reason: EndReason, now: Millis, events: &mut Vec<Event>) {
        if self.status == Status::Ended {
            return;
        }
        self.status = Status::Ended;
        self.ended = Some((now, reason));
        self.pending_verification = None;
        if let Some(call) = &mut self.call {
            call.ended.get_or_insert(now);
        }
        events.push(Event::SessionEnded { reason });
    }
}

/// `sess_` and 12 hexadecimal digits (contract, section 2.3).
pub fn new_id() -> String {
    format!("sess_{:012x}", rand::random::<u64>() >> 16)
}

/// `sts-` and a UUID (contract, section 2.3).
pub fn new_room() -> String {
    format!("sts-{}", uuid::Uuid::new_v4())
}

#[cfg(test)]
mod tests;
