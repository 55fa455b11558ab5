//! Transcripts as OpenAI's clients read them. Pure.

use super::language_names::name_of;
use super::request::{Asked, ResponseFormat};
use super::wire;
use crate::engine::Task;
use crate::figures::{Probability, Score, Seconds};
use crate::format::{self, captions};
use crate::transcript::{self, Segment, Transcript};

/// Positions of the encoder's output for a second of audio: the input tokens of `usage`.
const AUDIO_TOKENS_PER_SECOND: f64 = 50.0;
const SEGMENT: &str = "transcript.text.segment";

/// The body of an answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    Json(wire::Transcription),
    Verbose(wire::Verbose),
    Diarized(wire::Diarized),
    /// A body without a place for warnings, and these.
    Text(String, Vec<String>),
}

/// `names`: those of speakers, by their number, as far as they are known.
pub fn answer(asked: &Asked, transcript: &Transcript, names: &[Option<String>], damaged: bool) -> Answer {
    let text = transcript.text();
    let warnings = warnings(asked, transcript, damaged);
    let is_translation = asked.task == Task::Translate;
    let usage = || wire::Usage::Duration { seconds: transcript.duration.max(0.0).ceil() as u64 };
    let usage_of_transcription = (!is_translation).then(usage);
    match asked.format {
        ResponseFormat::Json => Answer::Json(wire::Transcription {
            text,
            languages: (!is_translation).then(|| languages(transcript)),
            logprobs: asked.log_probabilities.then(|| log_probabilities(&transcript.segments)),
            usage: usage_of_transcription,
            warnings,
        }),
        ResponseFormat::VerboseJson => Answer::Verbose(wire::Verbose {
            task: if is_translation { "translate" } else { "transcribe" },
            language: if is_translation { "english" } else { name_of(&transcript.language.code) }.to_owned(),
            duration: Seconds::of_audio(transcript.duration),
            text,
            words: asked.words.then(|| words(transcript)),
            segments: asked.segments.then(|| segments(&transcript.segments)),
            usage: usage_of_transcription,
            warnings,
        }),
        ResponseFormat::DiarizedJson => Answer::Diarized(wire::Diarized {
            task: "transcribe",
            duration: Seconds::of_audio(transcript.duration),
            text,
            segments: diarized(transcript, names),
            usage: usage(),
            warnings,
        }),
        ResponseFormat::Text => Answer::Text(format!("{text}\n"), warnings),
        ResponseFormat::Srt => Answer::Text(captions::srt(transcript), warnings),
        ResponseFormat::Vtt => Answer::Text(captions::vtt(transcript), warnings),
    }
}

/// The last event of a stream.
pub fn done(asked: &Asked, transcript: &Transcript, damaged: bool) -> wire::Event {
    let tokens = transcript.segments.iter().flat_map(text_tokens).count() as u64;
    let audio_tokens = (transcript.duration.max(0.0) * AUDIO_TOKENS_PER_SECOND).ceil() as u64;
    let input_tokens = asked.prompt_tokens + audio_tokens;
    let usage = wire::Usage::Tokens {
        input_tokens,
        input_token_details: wire::InputTokens { text_tokens: asked.prompt_tokens, audio_tokens },
        output_tokens: tokens,
        total_tokens: input_tokens + tokens,
    };
    wire::Event::Done {
        text: transcript.text(),
        languages: languages(transcript),
        logprobs: asked.log_probabilities.then(|| log_probabilities(&transcript.segments)),
        usage,
        warnings: warnings(asked, transcript, damaged),
    }
}

fn warnings(asked: &Asked, transcript: &Transcript, damaged: bool) -> Vec<String> {
    let mut warnings = asked.warnings.clone();
    if damaged {
        let seconds = transcript.duration;
        warnings.push(format!(
            "The audio is damaged or breaks off: {seconds:.2} s of it could be decoded and were transcribed."
        ));
    }
    warnings
}

/// By first appearance; none without words.
fn languages(transcript: &Transcript) -> Vec<wire::Language> {
    if transcript.words().next().is_none() {
        return Vec::new();
    }
    let mut codes: Vec<&str> = Vec::new();
    let changes = transcript.languages.iter().map(|change| change.code.as_str());
    for code in changes.chain([transcript.language.code.as_str()]) {
        if !codes.contains(&code) {
            codes.push(code);
        }
    }
    codes.into_iter().map(|code| wire::Language { code: code.to_owned() }).collect()
}

fn text_tokens(segment: &Segment) -> impl Iterator<Item = &transcript::Token> {
    segment.tokens.iter().filter(|token| !token.bytes.is_empty())
}

pub fn log_probabilities(segments: &[Segment]) -> Vec<wire::LogProbability> {
    let entry = |token: &transcript::Token| wire::LogProbability {
        token: String::from_utf8_lossy(&token.bytes).into_owned(),
        logprob: Score::new(token.log_probability()),
        bytes: token.bytes.to_vec(),
    };
    segments.iter().flat_map(text_tokens).map(entry).collect()
}

fn words(transcript: &Transcript) -> Vec<wire::Word> {
    let word = |word: &format::Word| wire::Word {
        word: word.core().to_owned(),
        start: Seconds::new(word.start),
        end: Seconds::new(word.end),
    };
    format::gather(transcript.words()).iter().map(word).collect()
}

fn segments(segments: &[Segment]) -> Vec<wire::Segment> {
    let segment = |(id, segment): (usize, &Segment)| wire::Segment {
        id,
        seek: (segment.window_start.max(0.0) * 100.0).round() as u64,
        start: Seconds::new(segment.start),
        end: Seconds::new(segment.end),
        text: segment.text.clone(),
        tokens: segment.tokens.iter().map(|token| token.id).collect(),
        temperature: Score::new(segment.temperature),
        avg_logprob: Score::new(segment.average_log_probability),
        compression_ratio: Score::new(segment.compression_ratio),
        no_speech_prob: Probability::new(segment.no_speech_probability),
    };
    segments.iter().enumerate().map(segment).collect()
}

/// Segments: the utterances of a speaker, each up to the next long pause.
pub fn diarized(transcript: &Transcript, names: &[Option<String>]) -> Vec<wire::DiarizedSegment> {
    let words = format::gather(transcript.words());
    let segment = |(index, words): (usize, &[format::Word])| {
        let speaker = words.first().and_then(|word| word.speaker).map_or(0, |speaker| speaker.index);
        wire::DiarizedSegment {
            kind: SEGMENT,
            id: format!("seg_{:03}", index + 1),
            start: Seconds::new(words.first().map_or(0.0, |word| word.start)),
            end: Seconds::new(words.last().map_or(0.0, |word| word.end)),
            text: format::text(words),
            speaker: label(speaker, names),
        }
    };
    format::utterances(&words, format::SPLIT_SECONDS).enumerate().map(segment).collect()
}

/// The known name, or letters, by first appearance of those without a name.
fn label(speaker: usize, names: &[Option<String>]) -> String {
    let name = |speaker: usize| names.get(speaker).and_then(Option::as_ref);
    if let Some(name) = name(speaker) {
        return name.clone();
    }
    let unnamed_before = (0..speaker).filter(|&before| name(before).is_none()).count();
    letters(unnamed_before)
}

/// The capital letters of an unnamed speaker, counted from 0: A to Z, then AA.
pub fn letters(speaker: usize) -> String {
    let (mut rest, mut letters) = (speaker + 1, Vec::new());
    while rest > 0 {
        letters.push(char::from(b'A' + ((rest - 1) % 26) as u8));
        rest = (rest - 1) / 26;
    }
    letters.into_iter().rev().collect()
}

#[cfg(test)]
#[path = "answer/tests.rs"]
mod tests;
