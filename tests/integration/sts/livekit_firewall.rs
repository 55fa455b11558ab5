//! Networks that let nothing out but TCP to the media server and to port 443: a network namespace with a packet filter.
//! Rooms of a LiveKit server work from there over relays (TURN) on that port, for the agent over TLS, for LiveKit's own
//! client over TCP. Needs the rights to make namespaces, iptables and coturn; otherwise skipped with a message.

use std::ffi::OsStr;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicU8, Ordering};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;
use verbatim::sts::config::Relay;

use super::livekit::{Caller, KEY, LOUD, Media, SECRET};
use super::livekit_relays::{PASSWORD, Turn, USER};
use super::service::{Service, Setup};
use super::voices::{self, FOX, MAN, Voice};
use crate::program::Program;
use crate::sdks::python;
use crate::speech::{cache, word_errors};

const PORT: u16 = 443;

/// A network with a way to this machine alone.
struct Network {
    name: String,
    /// This machine's address in it.
    host: Ipv4Addr,
}

impl Network {
    /// `None` if this process has no rights to make one, or there is no packet filter.
    fn open() -> Option<Self> {
        static COUNT: AtomicU8 = AtomicU8::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        // Of 10.0.0.0/8, as far from the usual networks as can be.
        let (process, third) = (std::process::id(), rand::random::<u8>());
        let (host, guest) = (Ipv4Addr::new(10, 231, third, 1), Ipv4Addr::new(10, 231, third, 2));
        let network = Self { name: format!("verbatim-{process}-{count}"), host };
        let (outer, inner) =
            (format!("vo{}{count}", process % 100_000), format!("vi{}{count}", process % 100_000));
        let name = network.name.as_str();
        let steps = [
            format!("ip netns add {name}"),
            format!("ip link add {outer} type veth peer name {inner} netns {name}"),
            format!("ip address add {host}/30 dev {outer}"),
            format!("ip link set {outer} up"),
            format!("ip -n {name} address add {guest}/30 dev {inner}"),
            format!("ip -n {name} link set {inner} up"),
            format!("ip -n {name} link set lo up"),
        ];
        let is_made = steps.iter().all(|step| run(step));
        if !is_made || !network.filter("-A OUTPUT -o lo -j ACCEPT") {
            eprintln!("skipped: no rights to make a network namespace, or no iptables");
            return None;
        }
        Some(network)
    }

    fn filter(&self, rule: &str) -> bool {
        run(&format!("ip netns exec {} iptables -w {rule}", self.name))
    }

    /// Lets TCP to this machine's ports out, and nothing else.
    fn lets_out(&self, ports: &[u16]) {
        for port in ports {
            assert!(self.filter(&format!("-A OUTPUT -p tcp -d {} --dport {port} -j ACCEPT", self.host)));
        }
        assert!(self.filter("-A OUTPUT -j REJECT"));
    }

    /// Runs a program in the network.
    fn command(&self, program: impl AsRef<OsStr>) -> std::process::Command {
        let mut command = std::process::Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(program);
        command
    }

    /// A media server that is reached here and in the network, with a relay.
    async fn media(&self, relay: Value) -> Option<Media> {
        let host = self.host.to_string();
        Media::start_with(|config| {
            config["bind_addresses"] = json!(["127.0.0.1", host]);
            config["rtc"]["node_ip"] = json!(host);
            config["rtc"]["ips"]["includes"] = json!([format!("{host}/32")]);
            config["rtc"]["turn_servers"] = json!([relay]);
        })
        .await
    }

    fn url(&self, media: &Media) -> String {
        format!("ws://{}:{}", self.host, media.address.port())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        run(&format!("ip netns del {}", self.name));
    }
}

/// Whether a command of plain words succeeds.
fn run(line: &str) -> bool {
    let mut words = line.split(' ');
    let mut command = std::process::Command::new(words.next().expect("a program"));
    command.args(words).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// A certificate for an address, and its key.
fn certified(folder: &Path, ip: Ipv4Addr) -> [std::path::PathBuf; 2] {
    let made = rcgen::generate_simple_self_signed(vec![ip.to_string()]).expect("a certificate");
    let files = [folder.join("relay.pem"), folder.join("relay.key")];
    std::fs::write(&files[0], made.cert.pem()).expect("written");
    std::fs::write(&files[1], made.signing_key.serialize_pem()).expect("written");
    files
}

fn relay(network: &Network, protocol: &str) -> Value {
    let host = network.host.to_string();
    json!({"host": host, "port": PORT, "protocol": protocol, "username": USER, "credential": PASSWORD})
}

#[tokio::test]
async fn an_agent_that_may_only_use_port_443_talks_over_tls() {
    let Some(network) = Network::open() else { return };
    let folder = TempDir::new().expect("a folder");
    let [certificate, key] = certified(folder.path(), network.host);
    let Some(_turn) = Turn::at(network.host, PORT, Some([&certificate, &key])).await else { return };
    let Some(media) = network.media(relay(&network, "tls")).await else { return };
    network.lets_out(&[media.address.port(), PORT]);

    let (state, url) = (TempDir::new().expect("a folder"), network.url(&media));
    let (models, model) = (cache("models"), cache("models/tiny.en"));
    let settings = [
        ("SSL_CERT_FILE", certificate.to_str().expect("text")),
        ("VERBATIM_MODEL_DIR", models.to_str().expect("text")),
        ("VERBATIM_STS__SPEECH__EMBEDDED", "kokoro"),
        ("VERBATIM_STS__LIVEKIT__URL", &url),
        ("VERBATIM_STS__LIVEKIT__API_KEY", KEY),
        ("VERBATIM_STS__LIVEKIT__API_SECRET", SECRET),
    ];
    let arguments = [OsStr::new("--dev"), OsStr::new("--model"), model.as_os_str()];
    let command = network.command(env!("CARGO_BIN_EXE_verbatim"));
    let program = Program::serve_by(command, state.path(), &arguments, &settings).await;
    let body = json!({"greeting": "Good morning, how may I help you?"}).to_string();
    let mut curl = Command::from(network.command("curl"));
    curl.args(["-s", "-H", "Content-Type: application/json", "-d", &body, &program.url("/api/livekit/sts")]);
    let reply = curl.output().await.expect("curl").stdout;
    let reply: Value =
        serde_json::from_slice(&reply).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&reply)));

    let mut caller = Caller::join(&reply).await;
    caller.find(|event| event["event"] == "heard" && event["loudness"].as_u64() > Some(LOUD)).await;
    caller.message("AgentAudioDone").await;
    caller.speak(FOX.1).await;
    let me = reply["participant_identity"].as_str().expect("text");
    let line = caller.line(me).await;
    let heard = line["text"].as_str().expect("text");
    assert!(word_errors(FOX.0, heard) <= 2, "{heard}");
}

#[tokio::test]
async fn a_caller_who_may_only_use_port_443_talks_with_the_agent() {
    let Some(network) = Network::open() else { return };
    let Some(_turn) = Turn::at(network.host, PORT, None).await else { return };
    let Some(media) = network.media(relay(&network, "tcp")).await else { return };
    network.lets_out(&[media.address.port(), PORT]);

    let voice = Voice::start().await;
    let mut setup =
        Setup { recognize: Some(voices::ears(&[Some("How may I help you?")])), ..Setup::default() };
    media.give(&mut setup);
    setup.config.livekit.url = Some(network.url(&media));
    setup.config.livekit.relay = Relay::Auto;
    voice.give(&mut setup);
    let service = Service::start(setup).await;
    let (_, reply) = service.session(json!({"greeting": MAN.0})).await;
    let script = python("livekit", "livekit_caller.py");
    let script = script.as_std();
    let mut command = network.command(script.get_program());
    command.args(script.get_args());
    let mut caller = Caller::join_by(command.into(), &reply).await;
    caller.find(|event| event["event"] == "heard" && event["loudness"].as_u64() > Some(LOUD)).await;
    caller.message("AgentAudioDone").await;
    caller.speak(FOX.1).await;
    let me = reply["participant_identity"].as_str().expect("text");
    assert_eq!(caller.line(me).await["text"], "How may I help you?");
}
