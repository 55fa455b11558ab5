//! Captions of real speech, written by the built program.

use std::path::Path;
use std::process::{Command, Stdio};

use unicode_width::UnicodeWidthStr as _;

struct Cue {
    start: f64,
    end: f64,
    lines: Vec<String>,
}

fn seconds(time: &str) -> f64 {
    let parts: Vec<f64> =
        time.replace(',', ".").split(':').map(|part| part.parse().expect("a number")).collect();
    parts.iter().fold(0.0, |sum, part| sum * 60.0 + part)
}

fn cues(captions: &str) -> Vec<Cue> {
    let blocks = captions.trim_start_matches("WEBVTT").trim().split("\n\n");
    blocks
        .map(|block| {
            let mut lines = block.lines().skip_while(|line| !line.contains(" --> "));
            let (start, end) = lines.next().and_then(|times| times.split_once(" --> ")).expect("times");
            Cue { start: seconds(start), end: seconds(end), lines: lines.map(str::to_owned).collect() }
        })
        .collect()
}

/// Clips in one file after another, as 16-bit samples of 16 kHz.
fn joined(clips: &[&str], into: &Path) {
    let mut wave: Vec<u8> = Vec::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(".verbatim/speech");
    for clip in clips {
        let bytes = std::fs::read(folder.join(clip)).unwrap_or_else(|_| panic!("{clip}: run ./setup"));
        let data = bytes.windows(4).position(|window| window == b"data").expect("a WAV file");
        if wave.is_empty() {
            wave.extend(&bytes[..data + 8]);
        }
        wave.extend(&bytes[data + 8..]);
        wave.extend([0; 32_000]);
    }
    let data = wave.windows(4).position(|window| window == b"data").expect("a WAV file");
    let length = wave.len();
    wave[4..8].copy_from_slice(&u32::try_from(length - 8).expect("small").to_le_bytes());
    wave[data + 4..data + 8].copy_from_slice(&u32::try_from(length - data - 8).expect("small").to_le_bytes());
    std::fs::write(into, wave).expect("writable");
}

#[test]
fn captions_of_real_speech_keep_the_limits_of_subtitling_without_being_asked_for_word_times() {
    let home = tempfile::tempdir().expect("a directory");
    let cache = Path::new(env!("CARGO_MANIFEST_DIR")).join(".verbatim");
    let austen =
        ["austen_0870.wav", "austen_0880.wav", "austen_0890.wav", "austen_0920.wav", "austen_0930.wav"];
    for (clips, format, language) in [
        (&austen[..], "srt", "en"),
        (&["jfk.wav", "en_quick_brown_fox.wav"], "vtt", "en"),
        (&["zh_pangrama.wav"], "srt", "zh"),
        (&["ja_pangrama.wav", "ja_kazoeru.wav"], "vtt", "ja"),
    ] {
        let file = home.path().join("clip.wav");
        joined(clips, &file);
        let transcribe = |format: &str| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_verbatim"));
            command.args([
                "transcribe",
                "--threads",
                "2",
                "--format",
                format,
                "--language",
                language,
                "--model",
            ]);
            command.arg(cache.join("models/base")).arg(&file).stdin(Stdio::null());
            command.env("VERBATIM_MODEL_DIR", cache.join("models")).env("HOME", home.path());
            let output = command.output().expect("it runs");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).expect("text")
        };
        let captions = transcribe(format);
        let cues = cues(&captions);
        let text = |text: &str| text.split_whitespace().collect::<String>();
        let told: String = cues.iter().flat_map(|cue| &cue.lines).map(|line| text(line)).collect();
        assert_eq!(told, text(&transcribe("text")), "{captions}");
        for cue in &cues {
            let seconds = cue.end - cue.start;
            let columns: usize =
                cue.lines.iter().map(|line| line.width()).sum::<usize>() + cue.lines.len() - 1;
            assert!((0.83..=7.001).contains(&seconds), "{seconds} s: {captions}");
            assert!(cue.lines.len() <= 2 && cue.lines.iter().all(|line| line.width() <= 42), "{captions}");
            // These speakers leave room for it.
            assert!(columns as f64 / seconds <= 22.0, "{columns} columns in {seconds} s: {captions}");
        }
        assert!(cues.windows(2).all(|pair| pair[1].start - pair[0].end >= 0.082), "{captions}");
        assert!(cues.len() > usize::from(clips.len() > 2), "{captions}");
    }
}
