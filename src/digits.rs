//! Spoken digits, as people say them and as recognisers write them: "1234", "12-34", "one two three four",
//! "double seven", "oh", "twelve thirty-four".

/// The words for 0 to 19.
pub const ONES: [&str; 20] = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
];
/// The words for 20, 30 and so on.
pub const TENS: [&str; 8] = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"];

/// All digits said in `text`, in order.
pub fn digits(text: &str) -> String {
    let mut out = String::new();
    let mut times = 1;
    // A ten that a one may complete: `thirty four`.
    let mut open_ten: Option<usize> = None;
    let text = text.to_lowercase();
    for word in text.split(|c: char| !c.is_alphanumeric() && c != '\'').filter(|word| !word.is_empty()) {
        let said = number(word);
        if let Some(ten) = open_ten.take() {
            let one = said.as_deref().filter(|one| one.len() == 1).and_then(|one| one.parse::<usize>().ok());
            let one = one.filter(|one| *one > 0);
            out.push_str(&(ten + one.unwrap_or(0)).to_string());
            if one.is_some() {
                continue;
            }
        }
        match (word, said) {
            ("double", _) => times = 2,
            ("triple", _) => times = 3,
            (word, Some(said)) => {
                if let Some(index) = TENS.iter().position(|ten| *ten == word) {
                    open_ten = Some((index + 2) * 10);
                } else {
                    out.push_str(&said.repeat(times));
                }
                times = 1;
            }
            _ => times = 1,
        }
    }
    if let Some(ten) = open_ten {
        out.push_str(&ten.to_string());
    }
    out
}

/// The number that one word stands for, in digits; none for other words.
pub fn number(word: &str) -> Option<String> {
    if word.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(word.to_owned());
    }
    if matches!(word, "oh" | "o" | "nought") {
        return Some("0".into());
    }
    if let Some(index) = ONES.iter().position(|name| *name == word) {
        return Some(index.to_string());
    }
    let index = TENS.iter().position(|name| *name == word)?;
    Some(((index + 2) * 10).to_string())
}

/// The digits of a spoken code: exactly four, or none.
pub fn four_digits(text: &str) -> Option<String> {
    Some(digits(text)).filter(|digits| digits.len() == 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_heard_however_they_are_written() {
        for text in [
            "1234",
            "1 2 3 4.",
            "12-34",
            "1,234",
            "It's one two three four, please.",
            "One, two. Three four",
            "twelve thirty-four",
            "Twelve thirty four.",
            "one twenty-three four",
        ] {
            assert_eq!(four_digits(text).as_deref(), Some("1234"), "{text}");
        }
        assert_eq!(digits("double seven oh nine"), "7709");
        assert_eq!(digits("my number is seventy twenty"), "7020");
        assert_eq!(digits("triple 5 one"), "5551");
        for text in ["", "one two three", "12345", "no", "the year", "for to"] {
            assert_eq!(four_digits(text), None, "{text}");
        }
    }
}
