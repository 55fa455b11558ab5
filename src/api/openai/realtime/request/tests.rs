use super::*;

fn read(text: &str) -> Result<Event, Invalid> {
    Request::read(text).event
}

fn update(text: &str) -> Update {
    match read(text) {
        Ok(Event::Update(update)) => *update,
        other => panic!("{text}: {other:?}"),
    }
}

/// As LiveKit, Pipecat, the agents' SDK and the SDKs' examples send them.
#[test]
fn events_of_clients_are_understood() {
    let livekit = update(
        r#"{"type":"session.update","session":{"type":"transcription","audio":{"input":{
            "format":{"rate":24000,"type":"audio/pcm"},
            "transcription":{"model":"gpt-4o-mini-transcribe","language":"en"},
            "turn_detection":{"type":"server_vad","threshold":0.5,"prefix_padding_ms":600,"silence_duration_ms":350},
            "noise_reduction":{"type":"near_field"}}}}}"#,
    );
    assert_eq!((livekit.format, livekit.is_beta), (Some(Format::Pcm), false));
    let transcription = livekit.transcription.unwrap();
    assert_eq!(transcription.model.as_deref(), Some("gpt-4o-mini-transcribe"));
    assert_eq!((transcription.language, transcription.prompt), (Some(Some("en".into())), None));
    let vad = ServerVad {
        threshold: Some(0.5),
        prefix_padding_ms: Some(600),
        silence_duration_ms: Some(350),
        ..ServerVad::default()
    };
    assert_eq!(livekit.turn_detection, Some(Some(TurnDetection::ServerVad(vad))));

    let pipecat = update(
        r#"{"type":"session.update","session":{"type":"transcription","audio":{"input":{
            "format":{"type":"audio/pcm","rate":24000},"transcription":{"model":"gpt-realtime-whisper","language":"en"},
            "turn_detection":null}}}}"#,
    );
    assert_eq!((pipecat.turn_detection, pipecat.include), (Some(None), None));

    let agents = update(
        r#"{"type":"session.update","session":{"type":"transcription","audio":{"input":{
            "format":{"type":"audio/pcma"},"transcription":{"model":"x","languages":["en","de"],"keywords":["Verbatim"]},
            "turn_detection":{"type":"semantic_vad"}}},"include":["item.input_audio_transcription.logprobs"]}}"#,
    );
    assert_eq!(agents.format, Some(Format::Alaw));
    assert_eq!(agents.turn_detection, Some(Some(TurnDetection::SemanticVad(SemanticVad::default()))));
    assert_eq!(agents.include.map(|include| include.len()), Some(1));

    let beta = update(
        r#"{"type":"transcription_session.update","session":{"input_audio_format":"g711_ulaw",
            "input_audio_transcription":{"model":"gpt-4o-transcribe","prompt":"","language":""},
            "turn_detection":{"type":"server_vad"},"input_audio_noise_reduction":{"type":"far_field"}}}"#,
    );
    assert_eq!((beta.format, beta.is_beta), (Some(Format::Mulaw), true));
    assert_eq!(beta.transcription.unwrap().prompt, Some(Some(String::new())));

    assert_eq!(
        read(r#"{"type":"input_audio_buffer.append","audio":"AAECAw=="}"#),
        Ok(Event::Append(vec![0, 1, 2, 3].into()))
    );
    assert_eq!(read(r#"{"event_id":null,"type":"input_audio_buffer.commit"}"#), Ok(Event::Commit));
    assert_eq!(read(r#"{"type":"input_audio_buffer.clear"}"#), Ok(Event::Clear));
    let named = Request::read(r#"{"type":"input_audio_buffer.clear","event_id":"mine"}"#);
    assert_eq!(named.event_id.as_deref(), Some("mine"));
}

#[test]
fn others_are_refused_by_what_is_wrong() {
    let session = |session: &str| format!(r#"{{"type":"session.update","session":{session}}}"#);
    let input = |input: &str| session(&format!(r#"{{"type":"transcription","audio":{{"input":{input}}}}}"#));
    for (text, code, param) in [
        (String::new(), "invalid_event", None),
        ("{".to_owned(), "invalid_event", None),
        ("7".to_owned(), "invalid_event", None),
        ("{}".to_owned(), "invalid_event", Some("type")),
        (r#"{"type":1}"#.to_owned(), "invalid_event", Some("type")),
        (r#"{"type":"response.create"}"#.to_owned(), "invalid_value", Some("type")),
        (r#"{"type":"conversation.item.create","item":{}}"#.to_owned(), "invalid_value", Some("type")),
        (r#"{"type":"<script>"}"#.to_owned(), "invalid_value", Some("type")),
        (r#"{"type":"input_audio_buffer.append"}"#.to_owned(), "missing_required_parameter", Some("audio")),
        (
            r#"{"type":"input_audio_buffer.append","audio":[1]}"#.to_owned(),
            "missing_required_parameter",
            Some("audio"),
        ),
        (r#"{"type":"input_audio_buffer.append","audio":"=="}"#.to_owned(), "invalid_value", Some("audio")),
        (r#"{"type":"session.update"}"#.to_owned(), "missing_required_parameter", Some("session")),
        (session("{}"), "missing_required_parameter", Some("session.type")),
        (session(r#"{"type":"realtime","instructions":"Be kind."}"#), "invalid_value", Some("session.type")),
        (session(r#"{"type":"transcription","voice":"alloy"}"#), "unknown_parameter", Some("session")),
        (session(r#"{"type":"transcription","include":"logprobs"}"#), "invalid_value", Some("session")),
        (input(r#"{"format":{"type":"audio/opus"}}"#), "invalid_value", Some("session")),
        (
            input(r#"{"format":{"type":"audio/pcm","rate":16000}}"#),
            "invalid_value",
            Some("session.audio.input.format.rate"),
        ),
        (input(r#"{"transcription":null}"#), "invalid_value", Some("session.audio.input.transcription")),
        (input(r#"{"transcription":{"temperature":1}}"#), "unknown_parameter", Some("session")),
        (input(r#"{"turn_detection":{"type":"psychic"}}"#), "invalid_value", Some("session")),
        (
            input(r#"{"turn_detection":{"type":"server_vad","threshold":"high"}}"#),
            "invalid_value",
            Some("session"),
        ),
        (
            input(r#"{"turn_detection":{"type":"server_vad","silence_duration_ms":-1}}"#),
            "invalid_value",
            Some("session"),
        ),
        (input(r#"{"noise_reduction":{"type":"magic"}}"#), "invalid_value", Some("session")),
    ] {
        let invalid = read(&text).expect_err(&text);
        assert_eq!((invalid.code, invalid.param), (code, param), "{text}: {invalid}");
        assert!(!invalid.message.contains('<'), "{invalid}");
    }
    let long =
        Request::read(&format!(r#"{{"type":"input_audio_buffer.clear","event_id":"{}"}}"#, "x".repeat(513)));
    assert_eq!(long.event_id, None);
}
