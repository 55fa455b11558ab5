//! The `deepgram` crate's clients of tokens and projects against a server: `manage-client ADDRESS KEY`. Prints how many
//! keys the project has before one is created, then, and after it is deleted.

use deepgram::Deepgram;
use deepgram::auth;
use deepgram::manage::keys::options::Options;

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, key] = arguments.as_slice() else { panic!("ADDRESS KEY") };
    let client = Deepgram::with_base_url_and_api_key(address.as_str(), key).expect("a client");
    let asked = auth::options::Options::builder().ttl_seconds(60.0).build();
    let granted = client.auth().grant(Some(&asked)).await.expect("a token");
    assert!(!granted.access_token.is_empty());
    assert_eq!(granted.expires_in, Some(60.0));

    let projects = client.projects().list().await.expect("projects").projects;
    let project = &projects[0].project_id.to_string();
    let count = async || client.keys().list(project).await.expect("keys").api_keys.len();
    let before = count().await;
    let options = Options::builder("from Rust", ["usage:write"]).build();
    let made = client.keys().create(project, &options).await.expect("a key");
    let between = count().await;
    client.keys().delete(project, &made.api_key_id.to_string()).await.expect("deleted");
    println!("{before} {between} {}", count().await);
}
