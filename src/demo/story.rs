//! The story of one call as shell commands, so that a developer can watch it happen.

use super::config::Config;

/// Commands to run one after the other, unchanged, against the backend at `base` (`http://127.0.0.1:8080`); comment
/// lines (`#`) say what happens. A key other than the built-in one is not printed: the commands then read
/// `$DEMO_API_KEY`.
pub fn story(config: &Config, base: &str) -> String {
    let key = match config.shown_key() {
        Some(key) => format!("'X-API-Key: {key}'"),
        None => "\"X-API-Key: $DEMO_API_KEY\"".into(),
    };
    let post = |path: &str, body: &str| {
        format!("curl -s {base}{path} -H {key} -H 'Content-Type: application/json' -d '{body}'")
    };
    let steps = [
        (
            "A caller rings from +1 202 555 0143: a session starts, and the number is bound to it.",
            format!(
                "SESSION=$(curl -s {base}/webhooks/twilio/incoming-call -d 'CallSid=CA1' \
                 -d 'From=%2B12025550143' -d 'To=%2B15005550006' | grep -o 'sess_[0-9a-f]*' | head -n 1); echo $SESSION"
            ),
        ),
        (
            "The caller opens a form on another device: the agent sees it.",
            post(
                "/api/client/form-event",
                r#"{"session_id": "'$SESSION'", "page": "/forms", "step": "name", "form_name": "healthcare_signup"}"#,
            ),
        ),
        (
            "The caller says four digits: the voice service sends this request then.",
            post(
                "/api/hooks/voice-verify",
                r#"{"session_id": "'$SESSION'", "utterance": "four five six seven", "category": "patient_information"}"#,
            ),
        ),
        (
            "A shell cannot speak, so the caller types them on a page: the session is verified.",
            post(
                "/api/client/verify-patient-info-demo",
                r#"{"session_id": "'$SESSION'", "ssn_last4": "4567"}"#,
            ),
        ),
        (
            "A text message with a link follows: `sms` shows it, sent, or queued if no provider is configured.",
            post("/api/interactive-agent", r#"{"action": "status", "session_id": "'$SESSION'"}"#),
        ),
        (
            "The form is done: the agent says so.",
            post(
                "/api/client/form-completed",
                r#"{"session_id": "'$SESSION'", "message": "Your form has arrived."}"#,
            ),
        ),
    ];
    steps.iter().map(|(happens, line)| format!("# {happens}\n{line}\n")).collect()
}
