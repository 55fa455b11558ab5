//! The effect of parameters on words, over HTTP.

use std::collections::HashMap;

use serde_json::{Value, json};
use verbatim::api::parameters::{Effect, Kind, TABLE};

use crate::server::{RAW, Setup, TERMS, TestServer, alternative, answer, client, say, say_for, transcripts};

async fn server(says: &[(i16, &'static str)]) -> TestServer {
    let says = says.iter().copied().collect::<HashMap<_, _>>();
    TestServer::start(Setup { says, ..Setup::default() }).await
}

async fn ask(server: &TestServer, query: &str, number: i16) -> Value {
    let (status, body) = answer(server.listen(&format!("{RAW}&{query}"), say_for(number, 20.0))).await;
    assert_eq!(status, 200, "{query}: {body}");
    body
}

#[tokio::test]
async fn english_is_written_as_it_was_asked_for() {
    let server = server(&[
        (1, "Um, it's fifty five dollars comma due may second."),
        (2, "Call four four four eight one four nine nine one three. Shit happens."),
        (3, "two point five grams"),
        (4, "um acht Uhr zehn"),
    ])
    .await;
    for (query, number, written) in [
        ("", 1, "It's fifty five dollars comma due may second."),
        ("filler_words=true", 1, "Um, it's fifty five dollars comma due may second."),
        ("smart_format=true", 1, "It's $55 comma due may second."),
        ("smart_format=true&dictation=true", 1, "It's $55, due may second."),
        ("numerals=true", 1, "It's 55 dollars comma due may second."),
        ("punctuate=false", 1, "it's fifty five dollars comma due may second"),
        ("smart_format=true", 2, "Call (444) 814-9913. Shit happens."),
        (
            "profanity_filter=true&replace=happens:does",
            2,
            "Call four four four eight one four nine nine one three. **** does.",
        ),
        ("measurements=true", 3, "2.5 g"),
        ("smart_format=true&numerals=true&language=es", 4, "um acht Uhr zehn"),
    ] {
        assert_eq!(transcripts(&ask(&server, query, number).await), [written], "{query}");
    }
    let body = ask(&server, "smart_format=true", 2).await;
    let words = alternative(&body)["words"].as_array().unwrap();
    assert_eq!(
        words[1..3],
        [
            json!({"word": "(444)", "punctuated_word": "(444)", "start": 0.5, "end": 1.25, "confidence": 0.9}),
            json!({"word": "814-9913", "punctuated_word": "814-9913.", "start": 1.25, "end": 3.0, "confidence": 0.9}),
        ]
    );
    let spanish = ask(&server, "numerals=true&language=es", 4).await;
    assert_eq!(spanish["metadata"]["warnings"][0]["type"], "unsupported_language");
}

#[tokio::test]
async fn paragraphs_utterances_and_searches_are_told() {
    let server = server(&[(1, "Hello there. | How are you? I'm fine.")]).await;
    let body = ask(&server, "paragraphs=true&utterances=true&search=helo&search=zebra,quagga", 1).await;
    let paragraphs = &alternative(&body)["paragraphs"];
    assert_eq!(paragraphs["transcript"], "\nHello there. How are you? I'm fine.");
    assert_eq!(
        paragraphs["paragraphs"][0]["sentences"][1],
        json!({"text": "How are you?", "start": 2.0, "end": 2.75})
    );
    let utterances = body["results"]["utterances"].as_array().unwrap();
    let texts: Vec<_> = utterances.iter().map(|u| u["transcript"].as_str().unwrap()).collect();
    assert_eq!(texts, ["Hello there.", "How are you? I'm fine."]);
    assert_eq!(utterances[0]["words"][1]["punctuated_word"], "there.");
    let search = body["results"]["channels"][0]["search"].as_array().unwrap();
    assert_eq!(search.len(), 3);
    assert_eq!(
        (&search[0]["hits"][0]["snippet"], &search[0]["hits"][0]["start"]),
        (&json!("hello"), &json!(0.25))
    );
    assert_eq!(search[1], json!({"query": "zebra", "hits": []}));
    let whole = ask(&server, "utterances=true&utt_split=2.5", 1).await;
    assert_eq!(whole["results"]["utterances"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn terms_to_expect_reach_the_model() {
    let server = server(&[]).await;
    for (query, terms) in [
        ("keyterm=Snuffleupagus&keywords=systrom:2,krieger:-1", "Snuffleupagus:1 systrom:2 krieger:-1"),
        ("", ""),
    ] {
        assert_eq!(transcripts(&ask(&server, query, TERMS).await), [terms]);
    }
    let body = ask(&server, "keywords=oz:0", TERMS).await;
    assert_eq!(body["metadata"]["warnings"][0]["type"], "partly_used");
    let (status, body) = answer(server.listen(&format!("{RAW}&keyterm={}", "a+".repeat(501)), say(1))).await;
    assert_eq!((status, &body["err_code"]), (400, &json!("INVALID_QUERY_PARAMETER")));
    let (status, body) =
        answer(server.listen(&format!("{RAW}{}", "&keyterm=a+b+c".repeat(200)), say(1))).await;
    assert_eq!((status, &body["err_code"]), (400, &json!("Bad Request")));
    assert_eq!(
        body["err_msg"],
        "Keyterm limit exceeded. The maximum number of tokens across all keyterms is 500."
    );
}

async fn document(server: &TestServer) -> Value {
    let (status, document) = answer(client().get(server.url("/openapi.json"))).await;
    assert_eq!((status, &document["openapi"]), (200, &json!("3.1.0")));
    document
}

/// Operations in the document without a route, and routes without an operation.
#[tokio::test]
async fn every_route_is_described() {
    let server = server(&[]).await;
    let mut described = operations(document(&server).await["paths"].as_object().unwrap());
    let mut routes = server.routes.clone();
    described.sort();
    routes.sort();
    assert_eq!(described, routes);
}

/// Method and path of each.
pub fn operations(paths: &serde_json::Map<String, Value>) -> Vec<(String, String)> {
    let operations = |(path, item): (&String, &Value)| {
        let methods: Vec<_> = item.as_object().unwrap().keys().cloned().collect();
        methods.into_iter().map(move |method| (method, path.clone())).collect::<Vec<_>>()
    };
    paths.iter().flat_map(operations).collect()
}

/// Whether `value` has the form of `schema`: the documented members and no others.
pub fn conforms(document: &Value, schema: &Value, value: &Value) {
    if let Some(reference) = schema["$ref"].as_str() {
        let named = document.pointer(reference.trim_start_matches('#')).expect("a schema");
        return conforms(document, named, value);
    }
    match schema["type"].as_str().expect("a type") {
        "object" => {
            let members = value.as_object().unwrap_or_else(|| panic!("{value} is no object"));
            for name in schema["required"].as_array().into_iter().flatten() {
                assert!(members.contains_key(name.as_str().unwrap()), "{name} is missing in {value}");
            }
            for (name, member) in members {
                let schema = schema["properties"].get(name).or(schema.get("additionalProperties"));
                conforms(document, schema.unwrap_or_else(|| panic!("{name} is not described")), member);
            }
        }
        "array" => {
            value.as_array().unwrap().iter().for_each(|item| conforms(document, &schema["items"], item))
        }
        "string" => assert!(value.is_string(), "{value}"),
        "number" => assert!(value.is_number(), "{value}"),
        "integer" => assert!(value.is_u64(), "{value}"),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn answers_are_as_the_document_describes_them() {
    let server = server(&[(1, "Hello there. | It's fifty dollars.")]).await;
    let document = document(&server).await;
    let schema = json!({"$ref": "#/components/schemas/Response"});
    for query in [
        "",
        "detect_language=true&utterances=true&smart_format=true&search=hello&tag=a&extra=k:v&summarize=true",
        "language=multi&multichannel=true&paragraphs=true&model=nova-3",
    ] {
        conforms(&document, &schema, &ask(&server, query, 1).await);
    }
    let (_, failure) = answer(server.listen("punctuate=perhaps", say(1))).await;
    conforms(&document, &json!({"$ref": "#/components/schemas/Failure"}), &failure);
}

/// By the document alone: each parameter is honoured, warned of, or refused, as its description says.
#[tokio::test]
async fn every_described_parameter_is_answered() {
    let server = server(&[]).await;
    for row in TABLE.iter().filter(|row| !matches!(row.kind, Kind::Url | Kind::OneOf(_) | Kind::Count { .. }))
    {
        let value = match row.kind {
            Kind::Flag => "true",
            Kind::Seconds { .. } => "1",
            Kind::Languages { .. } => "en",
            _ if row.name == "language" => "en",
            Kind::Texts { .. } => "a:b",
            _ => "v2",
        };
        for name in std::iter::once(&row.name).chain(row.aliases) {
            let (status, body) = answer(server.listen(&format!("{RAW}&{name}={value}"), say(1))).await;
            let warned = body["metadata"]["warnings"].is_array();
            match row.effect {
                Effect::Honoured if *name == "model" => assert!(warned),
                // There are no speaker models here.
                Effect::Honoured if name.starts_with("diari") || *name == "identify_speakers" => {
                    assert_eq!(status, 400, "{name}: {body}");
                }
                Effect::Honoured => assert_eq!((status, warned), (200, false), "{name}: {body}"),
                Effect::Warned => assert_eq!((status, warned), (200, true), "{name}: {body}"),
                Effect::Refused => assert_eq!(status, 400, "{name}: {body}"),
            }
        }
    }
}
