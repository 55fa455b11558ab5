//! `verbatim stream FILE|-|mic`: a client of a running server's live streams.
//!
//! It rewrites interim text in place until the text is final; if standard output isn't a terminal, it writes only final
//! results, one per line. A signal ends the audio, not the results: the results of audio already sent still arrive, and the
//! exit code then says that the audio was cut short. A second signal ends the process.

use std::io::IsTerminal as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use bytes::Bytes;
use clap::Args;
use fastwebsockets::{FragmentCollectorRead, Frame, OpCode, Payload, Role, WebSocket, WebSocketWrite};
use indicatif::{ProgressBar, ProgressStyle};
use reqwest::header::{CONNECTION, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE};
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::sync::{mpsc, oneshot};
use url::Url;

use super::input;
use super::output::print;
use super::signals::{Signals, StopSignal, end};
use crate::audio::{self, DecodeOptions, SAMPLE_RATE};
use crate::config::Config;

/// Length of a message of audio, in real time.
const PIECE: Duration = Duration::from_millis(100);
const PIECE_BYTES: usize = SAMPLE_RATE as usize * 2 / 10;
/// Size of a message of a file that is sent as fast as the server accepts it.
const FILE_PIECE_BYTES: usize = 32 << 10;
/// Pieces read ahead of the network.
const PIECES_AHEAD: usize = 8;

#[derive(Args)]
pub struct Arguments {
    /// An audio file, `-` for audio on standard input, or `mic` for the microphone.
    source: PathBuf,
    /// The server; `https` and `wss` for one with TLS. Default: where `serve` listens.
    #[arg(long, value_name = "URL", value_parser = server)]
    url: Option<Url>,
    /// API key; `verbatim keys create --label NAME` makes one.
    #[arg(long, env = "VERBATIM_KEY", hide_env_values = true)]
    key: String,
    /// Send a file at the pace of speech instead of as fast as the server accepts it.
    #[arg(long)]
    real_time: bool,
    /// More parameters of the stream.
    #[arg(long, value_name = "NAME=VALUE&…", default_value = "punctuate=true")]
    query: String,
}

fn server(text: &str) -> Result<Url, String> {
    let known = |url: &Url| matches!(url.scheme(), "http" | "https" | "ws" | "wss") && url.has_host();
    let url = Url::parse(text).ok().filter(known);
    url.ok_or_else(|| "must begin with http://, https://, ws:// or wss://".into())
}

/// Pieces of audio as they arrive; an error is the last one.
type Pieces = mpsc::Receiver<anyhow::Result<Bytes>>;

pub async fn run(config: &Config, arguments: Arguments) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::new()?;
    // Only Ctrl-C ends the microphone.
    let is_endless = arguments.source == Path::new("mic");
    let (stop, stopped) = oneshot::channel();
    let mut streaming = std::pin::pin!(stream(config, arguments, stopped));
    let first = tokio::select! {
        streamed = streaming.as_mut() => return streamed,
        first = signals.next() => first,
    };
    if stop.send(()).is_err() {
        // The audio has ended: only its results were outstanding.
        end(first, "before all results had come");
    }
    let streamed = tokio::select! {
        streamed = streaming => streamed?,
        second = signals.next() => end(second, "before all results had come"),
    };
    match first {
        StopSignal::Interrupt if is_endless => Ok(streamed),
        _ => end(first, "before all of the audio was sent"),
    }
}

/// Streams until the audio ends, or until `stopped` ends it early.
async fn stream(
    config: &Config,
    arguments: Arguments,
    stopped: oneshot::Receiver<()>,
) -> anyhow::Result<ExitCode> {
    let (format, pieces) = open(&arguments).await.with_context(|| arguments.source.display().to_string())?;
    let url = endpoint(config, &arguments, format)?;
    let stream = connect(url, &arguments.key).await?;
    let socket = WebSocket::after_handshake(stream, Role::Client);
    let (reader, writer) = socket.split(tokio::io::split);
    let (obliged, obligations) = mpsc::channel(1);
    let sending = tokio::spawn(send(writer, pieces, obligations, stopped));
    let goodbye = receive(FragmentCollectorRead::new(reader), obliged).await;
    // An error in reading the audio matters more than the server's answer to the part before it.
    let sent = if goodbye.is_ok() { sending.await? } else { Ok(()) };
    sent.with_context(|| arguments.source.display().to_string())?;
    match goodbye? {
        (1000, _) => Ok(ExitCode::SUCCESS),
        (code, reason) => bail!("the server closed the stream: {code} {reason}"),
    }
}

/// The source of the audio: the parameters that describe it, and its pieces.
async fn open(arguments: &Arguments) -> anyhow::Result<(&'static str, Pieces)> {
    const RAW: &str = "encoding=linear16&sample_rate=16000";
    let (pieces, receiver) = mpsc::channel(PIECES_AHEAD);
    let source = &arguments.source;
    if source == Path::new("mic") {
        let microphone = microphone()?;
        tokio::spawn(forward(microphone, PIECE_BYTES, pieces));
        return Ok((RAW, receiver));
    }
    if input::is_standard(source) {
        let input = std::io::stdin().as_fd().try_clone_to_owned()?;
        tokio::spawn(forward(file(input), PIECE_BYTES, pieces));
        return Ok(("", receiver));
    }
    input::check(source)?;
    if !arguments.real_time {
        let file = tokio::fs::File::open(source).await?;
        tokio::spawn(forward(file, FILE_PIECE_BYTES, pieces));
        return Ok(("", receiver));
    }
    let bytes = tokio::fs::read(source).await?;
    let limits = audio::Limits { max_seconds: f64::INFINITY, ..audio::Limits::default() };
    let options = DecodeOptions { raw: None, split_channels: false, limits };
    let decoded = tokio::task::spawn_blocking(move || audio::decode(bytes.into(), &options)).await??;
    let samples = decoded.channels.first().context("there is no audio")?.clone();
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(PIECE);
        for piece in samples.pieces(PIECE_BYTES / 2) {
            ticks.tick().await;
            let samples = piece.samples().iter().map(|sample| (sample * 32_767.0) as i16);
            let bytes: Vec<u8> = samples.flat_map(i16::to_le_bytes).collect();
            if pieces.send(Ok(bytes.into())).await.is_err() {
                return;
            }
        }
    });
    Ok((RAW, receiver))
}

/// The default microphone as raw samples, by way of ALSA's recorder.
fn microphone() -> anyhow::Result<impl AsyncRead + Unpin + Send> {
    let arguments = ["-q", "-t", "raw", "-f", "S16_LE", "-c", "1", "-r", "16000"];
    let recorder = std::process::Command::new("arecord").args(arguments).stdout(Stdio::piped()).spawn();
    let recorder = match recorder {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            bail!(
                "the microphone is read by `arecord`, which is not there: install alsa-utils, or pipe audio into `verbatim stream -`"
            )
        }
        recorder => recorder.context("arecord did not start")?,
    };
    let output = recorder.stdout.context("arecord says nothing")?;
    // The child ends with the pipe that it writes to.
    Ok(file(output.into()))
}

fn file(descriptor: OwnedFd) -> tokio::fs::File {
    tokio::fs::File::from_std(descriptor.into())
}

async fn forward(
    mut from: impl AsyncRead + Unpin,
    piece_bytes: usize,
    to: mpsc::Sender<anyhow::Result<Bytes>>,
) {
    let mut is_empty = true;
    loop {
        let mut piece = vec![0; piece_bytes];
        let (piece, is_last) = match from.read(&mut piece).await {
            Ok(0) if is_empty => (Err(anyhow!("there is no audio: it is empty")), true),
            Ok(0) => return,
            Err(error) => (Err(anyhow::Error::new(error).context("the audio cannot be read")), true),
            Ok(count) => {
                piece.truncate(count);
                (Ok(piece.into()), false)
            }
        };
        is_empty = false;
        if to.send(piece).await.is_err() || is_last {
            return;
        }
    }
}

fn endpoint(config: &Config, arguments: &Arguments, format: &str) -> anyhow::Result<Url> {
    let base = match &arguments.url {
        Some(url) => url.clone(),
        None => {
            let scheme = if config.http.tls.is_some() { "https" } else { "http" };
            Url::parse(&format!("{scheme}://{}", config.listen))?
        }
    };
    let text = base.as_str().trim_end_matches('/');
    let text = match text.split_once("://") {
        Some(("ws", rest)) => format!("http://{rest}"),
        Some(("wss", rest)) => format!("https://{rest}"),
        _ => text.to_owned(),
    };
    let path = if base.path().contains("/v1/listen") { "" } else { "/v1/listen" };
    let mut url = Url::parse(&format!("{text}{path}"))?;
    let query = [url.query().unwrap_or_default(), format, "interim_results=true", &arguments.query];
    let query: Vec<&str> = query.into_iter().filter(|part| !part.is_empty()).collect();
    url.set_query(Some(&query.join("&")));
    Ok(url)
}

/// # Errors
/// The server can't be reached, or it refuses: with its own message.
async fn connect(
    url: Url,
    key: &str,
) -> anyhow::Result<impl AsyncRead + AsyncWrite + Unpin + Send + 'static> {
    // Fails if one is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().http1_only().build()?;
    ensure!(!key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic()), "the key is none");
    let server = url.origin().ascii_serialization();
    let request = client
        .get(url)
        .header("authorization", format!("Token {key}"))
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "websocket")
        .header(SEC_WEBSOCKET_VERSION, "13")
        .header(SEC_WEBSOCKET_KEY, data_encoding::BASE64.encode(&rand::random::<[u8; 16]>()));
    let response = request.send().await.map_err(|error| {
        // reqwest would quote the address with all its parameters.
        let error = anyhow::Error::new(error.without_url());
        error.context(format!("the server at {server} cannot be reached; `verbatim serve` runs one"))
    })?;
    if response.status() != reqwest::StatusCode::SWITCHING_PROTOCOLS {
        let said = response.headers().get("dg-error").and_then(|said| said.to_str().ok()).unwrap_or_default();
        let status = response.status();
        bail!("the server at {server} refused: {status}{}{said}", if said.is_empty() { "" } else { ": " });
    }
    Ok(response.upgrade().await?)
}

/// Sends all pieces, then `CloseStream`. `stopped` ends the audio, not the results.
///
/// # Errors
/// The audio could not be read to its end, or not be sent.
async fn send<S: AsyncWrite + Unpin>(
    mut writer: WebSocketWrite<S>,
    pieces: Pieces,
    mut obligations: mpsc::Receiver<Frame<'static>>,
    stopped: oneshot::Receiver<()>,
) -> anyhow::Result<()> {
    let mut broken = Ok(());
    let mut audio = Some((pieces, stopped));
    loop {
        let (frame, is_last) = match &mut audio {
            Some((pieces, stopped)) => tokio::select! {
                piece = pieces.recv() => match piece {
                    Some(Ok(piece)) => (Frame::binary(Payload::Owned(piece.into())), false),
                    Some(Err(error)) => {
                        broken = Err(error);
                        (closing(), true)
                    }
                    None => (closing(), true),
                },
                _ = stopped => (closing(), true),
                frame = obligations.recv() => match frame {
                    Some(frame) => (frame, false),
                    // The server has closed the stream and accepts no more.
                    None => return broken,
                },
            },
            None => match obligations.recv().await {
                Some(frame) => (frame, false),
                None => return broken,
            },
        };
        if is_last {
            audio = None;
        }
        if let Err(error) = writer.write_frame(frame).await {
            // The server's close frame says why, if it sent one.
            tracing::debug!(%error, "the audio could not be sent");
            return broken;
        }
    }
}

fn closing() -> Frame<'static> {
    Frame::text(Payload::Borrowed(br#"{"type":"CloseStream"}"#))
}

#[derive(Deserialize)]
#[serde(tag = "type")]
enum Message {
    Results {
        is_final: bool,
        channel: Channel,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Channel {
    alternatives: Vec<Alternative>,
}

#[derive(Deserialize)]
struct Alternative {
    transcript: String,
}

/// Shows results until the server closes the stream; returns its close code and reason.
async fn receive<S: AsyncRead + Unpin>(
    mut reader: FragmentCollectorRead<S>,
    obliged: mpsc::Sender<Frame<'static>>,
) -> anyhow::Result<(u16, String)> {
    let line = spoken_line();
    let mut oblige = |frame: Frame<'static>| {
        let obliged = obliged.clone();
        async move { obliged.send(frame).await }
    };
    loop {
        let frame = reader.read_frame(&mut oblige).await.context("the connection broke")?;
        match frame.opcode {
            OpCode::Text => show(&frame.payload, &line)?,
            OpCode::Close => {
                line.finish_and_clear();
                let (code, reason) = frame.payload.split_at_checked(2).unwrap_or((&[3, 0xED], &[]));
                let code = code.try_into().map_or(1005, u16::from_be_bytes);
                return Ok((code, String::from_utf8_lossy(reason).into_owned()));
            }
            _ => {}
        }
    }
}

/// The line that is rewritten while the speaker talks; hidden if there is no terminal.
fn spoken_line() -> ProgressBar {
    if !std::io::stdout().is_terminal() || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{wide_msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new_spinner().with_style(style)
}

fn show(message: &[u8], line: &ProgressBar) -> anyhow::Result<()> {
    let Ok(Message::Results { is_final, channel }) = serde_json::from_slice(message) else { return Ok(()) };
    let Some(heard) = channel.alternatives.into_iter().next() else { return Ok(()) };
    if !is_final {
        line.set_message(heard.transcript);
        return Ok(());
    }
    line.set_message("");
    if heard.transcript.is_empty() {
        return Ok(());
    }
    line.suspend(|| print(&format!("{}\n", heard.transcript)))
}
