//! The digits in a caller's answer.

/// All digits said in `text`, in order. The `four` of `my last four` is not one of them.
pub fn digits(text: &str) -> String {
    let text = text.to_lowercase();
    let mut before = "";
    let mut said = String::new();
    for word in text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
        if !(before == "last" && word == "four") {
            said.push_str(word);
            said.push(' ');
        }
        before = word;
    }
    crate::digits::digits(&said)
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
