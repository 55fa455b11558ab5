//! Turn taking on made dialogues with known truth: false cut-offs, the wait at the end of a turn, and what is said over the
//! agent. In the time of the audio, not of a clock.
//!
//! ```text
//! benches/dialogues.py --server http://127.0.0.1:8000 --key KEY --clips .verbatim/speech MORE -- /tmp/dialogues
//! cargo bench --bench turns -- /tmp/dialogues [half=0|1] [server=127.0.0.1:8000] [key=KEY] [recogniser=0.2] [show]
//! ```
//!
//! Words at a pause come from a server's recogniser and are kept in the folder. They are known `recogniser` seconds after the
//! pause begins to be judged, the model's answer 32 ms after it was asked.

use std::collections::{BTreeMap, HashMap};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use verbatim::audio::{Pcm, SAMPLE_RATE};
use verbatim::turn::{
    Ear, EndOfTurn, Expected, Noticed, Reference, Rules, Turn, TurnModel, are_own_words, ending,
    is_backchannel,
};
use verbatim::vad::{FRAME_SAMPLES, Vad};

const FRAME_SECONDS: f64 = FRAME_SAMPLES as f64 / SAMPLE_RATE as f64;
const MODEL_SECONDS: f64 = 0.032;
/// An end before this much of a turn's last word was said cuts it off.
const TOLERANCE: f64 = 0.1;

/// How a system takes turns.
#[derive(Clone, Copy, PartialEq)]
enum System {
    /// So much silence.
    Silence(u64),
    /// Smart Turn, asked once: at once if it finds the turn complete, otherwise after two seconds.
    AskedOnce,
    /// Smart Turn, asked again as the silence grows.
    AskedAgain,
    /// The model, the words and the rules together.
    Ours,
}

impl System {
    const ALL: [Self; 6] = [
        Self::Silence(300),
        Self::Silence(600),
        Self::Silence(1000),
        Self::AskedOnce,
        Self::AskedAgain,
        Self::Ours,
    ];

    fn name(self) -> String {
        match self {
            Self::Silence(ms) => format!("silence {ms} ms"),
            Self::AskedOnce => "Smart Turn, asked once".into(),
            Self::AskedAgain => "Smart Turn, asked again".into(),
            Self::Ours => "ours".into(),
        }
    }
}

struct Bench {
    folder: PathBuf,
    vad: Vad,
    model: TurnModel,
    runtime: tokio::runtime::Runtime,
    server: Option<String>,
    key: String,
    recogniser_seconds: f64,
    /// By file and samples: probabilities, and words.
    asked: HashMap<(String, usize, usize), Option<f32>>,
    words: BTreeMap<String, String>,
}

/// Something that becomes known later.
enum News {
    Judged(u64, f64, Option<f32>),
    Words(u64, String),
    /// The first words over the agent, of the turn with this number.
    First(usize, String),
}

#[derive(Default)]
struct Outcome {
    ends: Vec<f64>,
    /// When the agent paused.
    pauses: Vec<f64>,
    /// When it went on after a pause.
    resumed: Vec<f64>,
    /// Turns over the agent that took the floor, with their words.
    taken: Vec<(f64, String)>,
    echoes: usize,
    is_paused: bool,
}

/// The agent beside a caller.
struct Agent {
    samples: Vec<f32>,
    text: String,
    reference: Reference,
    echo: Vec<f32>,
    /// The delay of its echo, in frames.
    delay: usize,
    /// The frame of its speech that it played in each frame of the dialogue; none while it is paused.
    played: Vec<Option<usize>>,
    /// The next frame to be played.
    next: usize,
}

impl Agent {
    fn of(row: &Value, folder: &Path) -> Option<Self> {
        let file = |name: &str| row[name].as_str().map(|file| wav(&folder.join(file)));
        Some(Self {
            samples: file("agent")?,
            text: row["agent_text"].as_str()?.to_owned(),
            reference: Reference::new(24_000),
            echo: file("echo").unwrap_or_default(),
            delay: (row["delay"].as_f64().unwrap_or_default() / FRAME_SECONDS).round() as usize,
            played: Vec::new(),
            next: 0,
        })
    }

    /// Plays a frame unless it is paused, and adds the echo of what it played before to what is heard.
    fn play(&mut self, now: f64, is_paused: bool, heard: &mut [f32]) {
        let played = (!is_paused).then_some(self.next);
        self.next += usize::from(!is_paused);
        self.played.push(played);
        if let Some(frame) = played {
            let samples = self.samples.get(frame * 768..((frame + 1) * 768).min(self.samples.len()));
            let samples = samples.unwrap_or_default();
            if !samples.is_empty() {
                self.reference.play(now, samples);
            }
        }
        let before = self.played.len().checked_sub(self.delay + 1).and_then(|index| self.played[index]);
        if let Some(frame) = before {
            let echo = self.echo.iter().skip((frame + self.delay) * FRAME_SAMPLES);
            heard.iter_mut().zip(echo).for_each(|(heard, echo)| *heard += echo);
        }
    }

    fn is_aside(&self, text: &str) -> bool {
        text.trim().is_empty() || is_backchannel(text) || are_own_words(text, &self.text)
    }
}

impl Bench {
    fn probability(&mut self, file: &str, end: usize, speech: Pcm) -> Option<f32> {
        let key = (file.to_owned(), end, speech.len());
        if let Some(known) = self.asked.get(&key) {
            return *known;
        }
        let probability = self.runtime.block_on(self.model.probability(speech));
        self.asked.insert(key, probability);
        probability
    }

    fn recognise(&mut self, file: &str, end: usize, pcm: &Pcm) -> String {
        let key = format!("{file}:{end}:{}", pcm.len());
        if let Some(known) = self.words.get(&key) {
            return known.clone();
        }
        let Some(server) = &self.server else { panic!("the words of {key} are not known: name a server") };
        let text = listen(server, &self.key, pcm).unwrap_or_else(|error| panic!("{server}: {error}"));
        self.words.insert(key, text.clone());
        text
    }

    /// Runs a system over one dialogue.
    fn run(&mut self, row: &Value, system: System) -> Outcome {
        let file = row["file"].as_str().expect("a name").to_owned();
        let mut samples = wav(&self.folder.join(&file));
        let mut agent = Agent::of(row, &self.folder);
        let silence_ms = if let System::Silence(ms) = system { ms } else { 600 };
        let turn = Turn { silence_ms, ..Turn::default() };
        let mut ear = Ear::new(&self.vad, &turn, !matches!(system, System::Silence(_)));
        let mut rules = Rules::of(&turn);
        rules.awaits_words = system == System::Ours;
        let digits =
            row["turns"][0]["digits"].as_u64().map_or(Expected::Anything, |n| Expected::Digits(n as usize));
        let mut later: Vec<(f64, News)> = Vec::new();
        let mut outcome = Outcome::default();
        // The words of the pause that the turn is in.
        let mut words: Option<(u64, String)> = None;
        for (index, piece) in samples.chunks_mut(FRAME_SAMPLES).enumerate() {
            let now = index as f64 * FRAME_SECONDS;
            let after = now + FRAME_SECONDS;
            let due = |(at, _): &mut (f64, News)| *at <= now;
            let news: Vec<(f64, News)> = later.extract_if(.., due).collect();
            for (_, news) in news {
                let ended = match news {
                    News::Judged(pause, silence, probability) => {
                        ear.judged(pause, silence, probability, &rules)
                    }
                    News::First(turns, text) => {
                        let is_on = turns == outcome.ends.len() + outcome.echoes;
                        if is_on && agent.as_ref().is_some_and(|agent| !agent.is_aside(&text)) {
                            outcome.pause(now);
                        }
                        None
                    }
                    News::Words(pause, text) => {
                        let is_aside = agent.as_ref().is_some_and(|agent| agent.is_aside(&text));
                        let ends = ending(&text, digits);
                        words = Some((pause, text));
                        if is_aside { ear.end(pause) } else { ear.recognised(pause, ends, &rules) }
                    }
                };
                if ended.is_some() {
                    outcome.end(now, agent.as_ref(), words.as_ref().map(|(_, text)| text.as_str()));
                }
            }
            if let Some(agent) = &mut agent {
                agent.play(now, outcome.is_paused, piece);
            }
            let heard = agent.as_ref().map(|agent| (&agent.reference, now));
            for noticed in ear.listen(piece, &rules, heard) {
                let end = (index + 1) * FRAME_SAMPLES;
                match noticed {
                    Noticed::Began | Noticed::Resumed => {}
                    Noticed::Insists(utterance) => {
                        if agent.is_some() && system == System::Ours {
                            let text = self.recognise(&file, end, &utterance.pcm);
                            let turns = outcome.ends.len() + outcome.echoes;
                            later.push((after + self.recogniser_seconds, News::First(turns, text)));
                        }
                    }
                    Noticed::Persists => outcome.pause(after),
                    Noticed::Echoed => {
                        outcome.echoes += 1;
                        outcome.resume(after);
                    }
                    Noticed::Ended(_, pause) => {
                        let text = words
                            .as_ref()
                            .filter(|(of, _)| Some(*of) == pause)
                            .map(|(_, text)| text.as_str());
                        outcome.end(after, agent.as_ref(), text);
                    }
                    Noticed::Paused(look) => {
                        let is_first = look.utterance.is_some();
                        if is_first || system != System::AskedOnce {
                            let probability = self.probability(&file, end, look.speech);
                            let is_end = probability.is_some_and(|probability| probability >= 0.5);
                            // By itself the model ends a turn when it finds it complete.
                            let said =
                                if system == System::Ours || !is_end { probability } else { Some(1.0) };
                            let news = News::Judged(look.pause, look.silence, said);
                            later.push((after + MODEL_SECONDS, news));
                        }
                        if let Some(utterance) = look.utterance.filter(|_| system == System::Ours) {
                            let text = self.recognise(&file, end, &utterance.pcm);
                            later.push((after + self.recogniser_seconds, News::Words(look.pause, text)));
                        }
                    }
                }
            }
        }
        outcome
    }
}

impl Outcome {
    fn pause(&mut self, now: f64) {
        if !std::mem::replace(&mut self.is_paused, true) {
            self.pauses.push(now);
        }
    }

    fn resume(&mut self, now: f64) {
        if std::mem::take(&mut self.is_paused) {
            self.resumed.push(now);
        }
    }

    fn end(&mut self, now: f64, agent: Option<&Agent>, words: Option<&str>) {
        self.ends.push(now);
        let Some(agent) = agent else { return };
        let text = words.unwrap_or_default();
        if agent.is_aside(text) {
            self.resume(now);
        } else {
            self.pause(now);
            self.taken.push((now, text.to_owned()));
        }
    }
}

/// 16-bit samples of a WAV file on one channel.
fn wav(path: &Path) -> Vec<f32> {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let data = bytes.windows(4).position(|four| four == b"data").expect("a WAV file") + 8;
    let (samples, _) = bytes[data..].as_chunks::<2>();
    samples.iter().map(|sample| f32::from(i16::from_le_bytes(*sample)) / 32_768.0).collect()
}

/// The transcript by a server.
fn listen(server: &str, key: &str, pcm: &Pcm) -> std::io::Result<String> {
    let data: Vec<u8> =
        pcm.samples().iter().flat_map(|sample| ((sample * 32_767.0) as i16).to_le_bytes()).collect();
    let mut stream = TcpStream::connect(server)?;
    let path = "/v1/listen?language=en&punctuate=true&encoding=linear16&sample_rate=16000&channels=1";
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {server}\r\nAuthorization: Bearer {key}\r\nContent-Type: audio/raw\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        data.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(&data)?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    let json: Value = reply
        .find('{')
        .zip(reply.rfind('}'))
        .and_then(|(from, to)| serde_json::from_str(&reply[from..=to]).ok())
        .ok_or_else(|| std::io::Error::other(reply.clone()))?;
    let text = json["results"]["channels"][0]["alternatives"][0]["transcript"].as_str();
    text.map(str::to_owned).ok_or_else(|| std::io::Error::other(reply))
}

fn percentile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = ((sorted.len().max(1) - 1) as f64 * share).round() as usize;
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

/// Turns of one kind under one system.
#[derive(Default)]
struct Tally {
    turns: usize,
    cut: usize,
    pauses: usize,
    cut_pauses: usize,
    waits: Vec<f64>,
}

impl Tally {
    fn add(&mut self, turn: &Value, ends: &[f64]) -> bool {
        let seconds = |value: &Value| value.as_f64().expect("seconds");
        let (start, end) = (seconds(&turn["start"]), seconds(&turn["end"]));
        let early = ends.iter().filter(|at| (start..end - TOLERANCE).contains(*at)).count();
        self.turns += 1;
        self.cut += usize::from(early > 0);
        self.pauses += turn["pauses"].as_array().map_or(0, Vec::len);
        self.cut_pauses += early;
        if early == 0 {
            self.waits.extend(ends.iter().find(|at| **at >= end - TOLERANCE).map(|at| at - end));
        }
        early > 0
    }

    fn line(&self) -> String {
        let share = |part: usize, whole: usize| 100.0 * part as f64 / whole.max(1) as f64;
        format!(
            "{:5} turns  cut off {:5.1} %  wait p50 {:5.2} p90 {:5.2} p99 {:5.2} s",
            self.turns,
            share(self.cut, self.turns),
            percentile(&self.waits, 0.5),
            percentile(&self.waits, 0.9),
            percentile(&self.waits, 0.99),
        )
    }
}

fn main() {
    let mut options: HashMap<String, String> = HashMap::new();
    let mut folder = None;
    for argument in std::env::args().skip(1).filter(|argument| !argument.starts_with("--")) {
        match argument.split_once('=') {
            Some((name, value)) => drop(options.insert(name.into(), value.into())),
            None if argument == "show" => drop(options.insert("show".into(), String::new())),
            None => folder = Some(PathBuf::from(argument)),
        }
    }
    let Some(folder) = folder else {
        return println!("name the folder that benches/dialogues.py has made");
    };
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join(".verbatim/models");
    let known = folder.join("words.json");
    let words = std::fs::read(&known).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let mut bench = Bench {
        vad: Vad::load(&models.join("silero-vad")).expect("run ./setup"),
        model: TurnModel::open(EndOfTurn::Model, &models, 1)
            .expect("run ./setup smart-turn")
            .expect("wanted"),
        runtime: tokio::runtime::Builder::new_current_thread().build().expect("a runtime"),
        server: options.get("server").cloned(),
        key: options.get("key").cloned().unwrap_or_default(),
        recogniser_seconds: options.get("recogniser").and_then(|text| text.parse().ok()).unwrap_or(0.2),
        asked: HashMap::new(),
        words: words.unwrap_or_default(),
        folder: folder.clone(),
    };
    let manifest =
        std::fs::read_to_string(folder.join("dialogues.jsonl")).expect("benches/dialogues.py makes it");
    let rows: Vec<Value> = manifest.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let half = options.get("half").and_then(|text| text.parse::<u64>().ok());
    let rows: Vec<&Value> = rows.iter().filter(|row| half.is_none_or(|half| row["half"] == half)).collect();
    let shows = options.contains_key("show");
    for system in System::ALL {
        let mut tallies: BTreeMap<String, Tally> = BTreeMap::new();
        for row in rows.iter().filter(|row| row["turns"].is_array()) {
            let outcome = bench.run(row, system);
            for turn in row["turns"].as_array().into_iter().flatten() {
                let kind = row["kind"].as_str().expect("a kind");
                let kinds = [
                    "all".to_owned(),
                    kind.to_owned(),
                    format!("  of {}s", row["source"].as_str().expect("a source")),
                ];
                for kind in kinds {
                    let is_cut = tallies.entry(kind.clone()).or_default().add(turn, &outcome.ends);
                    if is_cut && shows && system == System::Ours && kind == "all" {
                        println!("cut off: {} at {:?}: {}", row["file"], outcome.ends, turn);
                    }
                }
            }
        }
        println!("{}", system.name());
        for (kind, tally) in &tallies {
            println!("  {kind:<16} {}", tally.line());
        }
    }
    over_agent(&mut bench, &rows, shows);
    std::fs::write(known, json!(bench.words).to_string()).expect("written");
}

/// Speech over the agent, as this server's rules take it.
fn over_agent(bench: &mut Bench, rows: &[&Value], shows: bool) {
    println!("over the agent's speech");
    let kinds = ["backchannel", "noise", "echo", "interruption", "interruption over echo"];
    for kind in kinds {
        let (mut dialogues, mut events, mut paused, mut taken) = (0, 0, 0, 0);
        let (mut stops, mut gaps) = (Vec::new(), Vec::new());
        for row in rows.iter().filter(|row| row["kind"] == kind) {
            let outcome = bench.run(row, System::Ours);
            let marks = row["events"].as_array().expect("events");
            let start = marks.first().and_then(|event| event["start"].as_f64()).unwrap_or(0.0);
            dialogues += 1;
            events += marks.len();
            paused += outcome.pauses.len();
            taken += outcome.taken.len();
            stops.extend(outcome.pauses.iter().find(|at| **at >= start).map(|at| at - start));
            gaps.extend(outcome.pauses.iter().zip(&outcome.resumed).map(|(from, to)| to - from));
            if shows {
                let Outcome { pauses, resumed, taken, echoes, .. } = &outcome;
                let file = &row["file"];
                println!(
                    "    {file}: paused {pauses:.2?}, went on {resumed:.2?}, taken {taken:.2?}, echoes {echoes}"
                );
            }
        }
        let frames = |share| (percentile(&stops, share) / FRAME_SECONDS).ceil();
        println!(
            "  {kind:<24} {dialogues:3} dialogues, {events:3} events: the agent paused {paused:3} times (p50 {:.2} s), lost \
             the floor {taken:3} times; frames until it paused p50 {} p99 {}",
            percentile(&gaps, 0.5),
            frames(0.5),
            frames(0.99)
        );
    }
}
