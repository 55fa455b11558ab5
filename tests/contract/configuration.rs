//! Section 4.7: environment variables, their defaults and their effects.

use std::path::Path;

use serde_json::{Value, json};

use super::calls::{SESSION, actions, demo_before, voice_service};
use super::doors::{Program, bare};
use super::sessions::with_links;
use super::table::{Row, row};
use crate::checkpoint::Checkpoint;
use crate::server::{answer, client};
use crate::sts::doubles;

const HOOK: &str = "/api/hooks/voice-verify";

/// Whether the demo's hook, so configured, verifies.
async fn verifies(setting: (&str, &str), category: &str, utterance: &str) -> (u16, Value) {
    let service = voice_service().await;
    let demo = demo_before(&service, &[(setting.0, setting.1.to_owned())]).await;
    let body = json!({"session_id": SESSION, "utterance": utterance, "category": category});
    let (status, reply) = answer(demo.demo(HOOK, &body)).await;
    (status, reply["verified"].clone())
}

/// A voice-agent process with these variables, on a model that recognises nothing.
async fn voice_process(variables: &[(&str, String)]) -> Program {
    let model = tempfile::tempdir().expect("a folder");
    Checkpoint::random(1).write_hugging_face(model.path());
    let path = model.path().to_str().expect("text").to_owned();
    let mut settings = vec![
        ("VERBATIM_STS__TURN__END_OF_TURN", "silence".to_owned()),
        ("VERBATIM_STS__SPEECH__EMBEDDED", "none".to_owned()),
        ("VERBATIM_TRANSCRIBE__WINDOWS", "sequential".to_owned()),
    ];
    settings.extend_from_slice(variables);
    Program::start(
        &["serve", "--dev", "--listen", "127.0.0.1:0", "--threads", "1", "--model", &path],
        &settings,
    )
    .await
}

/// The snapshot after a caller of a secured session has said `digits`.
async fn after_digits(program: &Program, digits: &str) -> Value {
    let started = program.session(with_links()).await;
    let mut caller = program.joined(&started).await;
    caller.write("What are my test results?").await;
    caller.listen().await;
    caller.write(digits).await;
    caller.listen().await;
    program.status(&started["session_id"]).await
}

fn records(folder: &Path) -> String {
    let path = folder.join("records.json");
    std::fs::write(&path, r#"[{"digits": "1234"}]"#).expect("written");
    path.to_str().expect("text").to_owned()
}

pub fn rows() -> Vec<Row> {
    let mut rows = of_the_demo();
    rows.extend(of_the_hook());
    rows.extend(of_the_voice_service());
    rows
}

fn of_the_demo() -> Vec<Row> {
    vec![
        row("4.7", "STS_API_BASE_URL is http://localhost:8000 by default", async |doors| {
            assert_eq!(
                doors.defaults().await["demo"]["sts_base_url"].as_str(),
                Some("http://localhost:8000")
            );
        }),
        row(
            "4.7",
            "STS_API_BASE_URL is where the demo finds the voice service; a slash at its end does no harm",
            async |_| {
                let service = voice_service().await;
                let setting = [("STS_API_BASE_URL", format!("{}/", service.url))];
                let demo = demo_before(&service, &setting).await;
                let body = json!({"session_id": SESSION});
                assert_eq!(answer(demo.demo("/api/client/form-completed", &body)).await.0, 200);
                assert_eq!(actions(&service)[0]["action"], "completion");
            },
        ),
        row("4.7", "DEMO_API_KEY is a built-in demo value by default", async |_| {
            let service = voice_service().await;
            let demo = demo_before(&service, &[("DEMO_API_KEY", String::new())]).await;
            let url = format!("http://{}{HOOK}", demo.demo);
            let body = json!({"session_id": SESSION, "utterance": "", "category": "patient_information"});
            let with =
                |key: &str| client().post(&url).header("x-api-key", key.to_owned()).body(body.to_string());
            assert_eq!(answer(with("verbatim-demo-key")).await.0, 200);
            assert_eq!(answer(with("other")).await.0, 401);
        }),
        row("4.7 decided", "the built-in key is refused where others could reach the demo", async |_| {
            let state = tempfile::tempdir().expect("a folder");
            let mut command = bare(state.path());
            command
                .args(["demo", "--listen", "0.0.0.0:0"])
                .env("VERBATIM_DEMO__TWILIO_AUTH_TOKEN", "12345")
                .env("DEMO_FRONTEND_BASE_URL", "https://pages.example");
            let output = tokio::task::spawn_blocking(move || command.output()).await.expect("no panic");
            let output = output.expect("it runs");
            let error = String::from_utf8(output.stderr).expect("text");
            assert!(!output.status.success() && error.contains("DEMO_API_KEY"), "{error}");
        }),
        row("4.7 decided", "where others could reach it, the demo needs the provider's token", async |_| {
            let state = tempfile::tempdir().expect("a folder");
            let starts = async |arguments: &[&str], settings: &[(&str, &str)]| {
                let mut command = bare(state.path());
                command.args(arguments).envs(settings.iter().copied());
                command.env("DEMO_FRONTEND_BASE_URL", "https://pages.example");
                command.env("DEMO_API_KEY", super::doors::DEMO_KEY);
                let output = tokio::task::spawn_blocking(move || command.output()).await.expect("no panic");
                let output = output.expect("it runs");
                (output.status.code(), String::from_utf8(output.stderr).expect("text"))
            };
            let public = ["demo", "--listen", "0.0.0.0:0"];
            let behind_a_proxy = ["demo", "--listen", "127.0.0.1:0"];
            let named = [("VERBATIM_DEMO__PUBLIC_URL", "https://demo.example")];
            for (arguments, settings) in [(&public, &[][..]), (&behind_a_proxy, &named)] {
                let (code, error) = starts(arguments, settings).await;
                assert_eq!(code, Some(2), "{error}");
                assert!(error.contains("demo.twilio_auth_token") && error.contains("demo.listen"), "{error}");
            }
        }),
        row("4.7", "DEMO_FRONTEND_BASE_URL is http://localhost:3000 by default", async |doors| {
            assert_eq!(
                doors.defaults().await["demo"]["frontend_base_url"].as_str(),
                Some("http://localhost:3000")
            );
        }),
        row("4.7", "DEMO_WEBSITE_URL is a built-in site by default", async |doors| {
            let url = doors.defaults().await["demo"]["website_url"].as_str().expect("text").to_owned();
            assert!(url.starts_with("https://"), "{url}");
        }),
    ]
}

fn of_the_hook() -> Vec<Row> {
    const CATEGORIES: &str = "DEMO_VOICE_VERIFY_ALLOWED_CATEGORIES";
    const NEEDS_ID: &str = "DEMO_VOICE_VERIFY_REQUIRE_PATIENT_ID";
    vec![
        row("4.7", "DEMO_VOICE_VERIFY_ALLOWED_CATEGORIES is patient_information by default", async |doors| {
            let ask = async |category: &str| {
                let body =
                    json!({"session_id": "sess_aaaaaaaaaaaa", "utterance": "4567", "category": category});
                answer(doors.program.demo(HOOK, &body)).await
            };
            assert_eq!(ask("patient_information").await.1["verified"], true);
            let (status, reply) = ask("billing").await;
            assert_eq!((status, &reply["err_code"]), (403, &json!("CATEGORY_NOT_ALLOWED")));
        }),
        row("4.7", "DEMO_VOICE_VERIFY_ALLOWED_CATEGORIES is a list separated by commas", async |_| {
            let list = (CATEGORIES, "billing, patient_information");
            assert_eq!(verifies(list, "billing", "4567").await, (200, json!(true)));
            assert_eq!(verifies(list, "other", "4567").await.0, 403);
        }),
        row("4.7", "DEMO_VOICE_VERIFY_ALLOWED_CATEGORIES=* allows every category", async |_| {
            assert_eq!(verifies((CATEGORIES, "*"), "anything", "4567").await, (200, json!(true)));
        }),
        row("4.7", "DEMO_VOICE_VERIFY_REQUIRE_PATIENT_ID is false by default", async |doors| {
            assert_eq!(
                doors.defaults().await["demo"]["voice_verify_require_patient_id"].as_bool(),
                Some(false)
            );
        }),
        row(
            "4.7",
            "DEMO_VOICE_VERIFY_REQUIRE_PATIENT_ID=true needs the patient id beside the four digits",
            async |_| {
                let setting = (NEEDS_ID, "true");
                let alone = verifies(setting, "patient_information", "4567").await;
                let both = verifies(setting, "patient_information", "P-1001, four five six seven").await;
                assert_eq!((alone, both), ((200, json!(false)), (200, json!(true))));
            },
        ),
    ]
}

fn of_the_voice_service() -> Vec<Row> {
    vec![
        row("4.7", "INTERACTIVE_VOICE_VERIFY_HOOK_URL and its key are unset by default", async |doors| {
            let defaults = doors.defaults().await;
            let verification = &defaults["sts"]["verification"];
            for name in ["hook_url", "hook_api_key"] {
                assert!(
                    verification.get(name).is_none_or(|value| value.as_str() == Some("")),
                    "{verification}"
                );
            }
        }),
        row(
            "4.7",
            "INTERACTIVE_VOICE_VERIFY_HOOK_URL and _API_KEY say whom the voice service asks, and with which key",
            async |_| {
                let hook = doubles::hook().await;
                let program = voice_process(&[
                    ("INTERACTIVE_VOICE_VERIFY_HOOK_URL", format!("{}/hook", hook.url)),
                    ("INTERACTIVE_VOICE_VERIFY_HOOK_API_KEY", "from-the-environment".to_owned()),
                ])
                .await;
                let status = after_digits(&program, "1234").await;
                assert_eq!(
                    status["verification"]["patient_information"]["source"], "hook",
                    "{}",
                    status["verification"]
                );
                assert_eq!(hook.header("x-api-key").as_deref(), Some("from-the-environment"));
            },
        ),
        row(
            "4.6",
            "INTERACTIVE_VOICE_VERIFY_DISABLE_INLINE switches the matcher in the process off",
            async |_| {
                let folder = tempfile::tempdir().expect("a folder");
                let records = ("VERBATIM_STS__VERIFICATION__RECORDS", records(folder.path()));
                let disabled = ("INTERACTIVE_VOICE_VERIFY_DISABLE_INLINE", "true".to_owned());
                let is_verified =
                    |status: &Value| status["verification"]["patient_information"]["verified"] == true;
                let status = after_digits(&voice_process(std::slice::from_ref(&records)).await, "1234").await;
                assert!(is_verified(&status), "{}", status["verification"]);
                let status = after_digits(&voice_process(&[records, disabled]).await, "1234").await;
                assert!(!is_verified(&status), "{}", status["verification"]);
            },
        ),
        row(
            "4.7",
            "INTERACTIVE_VOICE_VERIFY_HOOK_API_KEY must equal DEMO_API_KEY: the hook refuses another",
            async |doors| {
                let program = voice_process(&[
                    ("INTERACTIVE_VOICE_VERIFY_HOOK_URL", format!("http://{}{HOOK}", doors.program.demo)),
                    ("INTERACTIVE_VOICE_VERIFY_HOOK_API_KEY", "another".to_owned()),
                ])
                .await;
                let verification = after_digits(&program, "4567").await["verification"].clone();
                assert_ne!(verification["patient_information"]["verified"], true, "{verification}");
            },
        ),
    ]
}
