//! The agent's own words in a speaker's transcript: its voice came back through a speakerphone. Pure.

/// Fewer words may be said by chance, or in agreement.
const WORDS_MIN: usize = 3;
/// The share of words that must be the agent's: recognisers mishear an echo.
const SHARE: f64 = 0.8;

/// Whether `heard` is a part of what the agent has `said`, in its order.
pub fn are_own_words(heard: &str, said: &str) -> bool {
    let (heard, said) = (words(heard), words(said));
    if heard.len() < WORDS_MIN {
        return false;
    }
    // The longest common subsequence within a stretch of `said` as long as `heard`, with some room for words missed.
    let room = heard.len() + heard.len() / 4 + 1;
    let least = (heard.len() as f64 * SHARE).ceil() as usize;
    (0..said.len()).any(|from| common(&heard, &said[from..(from + room).min(said.len())]) >= least)
}

fn words(text: &str) -> Vec<String> {
    let bare =
        |c: char| if c.is_alphanumeric() || c == '\'' { c.to_lowercase().next().unwrap_or(c) } else { ' ' };
    let text: String = text.chars().map(|c| bare(if c == '’' { '\'' } else { c })).collect();
    text.split_whitespace().map(str::to_owned).collect()
}

/// The length of the longest common subsequence.
fn common(one: &[String], other: &[String]) -> usize {
    let mut row = vec![0; other.len() + 1];
    for word in one {
        let mut diagonal = 0;
        for (at, candidate) in other.iter().enumerate() {
            let above = row[at + 1];
            row[at + 1] = if word == candidate { diagonal + 1 } else { above.max(row[at]) };
            diagonal = above;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echo_of_words_is_told_from_an_answer() {
        let said = "We are open Monday to Friday from nine to five. Parking is free behind the building.";
        for echo in [
            "Monday to Friday from nine",
            "from nine to five, barking is free behind",
            "Parking is free behind the building.",
        ] {
            assert!(are_own_words(echo, said), "{echo}");
        }
        for answer in [
            "Monday",
            "to five",
            "Are you open on Saturday?",
            "And where can I park on Monday?",
            "five nine from Friday",
        ] {
            assert!(!are_own_words(answer, said), "{answer}");
        }
        assert!(!are_own_words("", "") && !are_own_words("free free free", ""));
    }
}
