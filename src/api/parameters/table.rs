//! The table of query parameters: names, values, effect, and the field of each.
//!
//! [`Parameters::read`] looks names up here, and `/openapi.json` is generated from here, so that neither
//! knows a parameter that the other lacks.

use super::Parameters;
use super::error::Error;
use super::values::{Encoding, Once, Reader, SECONDS_MAX};

/// The values of a parameter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// `true` or `false`, in any case.
    Flag,
    Text,
    /// One of these, in any case.
    OneOf(&'static [&'static str]),
    Count {
        min: u32,
        max: u32,
    },
    Number {
        min: f64,
        max: f64,
    },
    Seconds {
        max: f64,
    },
    /// Milliseconds, or a switch.
    Pause {
        max_ms: u32,
    },
    Url,
    /// Words or codes: the parameter repeated, or one with commas.
    Items {
        most: usize,
    },
    /// Texts that may hold commas: the parameter repeated.
    Texts {
        most: usize,
        characters: usize,
    },
    /// A switch, or the languages to choose among.
    Languages {
        most: usize,
    },
}

/// The effect of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    Honoured,
    /// Accepted, and named in the response's warnings: this server does not implement it.
    Warned,
    /// Refused: the client must not believe that it was done.
    Refused,
}

/// One row of the table.
pub struct Parameter {
    pub name: &'static str,
    /// Aliases.
    pub aliases: &'static [&'static str],
    pub kind: Kind,
    /// As written in a query; empty for none.
    pub default: &'static str,
    pub effect: Effect,
    pub about: &'static str,
    read: fn(&mut Parameters, &Reader<'_>) -> Result<(), Error>,
}

impl Parameter {
    fn is_repeatable(&self) -> bool {
        matches!(self.kind, Kind::Items { .. } | Kind::Texts { .. } | Kind::Languages { .. })
    }

    const fn also(self, aliases: &'static [&'static str]) -> Self {
        Self { aliases, ..self }
    }

    const fn warned(self) -> Self {
        Self { effect: Effect::Warned, ..self }
    }

    const fn by_default(self, default: &'static str) -> Self {
        Self { default, ..self }
    }
}

type Read = fn(&mut Parameters, &Reader<'_>) -> Result<(), Error>;

const fn row(name: &'static str, kind: Kind, about: &'static str, read: Read) -> Parameter {
    Parameter { name, aliases: &[], kind, default: "", effect: Effect::Honoured, about, read }
}

const fn flag(name: &'static str, about: &'static str, read: Read) -> Parameter {
    row(name, Kind::Flag, about, read).by_default("false")
}

const fn intelligence(name: &'static str, kind: Kind, about: &'static str, read: Read) -> Parameter {
    row(name, kind, about, read).warned()
}

const SPEAKERS_MAX: u32 = 100;
const SPEAKERS: Kind = Kind::Count { min: 1, max: SPEAKERS_MAX };
const SPEAKERS_RANGE: std::ops::RangeInclusive<usize> = 1..=SPEAKERS_MAX as usize;
const SEARCH_MAX: usize = 50;
const REPLACE_MAX: usize = 200;
const KEYWORDS_MAX: usize = 100;
/// The wire format counts 500 tokens; a term has at least one.
const KEYTERMS_MAX: usize = 500;
const _: () = assert!(KEYWORDS_MAX + KEYTERMS_MAX <= crate::engine::TERMS_MAX);
const TAG_CHARACTERS_MAX: usize = 128;
const EXTRA_CHARACTERS_MAX: usize = 2048;
/// For lists that the wire format does not bound.
const LIST_MAX: usize = 100;
/// For texts that it does not bound; the time of a search is proportional.
const TEXT_CHARACTERS_MAX: usize = 128;
const ENCODINGS: &[&str] = &Encoding::names();

/// All parameters, by topic.
pub const TABLE: &[Parameter] = &[
    row(
        "model",
        Kind::Text,
        "A served model by name or UUID, see `/v1/status`. If it is not served, the default is used and a warning is returned.",
        |all, given| given.text(&mut all.model),
    ),
    row("version", Kind::Text, "Version of the model; there is only one.", |all, given| {
        given.text(&mut all.version)
    })
    .by_default("latest")
    .warned(),
    row("tier", Kind::Text, "Older clients' half of a model's name.", |all, given| given.text(&mut all.tier))
        .warned(),
    row(
        "language",
        Kind::Text,
        "BCP-47 tag of the spoken language; `multi` for several. Detected if absent.",
        |all, given| given.text(&mut all.language),
    )
    .also(&["lang"]),
    row(
        "detect_language",
        Kind::Languages { most: LIST_MAX },
        "Detect the language, among these codes if any are given; overrides `language`.",
        |all, given| given.detect_language(&mut all.detect_language, LIST_MAX),
    )
    .by_default("false"),
    flag("multichannel", "Transcribe each channel separately.", |all, given| {
        given.flag(&mut all.multichannel)
    }),
    row(
        "alternatives",
        Kind::Count { min: 1, max: 100 },
        "How many alternatives; there is only one.",
        |all, given| given.number(&mut all.alternatives, 1..=100),
    )
    .by_default("1")
    .warned(),
    row(
        "punctuate",
        Kind::Flag,
        "`true` adds `punctuated_word`; `false` removes punctuation and capitals. Absent: the text as the model writes it.",
        |all, given| given.flag(all.punctuate.insert(false)),
    ),
    flag(
        "smart_format",
        "Punctuation, paragraphs, and in English numbers, dates, times, money, telephone numbers, e-mail and web addresses as they are written.",
        |all, given| given.flag(&mut all.smart_format),
    ),
    flag("paragraphs", "Adds sentences and paragraphs.", |all, given| given.flag(&mut all.paragraphs)),
    flag("utterances", "Adds `results.utterances`: the words between pauses.", |all, given| {
        given.flag(&mut all.utterances)
    }),
    row(
        "utt_split",
        Kind::Seconds { max: SECONDS_MAX },
        "The pause that ends an utterance.",
        |all, given| given.seconds(&mut all.utterance_split_seconds),
    )
    .by_default("0.8"),
    flag(
        "diarize",
        "Label speakers: words, utterances, sentences and paragraphs name theirs.",
        |all, given| given.switch(&mut all.diarize),
    )
    .also(&["diarization"]),
    row(
        "diarize_model",
        Kind::Text,
        "As `diarize`; there is only one model, whichever is named.",
        |all, given| given.named(&mut all.diarize),
    ),
    row("diarize_version", Kind::Text, "As `diarize_model`.", |all, given| given.named(&mut all.diarize)),
    row("min_speakers", SPEAKERS, "With `diarize`: the least number of speakers.", |all, given| {
        given.number(&mut all.speakers.min_speakers, SPEAKERS_RANGE)
    }),
    row("max_speakers", SPEAKERS, "With `diarize`: the greatest number of speakers.", |all, given| {
        given.number(&mut all.speakers.max_speakers, SPEAKERS_RANGE)
    }),
    row("speakers_expected", SPEAKERS, "With `diarize`: exactly so many speakers.", |all, given| {
        given.number(&mut all.speakers.speakers_expected, SPEAKERS_RANGE)
    }),
    flag(
        "identify_speakers",
        "As `diarize`; speakers whose voices are enrolled (`/v1/speakers`) have names. An extension.",
        |all, given| {
            given.flag(&mut all.identify_speakers)?;
            if all.identify_speakers {
                all.diarize.insert("identify_speakers");
            }
            Ok(())
        },
    )
    .by_default("false"),
    flag("numerals", "English numbers in digits.", |all, given| given.flag(&mut all.numerals)),
    flag("measurements", "English units after numbers as signs: `5 mg`.", |all, given| {
        given.flag(&mut all.measurements)
    }),
    flag("dictation", "Spoken English punctuation as signs: `comma`, `new paragraph`.", |all, given| {
        given.flag(&mut all.dictation)
    }),
    flag("profanity_filter", "English swear words as `****`.", |all, given| {
        given.flag(&mut all.profanity_filter)
    }),
    flag(
        "filler_words",
        "`false` leaves out `uh` and `um` from English; `true` keeps what the model wrote.",
        |all, given| given.flag(&mut all.filler_words),
    ),
    Parameter {
        effect: Effect::Refused,
        ..row(
            "redact",
            Kind::Items { most: LIST_MAX },
            "Only the streaming endpoint redacts; here anything but `false` is refused.",
            |all, given| given.redaction(&mut all.redact, LIST_MAX),
        )
    },
    row(
        "replace",
        Kind::Texts { most: REPLACE_MAX, characters: EXTRA_CHARACTERS_MAX },
        "`FIND:REPLACEMENT`; without a replacement the term is removed. A term in lower case matches any case.",
        |all, given| given.replacement(&mut all.replace, REPLACE_MAX, EXTRA_CHARACTERS_MAX),
    ),
    row(
        "search",
        Kind::Items { most: SEARCH_MAX },
        "Terms to search the speech for, also by similar sound.",
        |all, given| given.items(&mut all.search, SEARCH_MAX, TEXT_CHARACTERS_MAX),
    ),
    row(
        "keywords",
        Kind::Items { most: KEYWORDS_MAX },
        "`WORD` or `WORD:INTENSIFIER`: words to expect, the more the greater the number, or to avoid if it is negative.",
        |all, given| given.keywords(&mut all.keywords, KEYWORDS_MAX),
    ),
    row("keyterm", Kind::Items { most: KEYTERMS_MAX }, "Terms to expect in the speech.", |all, given| {
        given.items(&mut all.keyterms, KEYTERMS_MAX, TEXT_CHARACTERS_MAX)
    }),
    row(
        "encoding",
        Kind::OneOf(ENCODINGS),
        "Of audio without a container: `linear…`, `mulaw` and `alaw` with `sample_rate`; `amr-nb` and `amr-wb` in the frames that files have; `g729` in frames of 10 bytes; on the streaming endpoint `opus` and `speex`, one packet to a message. What a container says of itself comes first.",
        |all, given| given.encoding(&mut all.encoding),
    ),
    row(
        "sample_rate",
        Kind::Count { min: 4_000, max: 384_000 },
        "Samples per second, required by `encoding`; `s16le` defaults to 16000. Without an `encoding` it announces raw s16le.",
        |all, given| given.number(&mut all.sample_rate_hz, 4_000..=384_000),
    ),
    row("channels", Kind::Count { min: 1, max: 20 }, "Number of channels, with `encoding`.", |all, given| {
        given.number(&mut all.channels, 1..=20)
    })
    .by_default("1"),
    row("callback", Kind::Url, "Where to send the result; the request is answered at once.", |all, given| {
        given.callback(&mut all.callback)
    }),
    row("callback_method", Kind::OneOf(&["POST", "PUT"]), "The HTTP method for sending it.", |all, given| {
        given.callback_method(&mut all.callback_method)
    })
    .by_default("POST"),
    row("metadata", Kind::Text, "Returned with the result, unchanged.", |all, given| {
        given.text(&mut all.metadata)
    }),
    row(
        "tag",
        Kind::Texts { most: LIST_MAX, characters: TAG_CHARACTERS_MAX },
        "Labels, returned in `metadata.tags`.",
        |all, given| given.tag(&mut all.tags, LIST_MAX, TAG_CHARACTERS_MAX),
    ),
    row(
        "extra",
        Kind::Texts { most: LIST_MAX, characters: EXTRA_CHARACTERS_MAX },
        "`KEY:VALUE`, returned in `metadata.extra`; the last value of a key counts.",
        |all, given| given.pair(&mut all.extra, LIST_MAX, EXTRA_CHARACTERS_MAX),
    ),
    // Requests are never kept for training, whatever this says.
    flag("mip_opt_out", "No audio is ever kept to train on.", |_, given| given.flag(&mut false)),
    intelligence("summarize", Kind::Text, "`true` or `v2`: a summary.", |all, given| {
        given.intelligence("summarize", &mut all.intelligence)
    }),
    intelligence("sentiment", Kind::Text, "`true`: sentiments.", |all, given| {
        given.intelligence("sentiment", &mut all.intelligence)
    }),
    intelligence("topics", Kind::Text, "`true`: topics.", |all, given| {
        given.intelligence("topics", &mut all.intelligence)
    }),
    intelligence("intents", Kind::Text, "`true`: intents.", |all, given| {
        given.intelligence("intents", &mut all.intelligence)
    }),
    intelligence("detect_entities", Kind::Text, "`true`: entities.", |all, given| {
        given.intelligence("detect_entities", &mut all.intelligence)
    }),
    intelligence(
        "custom_topic",
        Kind::Texts { most: LIST_MAX, characters: EXTRA_CHARACTERS_MAX },
        "Topics to look for.",
        |all, given| given.intelligence("custom_topic", &mut all.intelligence),
    ),
    intelligence(
        "custom_intent",
        Kind::Texts { most: LIST_MAX, characters: EXTRA_CHARACTERS_MAX },
        "Intents to look for.",
        |all, given| given.intelligence("custom_intent", &mut all.intelligence),
    ),
    row("custom_topic_mode", Kind::Text, "How to read `custom_topic`; asks for nothing itself.", |_, _| {
        Ok(())
    }),
    row("custom_intent_mode", Kind::Text, "How to read `custom_intent`; asks for nothing itself.", |_, _| {
        Ok(())
    }),
];

impl Parameters {
    /// Keeps one parameter. Unknown names are ignored.
    pub(super) fn read(&mut self, once: &mut Once, name: &str, value: &str) -> Result<(), Error> {
        let named = |row: &&Parameter| row.name == name || row.aliases.contains(&name);
        let Some(row) = TABLE.iter().find(named) else { return Ok(()) };
        let given = Reader { name, value };
        if row.is_repeatable() {
            (row.read)(self, &given)
        } else {
            once.of(row.name, &given, || (row.read)(self, &given))
        }
    }
}
