//! Sections of a text, each with the headings above it.

/// A longer heading is really text in a heading's style.
pub const HEADING_BYTES_MAX: usize = 200;
/// Sections kept per text. Each one repeats all its headings, so many sections would outgrow the text.
pub const SECTIONS_MAX: usize = 2000;

/// The text under one heading.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Section {
    /// From the outermost to the innermost.
    pub headings: Vec<String>,
    /// Each line is a paragraph, a list item or a table row.
    pub text: String,
}

/// Splits a plain text at Markdown headings: `## Prices`, or a line underlined by the next one.
pub fn of_text(text: &str) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    let mut headings: Vec<(usize, &str)> = Vec::new();
    let mut lines = text.lines().map(str::trim).peekable();
    // A heading without text so far.
    let mut bare: Option<&str> = None;
    while let Some(line) = lines.next() {
        if line.is_empty() || underline(line).is_some() {
            continue;
        }
        let underlined = lines.peek().and_then(|next| underline(next));
        if underlined.is_some() {
            lines.next();
        }
        let heading = hashes(line).or_else(|| Some((underlined?, line)));
        let heading =
            heading.filter(|(_, words)| words.len() <= HEADING_BYTES_MAX && sections.len() < SECTIONS_MAX);
        let Some((level, heading)) = heading else {
            bare = None;
            add(&mut sections, &headings, item(line));
            continue;
        };
        // If the next heading is no deeper, the bare heading is itself the text.
        let is_deeper = headings.last().is_some_and(|(above, _)| level > *above);
        headings.retain(|(above, _)| *above < level);
        if let Some(bare) = bare.filter(|_| !is_deeper) {
            add(&mut sections, &headings, bare);
        }
        headings.push((level, heading));
        bare = Some(heading);
    }
    if let Some(bare) = bare {
        headings.pop();
        add(&mut sections, &headings, bare);
    }
    sections
}

fn add(sections: &mut Vec<Section>, headings: &[(usize, &str)], line: &str) {
    let headings: Vec<String> = headings.iter().map(|(_, heading)| (*heading).to_owned()).collect();
    match sections.last_mut().filter(|last| last.headings == headings) {
        Some(last) => {
            last.text.push('\n');
            last.text.push_str(line);
        }
        None => sections.push(Section { headings, text: line.to_owned() }),
    }
}

/// Parses `## Prices ##` into level and words.
fn hashes(line: &str) -> Option<(usize, &str)> {
    let words = line.trim_start_matches('#');
    let level = line.len() - words.len();
    let heading = words.trim_end_matches('#').trim();
    ((1..=6).contains(&level) && words.starts_with(' ') && !heading.is_empty()).then_some((level, heading))
}

fn underline(line: &str) -> Option<usize> {
    let is_of = |mark: char| line.len() >= 3 && line.chars().all(|c| c == mark);
    if is_of('=') { Some(1) } else { is_of('-').then_some(2) }
}

/// A list item without its bullet.
fn item(line: &str) -> &str {
    ["- ", "* ", "• ", "+ "].iter().find_map(|bullet| line.strip_prefix(bullet)).map_or(line, str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_of_markdown_are_no_sentences() {
        let text = "All are welcome.\n# Acme\n## Opening hours ##\nWe are open.\nDaily.\n### Sunday\n- closed\n\
                    Prices\n------\n* Cleaning: $90\n\n---\n# Last\n# Words\n#1 in town\n#hashtag\n---";
        let found: Vec<(String, String)> =
            of_text(text).into_iter().map(|section| (section.headings.join(" > "), section.text)).collect();
        let expected = [
            ("", "All are welcome."),
            ("Acme > Opening hours", "We are open.\nDaily."),
            ("Acme > Opening hours > Sunday", "closed"),
            ("Acme > Prices", "Cleaning: $90"),
            ("", "Last"),
            ("Words", "#1 in town\n#hashtag"),
        ];
        let expected = expected.map(|(headings, text)| (headings.to_owned(), text.to_owned()));
        assert_eq!(found, expected);
    }

    #[test]
    fn headings_make_a_text_no_longer_than_is_good() {
        let long = format!("# {}\n", "long ".repeat(100));
        assert_eq!(of_text(&format!("{long}text")).len(), 1);
        let many: String = (0..5000).map(|n| format!("# Heading {n}\ntext\n")).collect();
        let sections = of_text(&many);
        assert_eq!(sections.len(), SECTIONS_MAX);
        assert!(sections.last().is_some_and(|last| last.text.contains("Heading 4999\ntext")));
    }
}
