//! A chat front end as a whole, Open WebUI, that is given an OpenAI base address: it takes dictation and reads aloud.
//!
//! `./setup open-webui` installs it. Without it the test is skipped with a message; with `TEST_ALL_SDKS` set, as in CI, that
//! is a failure.

use crate::openai_tools::Server;
use crate::sdks::{printed, python};
use crate::speech::{cache, word_errors};

const TEXT: &str = "The quick brown fox jumps over the lazy dog. The office is open on Monday.";
const SAID: &str = "He might even have been made amiable himself.";

#[tokio::test]
async fn it_works_with_another_address_and_key() {
    if !cache("sdks/open-webui").join("installed").exists() {
        assert!(std::env::var_os("TEST_ALL_SDKS").is_none(), "run ./setup open-webui");
        eprintln!("skipped: there is no Open WebUI; run ./setup open-webui");
        return;
    }
    let server = Server::start().await;
    let mut front_end = python("open-webui", "chat_front_end.py");
    front_end
        .env("SERVER", server.program.url(""))
        .env("KEY", &server.key)
        .env("AUDIO", cache("speech/austen_0930.wav"))
        .env("TEXT", TEXT);
    let told = printed(front_end).await;
    for way in ["dictated", "in a language"] {
        let heard = told[way].as_str().expect("text");
        assert!(word_errors(SAID, heard.trim()) <= 1, "{way}: {told}");
    }
    assert_eq!(told["type"], "audio/mpeg", "{told}");
    let heard = told["read aloud"].as_str().expect("text");
    assert!(word_errors(TEXT, heard.trim()) <= 3, "{told}");
    // The server's words about a bad file reach the user.
    assert!(
        told["not audio"][1].as_str().is_some_and(|detail| detail.contains("Supported formats")),
        "{told}"
    );
}
