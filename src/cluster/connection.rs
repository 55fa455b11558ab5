//! The connection to the broker. It is made once and renews itself.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::context::{Context, ContextBuilder, RequestErrorKind};
use async_nats::jetstream::kv;
use async_nats::jetstream::object_store::ObjectStore;
use async_nats::jetstream::stream::{self, DiscardPolicy, Stream};
use async_nats::{Client, ConnectOptions, Event};

use super::config::{Config, is_name};
use super::error::Error;
use crate::state;
use crate::telemetry::metrics;

/// The oldest nats-server with what is used here. Those before 2.10 cannot be told to sync each write to the disk.
const LEAST: (i64, i64, i64) = (2, 9, 0);
const LEAST_NAME: &str = "2.9.0";
/// The longest pause between two attempts to connect again.
const RECONNECT_PAUSE_MAX: Duration = Duration::from_secs(2);
/// How long the broker recognises a repeated publication by its `Nats-Msg-Id`.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(120);
/// Holds the id of this state directory.
const NODE_FILE: &str = "cluster.node";

/// This node's connection to the broker. Cheap to clone: clones are one.
#[derive(Clone)]
pub struct Cluster {
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    jetstream: Context,
    node: String,
    config: Config,
}

impl Cluster {
    /// Connects to the broker and checks that it can do what this program needs. `state_dir` keeps the name of the
    /// node, if the configuration has none.
    ///
    /// # Errors
    /// Any; [`Error::Broker`] if the broker does not answer.
    pub async fn connect(config: &Config, state_dir: &Path) -> Result<Self, Error> {
        check(config)?;
        let node = match &config.node {
            Some(node) => node.clone(),
            None => default_node(state_dir)?,
        };
        let addresses = config.nats.join(", ");
        let timeout = Duration::from_millis(config.connect_timeout_ms);
        let options = options(config)?.name(format!("verbatim {node}"));
        let failed = |source| Error::Connect { addresses: addresses.clone(), source };
        let connecting = tokio::time::timeout(timeout, options.connect(config.nats.as_slice())).await;
        let connected = connecting.map_err(|elapsed| failed(elapsed.into()))?;
        let client = connected.map_err(|error| failed(error.into()))?;
        let (major, minor, patch) = LEAST;
        let version = client.server_info().version;
        if !client.is_server_compatible(major, minor, patch) {
            return Err(Error::TooOld { addresses, version, least: LEAST_NAME });
        }
        if !client.is_server_compatible(2, 10, 0) {
            tracing::warn!(
                version,
                "this broker writes to its disk every two minutes; nats-server 2.10 and later can sync each write \
                 (sync_interval: always)"
            );
        }
        let answer = Duration::from_millis(config.timeout_ms);
        let jetstream = ContextBuilder::new().timeout(answer).ack_timeout(answer).build(client.clone());
        // As a value: what the account's own answer holds differs between versions of the server.
        let account: Result<serde_json::Value, _> = jetstream.request("INFO", &()).await;
        match account {
            Ok(account) if account.get("error").is_none() => {}
            Ok(_) => return Err(Error::NoJetStream { addresses }),
            Err(error) if error.kind() == RequestErrorKind::NoResponders => {
                return Err(Error::NoJetStream { addresses });
            }
            Err(error) => return Err(Error::Broker { store: "JetStream".into(), source: error.into() }),
        }
        metrics::CLUSTER_CONNECTED.with(&[]).set(1.0);
        tracing::info!(node, addresses, version, "joined the cluster");
        Ok(Self { shared: Arc::new(Shared { client, jetstream, node, config: config.clone() }) })
    }

    pub fn jetstream(&self) -> &Context {
        &self.shared.jetstream
    }

    /// For messages that the broker need not keep.
    pub fn client(&self) -> &Client {
        &self.shared.client
    }

    /// The name of this node, which no other has.
    pub fn node(&self) -> &str {
        &self.shared.node
    }

    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// Whether the broker can be reached, as far as is known. A broker that stands still is noticed by requests that
    /// time out.
    pub fn is_connected(&self) -> bool {
        self.shared.client.connection_state() == State::Connected
    }

    /// The subject `name` of this cluster: `verbatim.name`.
    pub fn subject(&self, name: &str) -> String {
        format!("{}.{name}", self.shared.config.prefix)
    }

    /// The name of a stream or bucket of this cluster: `verbatim-name`.
    pub fn store(&self, name: &str) -> String {
        format!("{}-{name}", self.shared.config.prefix)
    }

    /// The bucket of keys and values called `name`, which is made if it is missing: the newest value of each key, for
    /// `max_age` after its last change; for ever if that is zero. Returns whether it was made just now.
    ///
    /// # Errors
    /// [`Error::Replicas`], [`Error::Broker`].
    pub async fn bucket(&self, name: &str, max_age: Duration) -> Result<(kv::Store, bool), Error> {
        let bucket = self.store(name);
        // Not by `create_key_value`, which asks for the account first, and cannot read the answer of nats-server 2.9.
        let config = stream::Config {
            name: format!("KV_{bucket}"),
            subjects: vec![format!("$KV.{bucket}.>")],
            max_messages_per_subject: 1,
            max_age,
            allow_rollup: true,
            deny_delete: true,
            allow_direct: true,
            discard: DiscardPolicy::New,
            duplicate_window: match max_age {
                Duration::ZERO => DUPLICATE_WINDOW,
                age => age.min(DUPLICATE_WINDOW),
            },
            ..stream::Config::default()
        };
        let (_, is_new) = self.stream(config).await?;
        let found = self.jetstream().get_key_value(&bucket).await;
        let store = found.map_err(|error| Error::Broker { store: bucket, source: error.into() })?;
        Ok((store, is_new))
    }

    /// The store of objects called `name`, which is made if it is missing. Returns whether it was made just now.
    ///
    /// # Errors
    /// [`Error::Replicas`], [`Error::Broker`].
    pub async fn objects(&self, name: &str, max_age: Duration) -> Result<(ObjectStore, bool), Error> {
        let bucket = self.store(name);
        let config = stream::Config {
            name: format!("OBJ_{bucket}"),
            subjects: vec![format!("$O.{bucket}.C.>"), format!("$O.{bucket}.M.>")],
            max_age,
            allow_rollup: true,
            allow_direct: true,
            discard: DiscardPolicy::New,
            ..stream::Config::default()
        };
        let (_, is_new) = self.stream(config).await?;
        let found = self.jetstream().get_object_store(&bucket).await;
        let store = found.map_err(|error| Error::Broker { store: bucket, source: error.into() })?;
        Ok((store, is_new))
    }

    /// The stream of `config`, which is made if it is missing, with as many copies as the configuration says. Returns
    /// whether it was made just now.
    ///
    /// # Errors
    /// [`Error::Replicas`], [`Error::Broker`].
    pub async fn stream(&self, config: stream::Config) -> Result<(Stream, bool), Error> {
        use async_nats::jetstream::ErrorCode;
        use async_nats::jetstream::context::{CreateStreamErrorKind, GetStreamErrorKind};
        let name = config.name.clone();
        match self.jetstream().get_stream(&name).await {
            Ok(stream) => return Ok((stream, false)),
            Err(error) => match error.kind() {
                GetStreamErrorKind::JetStream(cause) if cause.error_code() == ErrorCode::STREAM_NOT_FOUND => {
                }
                _ => return Err(Error::Broker { store: name, source: error.into() }),
            },
        }
        let replicas = self.shared.config.replicas;
        let config = stream::Config { num_replicas: replicas, ..config };
        match self.jetstream().create_stream(config).await {
            Ok(stream) => Ok((stream, true)),
            Err(error) => {
                let is_refused = matches!(error.kind(), CreateStreamErrorKind::JetStream(_));
                let source = error.into();
                Err(match replicas {
                    2.. if is_refused => Error::Replicas { store: name, replicas, source },
                    _ => Error::Broker { store: name, source },
                })
            }
        }
    }
}

/// Checks what the bounds of single settings do not say.
fn check(config: &Config) -> Result<(), Error> {
    for address in &config.nats {
        let url = url::Url::parse(address).map_err(|_| Error::Address("something that is no address"))?;
        if !matches!(url.scheme(), "nats" | "tls") {
            return Err(Error::Address("an address that begins with neither nats:// nor tls://"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Error::Address("a user or a password"));
        }
    }
    let names = [("cluster.prefix", Some(&config.prefix)), ("cluster.node", config.node.as_ref())];
    for (setting, value) in names {
        if let Some(value) = value.filter(|value| !is_name(value)) {
            return Err(Error::Name { setting, value: value.clone() });
        }
    }
    match (&config.user, &config.password_file) {
        (Some(_), None) => return Err(Error::Lacks("cluster.user", "cluster.password_file")),
        (None, Some(_)) => return Err(Error::Lacks("cluster.password_file", "cluster.user")),
        _ => {}
    }
    match (&config.certificate_file, &config.key_file) {
        (Some(_), None) => Err(Error::Lacks("cluster.certificate_file", "cluster.key_file")),
        (None, Some(_)) => Err(Error::Lacks("cluster.key_file", "cluster.certificate_file")),
        _ => Ok(()),
    }
}

fn options(config: &Config) -> Result<ConnectOptions, Error> {
    let mut options = ConnectOptions::new()
        .connection_timeout(Duration::from_millis(config.connect_timeout_ms))
        .request_timeout(Some(Duration::from_millis(config.timeout_ms)))
        // A broker that stands still is given up after two pings without an answer.
        .ping_interval(Duration::from_secs(10))
        .reconnect_delay_callback(|attempts| {
            let exponent = u32::try_from(attempts.min(5)).unwrap_or(5);
            Duration::from_millis(100 << exponent).min(RECONNECT_PAUSE_MAX)
        })
        .event_callback(|event| async move { note(&event) });
    if let Some(path) = &config.credentials_file {
        let text = secret(path)?;
        let given = options.credentials(&text);
        options = given.map_err(|source| Error::Credentials { path: path.clone(), source })?;
    }
    if let (Some(user), Some(path)) = (&config.user, &config.password_file) {
        options = options.user_and_password(user.clone(), secret(path)?);
    }
    if let Some(path) = &config.token_file {
        options = options.token(secret(path)?);
    }
    if let Some(path) = &config.ca_file {
        options = options.add_root_certificates(path.clone());
    }
    if let (Some(certificate), Some(key)) = (&config.certificate_file, &config.key_file) {
        options = options.add_client_certificate(certificate.clone(), key.clone());
    }
    let is_encrypted = config.ca_file.is_some() || config.certificate_file.is_some();
    Ok(options.require_tls(is_encrypted || config.nats.iter().any(|address| address.starts_with("tls://"))))
}

/// The text of a file that holds a secret, without the line's end.
fn secret(path: &Path) -> Result<String, Error> {
    let failed = |source| Error::File { path: path.to_owned(), source };
    let bytes = state::read_private(path).map_err(failed)?;
    let text = String::from_utf8(bytes).map_err(|error| failed(std::io::Error::other(error)))?;
    Ok(text.trim_end().to_owned())
}

fn note(event: &Event) {
    match event {
        Event::Connected => {
            metrics::CLUSTER_CONNECTED.with(&[]).set(1.0);
            tracing::info!("connected to the broker");
        }
        Event::Disconnected => {
            metrics::CLUSTER_CONNECTED.with(&[]).set(0.0);
            tracing::warn!("the connection to the broker is lost");
        }
        Event::LameDuckMode => tracing::info!("the broker's server is about to stop"),
        Event::ServerError(error) => tracing::warn!(%error, "the broker reports an error"),
        Event::ClientError(error) => tracing::warn!(%error, "the connection to the broker reports an error"),
        _ => {}
    }
}

/// The name of the host and the id of the state directory, which is made once.
fn default_node(state_dir: &Path) -> Result<String, Error> {
    let path = state_dir.join(NODE_FILE);
    let made = || format!("{:08x}\n", rand::random::<u32>()).into_bytes();
    let id = state::make_directory(state_dir).and_then(|()| state::read_or_make(&path, made));
    let id = id.map_err(|source| Error::File { path, source })?;
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim().split('.').next().unwrap_or_default();
    let host: String =
        host.chars().filter(|sign| sign.is_ascii_alphanumeric() || *sign == '-').take(48).collect();
    let host = if host.is_empty() { "node".to_owned() } else { host };
    let id = String::from_utf8_lossy(&id);
    let id: String = id.trim().chars().filter(char::is_ascii_alphanumeric).take(8).collect();
    Ok(format!("{host}-{id}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(change: impl FnOnce(&mut Config)) -> Result<(), Error> {
        let mut config = Config { nats: vec!["nats://127.0.0.1:4222".into()], ..Config::default() };
        change(&mut config);
        check(&config)
    }

    #[test]
    fn settings_that_make_no_sense_are_refused() {
        assert!(with(|_| ()).is_ok());
        for address in ["nats://user:secret@broker:4222", "nats://user@broker", "http://broker", "broker"] {
            let error = with(|config| config.nats = vec![address.into()]).expect_err(address);
            assert!(matches!(error, Error::Address(_)), "{address}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
        assert!(with(|config| config.prefix = "a.b".into()).is_err());
        assert!(with(|config| config.node = Some("a b".into())).is_err());
        assert!(with(|config| config.user = Some("a".into())).is_err());
        assert!(with(|config| config.key_file = Some("a".into())).is_err());
    }

    #[test]
    fn a_state_directory_keeps_the_name_of_its_node() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let name = default_node(one.path()).unwrap();
        assert!(is_name(&name), "{name}");
        assert_eq!(default_node(one.path()).unwrap(), name);
        assert_ne!(default_node(other.path()).unwrap(), name);
    }

    #[tokio::test]
    async fn a_broker_that_is_not_there_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("nats://{}", listener.local_addr().unwrap());
        drop(listener);
        let config = Config { nats: vec![address.clone()], connect_timeout_ms: 500, ..Config::default() };
        let error = Cluster::connect(&config, dir.path()).await.err().expect("nothing listens");
        assert!(matches!(error, Error::Connect { .. }), "{error}");
        assert!(error.to_string().contains(&address), "{error}");
    }
}
