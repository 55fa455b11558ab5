//! The story of one call as lines for a shell, for somebody who wants to see it happen.

use super::Config;

/// Lines that can be typed as they are, one after the other, against the backend at `base`
/// (`http://127.0.0.1:8080`); what begins with `#` says what happens. A key that is not the built-in one
/// is left to the shell's own `$DEMO_API_KEY`.
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
            "Somebody calls from +1 202 555 0143: a session starts, and the number is bound to it.",
            format!(
                "SESSION=$(curl -s {base}/webhooks/twilio/incoming-call -d 'CallSid=CA1' \
                 -d 'From=%2B12025550143' -d 'To=%2B15005550006' | grep -o 'sess_[0-9a-f]*' | head -n 1); echo $SESSION"
            ),
        ),
        (
            "They open a form on another device: the agent sees it.",
            post(
                "/api/client/form-event",
                r#"{"session_id": "'$SESSION'", "page": "/forms", "step": "name", "form_name": "healthcare_signup"}"#,
            ),
        ),
        (
            "They say their four digits: this is what the voice service asks then.",
            post(
                "/api/hooks/voice-verify",
                r#"{"session_id": "'$SESSION'", "utterance": "four five six seven", "category": "patient_information"}"#,
            ),
        ),
        (
            "Nobody speaks from a shell, so they type them on a page: the session is verified.",
            post(
                "/api/client/verify-patient-info-demo",
                r#"{"session_id": "'$SESSION'", "ssn_last4": "4567"}"#,
            ),
        ),
        (
            "A text message with a link follows: `sms` has it, sent, or queued where no provider is configured.",
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
