//! HTML pages as one would read them aloud: headings, and below each of them lines of text.

mod tags;

use html5gum::{DefaultEmitter, StartTag, Token, Tokenizer};

use super::sections::{HEADING_BYTES_MAX, SECTIONS_MAX, Section};
use super::table::{Place, Table, labelled};
use tags::{BANNERS, BLOCKS, NOT_IN_HEADINGS, PARTS, SKIPPED, heading_level};

/// Nesting of tables; deeper tables are read as plain text.
const TABLES_DEEP_MAX: usize = 16;
/// Heading level below `<h6>`: for `<summary>` questions and table captions.
const INNER_LEVEL: u8 = 7;
const LINKS_MAX: usize = 500;

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Page {
    pub title: String,
    pub sections: Vec<Section>,
    /// As written in the page: mostly relative.
    pub links: Vec<String>,
    /// The page says `<meta name=robots content=noindex>`: it must not be used.
    pub is_excluded: bool,
}

impl Page {
    /// The whole text, including headings.
    pub fn text(&self) -> String {
        let lines =
            self.sections.iter().flat_map(|section| [section.headings.join("\n"), section.text.clone()]);
        lines.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n")
    }
}

/// Reads a page, however malformed. Structured data (JSON-LD) is ignored.
pub fn read(html: &str) -> Page {
    let mut reader = Reader::default();
    let mut emitter = DefaultEmitter::default();
    // Otherwise the contents of scripts would be parsed as tags.
    emitter.naively_switch_states(true);
    for Ok(token) in Tokenizer::new_with_emitter(html, emitter) {
        match token {
            Token::StartTag(tag) => reader.start(&tag),
            Token::EndTag(tag) => reader.end(&tag.name),
            Token::String(text) => reader.text(&String::from_utf8_lossy(&text)),
            _ => {}
        }
    }
    reader.finish()
}

#[derive(Default)]
struct Reader {
    page: Page,
    /// The outermost skipped element, so that a stray end tag does not end it, and the depth within it.
    skipped: Option<(Vec<u8>, usize)>,
    /// Open sectioning elements.
    parts: usize,
    in_title: bool,
    in_pre: usize,
    /// Level and words of the open heading.
    heading: Option<(u8, String)>,
    /// The headings above the current line, with their levels.
    headings: Vec<(u8, String)>,
    /// No text has followed the last heading yet.
    is_bare: bool,
    lines: Vec<String>,
    line: String,
    /// A `<br>` came: the next text begins a new line unless it continues the sentence.
    is_broken: bool,
    /// A link has just ended.
    after_link: bool,
    tables: Vec<Table>,
    term: Option<Place>,
    terms: Vec<String>,
    definition: Option<Place>,
}

impl Reader {
    fn start(&mut self, tag: &StartTag<()>) {
        let name: &[u8] = &tag.name;
        let after_link = std::mem::take(&mut self.after_link);
        if let Some((outer, depth)) = &mut self.skipped {
            *depth += usize::from(outer == name && !tag.self_closing);
            // The links of menus are followed, but their text is not read.
            if name == b"a" {
                self.follow(tag);
            }
            return;
        }
        self.parts += usize::from(PARTS.contains(&name));
        let is_banner = BANNERS.contains(&name) && self.parts > 0;
        let is_menu = attribute(tag, b"role").is_some_and(|role| role == "navigation");
        if (SKIPPED.contains(&name) && !is_banner && !tag.self_closing) || is_menu {
            self.end_line();
            self.skipped = Some((name.to_vec(), 1));
            return;
        }
        if NOT_IN_HEADINGS.contains(&name) {
            self.end_heading();
        }
        match name {
            b"a" => {
                // Links without a space in between belong to a menu.
                if after_link {
                    self.end_line();
                }
                self.follow(tag);
            }
            b"meta" => self.page.is_excluded |= excludes(tag),
            b"title" => self.in_title = true,
            b"br" => self.is_broken = true,
            b"pre" => self.in_pre += 1,
            b"table" => {
                self.end_line();
                if self.tables.len() < TABLES_DEEP_MAX {
                    self.tables.push(Table::default());
                }
            }
            b"tr" => self.end_row(),
            b"td" | b"th" => {
                self.end_cell();
                let place = self.place();
                if let Some(table) = self.tables.last_mut() {
                    table.begin_cell(place, name == b"th");
                }
            }
            b"caption" => {
                if let Some(table) = self.tables.last_mut() {
                    table.is_called = true;
                    self.begin_heading(INNER_LEVEL);
                }
            }
            b"summary" => self.begin_heading(INNER_LEVEL),
            b"dt" => {
                self.end_definition();
                self.end_term();
                self.term = Some(self.place());
            }
            b"dd" => {
                self.end_term();
                self.end_definition_lines();
                self.definition = Some(self.place());
            }
            _ => {
                if let Some(level) = heading_level(name) {
                    self.begin_heading(level);
                }
            }
        }
        if BLOCKS.contains(&name) && self.heading.is_none() {
            self.end_line();
        }
    }

    fn end(&mut self, name: &[u8]) {
        self.after_link = name == b"a";
        if let Some((outer, depth)) = &mut self.skipped {
            if outer == name {
                *depth -= 1;
                if *depth == 0 {
                    self.skipped = None;
                }
            }
            return;
        }
        if PARTS.contains(&name) {
            self.parts = self.parts.saturating_sub(1);
        }
        match name {
            b"title" => self.in_title = false,
            b"pre" => self.in_pre = self.in_pre.saturating_sub(1),
            b"summary" | b"caption" => self.end_heading(),
            b"details" => self.leave_inner_headings(),
            b"td" | b"th" => self.end_cell(),
            b"tr" | b"thead" | b"tbody" | b"tfoot" => self.end_row(),
            b"table" => self.end_table(),
            b"dt" => self.end_term(),
            b"dd" => self.end_definition_lines(),
            b"dl" => {
                self.end_definition();
                self.end_term();
                self.keep_terms();
            }
            _ if heading_level(name).is_some() => self.end_heading(),
            _ => {}
        }
        if BLOCKS.contains(&name) && self.heading.is_none() {
            self.end_line();
        }
    }

    fn text(&mut self, text: &str) {
        self.after_link = false;
        if self.skipped.is_some() {
            return;
        }
        if self.in_title {
            self.page.title.push_str(text);
            return;
        }
        if let Some((_, words)) = &mut self.heading {
            if std::mem::take(&mut self.is_broken) {
                words.push(' ');
            }
            words.push_str(text);
            return;
        }
        let mut lines = text.split('\n');
        if self.in_pre > 0 {
            for line in lines.by_ref() {
                self.words(line);
                self.end_line();
            }
        }
        self.words(&lines.collect::<Vec<_>>().join(" "));
    }

    fn words(&mut self, text: &str) {
        let text = text.replace(['\r', '\t'], " ");
        if self.is_broken && !text.trim().is_empty() {
            self.is_broken = false;
            if goes_on(&self.line, &text) {
                self.line.push(' ');
            } else {
                self.end_line();
            }
        }
        self.line.push_str(&text);
    }

    fn end_line(&mut self) {
        self.is_broken = false;
        let line = one_line(&std::mem::take(&mut self.line));
        if !line.is_empty() {
            self.lines.push(line);
        }
    }

    fn place(&mut self) -> Place {
        self.end_line();
        Place { sections: self.page.sections.len(), lines: self.lines.len() }
    }

    /// Removes and returns the lines since `place`; none if a heading came in between.
    fn since(&mut self, place: Place) -> Option<Vec<String>> {
        self.end_line();
        let is_same = self.page.sections.len() == place.sections && place.lines <= self.lines.len();
        is_same.then(|| self.lines.split_off(place.lines))
    }

    fn begin_heading(&mut self, level: u8) {
        self.end_heading();
        self.spill();
        self.heading = Some((level, String::new()));
    }

    fn end_heading(&mut self) {
        let Some((level, words)) = self.heading.take() else { return };
        let words = one_line(&words);
        self.is_broken = false;
        if words.is_empty() {
            return;
        }
        if words.len() > HEADING_BYTES_MAX || self.page.sections.len() >= SECTIONS_MAX {
            self.lines.push(words);
            return;
        }
        self.leave_headings(level);
        self.headings.push((level, words));
        self.is_bare = true;
    }

    /// Ends the section and all headings at `level` or deeper.
    fn leave_headings(&mut self, level: u8) {
        self.end_section();
        while let Some((_, words)) = self.headings.pop_if(|(of, _)| *of >= level) {
            // A heading without text below it is itself the text.
            if std::mem::take(&mut self.is_bare) {
                self.lines.push(words);
                self.end_section();
            }
        }
    }

    fn leave_inner_headings(&mut self) {
        self.end_heading();
        if self.headings.last().is_some_and(|(level, _)| *level == INNER_LEVEL) {
            self.leave_headings(INNER_LEVEL);
        }
    }

    fn end_section(&mut self) {
        self.end_line();
        let text = std::mem::take(&mut self.lines).join("\n");
        if !text.is_empty() {
            self.is_bare = false;
            let headings = self.headings.iter().map(|(_, words)| words.clone()).collect();
            self.page.sections.push(Section { headings, text });
        }
    }

    /// Ends open definitions and tables, because a heading interrupts them.
    fn spill(&mut self) {
        self.end_line();
        let sections = self.page.sections.len();
        let here = |place: Option<Place>, lines: &[String]| {
            let place = place.filter(|place| place.sections == sections);
            place.map_or(lines.len(), |place| place.lines.min(lines.len()))
        };
        let at = here(self.definition.or(self.term), &self.lines);
        self.lines.splice(at..at, std::mem::take(&mut self.terms));
        (self.term, self.definition) = (None, None);
        for table in self.tables.iter_mut().rev() {
            let at = here(table.cell(), &self.lines);
            self.lines.splice(at..at, table.spill());
        }
    }

    fn end_cell(&mut self) {
        let Some(place) = self.tables.last().and_then(Table::cell) else { return };
        let Some(lines) = self.since(place) else { return };
        if let Some(table) = self.tables.last_mut() {
            table.end_cell(lines);
        }
    }

    fn end_row(&mut self) {
        self.end_heading();
        self.end_cell();
        self.end_line();
        if let Some(table) = self.tables.last_mut() {
            self.lines.extend(table.end_row());
        }
    }

    fn end_table(&mut self) {
        self.end_row();
        let Some(table) = self.tables.pop() else { return };
        let is_called = table.is_called;
        self.lines.extend(table.end());
        if is_called && self.tables.is_empty() {
            self.leave_inner_headings();
        }
    }

    fn end_term(&mut self) {
        if let Some(lines) = self.term.take().and_then(|place| self.since(place)) {
            self.terms.extend(lines);
        }
    }

    /// A definition; one term can have several.
    fn end_definition_lines(&mut self) {
        let Some(lines) = self.definition.take().and_then(|place| self.since(place)) else { return };
        let term = std::mem::take(&mut self.terms).join(", ");
        if term.ends_with('?') && !lines.is_empty() && self.page.sections.len() < SECTIONS_MAX {
            // A question and its answer.
            self.end_section();
            let headings = self.headings.iter().map(|(_, words)| words.clone()).chain([term]).collect();
            self.page.sections.push(Section { headings, text: lines.join("\n") });
            self.is_bare = false;
            return;
        }
        let mut lines = lines.into_iter();
        let first = labelled(&term, &lines.next().unwrap_or_default());
        self.lines.extend(Some(first).filter(|line| !line.is_empty()).into_iter().chain(lines));
    }

    fn end_definition(&mut self) {
        self.end_definition_lines();
        self.end_line();
    }

    /// Terms without a definition.
    fn keep_terms(&mut self) {
        let terms = std::mem::take(&mut self.terms);
        self.lines.extend(terms);
    }

    fn follow(&mut self, tag: &StartTag<()>) {
        let is_nofollow = attribute(tag, b"rel").is_some_and(|rel| rel.contains("nofollow"));
        if let Some(href) = attribute(tag, b"href")
            && !is_nofollow
            && self.page.links.len() < LINKS_MAX
        {
            self.page.links.push(href.trim().to_owned());
        }
    }

    fn finish(mut self) -> Page {
        self.end_heading();
        while !self.tables.is_empty() {
            self.end_table();
        }
        self.end_definition();
        self.end_term();
        self.keep_terms();
        self.leave_headings(0);
        self.page.title = one_line(&self.page.title);
        self.page
    }
}

/// Whether `next`, after a `<br>`, continues the sentence of `line`.
fn goes_on(line: &str, next: &str) -> bool {
    let line = line.trim();
    next.trim_start().starts_with(char::is_lowercase)
        && line.ends_with(|c: char| c.is_alphanumeric() || c == ',')
        && line.starts_with(char::is_uppercase)
        && line.split_whitespace().count() >= 3
}

fn attribute<'a>(tag: &'a StartTag<()>, name: &[u8]) -> Option<std::borrow::Cow<'a, str>> {
    let (_, value) = tag.attributes.iter().find(|(key, _)| key.as_slice() == name)?;
    Some(String::from_utf8_lossy(value.as_slice()))
}

fn excludes(tag: &StartTag<()>) -> bool {
    attribute(tag, b"name").is_some_and(|name| name.eq_ignore_ascii_case("robots"))
        && attribute(tag, b"content").is_some_and(|content| content.to_ascii_lowercase().contains("noindex"))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
