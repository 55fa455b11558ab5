//! Spoken digits, as people say them and as recognisers write them.

const ONES: [&str; 20] = [
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
const TENS: [&str; 8] = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"];

/// All digits said in `text`, in order: `four five six seven`, `double four`, `45-67`, `forty five sixty-seven`. The `four`
/// of `my last four` doesn't count.
pub fn digits(text: &str) -> String {
    let text = text.to_lowercase();
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let mut said = String::new();
    let mut times = 1;
    // The previous word was a multiple of ten, whose zero the next digit may replace.
    let mut after_ten = false;
    let mut before = "";
    for word in words {
        let (was_ten, repeated) = (std::mem::take(&mut after_ten), std::mem::replace(&mut times, 1));
        let one = ONES.iter().position(|name| *name == word);
        if word.bytes().all(|byte| byte.is_ascii_digit()) {
            said.push_str(&word.repeat(repeated));
        } else if let Some(ten) = TENS.iter().position(|name| *name == word) {
            said.push_str(&((ten + 2) * 10).to_string());
            after_ten = true;
        } else if let Some(one) = one.filter(|one| !(before == "last" && *one == 4)) {
            if was_ten && (1..10).contains(&one) {
                said.pop();
            }
            said.push_str(&one.to_string().repeat(repeated));
        } else {
            match word {
                "oh" | "o" | "nought" => said.push_str(&"0".repeat(repeated)),
                "double" => times = 2,
                "triple" => times = 3,
                _ => {}
            }
        }
        before = word;
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_heard_however_they_are_said() {
        for (text, expected) in [
            ("four five six seven", "4567"),
            ("It's 4567.", "4567"),
            ("4-5-6-7, please", "4567"),
            ("4,567", "4567"),
            ("forty-five sixty seven", "4567"),
            ("My last four are four, five, six, seven.", "4567"),
            ("double four three one", "4431"),
            ("triple 5 oh", "5550"),
            ("nine oh double four", "9044"),
            ("twelve thirty four", "1234"),
            ("zero eight twelve", "0812"),
            ("seventy twenty", "7020"),
            ("twenty ten", "2010"),
            ("P-1001, four four three one", "10014431"),
            ("double the four", "4"),
            ("no idea", ""),
        ] {
            assert_eq!(digits(text), expected, "{text}");
        }
    }
}
