//! Reads one website: stays on its host, obeys its robots.txt, and bounds pages, bytes and time.

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use tokio::time::Instant;
use url::Url;

use super::config::Config;
use super::passage::{Passage, of_sections};
use super::reader::{ReadError, Reader};
use super::robots::{self, Rules};
use super::{html, sections};
use crate::fetch;

/// Path segments of pages with no content to answer from.
const USELESS: &[&str] =
    &["login", "signin", "sign-in", "logout", "cart", "checkout", "wp-admin", "calendar"];
/// File endings of addresses that are not pages.
const NO_PAGES: &[&str] = &[
    ".pdf", ".jpg", ".jpeg", ".png", ".gif", ".svg", ".webp", ".zip", ".gz", ".mp3", ".mp4", ".css", ".js",
    ".ico", ".woff", ".woff2", ".doc", ".docx", ".xls", ".xlsx",
];
const TRACKING: &[&str] = &["utm_", "gclid", "fbclid", "mc_"];
/// Links remembered per page of the limit `pages_max`: a page can contain any number of them.
const LINKS_PER_PAGE: usize = 100;

/// The reason why a website could not be read. The texts are for the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CrawlError {
    #[error("the address is not that of a website")]
    Address,
    #[error("the website's robots.txt does not allow it")]
    Excluded,
    #[error(transparent)]
    Unread(#[from] ReadError),
    #[error("nothing to read was found")]
    Empty,
    #[error("there is no room for it at present")]
    NoRoom,
}

#[derive(Debug, Clone, Default)]
pub struct Site {
    pub passages: Vec<Passage>,
    pub pages: usize,
    /// The session's deadline, not the website's own, cut the reading short.
    pub is_cut: bool,
}

/// Normalizes an address that a person wrote: adds a scheme, removes the fragment and tracking parameters.
///
/// # Errors
/// [`CrawlError::Address`].
pub fn normalized(text: &str) -> Result<Url, CrawlError> {
    let text = text.trim();
    let with_scheme = if text.contains("://") { text.to_owned() } else { format!("https://{text}") };
    let mut url = fetch::policy::parse(&with_scheme).map_err(|_| CrawlError::Address)?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(CrawlError::Address);
    }
    clean(&mut url);
    Ok(url)
}

fn clean(url: &mut Url) {
    url.set_fragment(None);
    let kept: Vec<(String, String)> = url
        .query_pairs()
        .filter(|(name, _)| !TRACKING.iter().any(|prefix| name.starts_with(prefix)))
        .map(|(name, value)| (name.into_owned(), value.into_owned()))
        .collect();
    url.set_query(None);
    if !kept.is_empty() {
        url.query_pairs_mut().extend_pairs(kept);
    }
}

fn host(url: &Url) -> Option<(String, Option<u16>)> {
    let host = url.host_str()?;
    Some((host.strip_prefix("www.").unwrap_or(host).to_owned(), url.port_or_known_default()))
}

/// Whether `url` belongs to the website at `home`. Its http and https addresses count as the same site.
fn same_site(home: &Url, url: &Url) -> bool {
    let default = |url: &Url| url.port().is_none();
    match (host(home), host(url)) {
        (Some((a, a_port)), Some((b, b_port))) => {
            a == b && (a_port == b_port || (default(home) && default(url)))
        }
        _ => false,
    }
}

fn is_page(url: &Url) -> bool {
    let path = url.path().to_ascii_lowercase();
    matches!(url.scheme(), "http" | "https")
        && !NO_PAGES.iter().any(|ending| path.ends_with(ending))
        && !path.split('/').any(|part| USELESS.contains(&part))
}

fn target(url: &Url) -> String {
    url.query().map_or_else(|| url.path().to_owned(), |query| format!("{}?{query}", url.path()))
}

/// Reads the website at `address` within `reader`'s deadline and the limits.
///
/// # Errors
/// [`CrawlError`] if the first page cannot be read. Later pages that fail are skipped.
pub async fn crawl(reader: &Reader, address: &str, limits: &Config) -> Result<Site, CrawlError> {
    let mut home = normalized(address)?;
    let own_deadline = Instant::now() + Duration::from_millis(limits.total_timeout_ms);
    let is_hurried = reader.deadline < own_deadline;
    let reader = &reader.until(own_deadline);
    let mut rules = match rules(reader, &home).await {
        // The address names no scheme and https fails: try http.
        Err(ReadError::Fetch(fetch::Error::Failed))
            if !address.contains("://") && home.set_scheme("http").is_ok() =>
        {
            rules(reader, &home).await
        }
        rules => rules,
    }?;
    if !rules.allow(&target(&home)) {
        return Err(CrawlError::Excluded);
    }
    let mut site = Site::default();
    let mut seen = HashSet::from([home.clone()]);
    let mut texts = HashSet::new();
    let mut waiting = VecDeque::from([(home.clone(), 0)]);
    let mut bytes = 0;
    while let Some((url, depth)) = waiting.pop_front() {
        let is_first = depth == 0;
        if site.pages >= limits.pages_max || bytes >= limits.text_bytes_max {
            break;
        }
        if !is_first {
            tokio::time::sleep(Duration::from_millis(limits.pause_ms)).await;
        }
        let download = match reader.fetch(url.as_str()).await {
            Ok(download) => download,
            Err(error) if is_first => return Err(error.into()),
            Err(ReadError::Late) => {
                site.is_cut = is_hurried;
                break;
            }
            Err(ReadError::Fetch(_)) => continue,
        };
        let arrived = download.url;
        if is_first && !same_site(&home, &arrived) {
            // The website has moved; read it at its new address.
            home = arrived.clone();
            rules = self::rules(reader, &home).await.unwrap_or_else(|_| Rules::disallow_all());
        }
        if !same_site(&home, &arrived) || !rules.allow(&target(&arrived)) {
            continue;
        }
        let text = String::from_utf8_lossy(&download.bytes);
        let page = match download.media_type.as_deref() {
            Some("text/plain") => html::Page { sections: sections::of_text(&text), ..html::Page::default() },
            None | Some("text/html" | "application/xhtml+xml") => html::read(&text),
            Some(_) => continue,
        };
        if depth < limits.depth_max {
            for link in &page.links {
                let Ok(mut link) = arrived.join(link) else { continue };
                clean(&mut link);
                if seen.len() < limits.pages_max.saturating_mul(LINKS_PER_PAGE)
                    && same_site(&home, &link)
                    && is_page(&link)
                    && rules.allow(&target(&link))
                    && seen.insert(link.clone())
                {
                    waiting.push_back((link, depth + 1));
                }
            }
        }
        let mut hasher = DefaultHasher::new();
        let text = page.text();
        text.hash(&mut hasher);
        if page.is_excluded || text.is_empty() || !texts.insert(hasher.finish()) {
            continue;
        }
        bytes += text.len();
        site.pages += 1;
        site.passages.extend(of_sections(arrived.as_str(), &page.title, &page.sections));
    }
    if site.pages == 0 { Err(CrawlError::Empty) } else { Ok(site) }
}

async fn rules(reader: &Reader, home: &Url) -> Result<Rules, ReadError> {
    let robots = home.join("/robots.txt").map_err(|_| fetch::Error::InvalidUrl)?;
    match reader.fetch(robots.as_str()).await {
        Ok(download) => {
            let bytes = download.bytes.get(..robots::BYTES_MAX).unwrap_or(&download.bytes);
            Ok(Rules::read(&String::from_utf8_lossy(bytes)))
        }
        // Section 2.3.1.3: a missing file forbids nothing.
        Err(ReadError::Fetch(fetch::Error::ClientError(_))) => Ok(Rules::default()),
        Err(ReadError::Fetch(fetch::Error::TooLarge { .. } | fetch::Error::TooManyRedirects)) => {
            Ok(Rules::disallow_all())
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_brought_to_one_form() {
        for (text, expected) in [
            ("example.com", "https://example.com/"),
            (" HTTP://Example.COM:80/a?utm_source=x&b=1#c ", "http://example.com/a?b=1"),
            ("www.example.com/über", "https://www.example.com/%C3%BCber"),
        ] {
            assert_eq!(normalized(text).unwrap().as_str(), expected);
        }
        for text in [
            "",
            "ftp://a.example/",
            "https://u:p@a.example/",
            "javascript:alert(1)",
            "https://",
            "file:///etc/passwd",
        ] {
            assert_eq!(normalized(text), Err(CrawlError::Address), "{text}");
        }
    }

    #[test]
    fn a_website_is_its_host() {
        let url = |text: &str| Url::parse(text).unwrap();
        let home = url("https://example.com/");
        for (text, expected) in [
            ("https://www.example.com/a", true),
            ("http://example.com/a", true),
            ("https://example.com:8443/", false),
            ("https://sub.example.com/", false),
            ("https://example.com.evil.test/", false),
        ] {
            assert_eq!(same_site(&home, &url(text)), expected, "{text}");
        }
    }
}
