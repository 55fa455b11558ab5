//! The console's pages Keys, Jobs and Operations in a browser.

use crate::browser::{Browser, spec};

#[tokio::test]
async fn an_operator_manages_keys_and_jobs_and_sees_how_the_server_does() {
    let settings = [("VERBATIM_FETCH_ALLOW", "127.0.0.1"), ("VERBATIM_JOBS__RETRY_DELAYS_SECONDS", "[0.1]")];
    spec("management", Browser::chromium(), &settings).await;
}
