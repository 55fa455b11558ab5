use proptest::prelude::*;
use unicode_width::UnicodeWidthStr;

use super::atoms::LINE_COLUMNS;
use super::cues::{COLUMNS_PER_SECOND, MAX_SECONDS, MIN_GAP_SECONDS, MIN_SECONDS};
use super::*;
use crate::transcript::{DetectedLanguage, Segment, Word};

/// The most seconds that rounding to milliseconds may take away.
const ROUNDING: f64 = 0.0015;

fn segment(words: Vec<Word>) -> Segment {
    Segment {
        text: words.iter().map(|word| word.text.as_str()).collect(),
        start: words.first().map_or(0.0, |word| word.start),
        end: words.last().map_or(0.0, |word| word.end),
        words,
        ..Segment::default()
    }
}

fn transcript(segments: Vec<Segment>) -> Transcript {
    let language = DetectedLanguage { code: "en".into(), probability: 1.0 };
    Transcript { segments, language, languages: Vec::new(), duration: 1.0, voice_without_words: 0.0 }
}

/// `text` with a word each `seconds`.
fn said(text: &str, seconds: f64) -> Transcript {
    let word = |(index, word): (usize, &str)| Word {
        text: format!(" {word}"),
        start: index as f64 * seconds,
        end: (index + 1) as f64 * seconds,
        probability: 1.0,
        speaker: None,
    };
    transcript(vec![segment(text.split(' ').enumerate().map(word).collect())])
}

/// `text`, a piece for each character.
fn unspaced(text: &str, seconds: f64) -> Transcript {
    let word = |(index, letter): (usize, char)| Word {
        text: letter.to_string(),
        start: index as f64 * seconds,
        end: (index + 1) as f64 * seconds,
        probability: 1.0,
        speaker: None,
    };
    transcript(vec![segment(text.chars().enumerate().map(word).collect())])
}

fn shown(transcript: &Transcript) -> Vec<String> {
    cues(transcript).into_iter().map(|cue| cue.lines.join("|")).collect()
}

#[test]
fn captions_have_their_forms() {
    let word =
        |text: &str, start, end| Word { text: text.into(), start, end, probability: 1.0, speaker: None };
    let words = vec![word(" Fish", 3599.9, 3600.2), word(" & <chips> --> x", 3600.2, 3601.0)];
    let transcript = transcript(vec![segment(words)]);
    assert_eq!(srt(&transcript), "1\n00:59:59,900 --> 01:00:01,000\nFish & <chips> -> x\n\n");
    assert_eq!(
        vtt(&transcript),
        "WEBVTT\n\n00:59:59.900 --> 01:00:01.000\nFish &amp; &lt;chips&gt; --&gt; x\n\n"
    );
    assert_eq!(text(&transcript), "Fish & <chips> --> x\n");
    let nothing = super::tests::transcript(Vec::new());
    assert_eq!((srt(&nothing).as_str(), vtt(&nothing).as_str()), ("", "WEBVTT\n\n"));
}

#[test]
fn captions_end_with_sentences_and_lines_with_phrases() {
    let text = "He went to the market early in the morning. There he bought two apples, a pear and some bread. \
                Then he walked home again.";
    assert_eq!(
        shown(&said(text, 0.3)),
        [
            "He went to the market|early in the morning.",
            "There he bought two apples,|a pear and some bread.",
            "Then he walked home again."
        ]
    );
}

#[test]
fn a_pause_ends_a_caption_and_time_is_lent_to_the_short() {
    let word =
        |text: &str, start, end| Word { text: text.into(), start, end, probability: 1.0, speaker: None };
    let words = vec![
        word(" Yes", 1.0, 1.2),
        word(" indeed", 5.0, 5.3),
        word(" it", 5.3, 5.4),
        word(" is", 5.4, 5.6),
        // The model lets a word last until the next one.
        word(" so", 5.6, 17.0),
        word(" far", 17.0, 17.4),
    ];
    let cues = cues(&transcript(vec![segment(words)]));
    let times: Vec<(u64, u64)> = cues.iter().map(|cue| (cue.start_ms, cue.end_ms)).collect();
    assert_eq!(times, [(1000, 2000), (5000, 6400), (17000, 18000)]);
}

#[test]
fn scripts_without_spaces_break_between_characters_and_never_before_a_closing_mark() {
    let text = "私は昨日友達と一緒に新しいレストランで晩ご飯を食べました。とても美味しかったのでまた行きたいと思っています。";
    let lines = shown(&unspaced(text, 0.15));
    assert_eq!(lines.concat().replace('|', ""), text);
    assert!(lines.len() > 1 && lines[0].ends_with('。'), "{lines:?}");
    for line in lines.iter().flat_map(|cue| cue.split('|')) {
        assert!(line.width() <= 42, "{line}");
        assert!(!line.starts_with(['。', '、', 'っ', 'ー', 'ょ']), "{line}");
    }
    // Thai words are the model's; a vowel stays with its letter.
    let words = [
        "สวัสดี",
        "ครับ",
        "ผม",
        "ชื่อ",
        "สมชาย",
        "ยินดี",
        "ที่",
        "ได้",
        "รู้จัก",
        "ทุก",
        "คน",
        "ใน",
        "วัน",
        "นี้",
        "เรา",
        "จะ",
        "ไป",
        "ตลาด",
    ];
    let word = |(index, text): (usize, &&str)| Word {
        text: (*text).to_owned(),
        start: index as f64 * 0.3,
        end: index as f64 * 0.3 + 0.3,
        probability: 1.0,
        speaker: None,
    };
    let lines = shown(&transcript(vec![segment(words.iter().enumerate().map(word).collect())]));
    assert_eq!(lines.concat().replace('|', ""), words.concat());
    let ends: Vec<String> = (1..=words.len()).map(|count| words[..count].concat()).collect();
    let mut so_far = String::new();
    for line in lines.iter().flat_map(|cue| cue.split('|')) {
        so_far.push_str(line);
        assert!(ends.contains(&so_far), "{line} ends within a word");
    }
}

#[test]
fn a_script_from_right_to_left_stays_in_its_order() {
    let text = "ذهبت إلى السوق في الصباح الباكر، ثم عدت إلى البيت مع الخبز والفاكهة.";
    assert_eq!(shown(&said(text, 0.4)).join(" ").replace('|', " "), text);
}

#[test]
fn segments_without_word_times_are_shared_out_by_length() {
    let text =
        " One two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen.";
    let words = text.split_inclusive(' ').map(|word| Word {
        text: word.into(),
        start: 2.0,
        end: 12.0,
        probability: 1.0,
        speaker: None,
    });
    let segment =
        Segment { text: text.into(), start: 2.0, end: 12.0, words: words.collect(), ..Segment::default() };
    let cues = cues(&transcript(vec![segment]));
    assert!(cues.len() > 1 && cues[0].start_ms == 2000, "{cues:?}");
    assert!(cues.iter().all(|cue| (1000..=7000).contains(&(cue.end_ms - cue.start_ms))), "{cues:?}");
    assert!(cues.last().is_some_and(|cue| (11_500..=13_500).contains(&cue.end_ms)), "{cues:?}");
}

/// Words as a model times them: mostly well, sometimes in no time, sometimes over a silence.
fn any_words() -> impl Strategy<Value = Vec<Word>> {
    let text = prop_oneof![
        6 => " [a-zA-Z]{1,12}[,.?]?",
        1 => " [a-z]{30,90}",
        1 => "[あ-んア-ンー。、一-十]{1,4}",
        1 => " [ก-ฮะ-ู]{1,6}",
        1 => " [א-ת]{1,8}",
        1 => "[ -~]{0,5}",
    ];
    let seconds = prop_oneof![8 => 0.05f64..0.6, 1 => Just(0.0), 1 => 0.0f64..12.0];
    let pause = prop_oneof![8 => Just(0.0), 1 => 0.0f64..0.4, 1 => 0.0f64..6.0];
    prop::collection::vec((text, seconds, pause), 1..120).prop_map(|words| {
        let mut at = 0.0;
        let word = |(text, seconds, pause): (String, f64, f64)| {
            let start = at + pause;
            at = start + seconds;
            Word { text, start, end: at, probability: 1.0, speaker: None }
        };
        words.into_iter().map(word).collect()
    })
}

proptest! {
    #[test]
    fn captions_keep_their_limits(words in any_words(), cut in 0usize..120) {
        let rest = words.clone().split_off(cut.min(words.len()));
        let first = words[..cut.min(words.len())].to_vec();
        let segments: Vec<Segment> = [first, rest].into_iter().filter(|s| !s.is_empty()).map(segment).collect();
        let cues = cues(&transcript(segments));
        let letters = |text: &str| text.split_whitespace().collect::<String>();
        let told: String = cues.iter().flat_map(|cue| &cue.lines).map(|line| letters(line)).collect();
        let heard: String = words.iter().map(|word| letters(&word.text)).collect();
        prop_assert_eq!(told, heard);
        for cue in &cues {
            prop_assert!(!cue.lines.is_empty() && cue.lines.len() <= 2);
            for line in &cue.lines {
                prop_assert!(line.width() <= LINE_COLUMNS && !line.trim().is_empty(), "{:?}", line);
            }
            let seconds = (cue.end_ms as f64 - cue.start_ms as f64) / 1000.0;
            let allowed = MIN_SECONDS - ROUNDING..=MAX_SECONDS + ROUNDING;
            prop_assert!(allowed.contains(&seconds), "{:?}", cue);
        }
        for pair in cues.windows(2) {
            let gap = pair[1].start_ms as f64 / 1000.0 - pair[0].end_ms as f64 / 1000.0;
            prop_assert!(gap >= MIN_GAP_SECONDS - ROUNDING, "{:?}", pair);
        }
    }

    /// Who speaks at a pace that can be read is read at that pace.
    #[test]
    fn reading_speed_is_kept_where_the_audio_leaves_room(
        words in prop::collection::vec(("[a-z]{1,9}", 0.0f64..0.3), 1..80)
    ) {
        let mut at = 0.0;
        let words = words.into_iter().map(|(text, more)| {
            let start = at;
            at += (text.len() + 1) as f64 / COLUMNS_PER_SECOND + 0.05 + more;
            Word { text: format!(" {text}"), start, end: at, probability: 1.0, speaker: None }
        });
        for cue in cues(&transcript(vec![segment(words.collect())])) {
            let columns: usize = cue.lines.iter().map(|line| line.width()).sum::<usize>() + cue.lines.len() - 1;
            let seconds = (cue.end_ms - cue.start_ms) as f64 / 1000.0;
            // The gap after it is taken from the last word.
            let speed = columns as f64 / (seconds + MIN_GAP_SECONDS);
            prop_assert!(speed <= COLUMNS_PER_SECOND + 0.1, "{} {:?}", speed, cue);
        }
    }
}

/// Words of a tenth of a second each, by their speakers.
fn conversation(turns: &[(usize, &str)]) -> Transcript {
    transcript(vec![segment(crate::format::tests::said_by(turns))])
}

#[test]
fn captions_name_their_speakers() {
    let said = conversation(&[
        (0, "Do you like fish & chips today, my good friend?"),
        (1, "Yes."),
        (1, "A lot."),
        (0, "Me too."),
    ]);
    assert_eq!(
        text(&said),
        "[00:00:00 speaker 0] Do you like fish & chips today, my good friend?\n\
         [00:00:01 speaker 1] Yes. A lot.\n\
         [00:00:01 speaker 0] Me too.\n"
    );
    let bodies = |captions: String| -> Vec<String> {
        captions
            .split("\n\n")
            .filter_map(|cue| cue.split_once(" --> "))
            .map(|(_, rest)| rest[13..].to_owned())
            .collect()
    };
    assert_eq!(
        bodies(srt(&said)),
        [
            "[speaker 0]\nDo you like fish & chips\ntoday, my good friend?",
            "[speaker 1]\nYes. A lot.",
            "[speaker 0]\nMe too."
        ]
    );
    assert_eq!(
        bodies(vtt(&said)),
        [
            "<v Speaker 0>Do you like fish &amp; chips\ntoday, my good friend?",
            "<v Speaker 1>Yes. A lot.",
            "<v Speaker 0>Me too."
        ]
    );
}

#[test]
fn subrip_names_a_speaker_where_it_changes_alone() {
    let long =
        "He went to the market early in the morning. There he bought two apples, a pear and some bread.";
    let captions = srt(&conversation(&[(3, long), (3, long)]));
    assert_eq!(captions.matches("[speaker 3]").count(), 1, "{captions}");
    assert!(captions.matches(" --> ").count() > 2);
}
