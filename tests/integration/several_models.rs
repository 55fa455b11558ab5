//! Several models in one server, through the built program: chosen by name, loaded and unloaded, refused where memory is
//! short, and kept by jobs over a kill.

use std::ffi::OsStr;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::commands::{home, run, verbatim};
use crate::program::Program;
use crate::receiver::{Receiver, callback_parameter};
use crate::server::{answer, client, new_key, transcripts};
use crate::socket::{Said, connect, listen};
use crate::speech::cache;

/// Generous, for a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
const CLIP: &str = "speech/austen_0880.wav";

fn clip() -> Vec<u8> {
    std::fs::read(cache(CLIP)).expect("readable")
}

/// A server of `base` and of the models in `serve`, with more settings.
async fn serving(state: &Path, serve: &str, settings: &[(&str, &str)]) -> Program {
    let models = cache("models");
    let own = [
        ("VERBATIM_MODEL_DIR", models.to_str().expect("text")),
        ("VERBATIM_MODELS__SERVE", serve),
        // Nothing listens on port 1.
        ("VERBATIM_MODELS__HUB__ADDRESS", "http://127.0.0.1:1"),
        ("VERBATIM_ENGINE__MAX_WAIT_SECONDS", "120"),
        ("VERBATIM_ENGINE__STALL_SECONDS", "120"),
    ];
    let settings: Vec<_> = own.iter().chain(settings).copied().collect();
    Program::serve(state, &["--model", "base"].map(OsStr::new), &settings).await
}

fn request(program: &Program, key: &str, query: &str) -> reqwest::RequestBuilder {
    client().post(program.url(&format!("/v1/listen?{query}"))).bearer_auth(key).body(clip())
}

/// The names of the model in `metadata`, of which there is one.
fn model_of(metadata: &Value) -> &str {
    let models = metadata["models"].as_array().expect("a list");
    assert_eq!(models.len(), 1, "{metadata}");
    metadata["model_info"][models[0].as_str().expect("text")]["name"].as_str().expect("a name")
}

fn warns_of_model(metadata: &Value) -> bool {
    let warnings = metadata["warnings"].as_array().cloned().unwrap_or_default();
    warnings.iter().any(|warning| warning["parameter"] == "model")
}

/// What `/v1/status` says of each model: its name and state.
async fn states(program: &Program) -> Vec<(String, String)> {
    let (status, body) = answer(client().get(program.url("/v1/status"))).await;
    assert_eq!(status, 200, "{body}");
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let models = body["models"].as_array().expect("a list");
    models.iter().map(|model| (text(&model["name"]), text(&model["state"]))).collect()
}

async fn state_of(program: &Program, name: &str) -> String {
    let states = states(program).await;
    states.into_iter().find(|(model, _)| model == name).expect("it is served").1
}

/// Asks until the model is in `state`.
async fn until(program: &Program, name: &str, state: &str) {
    let begun = Instant::now();
    while state_of(program, name).await != state {
        assert!(begun.elapsed() < PATIENCE, "{name} is not {state}: {}", program.log());
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn requests_choose_among_models_by_name() {
    let state = TempDir::new().unwrap();
    let key = &new_key(state.path());
    std::fs::create_dir(state.path().join("verbatim")).unwrap();
    let file = "[models.names]\nwhisper-1 = \"tiny.en\"\n\"gpt-4.1\" = \"base\"\n";
    std::fs::write(state.path().join("verbatim/verbatim.toml"), file).unwrap();
    let program = serving(state.path(), "tiny.en", &[]).await;

    let mut heard = Vec::new();
    for (query, model, warns) in [
        ("language=en", "base", false),
        ("model=base&language=en-GB", "base", false),
        ("model=gpt-4.1&language=es", "base", false),
        ("model=nova-3&language=en", "base", true),
        ("model=tiny.en", "tiny.en", false),
        ("model=whisper-tiny&language=en", "tiny.en", false),
        ("model=whisper-1&detect_language=true", "tiny.en", false),
    ] {
        let response = request(&program, key, query).send().await.expect("an answer");
        assert_eq!(response.status(), 200, "{query}");
        assert_eq!(response.headers()["dg-model-name"], model, "{query}");
        let uuid = response.headers()["dg-model-uuid"].to_str().expect("text").to_owned();
        let body: Value = serde_json::from_slice(&response.bytes().await.expect("a body")).expect("JSON");
        let metadata = &body["metadata"];
        assert_eq!((model_of(metadata), warns_of_model(metadata)), (model, warns), "{query}");
        assert_eq!(metadata["models"][0], uuid);
        heard.push((model, transcripts(&body)[0].to_owned()));
        let again =
            request(&program, key, &format!("model={uuid}&language=en")).send().await.expect("an answer");
        assert_eq!(again.headers()["dg-model-name"], model, "by its id");
    }
    assert_ne!(heard[0].1, heard[4].1, "two models write the same");

    // Languages are those of the chosen model.
    let (status, body) = answer(request(&program, key, "model=tiny.en&language=es")).await;
    assert_eq!((status, body["err_code"].as_str()), (400, Some("Bad Request")), "{body}");

    // A stream.
    let query = "model=whisper-1&interim_results=true";
    let mut socket = listen(program.address, key, query).await.socket.expect("a socket");
    socket.audio(&clip()).await;
    socket.control("CloseStream").await;
    let (messages, end) = socket.rest().await;
    assert_eq!(end, Said::Close(1000, String::new()));
    let results: Vec<_> = messages.iter().filter(|message| message["type"] == "Results").collect();
    assert!(!results.is_empty());
    assert!(
        results.iter().all(|result| result["metadata"]["model_info"]["name"] == "tiny.en"),
        "{results:?}"
    );
    let last = messages.last().expect("metadata");
    assert_eq!(last["type"], "Metadata");
    assert_eq!(model_of(last), "tiny.en");
    assert_eq!(listen(program.address, key, "model=tiny.en&language=es").await.status, 400);

    assert_eq!(states(&program).await, [("base", "loaded"), ("tiny.en", "loaded")].map(owned));
    program.stop().await;
}

fn owned((one, two): (&str, &str)) -> (String, String) {
    (one.to_owned(), two.to_owned())
}

#[tokio::test]
async fn two_organisations_are_served_by_two_models_at_once_as_by_each_alone() {
    let state = TempDir::new().unwrap();
    let keys = [new_key(state.path()), new_key(state.path())];
    let program = serving(state.path(), "tiny.en", &[]).await;
    let ask = async |key: &str, model: &str| {
        let (status, body) = answer(request(&program, key, &format!("model={model}&language=en"))).await;
        assert_eq!(status, 200, "{body}");
        assert_eq!(model_of(&body["metadata"]), model);
        transcripts(&body)[0].to_owned()
    };
    let alone = [ask(&keys[0], "base").await, ask(&keys[1], "tiny.en").await];
    let both = async |_| {
        tokio::join!(
            ask(&keys[0], "base"),
            ask(&keys[1], "tiny.en"),
            ask(&keys[0], "tiny.en"),
            ask(&keys[1], "base")
        )
    };
    for (one, two, three, four) in futures_util::future::join_all((0..3).map(both)).await {
        assert_eq!([&one, &two, &three, &four], [&alone[0], &alone[1], &alone[1], &alone[0]]);
    }
    program.stop().await;
}

#[tokio::test]
async fn a_model_is_loaded_on_first_use_unloaded_when_idle_and_loaded_again() {
    let state = TempDir::new().unwrap();
    let key = &new_key(state.path());
    let settings = [("VERBATIM_MODELS__LOAD", "first_use"), ("VERBATIM_MODELS__IDLE_SECONDS", "1")];
    let program = serving(state.path(), "tiny.en", &settings).await;
    assert_eq!(state_of(&program, "tiny.en").await, "unloaded");
    // Its files tell what it knows, without its weights.
    let models = client().get(program.url("/v1/models")).header("authorization", format!("Token {key}"));
    let (_, models) = answer(models.header("user-agent", "@deepgram/sdk/5")).await;
    let languages = |place: usize| models["stt"][place]["languages"].as_array().map(Vec::len);
    assert_eq!(
        (&models["stt"][1]["name"], &models["stt"][1]["languages"]),
        (&json!("tiny.en"), &json!(["en"]))
    );
    assert!(languages(0) > Some(90), "{models}");
    assert_eq!(state_of(&program, "tiny.en").await, "unloaded");

    // A stream keeps its model, however long it lasts.
    let mut socket = listen(program.address, key, "model=tiny.en").await.socket.expect("a socket");
    assert_eq!(state_of(&program, "tiny.en").await, "loaded");
    let opened = Instant::now();
    while opened.elapsed() < Duration::from_secs(3) {
        socket.control("KeepAlive").await;
        assert_eq!(state_of(&program, "tiny.en").await, "loaded");
    }
    socket.control("CloseStream").await;
    socket.rest().await;
    until(&program, "tiny.en", "unloaded").await;

    for _ in 0..2 {
        let (status, body) = answer(request(&program, key, "model=tiny.en")).await;
        assert_eq!(status, 200, "{body}");
        assert_eq!(model_of(&body["metadata"]), "tiny.en");
        until(&program, "tiny.en", "unloaded").await;
    }
    assert_eq!(state_of(&program, "base").await, "loaded");

    let url = program.url("/");
    let listed = run(&mut verbatim(&home(), &["models", "loaded", "--url", &url]));
    let (code, lines, _) = &listed;
    let lines: Vec<Vec<&str>> = lines.lines().map(|line| line.split_whitespace().collect()).collect();
    let expected = [vec!["base", "loaded", "default"], vec!["tiny.en", "unloaded"]];
    assert_eq!((*code, lines), (Some(0), expected.to_vec()), "{listed:?}");

    let (_, operator) = verbatim::keys::Store::open(state.path())
        .and_then(|store| store.create_operator("operator"))
        .expect("a key");
    let lines = [
        "stt_model_loaded{model=\"base\"} 1",
        "stt_model_loaded{model=\"tiny.en\"} 0",
        "stt_model_loads_total{model=\"tiny.en\",outcome=\"loaded\"} 3",
        "stt_model_unloads_total{model=\"tiny.en\",reason=\"idle\"} 3",
    ];
    let begun = Instant::now();
    loop {
        let metrics = client().get(program.url("/metrics")).bearer_auth(operator.expose()).send().await;
        let metrics = metrics.expect("an answer").text().await.expect("text");
        let is_there = |line: &&str| metrics.lines().any(|found| found == *line);
        match lines.iter().find(|line| !is_there(line)) {
            None => break,
            // The last unloading is counted once its memory is free.
            Some(line) => assert!(begun.elapsed() < PATIENCE, "{line}: {metrics}"),
        }
    }
    program.stop().await;
}

#[tokio::test]
async fn a_broken_model_is_named_and_the_others_work() {
    let (state, folders) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let key = &new_key(state.path());
    let broken = folders.path().join("broken");
    std::fs::create_dir(&broken).unwrap();
    std::fs::write(broken.join("model.bin"), b"no weights").unwrap();
    let serve = format!("tiny.en,{}", broken.display());
    let program = serving(state.path(), &serve, &[]).await;
    until(&program, "broken", "failed").await;
    let response = request(&program, key, "model=broken").send().await.expect("an answer");
    assert_eq!(response.status(), 503);
    let retry_after: u64 = response.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=60).contains(&retry_after), "{retry_after}");
    let body: Value = serde_json::from_slice(&response.bytes().await.unwrap()).expect("JSON");
    assert_eq!(body["err_code"], "MODEL_FAILED");
    let message = body["err_msg"].as_str().expect("text");
    assert!(message.contains("`broken`") && !message.contains(broken.to_str().unwrap()), "{message}");
    assert_eq!(listen(program.address, key, "model=broken").await.status, 503);
    for model in ["base", "tiny.en"] {
        let (status, body) = answer(request(&program, key, &format!("model={model}&language=en"))).await;
        assert_eq!((status, model_of(&body["metadata"])), (200, model));
    }
    assert_eq!(answer(client().get(program.url("/readyz"))).await.0, 200);
    program.stop().await;
}

#[test]
fn models_that_make_no_sense_are_refused_at_the_start() {
    let home = home();
    let models = cache("models");
    for (serve, words) in [
        ("tiny.en,no-such-model", "no-such-model"),
        ("/a/twin,/b/twin", "models.serve"),
        ("a,b,c,d,e,f,g,h,i", "models.serve"),
    ] {
        let mut command = verbatim(&home, &["serve", "--listen", "127.0.0.1:0"]);
        command.env("VERBATIM_MODEL_DIR", &models).env("VERBATIM_MODELS__SERVE", serve);
        let (code, _, error) = run(&mut command);
        assert_eq!(code, Some(2), "{error}");
        assert!(error.contains(words), "{error}");
    }
    let file = home.path().join("names.toml");
    std::fs::write(&file, "[models.names]\nwhisper-1 = \"medium\"\n").expect("writable");
    let (code, _, error) = run(&mut verbatim(&home, &["config", "--config", file.to_str().expect("text")]));
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("models.names"), "{error}");
    // What is printed says the same.
    std::fs::write(&file, "[models.names]\n\"gpt-4.1\" = \"base\"\n").expect("writable");
    let (code, printed, error) =
        run(&mut verbatim(&home, &["config", "--config", file.to_str().expect("text")]));
    assert_eq!(code, Some(0), "{error}");
    let table: toml::Table = printed.parse().expect("TOML");
    assert_eq!(table["models"]["names"]["gpt-4.1"].as_str(), Some("base"));
}

/// The numbers of MiB in the refusal of a server that would need too much memory: available, and for the models.
async fn memory() -> (u64, u64) {
    let (state, models) = (TempDir::new().unwrap(), cache("models"));
    let refused = tokio::task::spawn_blocking(move || {
        let mut command = verbatim(&state, &["serve", "--listen", "127.0.0.1:0", "--model", "base"]);
        command.env("VERBATIM_MODEL_DIR", models).env("VERBATIM_ENGINE__MAX_HELD_SECONDS", "1000000000");
        run(&mut command)
    });
    let (code, _, error) = refused.await.expect("no panic");
    assert_eq!(code, Some(1), "{error}");
    let numbers: Vec<u64> = error
        .split(|character: char| !character.is_ascii_digit())
        .filter_map(|digits| digits.parse().ok())
        .collect();
    // Needed, available, weights, slots, audio, program.
    let [.., available, weights, slots, _, _] = numbers[..] else { panic!("{error}") };
    (available, weights + slots)
}

/// Seconds of audio to be held, so that so many MiB are left to models.
fn held_seconds(available: u64, for_models: u64) -> String {
    const PROGRAM: u64 = 384;
    const SECOND_BYTES: u64 = 16_000 * 6;
    ((available - PROGRAM - for_models) * (1 << 20) / SECOND_BYTES).to_string()
}

#[tokio::test]
async fn a_model_without_memory_is_refused_and_an_idle_one_makes_room() {
    let (state, folders) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let key = &new_key(state.path());
    let (available, base) = memory().await;
    let twin = folders.path().join("twin");
    std::os::unix::fs::symlink(cache("models/tiny.en"), &twin).unwrap();
    let serve = format!("tiny.en,{}", twin.display());
    let first_use = ("VERBATIM_MODELS__LOAD", "first_use");

    // `tiny.en` needs 75 MiB at least.
    let held = held_seconds(available, base + 40);
    let settings = [first_use, ("VERBATIM_ENGINE__MAX_HELD_SECONDS", held.as_str())];
    let program = serving(state.path(), &serve, &settings).await;
    let (status, body) = answer(request(&program, key, "model=tiny.en")).await;
    assert_eq!((status, body["err_code"].as_str()), (400, Some("MODEL_TOO_LARGE")), "{body}");
    let (status, body) = answer(request(&program, key, "model=base&language=en")).await;
    assert_eq!((status, model_of(&body["metadata"])), (200, "base"));
    program.stop().await;

    // A second one of its kind does not fit beside it: it needs less than `base`, and more than half of that.
    let held = held_seconds(available, base + base * 4 / 5);
    let settings = [first_use, ("VERBATIM_ENGINE__MAX_HELD_SECONDS", held.as_str())];
    let program = serving(state.path(), &serve, &settings).await;
    let mut socket = listen(program.address, key, "model=tiny.en").await.socket.expect("a socket");
    let response = request(&program, key, "model=twin").send().await.expect("an answer");
    assert_eq!(response.status(), 503);
    assert_eq!(response.headers()["retry-after"], "5");
    let body: Value = serde_json::from_slice(&response.bytes().await.unwrap()).expect("JSON");
    assert_eq!(body["err_code"], "MODEL_NO_MEMORY");
    socket.control("CloseStream").await;
    socket.rest().await;
    // Once the other is idle, it makes room.
    let begun = Instant::now();
    let body = loop {
        let (status, body) = answer(request(&program, key, "model=twin")).await;
        if status == 200 {
            break body;
        }
        assert_eq!((status, body["err_code"].as_str()), (503, Some("MODEL_NO_MEMORY")), "{body}");
        assert!(begun.elapsed() < PATIENCE, "{}", program.log());
    };
    assert_eq!(model_of(&body["metadata"]), "twin");
    assert_eq!(state_of(&program, "tiny.en").await, "unloaded");
    program.stop().await;
}

#[tokio::test]
async fn a_realtime_session_that_changes_its_model_holds_one_place() {
    let state = TempDir::new().unwrap();
    let authorization = format!("Bearer {}", new_key(state.path()));
    let program = serving(state.path(), "tiny.en", &[("VERBATIM_LIVE__MAX_STREAMS", "2")]).await;
    let open = async |model: &str| {
        let path = format!("/v1/realtime?intent=transcription&model={model}");
        connect(program.address, &path, &[("authorization", &authorization)]).await
    };
    let mut first = open("tiny.en").await.socket.expect("a socket");
    let mut second = open("base").await.socket.expect("a socket");
    assert_eq!(second.message().await["type"], "session.created");
    let input = json!({"transcription": {"model": "tiny.en"}});
    let update =
        json!({"type": "session.update", "session": {"type": "transcription", "audio": {"input": input}}});
    second.text(&update.to_string()).await;
    let updated = second.message().await;
    assert_eq!(updated["type"], "session.updated", "{updated}");
    assert!(matches!(open("base").await.status, 429 | 503));
    first.frame(0x88, &1000_u16.to_be_bytes()).await;
    first.rest().await;
    let begun = Instant::now();
    while open("base").await.socket.is_none() {
        assert!(begun.elapsed() < PATIENCE, "its place is free once it has ended");
    }
    program.stop().await;
}

#[tokio::test]
async fn jobs_keep_their_model_over_a_kill() {
    let state = TempDir::new().unwrap();
    let key = &new_key(state.path());
    let mut receiver = Receiver::start(&[]).await;
    let allowed = receiver.allowed();
    let fetch = ("VERBATIM_FETCH_ALLOW", allowed.as_str());
    let callback = callback_parameter(&format!("http://127.0.0.1:{}/", receiver.port));
    let submit = async |program: &Program, model: &str| {
        let (status, body) = answer(request(program, key, &format!("{model}{callback}"))).await;
        assert_eq!(status, 200, "{body}");
        body["request_id"].as_str().expect("an id").to_owned()
    };
    // The model of each job, by its id, and whether there was a warning.
    let mut delivered = async |ids: &[String]| {
        let mut models = vec![None; ids.len()];
        while models.iter().any(Option::is_none) {
            let received = receiver.next().await;
            let body = received.json();
            let place = ids.iter().position(|id| *id == received.headers["webhook-id"]);
            let Some(place) = place else { continue };
            models[place] = Some((model_of(&body["metadata"]).to_owned(), warns_of_model(&body["metadata"])));
        }
        models.into_iter().flatten().collect::<Vec<_>>()
    };
    let program = serving(state.path(), "tiny.en", &[fetch]).await;
    let mut ids = Vec::new();
    for model in ["model=tiny.en&", "model=nova-3&language=en&", "language=en&", "model=whisper-tiny&"] {
        ids.push(submit(&program, model).await);
    }
    program.kill();
    let program = serving(state.path(), "tiny.en", &[fetch]).await;
    let expected = [("tiny.en", false), ("base", true), ("base", false), ("tiny.en", false)];
    assert_eq!(delivered(&ids).await, expected.map(|(model, warns)| (model.to_owned(), warns)));

    // A model that is no longer served gives way to the default, which the client is warned of.
    let program = {
        program.kill();
        serving(state.path(), "tiny.en", &[fetch, ("VERBATIM_JOBS__CONCURRENCY", "1")]).await
    };
    for _ in 0..5 {
        submit(&program, "model=base&language=en&").await;
    }
    // It has not begun when the program dies.
    let id = submit(&program, "model=tiny.en&").await;
    program.kill();
    let program = serving(state.path(), "", &[fetch]).await;
    assert_eq!(delivered(&[id]).await, [("base".to_owned(), true)]);
    program.stop().await;
}
