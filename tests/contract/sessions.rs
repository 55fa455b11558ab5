//! Sections 2.3, 2.4 and 3: interactive sessions, their documents, and how they change.

use serde_json::{Value, json};

use super::doors::Doors;
use super::table::{Row, row};
use crate::server::{answer, refusal};
use crate::sts::room::Caller;

/// Joins the room of a web session and waits for the greeting to end.
pub async fn joined(doors: &Doors, started: &Value) -> Caller {
    doors.program.joined(started).await
}

/// The agent's reply to `question` in a session that is started with `fields`.
pub async fn asked(doors: &Doors, fields: Value, question: &str) -> String {
    let started = doors.program.session(fields).await;
    let mut caller = joined(doors, &started).await;
    caller.write(question).await;
    caller.listen().await
}

/// Takes a step in a session.
pub async fn step(doors: &Doors, started: &Value, action: &str, fields: Value) -> Value {
    let mut body = json!({"action": action, "session_id": started["session_id"]});
    body.as_object_mut().expect("an object").extend(fields.as_object().expect("an object").clone());
    doors.program.act(body).await
}

/// A start whose rules send a link to verified callers.
pub fn with_links() -> Value {
    json!({
        "link_catalog": {"forms": "https://front.example/forms", "default": {"url": "https://front.example/"}},
        "verification_rules": {"patient_information": {
            "voice_prompt": "Please say the last four digits.", "voice_prompt_short": "The digits, please.",
            "sms_catalog_key": "forms",
        }},
    })
}

pub fn rows() -> Vec<Row> {
    let mut rows = identifiers();
    rows.extend(documents());
    rows.extend(inner_structures());
    rows.extend(transitions());
    rows
}

fn identifiers() -> Vec<Row> {
    vec![
        row("2.3", "session_id is `sess_` followed by 12 hexadecimal characters", async |doors| {
            let started = doors.program.session(json!({})).await;
            let id = started["session_id"].as_str().expect("text");
            let hex = id.strip_prefix("sess_").expect("its prefix");
            assert!(hex.len() == 12 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
        }),
        row("2.3", "session_id names the session in follow-up actions", async |doors| {
            let started = doors.program.session(json!({"tenant_id": "one"})).await;
            let other = doors.program.session(json!({"tenant_id": "two"})).await;
            assert_eq!(doors.program.status(&started["session_id"]).await["tenant_id"], "one");
            assert_eq!(doors.program.status(&other["session_id"]).await["tenant_id"], "two");
        }),
        row("2.3", "room_name is `sts-` followed by a UUID", async |doors| {
            let started = doors.program.session(json!({})).await;
            let room = started["room_name"].as_str().expect("text");
            uuid::Uuid::parse_str(room.strip_prefix("sts-").expect("its prefix")).expect("a UUID");
        }),
        row("2.3", "room_name is the name of the session's media room", async |doors| {
            let started = doors.program.session(json!({})).await;
            assert_eq!(doors.program.status(&started["session_id"]).await["room_name"], started["room_name"]);
            let url = started["websocket_url"].as_str().expect("text");
            assert!(url.contains(started["room_name"].as_str().expect("text")), "{url}");
        }),
        row("2.3", "websocket_url is there for web starts, and the room is joined by it", async |doors| {
            let started = doors.program.session(json!({"channel": "web"})).await;
            // Fails unless the server agrees and welcomes the caller to this session.
            Caller::join_at(doors.program.address, &started).await;
        }),
        row("2.3", "a phone start may omit it: the call's own leg joins later", async |doors| {
            let started = doors.program.session(json!({"channel": "phone"})).await;
            assert!(started["room_name"].is_string() && started.get("websocket_url").is_none(), "{started}");
        }),
    ]
}

fn documents() -> Vec<Row> {
    let parking = "Parking is free behind the building.";
    vec![
        row("2.4", "a document of type text is its content", async move |doors| {
            let documents = json!([{"title": "Parking", "type": "text", "content": parking}]);
            assert_eq!(asked(doors, json!({"documents": documents}), "Where can I park?").await, parking);
        }),
        row("2.4", "a document of type url is the page at that address", async |doors| {
            let url = format!("{}/hours", doors.website);
            let documents = json!([{"title": "Hours", "type": "url", "content": url}]);
            let said = asked(doors, json!({"documents": documents}), "Are you open on Saturday?").await;
            assert_eq!(said, "We are open on Saturday from ten to two.");
        }),
        row("2.4", "a title is a label: a text, or none", async move |doors| {
            let start = |title: Value| json!({"action": "start", "documents": [{"title": title, "type": "text", "content": parking}]});
            assert_eq!(answer(doors.program.action(&start(Value::Null))).await.0, 200);
            assert_eq!(refusal(doors.program.action(&start(json!(1)))).await, (400, "INVALID_FIELD".into()));
        }),
        row("2.4", "a type is text or url: others are refused", async |doors| {
            let body =
                json!({"action": "start", "documents": [{"title": "x", "type": "pdf", "content": "x"}]});
            let (status, reply) = answer(doors.program.action(&body)).await;
            assert_eq!((status, &reply["err_code"]), (400, &json!("INVALID_FIELD")));
            assert!(reply["err_msg"].as_str().is_some_and(|text| text.contains("documents[0]")), "{reply}");
        }),
        row("2.4", "a document has content", async |doors| {
            let body = json!({"action": "start", "documents": [{"title": "x", "type": "text"}]});
            assert_eq!(refusal(doors.program.action(&body)).await, (400, "INVALID_FIELD".into()));
        }),
        row(
            "2.4 decided",
            "a document that cannot be read leaves a warning, and the session goes on",
            async |doors| {
                let documents =
                    json!([{"title": "Inside", "type": "url", "content": "http://10.0.0.1/secret"}]);
                let started = doors.program.session(json!({"documents": documents})).await;
                let status = doors.program.ready(&started["session_id"]).await;
                assert_eq!(status["warnings"], json!(["document `Inside`: the address is not a public one"]));
            },
        ),
    ]
}

/// Shapes that the contract only hints at.
fn inner_structures() -> Vec<Row> {
    vec![
        row(
            "2.4",
            "verification_rules hold voice_prompt and voice_prompt_short for patient_information",
            async |doors| {
                let started = doors.program.session(with_links()).await;
                let mut caller = joined(doors, &started).await;
                caller.write("What are my test results?").await;
                assert_eq!(caller.listen().await, "Please say the last four digits.");
                caller.write("It is 1111.").await;
                assert_eq!(caller.listen().await, "The digits, please.");
            },
        ),
        row("2.4 decided", "link_catalog maps keys to addresses, or to objects with a url", async |doors| {
            let started = doors.program.session(with_links()).await;
            let status = doors.program.status(&started["session_id"]).await;
            assert_eq!(status["link_catalog"], json!(["default", "forms"]));
        }),
        row("2.4 decided", "catalogues may be arrays of objects that say their name", async |doors| {
            let rules =
                json!([{"category": "billing", "voice_prompt": "Your digits?", "keywords": ["invoice"]}]);
            let said = asked(doors, json!({"verification_rules": rules}), "Where is my invoice?").await;
            assert_eq!(said, "Your digits?");
        }),
        row("2.4 decided", "an entry that is not understood is left out with a warning", async |doors| {
            let started = doors.program.session(json!({"link_catalog": {"odd": 7}})).await;
            let warning = started["warnings"][0].as_str().expect("a warning");
            assert!(warning.contains("link_catalog"), "{warning}");
        }),
        row("2.4", "the status snapshot has the verification state", async |doors| {
            let started = doors.program.session(json!({})).await;
            assert_eq!(doors.program.status(&started["session_id"]).await["verification"], json!({}));
            step(doors, &started, "verification", json!({"category": "c", "verified": false})).await;
            let status = doors.program.status(&started["session_id"]).await;
            assert_eq!(status["verification"]["c"]["verified"], false);
        }),
        row("2.4", "the status snapshot has the page_context", async |doors| {
            let started = doors.program.session(json!({})).await;
            assert_eq!(doors.program.status(&started["session_id"]).await["page_context"], Value::Null);
            let page = json!({"page": "/forms", "more": [1, {"a": null}]});
            step(doors, &started, "page_context", json!({"page_context": page})).await;
            assert_eq!(doors.program.status(&started["session_id"]).await["page_context"], page);
        }),
        row("2.4", "the status snapshot has pending SMS", async |doors| {
            let started = doors.program.session(with_links()).await;
            assert_eq!(doors.program.status(&started["session_id"]).await["pending_sms"], json!([]));
            let fields = json!({"category": "patient_information", "verified": true});
            step(doors, &started, "verification", fields).await;
            let pending = &doors.program.status(&started["session_id"]).await["pending_sms"][0];
            assert_eq!(
                (&pending["sms_catalog_key"], &pending["status"]),
                (&json!("forms"), &json!("awaiting_number"))
            );
        }),
    ]
}

fn transitions() -> Vec<Row> {
    vec![
        row("3", "start with a valid body makes a session with interactive state", async |doors| {
            let started = doors.program.session(json!({"greeting": "Hello."})).await;
            let status = doors.program.status(&started["session_id"]).await;
            assert_eq!((&status["status"], &status["channel"]), (&json!("created"), &json!("web")));
        }),
        row("3", "start dispatches an agent, who greets the one who joins", async |doors| {
            let started = doors.program.session(json!({"greeting": "Welcome to Acme."})).await;
            let mut caller = Caller::join_at(doors.program.address, &started).await;
            assert_eq!(caller.listen().await, "Welcome to Acme.");
        }),
        row("3", "a phone start dispatches none before the call arrives", async |doors| {
            let started = doors.program.session(json!({"channel": "phone", "greeting": "Hello."})).await;
            let status = doors.program.status(&started["session_id"]).await;
            assert_eq!(status["agent"]["state"], "none", "{}", status["agent"]);
            assert_eq!(status["transcript"], json!([]));
        }),
        row("3", "verification marks the category verified, and no other", async |doors| {
            let started = doors.program.session(json!({})).await;
            step(doors, &started, "verification", json!({"category": "billing", "verified": true})).await;
            let verification = doors.program.status(&started["session_id"]).await["verification"].clone();
            assert_eq!(verification["billing"]["verified"], true);
            assert_eq!(verification.as_object().map(serde_json::Map::len), Some(1));
        }),
        row("3", "verification sends the SMS that the session's rules name", async |doors| {
            let mut start = with_links();
            start["caller_number"] = json!("+14155552671");
            let started = doors.program.session(start).await;
            let fields = json!({"category": "patient_information", "verified": true});
            let reply = step(doors, &started, "verification", fields).await;
            let message = &reply["pending_sms"][0];
            assert_eq!(
                (&message["to"], &message["sms_catalog_key"]),
                (&json!("+14155552671"), &json!("forms"))
            );
        }),
        row("3", "verification sends no SMS where the session's rules want none", async |doors| {
            let mut start = with_links();
            start["sms_enabled"] = json!(false);
            let started = doors.program.session(start).await;
            let fields = json!({"category": "patient_information", "verified": true});
            assert_eq!(step(doors, &started, "verification", fields).await["pending_sms"], json!([]));
        }),
        row("3", "completion marks the flow complete", async |doors| {
            let started = doors.program.session(json!({})).await;
            step(doors, &started, "completion", json!({})).await;
            assert_eq!(doors.program.status(&started["session_id"]).await["status"], "completed");
        }),
        row("3", "completion notifies the agent in the media room, who says so", async |doors| {
            let started = doors.program.session(json!({})).await;
            let mut caller = joined(doors, &started).await;
            step(doors, &started, "completion", json!({"message": "Your form has arrived."})).await;
            let notice = caller.message("CompletionNotice").await;
            assert_eq!(notice["message"], "Your form has arrived.");
            assert_eq!(caller.listen().await, "Your form has arrived.");
        }),
        row(
            "3",
            "a completion before anyone joined is not lost: the next caller hears of it",
            async |doors| {
                let started = doors.program.session(json!({"greeting": "Hello."})).await;
                step(doors, &started, "completion", json!({"message": "Your form has arrived."})).await;
                let mut caller = Caller::join_at(doors.program.address, &started).await;
                let says_it = |message: &Value| {
                    message["role"] == "assistant" && message.to_string().contains("Your form has arrived.")
                };
                let heard = tokio::time::timeout(std::time::Duration::from_secs(30), caller.find(says_it));
                heard.await.expect("the agent says it to the caller");
            },
        ),
        row("3", "bind_caller stores the caller", async |doors| {
            let started = doors.program.session(json!({})).await;
            step(doors, &started, "bind_caller", json!({"caller_number": "+14155552671"})).await;
            assert_eq!(doors.program.status(&started["session_id"]).await["caller_number"], "+14155552671");
        }),
        row("3", "the number that was bound is the one that SMS go to", async |doors| {
            let started = doors.program.session(with_links()).await;
            let fields = json!({"category": "patient_information", "verified": true});
            step(doors, &started, "verification", fields).await;
            step(doors, &started, "bind_caller", json!({"caller_number": "+14155552671"})).await;
            let pending = &doors.program.status(&started["session_id"]).await["pending_sms"][0];
            assert_eq!((&pending["to"], &pending["status"]), (&json!("+14155552671"), &json!("queued")));
        }),
        row("3", "page_context updates the page state, the last one counting", async |doors| {
            let started = doors.program.session(json!({})).await;
            for page in ["/one", "/two"] {
                step(doors, &started, "page_context", json!({"page_context": {"page": page}})).await;
            }
            let status = doors.program.status(&started["session_id"]).await;
            assert_eq!(
                (&status["page_context"], &status["page_context_version"]),
                (&json!({"page": "/two"}), &json!(2))
            );
        }),
        row("3", "the agent sees the page of another device", async |doors| {
            let started = doors.program.session(json!({})).await;
            let mut caller = joined(doors, &started).await;
            let page =
                json!({"page": "signup", "step": 2, "sections": [{"name": "address", "complete": false}]});
            step(doors, &started, "page_context", json!({"page_context": page})).await;
            assert_eq!(caller.message("PageContextUpdated").await["page_context"], page);
            caller.write("What is missing on this page?").await;
            assert!(caller.listen().await.contains("address"));
        }),
        row("3 decided", "a session that has ended can be looked at and no longer changed", async |doors| {
            let started = doors.program.session(json!({})).await;
            let mut caller = joined(doors, &started).await;
            caller.write("Goodbye!").await;
            assert_eq!(caller.goodbye().await, 4000);
            assert_eq!(doors.program.status(&started["session_id"]).await["status"], "ended");
            let body = json!({"action": "completion", "session_id": started["session_id"]});
            assert_eq!(refusal(doors.program.action(&body)).await, (409, "SESSION_ENDED".into()));
        }),
    ]
}
