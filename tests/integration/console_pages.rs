//! The console's page Voice agent, and what holds for all pages: no text becomes markup or code, no other origin gets in,
//! and people who use a keyboard or a screen reader get on. Browsers run the specs of `tests/console`.

use crate::browser::{Browser, spec};
use crate::sts::endpoints::{Model, Turn, text, tool};

#[tokio::test]
async fn the_agent_talks_and_sees_the_visitors_page() {
    spec("agent", Browser::chromium(), &[]).await;
}

#[tokio::test]
async fn the_agent_falls_silent_when_the_visitor_speaks() {
    spec("agent-interrupt", Browser::chromium(), &[]).await;
}

#[tokio::test]
async fn a_chat_model_fills_in_the_visitors_form() {
    let fill_in = tool("fill_in", r#"{"city":"Bath","password":"x"}"#);
    let turns = [Turn::Events(vec![fill_in]), Turn::Events(vec![text("Your city is filled in.")])];
    let model = Model::start(turns.into()).await;
    model.allowed.add_permits(2);
    let settings =
        [("VERBATIM_STS__CHAT__BASE_URL", model.url.as_str()), ("VERBATIM_STS__CHAT__MODEL", "small")];
    spec("agent-fills", Browser::chromium(), &settings).await;
}

#[tokio::test]
async fn a_server_without_agents_says_how_to_switch_them_on() {
    spec("agent-off", Browser::chromium(), &[("VERBATIM_STS__ENABLED", "false")]).await;
}

#[tokio::test]
async fn hostile_texts_neither_run_nor_become_markup() {
    spec("hostile", Browser::chromium(), &[]).await;
    // A job that fails to be delivered is one with an error to show.
    let settings = [("VERBATIM_FETCH_ALLOW", "127.0.0.1")];
    spec("hostile-pages", Browser::chromium(), &settings).await;
}

#[tokio::test]
async fn pages_of_other_origins_get_nothing() {
    spec("cross-site", Browser::chromium(), &[]).await;
}

#[tokio::test]
async fn pages_are_for_keyboards_and_screen_readers_too() {
    spec("access", Browser::chromium(), &[]).await;
}

#[tokio::test]
async fn firefox_opens_all_pages_and_talks() {
    spec("firefox-pages", Browser::firefox(), &[]).await;
    spec("agent-interrupt", Browser::firefox(), &[]).await;
}
