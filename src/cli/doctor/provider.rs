//! Checks of the services that the operator configured: the telephony provider's account, the chat interface, and the
//! LiveKit server.

use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use serde_json::Value;
use url::Url;
use url::form_urlencoded::Serializer;

use super::address::shown;
use super::check::{Check, plain};
use super::clock::Clocks;
use crate::config::Config;
use crate::outbound;
use crate::session::phone_number;

const TIMEOUT: Duration = Duration::from_secs(15);
const TEST_TEXT: &str = "This is a test message of Verbatim's doctor.";

/// Whether the account may send messages; sends one to `number` if that is given.
pub async fn messages(config: &Config, number: Option<&str>, clocks: &mut Clocks) -> Check {
    const NAME: &str = "text messages";
    const ACCOUNT: &str =
        "set `sts.twilio.account_sid` and `sts.twilio.auth_token` as the provider's console shows them";
    let twilio = &config.sts.twilio;
    let (Some(account), Some(token), Some(from)) = (&twilio.account_sid, &twilio.auth_token, &twilio.from)
    else {
        let message = "not set: no text messages are sent";
        let mend = "set `sts.twilio.account_sid`, `auth_token` and `from`";
        return if number.is_some() { Check::failed(NAME, message, mend) } else { Check::ok(NAME, message) };
    };
    let (Ok(mut url), Ok(client)) = (Url::parse(&twilio.base_url), outbound::client()) else {
        return Check::failed(NAME, "the provider's address is none", "set `sts.twilio.base_url`");
    };
    let server = shown(&url);
    let path = |url: &mut Url, last: &[&str]| {
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(["2010-04-01", "Accounts"]).extend(last);
        }
    };
    let mut messages = url.clone();
    path(&mut messages, &[account, "Messages.json"]);
    path(&mut url, &[&format!("{account}.json")]);
    let ask = client.get(url).basic_auth(account, Some(token.expose())).timeout(TIMEOUT);
    let response = match ask.send().await {
        Ok(response) => response,
        Err(error) => {
            let message = format!("{server} cannot be reached: {}", plain(error));
            return Check::failed(
                NAME,
                message,
                "let this machine reach the provider, or set `sts.twilio.base_url`",
            );
        }
    };
    clocks.note(&server, response.headers());
    let status = response.status();
    if !status.is_success() {
        return Check::failed(NAME, format!("the account is refused: status {}", status.as_u16()), ACCOUNT);
    }
    let state = outbound::read_json(response).await;
    let state =
        state.as_ref().and_then(|account| account.get("status")).and_then(Value::as_str).unwrap_or("");
    if !matches!(state, "active" | "") {
        let message = format!("the provider calls the account {state:?}");
        return Check::failed(NAME, message, "activate it at the provider");
    }
    let is_number = phone_number(from).is_some() || from.starts_with("MG");
    if !is_number {
        let message = "the sender is neither a number in E.164 form nor a messaging service (MG…)";
        return Check::warning(NAME, message, "set `sts.twilio.from`");
    }
    let Some(number) = number else {
        return Check::ok(NAME, format!("the account at {server} is valid; nothing was sent"));
    };
    let Some(number) = phone_number(number) else {
        return Check::failed(NAME, "the number is not in E.164 form", "--sms-to +14155552671");
    };
    let sender = if from.starts_with("MG") { "MessagingServiceSid" } else { "From" };
    let form = Serializer::new(String::new())
        .append_pair("To", &number)
        .append_pair(sender, from)
        .append_pair("Body", TEST_TEXT)
        .finish();
    let send = client
        .post(messages)
        .basic_auth(account, Some(token.expose()))
        .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
        .timeout(TIMEOUT)
        .body(form);
    match send.send().await {
        Err(error) => Check::failed(NAME, format!("no answer: {}", plain(error)), "try again"),
        Ok(response) if response.status().is_success() => Check::ok(NAME, "the provider has taken a message"),
        Ok(response) => {
            let status = response.status().as_u16();
            // The provider's texts quote the number; its codes do not.
            let code = outbound::read_json(response)
                .await
                .and_then(|reply| reply.get("code").and_then(Value::as_u64));
            let code = code.map(|code| format!(", code {code}")).unwrap_or_default();
            let message = format!("the provider refuses a message: status {status}{code}");
            Check::failed(NAME, message, "see the code in the provider's list, and `sts.twilio.from`")
        }
    }
}

/// Whether the chat interface answers and takes the key.
pub async fn chat(config: &Config, clocks: &mut Clocks) -> Check {
    const NAME: &str = "chat";
    let chat = &config.sts.chat;
    let Some(base) = &chat.base_url else {
        return Check::ok(NAME, "not set: the embedded responder answers");
    };
    let (Ok(mut url), Ok(client)) = (Url::parse(base), outbound::client()) else {
        return Check::failed(NAME, "it is no address", "set `sts.chat.base_url`");
    };
    let server = shown(&url);
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty().push("models");
    }
    let mut ask = client.get(url).timeout(TIMEOUT);
    if let Some(key) = &chat.api_key {
        ask = ask.bearer_auth(key.expose());
    }
    let response = match ask.send().await {
        Ok(response) => response,
        Err(error) => {
            let message = format!("{server} cannot be reached: {}", plain(error));
            return Check::failed(NAME, message, "start it, or set `sts.chat.base_url`");
        }
    };
    clocks.note(&server, response.headers());
    let status = response.status().as_u16();
    if matches!(status, 401 | 403) {
        return Check::failed(
            NAME,
            format!("{server} refuses the key: status {status}"),
            "set `sts.chat.api_key`",
        );
    }
    let listed = outbound::read_json(response).await;
    let models = listed.as_ref().and_then(|listed| listed.get("data")).and_then(Value::as_array);
    let Some(models) = models else {
        let message = format!("{server} lists no models: status {status}");
        return Check::warning(
            NAME,
            message,
            "if agents get no answers, set `sts.chat.base_url` to the part before /chat/completions",
        );
    };
    let is_there = models.iter().any(|model| model.get("id").is_some_and(|id| *id == chat.model));
    match is_there {
        true => Check::ok(NAME, format!("{server} has {:?}", chat.model)),
        false => {
            Check::warning(NAME, format!("{server} lists no model {:?}", chat.model), "set `sts.chat.model`")
        }
    }
}
