//! Section 4.4: the routes of the reference demo backend.

use serde_json::{Value, json};

use super::calls::{SESSION, actions, demo_before, voice_service};
use super::doors::{CALLER, DEMO_KEY, Doors};
use super::sessions::step;
use super::table::{Row, row};
use crate::server::{answer, client, refusal};

const HOOK: &str = "/api/hooks/voice-verify";
const FORM_EVENT: &str = "/api/client/form-event";
const SUBMIT: &str = "/api/client/verify-and-submit";
const PATIENT: &str = "/api/client/verify-patient-info-demo";
const COMPLETED: &str = "/api/client/form-completed";

/// The reply of a route that must succeed.
async fn done(doors: &Doors, path: &str, body: Value) -> Value {
    let (status, reply) = answer(doors.program.demo(path, &body)).await;
    assert_eq!(status, 200, "{path} {body}: {reply}");
    reply
}

async fn session(doors: &Doors) -> Value {
    doors.program.session(json!({"link_catalog": {"forms": "https://a.example/f"}})).await["session_id"]
        .clone()
}

fn said(session: &Value, utterance: &str) -> Value {
    json!({"session_id": session, "utterance": utterance, "category": "patient_information"})
}

/// Valid credentials for a form.
fn submission(session: &Value, form_name: &str) -> Value {
    json!({"session_id": session, "form_name": form_name, "ssn_last4": CALLER.1, "date_of_birth": CALLER.2})
}

/// Status and code of a refusal, the voice service's own included.
async fn refused(doors: &Doors, path: &str, body: &Value) -> (u16, String) {
    let response = doors.program.demo(path, body).send().await.expect("an answer");
    let status = response.status().as_u16();
    let reply: Value = serde_json::from_str(&response.text().await.expect("text")).expect("JSON");
    (status, reply["err_code"].as_str().unwrap_or_else(|| panic!("{status} {reply}")).to_owned())
}

pub fn rows() -> Vec<Row> {
    let mut rows = proxy_and_hook();
    rows.extend(form_events());
    rows.extend(submissions());
    rows.extend(patients_and_completion());
    rows
}

fn proxy_and_hook() -> Vec<Row> {
    vec![
        row(
            "4.4",
            "POST /api/interactive-agent passes the action to the voice service and its answer back",
            async |doors| {
                let started =
                    done(doors, "/api/interactive-agent", json!({"action": "start", "tenant_id": "t"})).await;
                assert_eq!(doors.program.status(&started["session_id"]).await["tenant_id"], "t");
            },
        ),
        row("4.2", "the demo backend forwards the JSON that it receives unchanged", async |_| {
            let service = voice_service().await;
            let demo = demo_before(&service, &[]).await;
            let body =
                format!("{{ \"session_id\" : \"{SESSION}\",\n \"action\":\"status\", \"x\": 1.0e2 }} ");
            let url = format!("http://{}/api/interactive-agent", demo.demo);
            let request =
                client().post(url).header("x-api-key", DEMO_KEY).header("content-type", "application/json");
            assert_eq!(request.body(body.clone()).send().await.expect("an answer").status().as_u16(), 200);
            assert_eq!(service.bodies(), [body]);
        }),
        row("4.4", "the proxy passes refusals on as they are", async |doors| {
            let body = json!({"action": "status", "session_id": "sess_000000000000"});
            assert_eq!(
                refused(doors, "/api/interactive-agent", &body).await,
                (404, "SESSION_NOT_FOUND".into())
            );
        }),
        row("4.4", "the voice-verify hook returns verified and details.sms_catalog_key", async |doors| {
            let reply = done(doors, HOOK, said(&session(doors).await, "four five six seven")).await;
            assert_eq!(reply["verified"], true);
            assert_eq!(reply["details"]["sms_catalog_key"], "patient_information");
        }),
        row("4.4", "the hook does not verify digits that match no record", async |doors| {
            let reply = done(doors, HOOK, said(&session(doors).await, "one two three five")).await;
            assert_eq!(
                (&reply["verified"], &reply["details"]["sms_catalog_key"]),
                (&json!(false), &Value::Null)
            );
        }),
        row(
            "4.4 decided",
            "the hook understands digits as people say them and as recognisers write them",
            async |doors| {
                for utterance in [
                    "4567",
                    "4 5 6 7",
                    "It is 45-67.",
                    "four five six seven, please",
                    "forty-five sixty-seven",
                ] {
                    let reply = done(doors, HOOK, said(&session(doors).await, utterance)).await;
                    assert_eq!(reply["verified"], true, "{utterance}");
                }
            },
        ),
        row("4.4", "the hook needs session_id and category", async |doors| {
            for field in ["session_id", "category"] {
                let mut body = said(&session(doors).await, "4567");
                body.as_object_mut().expect("an object").remove(field);
                assert_eq!(refused(doors, HOOK, &body).await, (400, "INVALID_FIELD".into()), "{field}");
            }
        }),
        row("4.4", "GET /health answers without a key", async |doors| {
            let health = client().get(format!("http://{}/health", doors.program.demo));
            assert_eq!(answer(health).await, (200, json!({"status": "ok"})));
        }),
    ]
}

fn form_events() -> Vec<Row> {
    vec![
        row(
            "4.4",
            "form-event builds a page_context from page, step, form_name and sections",
            async |doors| {
                let session = session(doors).await;
                let page = json!({"page": "/forms", "step": "2", "form_name": "intake", "sections": [{"name": "you"}]});
                let mut body = page.clone();
                body["session_id"] = session.clone();
                done(doors, FORM_EVENT, body).await;
                assert_eq!(doors.program.status(&session).await["page_context"], page);
            },
        ),
        row("4.4", "other members of a form event are part of the page_context", async |doors| {
            let session = session(doors).await;
            done(doors, FORM_EVENT, json!({"session_id": session, "page": "/forms", "locale": "en"})).await;
            assert_eq!(doors.program.status(&session).await["page_context"]["locale"], "en");
        }),
        row("4.4", "form-even is an alias of form-event", async |doors| {
            let session = session(doors).await;
            done(doors, "/api/client/form-even", json!({"session_id": session, "page": "/typo"})).await;
            assert_eq!(doors.program.status(&session).await["page_context"], json!({"page": "/typo"}));
        }),
        row(
            "4.4 decided",
            "digits and dates of birth in a form event do not reach the agent",
            async |doors| {
                let session = session(doors).await;
                let body = json!({"session_id": session, "page": "/forms", "ssn_last4": "4567",
                "sections": [{"name": "dob", "value": "1984-03-09", "filled": true}]});
                done(doors, FORM_EVENT, body).await;
                let page = doors.program.status(&session).await["page_context"].clone();
                assert_eq!(page, json!({"page": "/forms", "sections": [{"name": "dob", "filled": true}]}));
            },
        ),
        row("4.4", "a form event without a session or a page is refused", async |doors| {
            let session = session(doors).await;
            for body in [json!({"page": "/forms"}), json!({"session_id": session})] {
                assert_eq!(refused(doors, FORM_EVENT, &body).await, (400, "INVALID_FIELD".into()), "{body}");
            }
        }),
        row("4.4", "a form event of a session that is not there is 404", async |doors| {
            let body = json!({"session_id": "sess_000000000000", "page": "/"});
            assert_eq!(refused(doors, FORM_EVENT, &body).await, (404, "SESSION_NOT_FOUND".into()));
        }),
    ]
}

fn submissions() -> Vec<Row> {
    vec![
        row("4.4", "verify-and-submit sends verification, then completion", async |_| {
            let service = voice_service().await;
            let demo = demo_before(&service, &[]).await;
            let body = submission(&json!(SESSION), "healthcare_signup");
            assert_eq!(answer(demo.demo(SUBMIT, &body)).await.0, 200);
            let actions = actions(&service);
            let changes: Vec<&Value> =
                actions.iter().map(|action| &action["action"]).filter(|action| *action != "status").collect();
            assert_eq!(changes, ["verification", "completion"]);
        }),
        row("4.4", "for healthcare_signup the category is form", async |doors| {
            let session = session(doors).await;
            done(doors, SUBMIT, submission(&session, "healthcare_signup")).await;
            let status = doors.program.status(&session).await;
            assert_eq!(status["verification"]["form"]["verified"], true);
            assert_eq!(status["status"], "completed");
        }),
        row("4.4", "for healthcare_signup any caller number is accepted", async |doors| {
            let session = session(doors).await;
            let mut body = submission(&session, "healthcare_signup");
            body["caller_number"] = json!("+12025550199");
            assert_eq!(done(doors, SUBMIT, body).await["verified"], true);
        }),
        row("4.4", "for healthcare_signup the identity may be that of any profile", async |doors| {
            let session = session(doors).await;
            let mut body = submission(&session, "healthcare_signup");
            (body["ssn_last4"], body["date_of_birth"]) = (json!("9044"), json!("1961-11-27"));
            assert_eq!(done(doors, SUBMIT, body).await["verified"], true);
        }),
        row(
            "4.4",
            "for healthcare_signup credentials of no profile are refused, and nothing is submitted",
            async |doors| {
                let session = session(doors).await;
                let mut body = submission(&session, "healthcare_signup");
                body["date_of_birth"] = json!("1961-11-27");
                assert_eq!(refused(doors, SUBMIT, &body).await, (403, "NOT_VERIFIED".into()));
                let status = doors.program.status(&session).await;
                assert_eq!((&status["verification"], &status["completion"]), (&json!({}), &Value::Null));
            },
        ),
        row("4.4", "for other forms the caller's number must be the profile's", async |doors| {
            let started = doors.program.session(json!({})).await;
            step(doors, &started, "bind_caller", json!({"caller_number": CALLER.0})).await;
            let mut body = submission(&started["session_id"], "intake");
            body["caller_number"] = json!(CALLER.0);
            assert_eq!(done(doors, SUBMIT, body).await["verified"], true);
        }),
        row("4.4", "for other forms a number of no profile, or of another one, is refused", async |doors| {
            for number in ["+12025550199", "+12025550178"] {
                let started = doors.program.session(json!({})).await;
                step(doors, &started, "bind_caller", json!({"caller_number": number})).await;
                let mut body = submission(&started["session_id"], "intake");
                body["caller_number"] = json!(number);
                assert_eq!(refused(doors, SUBMIT, &body).await, (403, "NOT_VERIFIED".into()), "{number}");
            }
        }),
        row(
            "4.4 decided",
            "the caller number is the one bound to the session: the body cannot claim another",
            async |doors| {
                let started = doors.program.session(json!({})).await;
                step(doors, &started, "bind_caller", json!({"caller_number": "+12025550199"})).await;
                let mut body = submission(&started["session_id"], "intake");
                body["caller_number"] = json!(CALLER.0);
                assert_eq!(refused(doors, SUBMIT, &body).await, (403, "NOT_VERIFIED".into()));
            },
        ),
    ]
}

fn patients_and_completion() -> Vec<Row> {
    vec![
        row(
            "4.4",
            "verify-patient-info-demo verifies patient_information with the record's sms_catalog_key",
            async |doors| {
                let session = session(doors).await;
                let reply = done(doors, PATIENT, json!({"session_id": session, "ssn_last4": "0812"})).await;
                assert_eq!(reply["details"]["sms_catalog_key"], "forms");
                let status = doors.program.status(&session).await;
                assert_eq!(status["verification"]["patient_information"]["verified"], true);
                assert_eq!(status["pending_sms"][0]["sms_catalog_key"], "forms");
            },
        ),
        row(
            "4.4",
            "verify-patient-info-demo takes an optional patient_id, which must be the record's",
            async |doors| {
                let session = session(doors).await;
                let body = |id: &str| json!({"session_id": session, "ssn_last4": "0812", "patient_id": id});
                assert_eq!(done(doors, PATIENT, body("P-1003")).await["verified"], true);
                assert_eq!(refused(doors, PATIENT, &body("P-1001")).await, (403, "NOT_VERIFIED".into()));
            },
        ),
        row(
            "4.4",
            "verify-patient-info-demo refuses digits of no record, and verifies nothing",
            async |doors| {
                let session = session(doors).await;
                let body = json!({"session_id": session, "ssn_last4": "1235"});
                assert_eq!(refused(doors, PATIENT, &body).await, (403, "NOT_VERIFIED".into()));
                assert_eq!(doors.program.status(&session).await["verification"], json!({}));
            },
        ),
        row("4.4", "verify-patient-info-demo needs four digits", async |doors| {
            let session = session(doors).await;
            for digits in [Value::Null, json!("456"), json!("four"), json!(4567)] {
                let body = json!({"session_id": session, "ssn_last4": digits});
                assert_eq!(refused(doors, PATIENT, &body).await, (400, "INVALID_FIELD".into()), "{body}");
            }
        }),
        row("4.4", "form-completed notifies of the completion without credentials", async |doors| {
            let session = session(doors).await;
            done(doors, COMPLETED, json!({"session_id": session, "message": "Thanks."})).await;
            let status = doors.program.status(&session).await;
            assert_eq!(
                (&status["status"], &status["completion"]["message"]),
                (&json!("completed"), &json!("Thanks."))
            );
            assert_eq!(status["verification"], json!({}));
        }),
        row(
            "4.4 decided",
            "after five wrong answers a session has to wait; Retry-After says how long",
            async |doors| {
                let session = session(doors).await;
                for digits in ["1111", "2222", "3333", "5555", "6666"] {
                    let body = json!({"session_id": session, "ssn_last4": digits});
                    assert_eq!(refused(doors, PATIENT, &body).await.0, 403);
                }
                let body = json!({"session_id": session, "ssn_last4": "0812"});
                let response = doors.program.demo(PATIENT, &body).send().await.expect("an answer");
                assert_eq!(response.status().as_u16(), 429);
                assert!(response.headers().contains_key("retry-after"));
            },
        ),
        row("4.4 decided", "a voice service that cannot be reached is 502", async |_| {
            let service = voice_service().await;
            let nowhere = vec![("STS_API_BASE_URL", "http://127.0.0.1:1".to_owned())];
            let demo = demo_before(&service, &nowhere).await;
            let body = json!({"session_id": SESSION, "page": "/"});
            assert_eq!(refusal(demo.demo(FORM_EVENT, &body)).await, (502, "STS_UNAVAILABLE".into()));
        }),
    ]
}
