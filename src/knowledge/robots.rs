//! `robots.txt`: the paths a website allows robots to read (RFC 9309, "Robots Exclusion Protocol").

/// The product token by which `robots.txt` can address this crawler.
const PRODUCT: &str = "verbatim";
/// RFC 9309, section 2.5: at least 500 KiB are read.
pub const BYTES_MAX: usize = 500 << 10;

/// The rules that apply to this crawler.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// Whether paths that match the pattern may be read, and the pattern.
    rules: Vec<(bool, String)>,
}

impl Rules {
    /// Forbids everything, as section 2.3.1.4 demands while the rules cannot be fetched.
    pub fn disallow_all() -> Self {
        Self { rules: vec![(false, "/".into())] }
    }

    /// Takes the groups that name this crawler, else those for all robots; with neither, everything is allowed.
    pub fn read(text: &str) -> Self {
        let (mut ours, mut everybodys) = (None::<Vec<_>>, Vec::new());
        let (mut is_ours, mut is_everybodys, mut in_rules) = (false, false, false);
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or_default();
            let Some((key, value)) = line.split_once(':') else { continue };
            let (key, value) = (key.trim().to_ascii_lowercase(), value.trim());
            if key == "user-agent" {
                if in_rules {
                    (is_ours, is_everybodys, in_rules) = (false, false, false);
                }
                is_ours |= value.eq_ignore_ascii_case(PRODUCT);
                is_everybodys |= value == "*";
                if is_ours {
                    ours.get_or_insert_default();
                }
                continue;
            }
            let allows = match key.as_str() {
                "allow" => true,
                "disallow" => false,
                _ => continue,
            };
            in_rules = true;
            if value.is_empty() {
                continue;
            }
            if is_ours {
                ours.get_or_insert_default().push((allows, value.to_owned()));
            }
            if is_everybodys {
                everybodys.push((allows, value.to_owned()));
            }
        }
        Self { rules: ours.unwrap_or(everybodys) }
    }

    /// Whether `path`, including its query, may be read. The longest matching pattern decides; on a tie, the
    /// one that allows (section 2.2.2).
    pub fn allow(&self, path: &str) -> bool {
        let fitting = self.rules.iter().filter(|(_, pattern)| fits(pattern, path));
        fitting.max_by_key(|(allows, pattern)| (pattern.len(), *allows)).is_none_or(|(allows, _)| *allows)
    }
}

/// `*` matches any characters, `$` the end (section 2.2.3).
fn fits(pattern: &str, path: &str) -> bool {
    let (pattern, is_whole) = pattern.strip_suffix('$').map_or((pattern, false), |pattern| (pattern, true));
    let mut pieces = pattern.split('*');
    let Some(mut rest) = pieces.next().and_then(|first| path.strip_prefix(first)) else { return false };
    let mut last = None;
    for piece in pieces {
        last = Some(piece);
        match rest.find(piece) {
            Some(at) => rest = &rest[at + piece.len()..],
            None => return false,
        }
    }
    match last {
        _ if !is_whole || rest.is_empty() => true,
        // The last piece must match at the end, which may be a later occurrence.
        Some(piece) => rest.ends_with(piece),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_rule_decides() {
        let rules = Rules::read(
            "# all\nUser-agent: *\nDisallow: /private # no\nAllow: /private/open\nDisallow: /*.pdf$\n\
             Disallow:\nUser-agent: other\nDisallow: /",
        );
        for (path, expected) in [
            ("/", true),
            ("/private", false),
            ("/private/x", false),
            ("/private/open/x", true),
            ("/a/b.pdf", false),
            ("/a.pdf/b.pdf", false),
            ("/a/b.pdf?x", true),
        ] {
            assert_eq!(rules.allow(path), expected, "{path}");
        }
    }

    #[test]
    fn our_own_group_counts_alone() {
        let text = "User-agent: *\nDisallow: /\n\nUser-agent: a\nUser-Agent: Verbatim\nDisallow: /x\n";
        let rules = Rules::read(text);
        assert!(rules.allow("/y") && !rules.allow("/x"));
        assert!(Rules::read("User-agent: verbatim\nUser-agent: *\nDisallow: /z").allow("/y"));
        assert!(Rules::read("").allow("/") && !Rules::disallow_all().allow("/"));
    }
}
