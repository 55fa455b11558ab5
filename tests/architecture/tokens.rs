//! Rust source as words, `::` and single symbols: enough to read declarations, imports and paths.

/// Without comments, literals and lifetimes.
pub fn tokens(source: &str) -> Vec<String> {
    let text: Vec<char> = source.chars().collect();
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(&c) = text.get(at) {
        let rest = &text[at..];
        at += if rest.starts_with(&['/', '/']) {
            rest.iter().position(|&c| c == '\n').unwrap_or(rest.len())
        } else if rest.starts_with(&['/', '*']) {
            block_comment(rest)
        } else if let Some(length) = raw_string(rest) {
            length
        } else if c == '"' {
            quoted(rest, '"')
        } else if c == '\'' {
            character_or_lifetime(rest)
        } else if is_word(c) {
            let length = rest.iter().take_while(|&&c| is_word(c)).count();
            let is_prefix =
                matches!(rest.get(length), Some('"' | '\'')) && matches!(length, 1 | 2) && "bc".contains(c);
            if !is_prefix {
                found.push(rest[..length].iter().collect());
            }
            length
        } else if rest.starts_with(&[':', ':']) {
            found.push("::".into());
            2
        } else {
            if !c.is_whitespace() {
                found.push(c.into());
            }
            1
        };
    }
    found
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn block_comment(text: &[char]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        let step = match &text[at..] {
            ['/', '*', ..] => {
                depth += 1;
                2
            }
            ['*', '/', ..] => {
                depth -= 1;
                2
            }
            _ => 1,
        };
        at += step;
        if depth == 0 {
            break;
        }
    }
    at
}

/// `r"…"`, `br#"…"#` and their like.
fn raw_string(text: &[char]) -> Option<usize> {
    let prefix = text.iter().take_while(|c| matches!(c, 'b' | 'c')).count().min(1);
    (*text.get(prefix)? == 'r').then_some(())?;
    let hashes = text[prefix + 1..].iter().take_while(|&&c| c == '#').count();
    let opening = prefix + 1 + hashes;
    (*text.get(opening)? == '"').then_some(())?;
    let closing: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
    let inside = text[opening + 1..].windows(closing.len()).position(|window| window == closing)?;
    Some(opening + 1 + inside + closing.len())
}

fn quoted(text: &[char], quote: char) -> usize {
    let mut at = 1;
    while at < text.len() && text[at] != quote {
        at += if text[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

fn character_or_lifetime(text: &[char]) -> usize {
    match text {
        [_, '\\', ..] | [_, _, '\'', ..] => quoted(text, '\''),
        _ => 1 + text[1..].iter().take_while(|&&c| is_word(c)).count(),
    }
}
