//! Speech as readers expect it written: the made cases of `tests/fixtures/formatting.tsv`, each asked of the server.

use std::collections::HashMap;

use serde_json::Value;

use crate::server::{RAW, Setup, TestServer, answer, say_for};

const CASES: &str = include_str!("../fixtures/formatting.tsv");
const PASSING_PERCENT: usize = 98;
/// In these nothing may be written that was not said so.
const UNTOUCHED: [&str; 4] = ["one", "unchanged", "prose", "other languages"];

struct Case {
    group: &'static str,
    query: &'static str,
    spoken: &'static str,
    written: String,
}

fn cases() -> Vec<Case> {
    let (mut group, mut query) = ("", "");
    let mut cases = Vec::new();
    for line in CASES.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(heading) = line.strip_prefix('[') {
            (group, query) = heading.split_once("] ").expect("a group and its query");
            continue;
        }
        let (spoken, written) = line.split_once('\t').unwrap_or((line, line));
        cases.push(Case { group, query, spoken, written: written.replace("\\n", "\n") });
    }
    cases
}

/// Passes at the percentage or above, overall; the groups in which nothing changes pass whole.
#[tokio::test]
async fn speech_is_written_as_readers_expect() {
    let cases = cases();
    let says = (1..).zip(cases.iter().map(|case| case.spoken)).collect::<HashMap<_, _>>();
    let server = TestServer::start(Setup { says, ..Setup::default() }).await;
    let mut groups: Vec<(&str, usize, usize)> = Vec::new();
    let mut misses = Vec::new();
    for (number, case) in (1..).zip(&cases) {
        let spoken = case.spoken.split(' ').count();
        let audio = say_for(number, 0.25 * (spoken + 4) as f64);
        let (status, body) = answer(server.listen(&format!("{RAW}&{}", case.query), audio)).await;
        assert_eq!(status, 200, "{}: {body}", case.spoken);
        let alternative = &body["results"]["channels"][0]["alternatives"][0];
        let transcript = alternative["transcript"].as_str().expect("a transcript");
        // Without it, words are not asked for.
        if case.query.contains("smart_format") {
            check_words(case, spoken, transcript, &alternative["words"]);
        }
        if groups.last().is_none_or(|(group, ..)| *group != case.group) {
            groups.push((case.group, 0, 0));
        }
        let (_, passed, all) = groups.last_mut().expect("a group");
        *all += 1;
        if transcript == case.written {
            *passed += 1;
        } else {
            misses.push(format!(
                "[{}] {:?}\n     is {transcript:?}\n  wants {:?}",
                case.group, case.spoken, case.written
            ));
        }
    }
    let (passed, all) = groups.iter().fold((0, 0), |(passed, all), group| (passed + group.1, all + group.2));
    let rate =
        |passed: usize, all: usize| format!("{passed}/{all} {:.1}%", 100.0 * passed as f64 / all as f64);
    let rates: Vec<String> =
        groups.iter().map(|(group, passed, all)| format!("{group}: {}", rate(*passed, *all))).collect();
    let report = format!("{}\n{}\nall: {}", misses.join("\n"), rates.join("\n"), rate(passed, all));
    println!("{report}");
    assert!(all >= 400, "{all} cases");
    assert!(passed * 100 >= all * PASSING_PERCENT, "{report}");
    for untouched in UNTOUCHED {
        let group = groups.iter().find(|(group, ..)| *group == untouched);
        assert!(group.is_some_and(|(_, passed, all)| passed == all), "{untouched}: {report}");
    }
}

/// The words are those of the transcript, in order of time, from the first that was said to the last.
fn check_words(case: &Case, spoken: usize, transcript: &str, words: &Value) {
    let words = words.as_array().expect("words");
    let written: Vec<&str> = words.iter().filter_map(|word| word["punctuated_word"].as_str()).collect();
    assert_eq!(written.join(" "), transcript.split_whitespace().collect::<Vec<_>>().join(" "));
    let time = |word: &Value, name: &str| word[name].as_f64().expect("a time");
    for pair in words.windows(2) {
        assert!(time(&pair[0], "end") <= time(&pair[1], "start"), "{}: {pair:?}", case.spoken);
    }
    // Dictated signs have no words.
    if !case.query.contains("dictation") {
        let ends = (time(&words[0], "start"), time(&words[words.len() - 1], "end"));
        assert_eq!(ends, (0.25, 0.25 * (spoken + 1) as f64), "{}", case.spoken);
    }
}
