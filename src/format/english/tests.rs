//! What is written otherwise, and what must not be.

use crate::format::Options;
use crate::format::tests::{become_of, smart, stay, words};

#[test]
fn the_wire_formats_own_examples() {
    become_of(
        &smart(),
        &[
            (
                "I'm recording this at eight thirty seven pm on Wednesday, it's November second twenty twenty two. \
                 I just ate thirty three grams of pasta, and then drank fifty five milliliters of water at three \
                 hundred Main Street. Then I walked down to one two three Southeast Main Street to get my package \
                 with tracking number one z five seven a two b.",
                "I'm recording this at 8:37 PM on Wednesday, it's November 2 2022. I just ate 33 grams of pasta, \
                 and then drank 55 milliliters of water at 300 Main Street. Then I walked down to 123 Southeast \
                 Main Street to get my package with tracking number 1Z57A2B.",
            ),
            ("Testing. one two three.", "Testing. 123."),
            (
                "Your phone number is still four four four eight one four nine nine one three?",
                "Your phone number is still (444) 814-9913?",
            ),
            ("It's three two five one two five six seven five nine one four.", "It's 325125675914."),
            ("I'm spending over fifty dollars a month.", "I'm spending over $50 a month."),
            ("My address is nine ninety eight Lockwood Drive.", "My address is 998 Lockwood Drive."),
            ("About four people, two weeks ago.", "About four people, two weeks ago."),
        ],
    );
    let numerals = Options { language: "en", numerals: true, ..Options::default() };
    become_of(
        &numerals,
        &[
            ("nine hundred", "900"),
            ("my account number is nine two eight four seven three", "my account number is 9 2 8 4 7 3"),
            ("and then twenty three", "and then 23"),
            ("nine hundred ninety nine thousand nine hundred ninety nine", "999999"),
        ],
    );
    let measurements = Options { measurements: true, ..smart() };
    become_of(
        &measurements,
        &[(
            "I just ate thirty three grams of pasta and drank fifty five milliliters of water.",
            "I just ate 33 g of pasta and drank 55 ml of water.",
        )],
    );
    let dictation = Options { language: "en", dictation: true, ..Options::default() };
    become_of(
        &dictation,
        &[(
            "Patient presents with a headache comma nausea comma and vomiting period They report the headache \
             started two days ago period Vital signs are within normal limits period",
            "Patient presents with a headache, nausea, and vomiting. They report the headache started two days \
             ago. Vital signs are within normal limits.",
        )],
    );
}

#[test]
fn cardinals() {
    become_of(
        &smart(),
        &[
            ("ten people", "10 people"),
            ("Twenty-five people", "25 people"),
            ("twenty five, thirty", "25, 30"),
            ("one hundred", "100"),
            ("one hundred and five", "105"),
            ("three hundred forty two", "342"),
            ("one thousand", "1,000"),
            ("one thousand two hundred and thirty four", "1,234"),
            ("five thousand two hundred", "5,200"),
            ("fifteen hundred", "1500"),
            ("twenty five hundred", "2,500"),
            ("ten thousand", "10,000"),
            ("two hundred thousand", "200,000"),
            ("one hundred twenty three thousand four hundred fifty six", "123,456"),
            ("two million", "2 million"),
            ("two point five million people", "2.5 million people"),
            ("one million two hundred thousand", "1,200,000"),
            ("seven billion people", "7 billion people"),
            ("between one hundred and two hundred", "between 100 and 200"),
            ("between ten and twenty", "between 10 and 20"),
            ("ten thousand and two hundred", "10,000 and 200"),
            ("\"fifty\" or (sixty)", "\"50\" or (60)"),
            ("page five of chapter three", "page 5 of chapter 3"),
            ("minus fifteen degrees", "-15 degrees"),
            ("zero point five", "0.5"),
            ("three point one four one five nine", "3.14159"),
            ("twelve point seventy five", "12.75"),
            ("one two three four five", "1 2 3 4 5"),
            ("open twenty four seven", "open 24/7"),
            ("version two point one point three", "version 2.1.3"),
            ("one ninety two dot one sixty eight dot zero dot one", "192.168.0.1"),
            ("flight one twenty three in room one oh one", "flight 123 in room 101"),
            ("a hundred and one, a thousand and two", "101, 1,002"),
        ],
    );
    stay(
        &smart(),
        &[
            "one of them",
            "two dogs and three cats",
            "no one knows",
            "a hundred times",
            "a million reasons",
            "at this point two people",
            "that's the point. Five people came.",
            "twenty-something",
            "one-on-one",
            "the one and only",
            "25 people, 1,000 cats, 3.5 dogs",
            "hundreds of thousands",
            "someone often tends to weigh",
            "nine, ten-ish",
            "five and a half",
            "half past eight",
            "two thirds",
            "seven forty seven",
            "ten ten ten",
            "twelve thirty",
            "twenty one fourteen",
            "tens of thousands",
        ],
    );
}

#[test]
fn ordinals() {
    become_of(
        &smart(),
        &[
            ("the twenty first century", "the 21st century"),
            ("the twentieth century", "the 20th century"),
            ("her eleventh birthday", "her 11th birthday"),
            ("the one hundred and third time", "the 103rd time"),
            ("the twenty-second of the month", "the 22nd of the month"),
            ("a twenty second delay", "a 20 second delay"),
        ],
    );
    stay(&smart(), &["first of all", "a second chance", "one third", "the ninth hole", "one tenth of it"]);
}

#[test]
fn dates() {
    become_of(
        &smart(),
        &[
            ("on July fourth", "on July 4"),
            ("on July fourth, seventeen seventy six", "on July 4, 1776"),
            ("November second, two thousand and six.", "November 2, 2006."),
            ("December twenty fifth twenty twenty", "December 25 2020"),
            ("January twenty twenty three", "January 2023"),
            ("the second of November twenty twenty two", "the 2nd of November 2022"),
            ("the twenty first of March", "the 21st of March"),
            ("on may first", "on may 1"),
            ("May first", "May 1"),
            ("in nineteen ninety nine", "in 1999"),
            ("the eighteen hundreds", "the 1800s"),
            ("since nineteen oh five", "since 1905"),
            ("In ten sixty six", "In 1066"),
            ("the nineteen nineties", "the 1990s"),
            ("in twenty thirty", "in 2030"),
            ("in two thousand twenty four", "in 2024"),
            ("nineteen hundred", "1900"),
            ("March 3rd twenty twenty one", "March 3rd 2021"),
            ("March 3rd, 2021", "March 3rd, 2021"),
        ],
    );
    stay(
        &smart(),
        &[
            "you may second that",
            "they march first",
            "May I come in?",
            "in May we leave",
            "a second of silence",
            "the first of many",
        ],
    );
    stay(&smart(), &["fifteen twenty minutes", "it costs nineteen ninety nine"]);
}

#[test]
fn times() {
    become_of(
        &smart(),
        &[
            ("at eight am", "at 8 AM"),
            ("at eight a.m. sharp", "at 8 AM sharp"),
            ("It opens at eight p.m. Then it closes.", "It opens at 8 PM. Then it closes."),
            ("until 5:30 p.m. on Monday", "until 5:30 PM on Monday"),
            ("twelve oh five p m", "12:05 PM"),
            ("six forty five in the morning", "6:45 in the morning"),
            ("by ten fifteen tonight", "by 10:15 tonight"),
            ("at six forty five in the morning", "at 6:45 in the morning"),
            ("at five oh five", "at 5:05"),
            ("eight o'clock", "8 o'clock"),
            ("ten thirty AM.", "10:30 AM."),
        ],
    );
    stay(
        &smart(),
        &[
            "I am eight",
            "at 5:30",
            "at eight am I right",
            "at five people's request",
            "six forty five",
            "half past ten-ish",
        ],
    );
    become_of(&smart(), &[("at two hundred people", "at 200 people")]);
}

#[test]
fn money() {
    become_of(
        &smart(),
        &[
            ("five dollars", "$5"),
            ("Fifty dollars.", "$50."),
            ("one dollar", "$1"),
            ("twelve hundred dollars", "$1,200"),
            ("five dollars and twenty cents", "$5.20"),
            ("ninety nine dollars ninety nine cents", "$99.99"),
            ("two point five dollars", "$2.50"),
            ("two point five million dollars", "$2.5 million"),
            ("five million dollars,", "$5 million,"),
            ("two million five hundred thousand dollars", "$2,500,000"),
            ("a hundred dollars", "$100"),
            ("a hundred and fifty dollars", "$150"),
            ("a million dollars", "$1 million"),
            ("twenty euros", "€20"),
            ("five hundred yen", "¥500"),
            ("twenty five cents", "25 cents"),
            ("five cents", "5 cents"),
            ("ten pounds and fifty pence", "£10.50"),
            ("ten pounds sterling", "£10"),
            ("25 dollars", "$25"),
            ("5 million dollars", "$5 million"),
            ("a five-dollar bill", "a $5 bill"),
        ],
    );
    stay(
        &smart(),
        &["$5 and $2.50", "a dollar", "the dollar fell", "five pounds of flour", "a million dollar idea"],
    );
}

#[test]
fn percentages() {
    become_of(
        &smart(),
        &[
            ("twenty five percent", "25%"),
            ("one percent.", "1%."),
            ("three point five per cent of it", "3.5% of it"),
            ("point five percent", "0.5%"),
            ("a hundred percent", "100%"),
            ("five to ten percent", "5 to 10%"),
            ("minus five percent", "-5%"),
            ("25 percent", "25%"),
        ],
    );
    stay(&smart(), &["percent of people", "two percentage points", "25%"]);
}

#[test]
fn telephone_numbers() {
    become_of(
        &smart(),
        &[
            ("call five five five one two three four", "call 555-1234"),
            ("it's two one two five five five twelve thirty four.", "it's (212) 555-1234."),
            ("one eight hundred five five five one two one two", "1 (800) 555-1212"),
            ("four one five, five five five, oh one two three", "(415) 555-0123"),
            (
                "call two one two five five five one two three four, two people are there",
                "call (212) 555-1234, two people are there",
            ),
            ("account number two one two five five five one two three four", "account number 2125551234"),
            ("my social is one two three four five six seven eight nine", "my social is 123-45-6789"),
            ("4-4-4-8-1-4-9-9-1-3.", "(444) 814-9913."),
            ("my social is one two three four five six seven eight eight", "my social is 123-45-6788"),
            ("code double five seven triple zero", "code 557000"),
            ("dial nine one one", "dial 911"),
            ("zip code one zero zero zero five", "zip code 10005"),
            ("one two three oh four", "12304"),
        ],
    );
    stay(
        &smart(),
        &[
            "five, six, seven",
            "one two",
            "double trouble",
            "oh two of them",
            "(444) 814-9913",
            "444-814-9913",
        ],
    );
}

#[test]
fn addresses() {
    become_of(
        &smart(),
        &[
            ("john dot smith at example dot com", "john.smith@example.com"),
            ("email jane at example dot com.", "email jane@example.com."),
            ("jane underscore doe at gmail dot com", "jane_doe@gmail.com"),
            ("john one two three at yahoo dot co dot uk", "john123@yahoo.co.uk"),
            ("support at example dot org", "support@example.org"),
            ("my email is j d o e at example dot com", "my email is jdoe@example.com"),
            ("My e-mail is john.smith at example.com", "My e-mail is john.smith@example.com"),
            ("example dot com", "example.com"),
            ("go to www dot example dot com slash pricing, please", "go to www.example.com/pricing, please"),
            ("w w w dot example dot org", "www.example.org"),
            ("https colon slash slash example dot com", "https://example.com"),
            ("Visit Example dot com today", "Visit example.com today"),
            ("meet me at example dot com", "meet me at example.com"),
            ("our site is example dot shop", "our site is example.shop"),
        ],
    );
    stay(
        &smart(),
        &[
            "the dot com bubble",
            "a polka dot shop",
            "connect the dot in the middle",
            "look at that",
            "he was at home",
            "example.com is up",
            "and slash or",
            "at the dot",
        ],
    );
}

#[test]
fn numerals_write_every_number() {
    let numerals = Options { numerals: true, ..smart() };
    become_of(&numerals, &[("two dogs", "2 dogs"), ("I have one cat", "I have 1 cat"), ("zero", "0")]);
    stay(&numerals, &["one of them", "no one", "this one is", "one another", "first"]);
    let alone = Options { language: "en", numerals: true, ..Options::default() };
    become_of(&alone, &[("five dollars", "5 dollars"), ("two point five", "2.5"), ("minus three", "-3")]);
}

#[test]
fn measurements_are_signs_after_numbers() {
    let alone = Options { language: "en", measurements: true, ..Options::default() };
    become_of(
        &alone,
        &[
            ("two kilometers away", "2 km away"),
            ("one point five litres", "1.5 l"),
            ("a hundred meters", "100 m"),
            ("5 milligrams.", "5 mg."),
            ("two dogs, ten people", "two dogs, ten people"),
        ],
    );
    stay(&alone, &["grams of sugar", "a meter maid", "parking meters", "a few kilometers"]);
    stay(&smart(), &["5 kilograms"]);
}

#[test]
fn merged_words_have_the_time_of_all() {
    let found =
        words("It's five million dollars. Call four four four eight one four nine nine one three", &smart());
    let told: Vec<_> = found.iter().map(|w| (w.written.as_str(), w.bare.as_str(), w.start, w.end)).collect();
    assert_eq!(
        told,
        [
            ("It's", "it's", 0.0, 0.1),
            ("$5", "$5", 0.1, 0.2),
            ("million.", "million", 0.2, 0.4),
            ("Call", "call", 0.4, 0.5),
            ("(444)", "(444)", 0.5, 0.8),
            ("814-9913", "814-9913", 0.8, 1.5),
        ]
    );
}

/// Forms that the model wrote half in digits merge as forms in words do.
#[test]
fn half_written_forms_have_the_time_of_all() {
    let told = |text: &str| -> Vec<(String, String, f64, f64)> {
        words(text, &smart()).into_iter().map(|w| (w.written, w.bare, w.start, w.end)).collect()
    };
    let word = |written: &str, start, end| (written.to_owned(), written.to_lowercase(), start, end);
    assert_eq!(told("Pay $55 and 20 cents"), [word("Pay", 0.0, 0.1), word("$55.20", 0.1, 0.5)]);
    assert_eq!(told("at 8 37 pm"), [word("at", 0.0, 0.1), word("8:37", 0.1, 0.3), word("PM", 0.3, 0.4)]);
    // One word was said, and one is written.
    assert_eq!(told("at 8.37pm"), [word("at", 0.0, 0.1), word("8:37 PM", 0.1, 0.2)]);
    assert_eq!(
        told("+1 415 555 2671"),
        [word("+1", 0.0, 0.1), word("(415)", 0.1, 0.2), word("555-2671", 0.2, 0.4)]
    );
    assert_eq!(
        told("five to ten dollars"),
        [word("$5", 0.0, 0.1), word("to", 0.1, 0.2), word("$10", 0.2, 0.4)]
    );
}

/// Where every number is asked for in digits, `one` stays a word where it stands for a thing.
#[test]
fn numerals_leave_pronouns() {
    let numerals = Options { language: "en", numerals: true, ..Options::default() };
    become_of(
        &numerals,
        &[
            ("one thick one and two thin ones", "one thick one and 2 thin ones"),
            ("one cat, one dog", "1 cat, 1 dog"),
            ("five minus one", "5 minus 1"),
            ("chapter one has one page", "chapter 1 has 1 page"),
        ],
    );
    stay(
        &numerals,
        &[
            "from one language to another",
            "one never knows",
            "one by one",
            "one third",
            "the cheap one is gone",
        ],
    );
}
