//! The words of a text that go with each part of its speech.

/// A text whose speech comes in parts.
pub struct Caption<'t> {
    text: &'t str,
    /// Bytes that were given out.
    given: usize,
}

impl<'t> Caption<'t> {
    pub fn new(text: &'t str) -> Self {
        Self { text: text.trim(), given: 0 }
    }

    /// The words up to `share` of the text, 0 to 1, after those that were given out. A word that is half said goes with the
    /// part that ends it.
    pub fn until(&mut self, share: f32) -> &'t str {
        let wanted = (self.text.len() as f32 * share.clamp(0.0, 1.0)).round() as usize;
        let end = if wanted >= self.text.len() {
            self.text.len()
        } else {
            let ends = self.text.char_indices().filter(|(_, c)| c.is_whitespace()).map(|(at, _)| at);
            ends.take_while(|at| *at <= wanted).last().unwrap_or(0)
        };
        let end = end.max(self.given);
        let words = self.text.get(self.given..end).unwrap_or_default().trim();
        self.given = end;
        words
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words_go_with_the_part_that_ends_them() {
        let mut caption = Caption::new("We are open from nine to five.");
        let given = [0.1, 0.5, 0.4, 0.75, 1.0, 1.0].map(|share| caption.until(share));
        assert_eq!(given, ["We", "are open", "", "from nine", "to five.", ""]);
    }

    proptest! {
        #[test]
        fn every_word_is_given_once(text in "[a-zé ]{0,40}", shares in prop::collection::vec(0.0_f32..1.2, 0..6)) {
            let mut caption = Caption::new(&text);
            let mut given: Vec<&str> = shares.iter().map(|share| caption.until(*share)).collect();
            given.push(caption.until(1.0));
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            prop_assert_eq!(words(&given.join(" ")), words(&text));
        }
    }
}
