//! The bodies of the fuzz targets, run for a while on text like their usual input and on damaged files.

#[path = "../../fuzz/bodies.rs"]
mod bodies;

use std::path::Path;

use proptest::prelude::*;
use verbatim::api::parameters::{LIVE_TABLE, TABLE};

/// So many cases of each property, or `PROPTEST_CASES`, for a long run.
fn cases(usual: u32) -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig { cases: asked.unwrap_or(usual), failure_persistence: None, ..ProptestConfig::default() }
}

/// A query of known names with values likely and unlikely.
fn query() -> impl Strategy<Value = String> {
    let names: Vec<&str> = TABLE
        .iter()
        .flat_map(|row| std::iter::once(row.name).chain(row.aliases.iter().copied()))
        .chain(LIVE_TABLE.iter().map(|row| row.name))
        .collect();
    let value = prop_oneof![
        "true|false|True|en|es|multi|0|1|8000|-1|0\\.5|1e9|nan|linear16|POST|a:b|a:2,b:-3|http://a\\.example/",
        "[ -~]{0,12}",
        "\\PC{0,6}",
    ];
    let pair = (proptest::sample::select(names), value).prop_map(|(name, value)| format!("{name}={value}"));
    proptest::collection::vec(pair, 0..6).prop_map(|pairs| pairs.join("&"))
}

/// JSON, more or less.
fn json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof!["null|true|0|-1\\.5e3", "\"[a-z/:\\\\\"u]{0,8}\""];
    let member = prop_oneof![3 => Just("\"url\"".to_owned()), 1 => "\"[a-z]{0,3}\""];
    leaf.prop_recursive(4, 32, 4, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(","))),
            proptest::collection::vec((member.clone(), inner), 0..4).prop_map(|members| {
                let members: Vec<String> =
                    members.into_iter().map(|(name, value)| format!("{name}:{value}")).collect();
                format!("{{{}}}", members.join(","))
            }),
        ]
    })
}

proptest! {
    #![proptest_config(cases(4000))]

    #[test]
    fn any_query_is_answered(query in query(), noise in any::<Vec<u8>>()) {
        bodies::query(query.as_bytes());
        bodies::query(&noise);
    }

    #[test]
    fn any_json_is_answered(json in json(), noise in any::<Vec<u8>>(), cut in any::<proptest::sample::Index>()) {
        bodies::json_body(json.as_bytes());
        bodies::json_body(&json.as_bytes()[..cut.index(json.len() + 1)]);
        bodies::json_body(&noise);
    }
}

/// A form of known and unknown fields, its first byte being the size of its pieces.
fn form() -> impl Strategy<Value = Vec<u8>> {
    let name = prop_oneof![
        4 => Just("file".to_owned()),
        8 => proptest::sample::select(vec![
            "model", "language", "prompt", "temperature", "response_format", "timestamp_granularities[]", "include[]",
            "stream", "chunking_strategy[type]", "known_speaker_names[]", "known_speaker_references[]",
        ]).prop_map(str::to_owned),
        1 => "[ -~]{0,12}",
    ];
    let value = prop_oneof![
        "whisper-1|en|es|xx|0|0\\.5|1|nan|json|text|verbose_json|srt|word|segment|logprobs|true|auto|server_vad",
        "data:audio/wav;base64,[A-Za-z0-9+/]{0,12}=?",
        "\\PC{0,12}",
        Just("--x--\r\n".to_owned()),
    ];
    let field = (name, value, any::<bool>()).prop_map(|(name, value, is_file)| {
        let file = if is_file { "; filename=\"a\"\r\ncontent-type: audio/wav" } else { "" };
        format!("--x\r\ncontent-disposition: form-data; name=\"{name}\"{file}\r\n\r\n{value}\r\n")
    });
    (any::<u8>(), proptest::collection::vec(field, 0..6))
        .prop_map(|(size, fields)| [&[size][..], fields.concat().as_bytes(), b"--x--\r\n"].concat())
}

/// Claims, more or less as the server makes them.
fn claims() -> impl Strategy<Value = String> {
    let time =
        prop_oneof!["1[78]0000[0-9]{4}", "-?[0-9]{1,20}", Just("1e300".to_owned()), Just("null".to_owned())];
    let organisation =
        prop_oneof![Just("00000000-0000-0000-0000-000000000007".to_owned()), "[0-9a-f-]{0,36}"];
    ("[a-z2-7]{0,10}", organisation, "[a-z:, ]{0,20}", time.clone(), time).prop_map(|(sub, aud, scope, iat, exp)| {
        format!(
            r#"{{"sub":"{sub}","aud":"{aud}","scope":"{scope}","iat":{iat},"exp":{exp},"jti":"00000000-0000-0000-0000-000000000000"}}"#
        )
    })
}

/// Messages of the sockets, with values likely and unlikely.
fn message() -> impl Strategy<Value = String> {
    let kind = proptest::sample::select(vec![
        "KeepAlive",
        "Finalize",
        "CloseStream",
        "Configure",
        "ForceEndTurn",
        "Speak",
        "Flush",
        "Clear",
        "Close",
        "Settings",
        "InjectUserMessage",
        "InjectAgentMessage",
        "UpdatePrompt",
        "UpdateThink",
        "UpdateSpeak",
        "UpdateListen",
        "FunctionCallResponse",
        "Dtmf",
        "PlaybackMark",
        "PageContext",
        "session.update",
        "transcription_session.update",
        "input_audio_buffer.append",
        "input_audio_buffer.commit",
        "input_audio_buffer.clear",
        "",
    ]);
    let member = proptest::sample::select(vec![
        "channel",
        "features",
        "processors",
        "keyterms",
        "thresholds",
        "language_hints",
        "numerals",
        "text",
        "audio",
        "agent",
        "think",
        "speak",
        "listen",
        "prompt",
        "message",
        "behavior",
        "content",
        "digit",
        "name",
        "id",
        "session",
        "event_id",
    ]);
    (kind, proptest::collection::vec((member, json()), 0..4)).prop_map(|(kind, members)| {
        let members: String = members.iter().map(|(name, value)| format!(r#","{name}":{value}"#)).collect();
        format!(r#"{{"type":"{kind}"{members}}}"#)
    })
}

proptest! {
    #![proptest_config(cases(2000))]

    #[test]
    fn any_form_is_answered(form in form(), noise in any::<Vec<u8>>(), at in any::<proptest::sample::Index>()) {
        bodies::form(&form);
        bodies::form(&form[..at.index(form.len())]);
        let mut damaged = form.clone();
        damaged[at.index(form.len())] ^= 1;
        bodies::form(&damaged);
        bodies::form(&noise);
    }

    #[test]
    fn any_token_is_answered(claims in claims(), noise in any::<Vec<u8>>(), cut in any::<proptest::sample::Index>()) {
        bodies::token(claims.as_bytes());
        bodies::token(&claims.as_bytes()[..cut.index(claims.len() + 1)]);
        bodies::token(&noise);
    }

    #[test]
    fn any_message_is_answered(message in message(), json in json(), noise in any::<Vec<u8>>()) {
        bodies::message(message.as_bytes());
        bodies::message(json.as_bytes());
        bodies::message(&noise);
    }
}

proptest! {
    #![proptest_config(cases(2000))]

    #[test]
    fn any_settings_are_answered(part in 0..bodies::PARTS.len(), json in json(), noise in any::<Vec<u8>>()) {
        bodies::settings(&[&[part as u8][..], json.as_bytes()].concat());
        bodies::settings(&noise);
    }
}

/// The first bytes of a small file in each container.
fn files() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(".verbatim/fixtures");
    let entries =
        std::fs::read_dir(&folder).expect("run ./setup").map(|entry| entry.expect("readable").path());
    let mut paths: Vec<_> = entries.filter(|path| path.extension().is_some()).collect();
    paths.sort();
    assert!(paths.len() >= 10, "only {} files", paths.len());
    let head = |path: &std::path::PathBuf| {
        let mut bytes = std::fs::read(path).expect("readable");
        bytes.truncate(16 << 10);
        bytes
    };
    paths.iter().map(head).collect()
}

proptest! {
    #![proptest_config(cases(600))]

    #[test]
    fn any_file_is_answered(
        file in proptest::sample::select(files()),
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..12),
        end in any::<proptest::sample::Index>(),
        noise in any::<Vec<u8>>(),
    ) {
        let mut bytes = file;
        for (at, value) in damage {
            // Half of the damage goes to headers.
            let reach = if value & 1 == 0 { bytes.len().min(256) } else { bytes.len() };
            bytes[at.index(reach)] = value;
        }
        bytes.truncate(bytes.len().min(64 + end.index(bytes.len())));
        bodies::container(&bytes);
        bodies::container(&noise);
    }
}
