//! HTML tags grouped by their meaning to a reader.

/// Tags whose contents are not read.
pub const SKIPPED: &[&[u8]] = &[
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
    b"textarea",
    b"dialog",
    b"iframe",
    b"object",
    b"aside",
];
/// Inside a sectioning element these belong to it; outside, they belong to the website as a whole.
pub const BANNERS: [&[u8]; 2] = [b"header", b"footer"];
pub const PARTS: [&[u8]; 3] = [b"main", b"article", b"section"];
/// Tags that begin a new line.
pub const BLOCKS: &[&[u8]] = &[
    b"p",
    b"div",
    b"section",
    b"article",
    b"main",
    b"header",
    b"footer",
    b"hgroup",
    b"li",
    b"ul",
    b"ol",
    b"menu",
    b"dl",
    b"hr",
    b"blockquote",
    b"pre",
    b"figure",
    b"figcaption",
    b"address",
    b"details",
    b"fieldset",
    b"legend",
    b"center",
    b"body",
    b"title",
];
/// Tags that end a heading whose closing tag is missing.
pub const NOT_IN_HEADINGS: &[&[u8]] =
    &[b"p", b"ul", b"ol", b"dl", b"table", b"section", b"article", b"blockquote", b"pre"];

pub fn heading_level(name: &[u8]) -> Option<u8> {
    match name {
        [b'h', digit @ b'1'..=b'6'] => Some(digit - b'0'),
        _ => None,
    }
}
