//! Sections 4.2 and 4.3: the actions of the interactive agent, and the web session.

use serde_json::{Value, json};

use super::doors::Doors;
use super::sessions::{asked, joined, step, with_links};
use super::table::{Row, row};
use crate::server::{answer, client, refusal};
use crate::sts::doubles;
use crate::sts::room::Caller;
use crate::sts::service::{Service, Setup};

const WEB_SESSION: &str = "/api/livekit/sts";

/// The status of a session that is started with `fields`.
async fn started_with(doors: &Doors, fields: Value) -> Value {
    let started = doors.program.session(fields).await;
    doors.program.status(&started["session_id"]).await
}

/// Fails unless `start` refuses `value` as `field`, by name.
async fn refuses(doors: &Doors, field: &str, value: Value) {
    let body = json!({"action": "start", field: value});
    let (status, reply) = answer(doors.program.action(&body)).await;
    assert_eq!((status, &reply["err_code"]), (400, &json!("INVALID_FIELD")), "{body}");
    assert!(reply["err_msg"].as_str().is_some_and(|text| text.contains(field)), "{reply}");
}

/// Fails unless the action is refused without each of these fields.
async fn needs(doors: &Doors, mut action: Value, fields: &[&str]) {
    let started = doors.program.session(json!({})).await;
    action["session_id"] = started["session_id"].clone();
    for field in fields {
        let mut body = action.clone();
        body.as_object_mut().expect("an object").remove(*field);
        assert_eq!(
            refusal(doors.program.action(&body)).await,
            (400, "INVALID_FIELD".into()),
            "without {field}"
        );
    }
    assert_eq!(answer(doors.program.action(&action)).await.0, 200, "{action}");
}

pub fn rows() -> Vec<Row> {
    let mut rows = requests();
    rows.extend(start_fields());
    rows.extend(actions());
    rows.extend(web_session());
    rows
}

fn requests() -> Vec<Row> {
    vec![
        row("4.2", "requests are JSON, with Content-Type: application/json", async |doors| {
            let url = doors.program.url("/STS/interactiveAgent");
            let request = client().post(url).body(r#"{"action": "start"}"#);
            assert_eq!(refusal(request).await, (415, "UNSUPPORTED_MEDIA_TYPE".into()));
        }),
        row("4.2", "the body always contains action", async |doors| {
            for body in [json!({}), json!({"action": null}), json!({"action": 3}), json!([])] {
                let refused = refusal(doors.program.action(&body)).await;
                assert_eq!(refused, (400, "INVALID_FIELD".into()), "{body}");
            }
        }),
        row(
            "4.2 decided",
            "an action that is none is refused with the list of those that are",
            async |doors| {
                let (status, reply) = answer(doors.program.action(&json!({"action": "dance"}))).await;
                assert_eq!((status, &reply["err_code"]), (400, &json!("UNKNOWN_ACTION")));
                let message = reply["err_msg"].as_str().expect("text");
                for action in ["start", "status", "bind_caller", "page_context", "verification", "completion"]
                {
                    assert!(message.contains(action), "{message}");
                }
            },
        ),
        row("4.2 decided", "every reply says `ok` and names its session", async |doors| {
            let started = doors.program.session(json!({})).await;
            assert_eq!(started["ok"], true);
            for (action, fields) in [
                ("status", json!({})),
                ("bind_caller", json!({"caller_number": "+14155552671"})),
                ("page_context", json!({"page_context": {}})),
                ("verification", json!({"category": "c", "verified": true})),
                ("completion", json!({})),
            ] {
                let reply = step(doors, &started, action, fields).await;
                assert_eq!(
                    (&reply["ok"], &reply["session_id"]),
                    (&json!(true), &started["session_id"]),
                    "{action}"
                );
            }
        }),
    ]
}

fn start_fields() -> Vec<Row> {
    vec![
        row("4.2", "start needs no field but action", async |doors| {
            assert_eq!(answer(doors.program.action(&json!({"action": "start"}))).await.0, 200);
        }),
        row("4.2", "start returns session_id, room_name and for web websocket_url", async |doors| {
            let started = doors.program.session(json!({"channel": "web"})).await;
            for field in ["session_id", "room_name", "websocket_url"] {
                assert!(started[field].is_string(), "{field}: {started}");
            }
        }),
        row("4.2", "instructions are a text that the agent goes by", async |doors| {
            let start = json!({"instructions": "Our dentist is called Doctor Lee."});
            let said = asked(doors, start, "What is the dentist called?").await;
            assert!(said.contains("Doctor Lee"), "{said}");
            refuses(doors, "instructions", json!({})).await;
        }),
        row("4.2", "greeting is a text that the agent opens with", async |doors| {
            let started = doors.program.session(json!({"greeting": "Good morning from Acme."})).await;
            let mut caller = Caller::join_at(doors.program.address, &started).await;
            assert_eq!(caller.listen().await, "Good morning from Acme.");
            refuses(doors, "greeting", json!(["hi"])).await;
        }),
        row("4.2", "documents are an array", async |doors| {
            refuses(doors, "documents", json!({"title": "x"})).await;
            let documents = json!([{"title": "a", "type": "text", "content": "b"}]);
            assert_eq!(started_with(doors, json!({"documents": documents})).await["ok"], true);
        }),
        row("4.2", "rag_doc_ids name documents that lie ready", async |doors| {
            let folder = doors.program.state.path().join("documents/0");
            std::fs::create_dir_all(&folder).expect("writable");
            std::fs::write(folder.join("lift.txt"), "The lift is behind the reception.").expect("writable");
            let said = asked(doors, json!({"rag_doc_ids": ["lift"]}), "Where is the lift?").await;
            assert_eq!(said, "The lift is behind the reception.");
        }),
        row(
            "4.2",
            "rag_max_chunks_per_doc bounds the passages of a document that an answer uses",
            async |doors| {
                let folder = doors.program.state.path().join("documents/0");
                std::fs::create_dir_all(&folder).expect("writable");
                std::fs::write(folder.join("safe.txt"), "The safe is behind the painting.")
                    .expect("writable");
                let start = json!({"rag_doc_ids": ["safe"], "rag_max_chunks_per_doc": 0});
                let said = asked(doors, start, "Where is the safe?").await;
                assert!(said.contains("don't have that information"), "{said}");
                refuses(doors, "rag_max_chunks_per_doc", json!(-1)).await;
            },
        ),
        row(
            "4.2",
            "website_url is crawled, and its pages are merged into what the agent knows",
            async |doors| {
                let start = json!({"website_url": doors.website});
                let said = asked(doors, start, "Are you open on Saturday?").await;
                assert_eq!(said, "We are open on Saturday from ten to two.");
            },
        ),
        row("4.2", "website_url is normalized before it is crawled", async |doors| {
            let untidy = format!("  {}/./#top ", doors.website.replace("http://", "HTTP://"));
            let started = doors.program.session(json!({"website_url": untidy})).await;
            let status = doors.program.ready(&started["session_id"]).await;
            assert_eq!(status["knowledge"]["website"]["status"], "ready", "{}", status["knowledge"]);
            assert_eq!(status["knowledge"]["website"]["pages"], 2);
        }),
        row("4.2 decided", "a website at an inner address is not read", async |doors| {
            let started = doors.program.session(json!({"website_url": "http://10.0.0.1/"})).await;
            let status = doors.program.ready(&started["session_id"]).await;
            assert_eq!(status["knowledge"]["website"]["status"], "failed", "{}", status["knowledge"]);
        }),
        row("4.2", "link_catalog is taken, and the agent can send its links", async |doors| {
            refuses(doors, "link_catalog", json!("x")).await;
            let provider = doubles::provider().await;
            let mut setup = Setup::default();
            doubles::send_by(&provider.url, &mut setup);
            let service = Service::start(setup).await;
            let catalog = json!({"forms": {"url": "https://front.example/f", "title": "the form", "keywords": ["form"]}});
            let start =
                json!({"link_catalog": catalog, "caller_number": "+14155552671", "sms_enabled": true});
            let (id, start) = service.session(start).await;
            let mut caller = Caller::greeted(&service, &start).await;
            caller.write("Please send me the form.").await;
            caller.listen().await;
            service.until(&id, |status| status["sms"]["sent"][0]["status"] == "sent").await;
            assert!(provider.bodies()[0].contains("front.example%2Ff"), "{:?}", provider.bodies());
        }),
        row("4.2", "verification_rules are taken: their questions are secured", async |doors| {
            let started = doors.program.session(with_links()).await;
            let mut caller = joined(doors, &started).await;
            caller.write("What are my test results?").await;
            caller.listen().await;
            let status = doors.program.status(&started["session_id"]).await;
            assert_eq!(status["pending_verification"], "patient_information");
            refuses(doors, "verification_rules", json!(5)).await;
        }),
        row("4.2", "caller_number is a number of E.164", async |doors| {
            let status = started_with(doors, json!({"caller_number": "+14155552671"})).await;
            assert_eq!(status["caller_number"], "+14155552671");
            for number in ["12", "4155552671", "anonymous", "+0415555267"] {
                refuses(doors, "caller_number", json!(number)).await;
            }
        }),
        row("4.2", "channel is web or phone", async |doors| {
            for channel in ["web", "phone"] {
                assert_eq!(started_with(doors, json!({"channel": channel})).await["channel"], channel);
            }
            refuses(doors, "channel", json!("fax")).await;
        }),
        row("4.2 decided", "channel is web where it is not given", async |doors| {
            assert_eq!(started_with(doors, json!({})).await["channel"], "web");
        }),
        row("4.2", "sms_enabled is a boolean that switches text messages", async |doors| {
            for enabled in [true, false] {
                let status = started_with(doors, json!({"sms_enabled": enabled})).await;
                assert_eq!(status["sms"]["enabled"], enabled);
            }
            refuses(doors, "sms_enabled", json!("maybe")).await;
        }),
        row("4.2", "page_guidance_enabled lets the agent speak of the page by itself", async |doors| {
            let started = doors.program.session(json!({"page_guidance_enabled": true})).await;
            let mut caller = joined(doors, &started).await;
            let page =
                json!({"page": "signup", "step": 2, "sections": [{"name": "address", "complete": false}]});
            step(doors, &started, "page_context", json!({"page_context": page})).await;
            assert_eq!(
                caller.listen().await,
                "You are at step 2 of signup. What is still missing is address."
            );
        }),
        row("4.2", "integration_id comes back in the status", async |doors| {
            let status = started_with(doors, json!({"integration_id": "i-1"})).await;
            assert_eq!(status["integration_id"], "i-1");
        }),
        row("4.2", "client_reference_id comes back in the status", async |doors| {
            let status = started_with(doors, json!({"client_reference_id": "c-1"})).await;
            assert_eq!(status["client_reference_id"], "c-1");
        }),
        row("4.2", "tenant_id comes back in the status", async |doors| {
            assert_eq!(started_with(doors, json!({"tenant_id": "t-1"})).await["tenant_id"], "t-1");
        }),
        row(
            "4.2 decided",
            "an unknown field of start is warned of by name, and does no harm",
            async |doors| {
                let started = doors.program.session(json!({"greting": "Hello."})).await;
                assert!(started["warnings"].to_string().contains("greting"), "{started}");
            },
        ),
    ]
}

fn actions() -> Vec<Row> {
    vec![
        row("4.2", "status returns the session's snapshot", async |doors| {
            let started = doors.program.session(json!({})).await;
            let reply = step(doors, &started, "status", json!({})).await;
            for part in ["verification", "page_context", "pending_sms", "status", "channel", "agent"] {
                assert!(reply.get(part).is_some(), "{part}: {reply}");
            }
        }),
        row("4.2", "status needs session_id", async |doors| {
            needs(doors, json!({"action": "status"}), &["session_id"]).await;
        }),
        row("4.2", "bind_caller needs session_id and caller_number", async |doors| {
            let action = json!({"action": "bind_caller", "caller_number": "+14155552671"});
            needs(doors, action, &["session_id", "caller_number"]).await;
        }),
        row("4.2", "page_context needs session_id and page_context", async |doors| {
            let action = json!({"action": "page_context", "page_context": {"page": "/"}});
            needs(doors, action, &["session_id", "page_context"]).await;
        }),
        row("4.2", "page_context is an object", async |doors| {
            let started = doors.program.session(json!({})).await;
            for page in [json!("x"), json!([1]), json!(1)] {
                let body = json!({"action": "page_context", "session_id": started["session_id"], "page_context": page});
                assert_eq!(
                    refusal(doors.program.action(&body)).await,
                    (400, "INVALID_FIELD".into()),
                    "{body}"
                );
            }
        }),
        row("4.2", "verification needs session_id, category and verified", async |doors| {
            let action = json!({"action": "verification", "category": "c", "verified": true});
            needs(doors, action, &["session_id", "category", "verified"]).await;
        }),
        row("4.2", "verification's details may name the SMS by sms_catalog_key", async |doors| {
            let started = doors.program.session(with_links()).await;
            let details = json!({"sms_catalog_key": "default"});
            let fields = json!({"category": "patient_information", "verified": true, "details": details});
            let reply = step(doors, &started, "verification", fields).await;
            assert_eq!(reply["pending_sms"][0]["sms_catalog_key"], "default");
        }),
        row("4.2 decided", "verified: false takes a verification back", async |doors| {
            let started = doors.program.session(json!({})).await;
            for verified in [true, false] {
                step(doors, &started, "verification", json!({"category": "c", "verified": verified})).await;
                let status = doors.program.status(&started["session_id"]).await;
                assert_eq!(status["verification"]["c"]["verified"], verified);
            }
        }),
        row("4.2", "completion needs session_id alone", async |doors| {
            needs(doors, json!({"action": "completion"}), &["session_id"]).await;
        }),
        row("4.2", "completion takes status, message and updated_fields", async |doors| {
            let started = doors.program.session(json!({})).await;
            let fields = json!({"status": "submitted", "message": "All done.", "updated_fields": ["email"]});
            step(doors, &started, "completion", fields.clone()).await;
            let completion = doors.program.status(&started["session_id"]).await["completion"].clone();
            for (name, value) in fields.as_object().expect("an object") {
                assert_eq!(completion[name], *value, "{name}");
            }
        }),
        row("4.2 decided", "a session that is not there is 404", async |doors| {
            let body = json!({"action": "status", "session_id": "sess_000000000000"});
            assert_eq!(refusal(doors.program.action(&body)).await, (404, "SESSION_NOT_FOUND".into()));
        }),
        row("4.2 decided", "another number than before undoes verifications", async |doors| {
            let started = doors.program.session(json!({"caller_number": "+14155552671"})).await;
            step(doors, &started, "verification", json!({"category": "c", "verified": true})).await;
            step(doors, &started, "bind_caller", json!({"caller_number": "+14155552672"})).await;
            let status = doors.program.status(&started["session_id"]).await;
            assert_ne!(status["verification"]["c"]["verified"], true, "{}", status["verification"]);
        }),
    ]
}

fn web_session() -> Vec<Row> {
    vec![
        row("4.3", "the web session makes a session for a browser, without a phone", async |doors| {
            let (status, reply) = answer(doors.program.post(WEB_SESSION, &json!({"channel": "phone"}))).await;
            assert_eq!(status, 200, "{reply}");
            let status = doors.program.status(&reply["session_id"]).await;
            assert_eq!((&status["channel"], &status["caller_number"]), (&json!("web"), &Value::Null));
        }),
        row("4.3 decided", "its reply is that of a web start", async |doors| {
            let (_, reply) = answer(doors.program.post(WEB_SESSION, &json!({}))).await;
            let started = doors.program.session(json!({})).await;
            let names =
                |value: &Value| value.as_object().expect("an object").keys().cloned().collect::<Vec<_>>();
            assert_eq!(names(&reply), names(&started));
        }),
        row("4.3", "it takes a greeting, and the browser joins by websocket_url", async |doors| {
            let (_, reply) =
                answer(doors.program.post(WEB_SESSION, &json!({"greeting": "Hello, browser."}))).await;
            let mut caller = Caller::join_at(doors.program.address, &reply).await;
            assert_eq!(caller.listen().await, "Hello, browser.");
        }),
        row("4.3", "it takes instructions and documents", async |doors| {
            let body = json!({
                "instructions": "Our dentist is called Doctor Lee.",
                "documents": [{"title": "Parking", "type": "text", "content": "Parking is free behind the building."}],
            });
            let (_, reply) = answer(doors.program.post(WEB_SESSION, &body)).await;
            let mut caller = joined(doors, &reply).await;
            caller.write("Where can I park?").await;
            assert_eq!(caller.listen().await, "Parking is free behind the building.");
            caller.write("What is the dentist called?").await;
            assert!(caller.listen().await.contains("Doctor Lee"));
        }),
        row("4.3", "its website_url is crawled as in the start action", async |doors| {
            let (_, reply) =
                answer(doors.program.post(WEB_SESSION, &json!({"website_url": doors.website}))).await;
            let status = doors.program.ready(&reply["session_id"]).await;
            assert_eq!(status["knowledge"]["website"]["pages"], 2, "{}", status["knowledge"]);
        }),
        row("4.3", "a field of another kind is refused", async |doors| {
            let refused = refusal(doors.program.post(WEB_SESSION, &json!({"greeting": 1}))).await;
            assert_eq!(refused, (400, "INVALID_FIELD".into()));
        }),
    ]
}
