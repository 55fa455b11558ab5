//! E-mail and web addresses, spelled out with `at` and `dot`.

use super::number_words;
use super::spoken::{Match, Spoken};

/// Recognised ends of host names.
const TOP_LEVELS: [&str; 44] = [
    "ai", "app", "at", "au", "be", "biz", "br", "ca", "ch", "cloud", "co", "com", "de", "dev", "dk", "edu",
    "es", "eu", "fr", "gov", "health", "ie", "in", "info", "int", "io", "it", "jp", "me", "mil", "net", "nl",
    "no", "nz", "online", "org", "pl", "se", "shop", "site", "tech", "tv", "uk", "us",
];
/// Recognised ends that are also common words, and need an announcement: `a polka dot shop`.
const COMMON_TOP_LEVELS: [&str; 14] =
    ["app", "at", "be", "cloud", "health", "in", "info", "it", "me", "no", "online", "shop", "site", "us"];
const ANNOUNCING: [&str; 14] = [
    "address", "domain", "email", "go", "http", "https", "link", "page", "site", "url", "visit", "web",
    "website", "www",
];
const POSTMASTERS: [&str; 12] = [
    "gmail",
    "yahoo",
    "hotmail",
    "outlook",
    "icloud",
    "aol",
    "protonmail",
    "proton",
    "live",
    "msn",
    "googlemail",
    "gmx",
];
/// Words that announce an address.
const MAIL: [&str; 6] = ["email", "e-mail", "mail", "emails", "address", "write"];
/// Mailboxes that need no announcement.
const MAILBOXES: [&str; 14] = [
    "info", "support", "sales", "contact", "hello", "admin", "help", "office", "press", "jobs", "billing",
    "team", "noreply", "service",
];
/// Words that are not part of an address: `the dot com bubble`, `meet me at example dot com`.
const PLAIN: [&str; 40] = [
    "a", "an", "the", "this", "that", "of", "and", "or", "to", "is", "are", "was", "us", "me", "him", "her",
    "it", "them", "you", "i", "we", "they", "he", "she", "at", "on", "in", "out", "up", "for", "from",
    "here", "there", "online", "look", "be", "my", "your", "our", "with",
];
const REACH: usize = 8;
const LABELS_MAX: usize = 8;

/// A part of an address as text, and the atom after it.
type Part = (String, usize);

/// `jane.doe@example.com`.
pub fn mail(spoken: &Spoken<'_>, at: usize) -> Option<Match> {
    let (local, next) = local(spoken, at)?;
    let (host, end) = host(spoken, next + 1).filter(|_| !spoken.open(next + 1).is_empty())?;
    let plain = |text: &str| PLAIN.contains(&text);
    let composed = local.contains(|c: char| !c.is_ascii_alphabetic());
    let known = MAILBOXES.contains(&&*local)
        || POSTMASTERS.contains(&host.split('.').next().unwrap_or_default())
        || spoken.is_about(at, REACH, &MAIL);
    (spoken.open(next) == "at" && !plain(&local) && (composed || known))
        .then(|| spoken.one(format!("{local}@{host}"), at, end))
        .flatten()
}

/// The part before `at`: words, letters and digits, joined by spoken signs. The last atom that fits before `at`
/// ends it.
fn local(spoken: &Spoken<'_>, at: usize) -> Option<Part> {
    let mut text = label(spoken.atom(at))?;
    let mut next = at + 1;
    for _ in 0..LABELS_MAX * 2 {
        let word = spoken.open(next);
        let sign = match word {
            "at" => return Some((text, next)),
            "dot" | "period" => ".",
            "underscore" => "_",
            "dash" | "hyphen" => "-",
            "plus" => "+",
            _ => "",
        };
        if !sign.is_empty() {
            text.push_str(sign);
            text.push_str(&label(spoken.open(next + 1))?);
            next += 2;
            continue;
        }
        // Without a sign only digits continue it, and letters after letters.
        let spelled = text.len() == next - at && word.len() == 1;
        match number_words::digit(word) {
            Some(digit) => text.push_str(&digit.to_string()),
            None if spelled => text.push_str(&label(word)?),
            None => return None,
        }
        next += 1;
    }
    None
}

/// `example.com/pricing`, `www.example.co.uk`, `https://example.com`.
pub fn web(spoken: &Spoken<'_>, at: usize) -> Option<Match> {
    let (scheme, start) = scheme(spoken, at);
    let (mut address, mut end) = host(spoken, start)?;
    // The model wrote it as one already, and nothing was spelled out.
    if end == at + 1 && spoken.open(end) != "slash" {
        return None;
    }
    for _ in 0..LABELS_MAX {
        if spoken.open(end) != "slash" {
            break;
        }
        let Some(path) = label(spoken.open(end + 1)).filter(|path| !PLAIN.contains(&&**path)) else { break };
        address = format!("{address}/{path}");
        end += 2;
    }
    spoken.one(format!("{scheme}{address}"), at, end)
}

/// `https colon slash slash`.
fn scheme(spoken: &Spoken<'_>, at: usize) -> (&'static str, usize) {
    let scheme = match spoken.atom(at) {
        "http" => "http://",
        "https" => "https://",
        _ => return ("", at),
    };
    let slashes = [spoken.open(at + 1), spoken.open(at + 2), spoken.open(at + 3)];
    if slashes == ["colon", "slash", "slash"] { (scheme, at + 4) } else { ("", at) }
}

/// Labels with `dot` between them, or with full stops already, that end with a known top level.
fn host(spoken: &Spoken<'_>, at: usize) -> Option<Part> {
    let spelled = ["w", "w", "w"] == [spoken.atom(at), spoken.open(at + 1), spoken.open(at + 2)];
    let (mut text, mut end) = if spelled {
        ("www".to_owned(), at + 3)
    } else {
        (label(spoken.atom(at)).filter(|text| !PLAIN.contains(&&**text))?, at + 1)
    };
    for _ in 0..LABELS_MAX {
        if spoken.open(end) != "dot" {
            break;
        }
        let Some(next) = label(spoken.open(end + 1)) else { break };
        text = format!("{text}.{next}");
        end += 2;
    }
    let (name, top) = text.rsplit_once('.')?;
    let common = COMMON_TOP_LEVELS.contains(&top)
        && !name.contains('.')
        && !spoken.is_about(at, REACH, &ANNOUNCING)
        && !spoken.before(at).eq("at");
    (TOP_LEVELS.contains(&top) && !common && name != "www").then_some((text, end))
}

/// A word that can stand in an address.
fn label(text: &str) -> Option<String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    let word = !text.is_empty()
        && text.chars().all(fits)
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric())
        && !matches!(text, "dot" | "slash" | "colon");
    let digit = number_words::digit(text).map(|digit| digit.to_string());
    word.then(|| digit.unwrap_or_else(|| text.to_owned()))
}
