//! A page as somebody would read it aloud: its text, without what surrounds it.

use html5gum::{DefaultEmitter, Token, Tokenizer};

/// What is between these tags is not for reading.
const SKIPPED: &[&[u8]] = &[
    b"script",
    b"style",
    b"noscript",
    b"template",
    b"svg",
    b"nav",
    b"header",
    b"footer",
    b"form",
    b"button",
    b"select",
    b"iframe",
    b"object",
    b"aside",
];
/// These begin a new line.
const BLOCKS: &[&[u8]] = &[
    b"p",
    b"div",
    b"section",
    b"article",
    b"main",
    b"h1",
    b"h2",
    b"h3",
    b"h4",
    b"h5",
    b"h6",
    b"li",
    b"ul",
    b"ol",
    b"dl",
    b"dt",
    b"dd",
    b"table",
    b"tr",
    b"br",
    b"hr",
    b"blockquote",
    b"pre",
    b"figure",
    b"caption",
    b"body",
    b"title",
];
const LINKS_MAX: usize = 500;

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Page {
    pub title: String,
    /// Line by line.
    pub text: String,
    /// As they are written: mostly relative.
    pub links: Vec<String>,
    /// `<meta name=robots content=noindex>`: not to be used.
    pub is_excluded: bool,
}

/// Reads a page of any quality. Structured data of the page (JSON-LD) is left out.
pub fn read(html: &str) -> Page {
    let mut page = Page::default();
    // Depth within elements that are skipped; the outermost one's name, lest a stray end tag end it.
    let mut skipped: Option<(Vec<u8>, usize)> = None;
    let mut in_title = false;
    let mut emitter = DefaultEmitter::default();
    // Otherwise the insides of scripts would be read as tags.
    emitter.naively_switch_states(true);
    for Ok(token) in Tokenizer::new_with_emitter(html, emitter) {
        match token {
            Token::StartTag(tag) => {
                let name: &[u8] = &tag.name;
                if let Some((outer, depth)) = &mut skipped {
                    *depth += usize::from(outer == name && !tag.self_closing);
                    // Menus are not read, but followed.
                    if name == b"a" {
                        follow(&tag, &mut page);
                    }
                    continue;
                }
                match name {
                    b"a" => follow(&tag, &mut page),
                    b"meta" => page.is_excluded |= excludes(&tag),
                    b"title" => in_title = true,
                    // A space at least: cells and inline elements stand apart.
                    b"td" | b"th" => page.text.push_str("  "),
                    _ if SKIPPED.contains(&name) && !tag.self_closing => skipped = Some((name.to_vec(), 1)),
                    _ => {}
                }
                if BLOCKS.contains(&name) {
                    page.text.push('\n');
                }
            }
            Token::EndTag(tag) => {
                let name: &[u8] = &tag.name;
                if let Some((outer, depth)) = &mut skipped {
                    if outer == name {
                        *depth -= 1;
                        if *depth == 0 {
                            skipped = None;
                        }
                    }
                    continue;
                }
                in_title &= name != b"title";
                if BLOCKS.contains(&name) {
                    page.text.push('\n');
                }
            }
            Token::String(text) if skipped.is_none() => {
                let text = String::from_utf8_lossy(&text);
                if in_title {
                    page.title.push_str(&text);
                } else {
                    page.text.push_str(&text.replace(['\n', '\r', '\t'], " "));
                }
            }
            _ => {}
        }
    }
    page.title = one_line(&page.title);
    let lines = page.text.lines().map(one_line).filter(|line| !line.is_empty());
    page.text = lines.collect::<Vec<_>>().join("\n");
    page
}

fn attribute<'a>(tag: &'a html5gum::StartTag<()>, name: &[u8]) -> Option<std::borrow::Cow<'a, str>> {
    let (_, value) = tag.attributes.iter().find(|(key, _)| key.as_slice() == name)?;
    Some(String::from_utf8_lossy(value.as_slice()))
}

fn follow(tag: &html5gum::StartTag<()>, page: &mut Page) {
    let is_nofollow = attribute(tag, b"rel").is_some_and(|rel| rel.contains("nofollow"));
    if let Some(href) = attribute(tag, b"href")
        && !is_nofollow
        && page.links.len() < LINKS_MAX
    {
        page.links.push(href.trim().to_owned());
    }
}

fn excludes(tag: &html5gum::StartTag<()>) -> bool {
    attribute(tag, b"name").is_some_and(|name| name.eq_ignore_ascii_case("robots"))
        && attribute(tag, b"content").is_some_and(|content| content.to_ascii_lowercase().contains("noindex"))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_becomes_its_text() {
        let page = read(
            "<!doctype html><html><head><title>Acme &amp; Sons</title><style>p{color:red}</style>\
             <script>if (a < b) { document.write('<p>no</p>'); }</script></head><body>\
             <nav><a href='/hours'>Hours</a></nav><h1>Welcome</h1><p>We are open\n from <b>nine</b> to&nbsp;five.</p>\
             <table><tr><td>Monday</td><td>9&ndash;17</td></tr></table><p>Bye<br>now <a rel=nofollow href='/x'>x</a> <a href=\"more.html?a=1&amp;b=2\">more</a><footer>© Acme</footer>",
        );
        assert_eq!(page.title, "Acme & Sons");
        assert_eq!(page.text, "Welcome\nWe are open from nine to five.\nMonday 9–17\nBye\nnow x more");
        assert_eq!(page.links, ["/hours", "more.html?a=1&b=2"]);
        assert!(!page.is_excluded);
    }

    #[test]
    fn whatever_comes_is_read() {
        for html in
            ["", "<", "<p", "</p></p>", "<nav><nav></nav>a", "<title>", "&#xFFFFFFFF;", "<a href>", "\0"]
        {
            read(html);
        }
        assert!(read("<meta name=ROBOTS content='NoIndex, follow'>").is_excluded);
        assert_eq!(read("<nav><div></nav>kept").text, "kept");
    }
}
