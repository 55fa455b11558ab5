//! The declarations, imports and paths of one source file.

use std::collections::BTreeSet;

use super::tokens::tokens;

/// A module, of a file or between braces in one.
#[derive(Debug, Default)]
pub struct Scope {
    /// From the file's own module: empty for that itself.
    pub path: Vec<String>,
    /// Names of `mod name;`.
    pub files: Vec<String>,
    /// Names of items that it defines.
    pub items: BTreeSet<String>,
    pub imports: Vec<Import>,
    /// Paths outside of imports, of two words or more.
    pub mentions: Vec<Vec<String>>,
    /// Every word outside of imports that stands alone.
    pub words: BTreeSet<String>,
    /// Every word outside of imports that begins a path.
    pub heads: BTreeSet<String>,
}

#[derive(Debug)]
pub struct Import {
    pub path: Vec<String>,
    /// `None`: everything that `path` has.
    pub name: Option<String>,
    pub is_public: bool,
}

const ITEMS: [&str; 8] = ["fn", "struct", "enum", "trait", "type", "const", "static", "union"];

/// The scopes of a file, its own first. Without `with_tests`, items under `#[cfg(test)]` are left out.
pub fn scopes(source: &str, with_tests: bool) -> Vec<Scope> {
    let mut reader = Reader {
        tokens: tokens(source),
        at: 0,
        depth: 0,
        open: vec![(0, 0)],
        scopes: vec![Scope::default()],
        with_tests,
    };
    reader.read();
    reader.scopes
}

/// Module → file of each `#[path = "file"]` before a `mod name;`. Of two with a name, one may have the attribute.
pub fn path_attributes(source: &str) -> Vec<(String, String)> {
    let mut lines = source.lines().map(str::trim);
    let mut found = Vec::new();
    while let Some(line) = lines.next() {
        let Some(file) = line.strip_prefix("#[path = \"").and_then(|rest| rest.strip_suffix("\"]")) else {
            continue;
        };
        let declaration = lines.by_ref().find(|line| !line.starts_with("#[")).unwrap_or_default();
        let name = declaration.trim_end_matches(';').rsplit(' ').next().unwrap_or_default();
        found.push((name.to_owned(), file.to_owned()));
    }
    found
}

struct Reader {
    tokens: Vec<String>,
    at: usize,
    depth: usize,
    /// Modules between braces that are open: the depth inside, and which scope.
    open: Vec<(usize, usize)>,
    scopes: Vec<Scope>,
    with_tests: bool,
}

impl Reader {
    fn token(&self, ahead: usize) -> &str {
        self.tokens.get(self.at + ahead).map_or("", String::as_str)
    }

    fn scope(&mut self) -> &mut Scope {
        let index = self.open.last().expect("the file's own stays open").1;
        &mut self.scopes[index]
    }

    fn read(&mut self) {
        while self.at < self.tokens.len() {
            match self.token(0) {
                "#" => self.attribute(),
                "use" => self.import(),
                "mod" if is_name(self.token(1)) => self.module(),
                "{" => {
                    self.depth += 1;
                    self.at += 1;
                }
                "}" => {
                    if self.open.len() > 1 && self.open.last().is_some_and(|open| open.0 == self.depth) {
                        self.open.pop();
                    }
                    self.depth = self.depth.saturating_sub(1);
                    self.at += 1;
                }
                "pub" if self.token(1) == "(" => self.at = self.closing(self.at + 1) + 1,
                word if is_name(word) => self.word(),
                _ => self.at += 1,
            }
        }
    }

    /// The index of what closes the bracket at `at`.
    fn closing(&self, at: usize) -> usize {
        let mut depth = 0;
        for (index, token) in self.tokens.iter().enumerate().skip(at) {
            match token.as_str() {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return index;
            }
        }
        self.tokens.len()
    }

    fn attribute(&mut self) {
        let opening = self.at + if self.token(1) == "!" { 2 } else { 1 };
        if self.tokens.get(opening).is_none_or(|token| token != "[") {
            self.at += 1;
            return;
        }
        let end = self.closing(opening);
        let inside = self.tokens[opening + 1..end.min(self.tokens.len())].concat();
        self.at = end + 1;
        let is_of_tests = inside == "cfg(test)" || inside.starts_with("cfg(all(test,");
        if is_of_tests && !self.with_tests {
            self.skip_item();
        }
    }

    /// Past the item, field or statement that follows an attribute.
    fn skip_item(&mut self) {
        let mut ends_with_braces = None;
        while self.at < self.tokens.len() {
            match self.token(0) {
                "#" if self.token(1) == "[" => self.at = self.closing(self.at + 1) + 1,
                "fn" | "mod" | "struct" | "enum" | "impl" | "trait" | "union" => {
                    ends_with_braces.get_or_insert(true);
                    self.at += 1;
                }
                "use" | "static" | "type" | "let" => {
                    ends_with_braces.get_or_insert(false);
                    self.at += 1;
                }
                "(" | "[" => self.at = self.closing(self.at) + 1,
                "{" => {
                    self.at = self.closing(self.at) + 1;
                    if ends_with_braces != Some(false) {
                        return;
                    }
                }
                ";" => {
                    self.at += 1;
                    return;
                }
                "," if ends_with_braces.is_none() => {
                    self.at += 1;
                    return;
                }
                ")" | "]" | "}" => return,
                _ => self.at += 1,
            }
        }
    }

    fn module(&mut self) {
        let name = self.token(1).to_owned();
        self.at += 2;
        match self.token(0) {
            ";" => self.scope().files.push(name),
            "{" => {
                self.depth += 1;
                let mut path = self.scope().path.clone();
                path.push(name);
                self.scopes.push(Scope { path, ..Scope::default() });
                self.open.push((self.depth, self.scopes.len() - 1));
            }
            _ => return,
        }
        self.at += 1;
    }

    fn import(&mut self) {
        // `use<'a>` bounds a type, and imports nothing.
        if self.token(1) == "<" {
            self.at += 1;
            return;
        }
        let before = |back: usize| self.at.checked_sub(back).map_or("", |at| self.tokens[at].as_str());
        let is_public = before(1) == "pub" || before(1) == ")";
        let end =
            (self.at..self.tokens.len()).find(|&at| self.tokens[at] == ";").unwrap_or(self.tokens.len());
        let tree = self.tokens[self.at + 1..end].to_vec();
        let mut found = Vec::new();
        branches(&tree, &[], &mut found);
        let imports = found.into_iter().map(|(path, name)| Import { path, name, is_public });
        self.scope().imports.extend(imports);
        self.at = end + 1;
    }

    /// A word: what it defines, or the path that it begins.
    fn word(&mut self) {
        let first = self.token(0).to_owned();
        let is_continued = self.at > 0 && matches!(self.tokens[self.at - 1].as_str(), "." | "::");
        let mut path = vec![first.clone()];
        while self.token(1) == "::" && is_name(self.token(2)) {
            path.push(self.token(2).to_owned());
            self.at += 2;
        }
        self.at += 1;
        let depth = self.depth;
        let is_at_its_level = self.open.last().is_some_and(|open| open.0 == depth);
        if path.len() == 1 && is_at_its_level {
            let is_macro = first == "macro_rules" && self.token(0) == "!";
            let named = self.token(usize::from(is_macro)).to_owned();
            if (is_macro || ITEMS.contains(&first.as_str())) && is_name(&named) {
                self.scope().items.insert(named);
            }
        }
        let scope = self.scope();
        if !is_continued {
            if path.len() > 1 {
                scope.heads.insert(first);
                scope.mentions.push(path);
            } else {
                scope.words.insert(first);
            }
        }
    }
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// The paths of a `use`, each with the name that it gets.
fn branches(tree: &[String], prefix: &[String], found: &mut Vec<(Vec<String>, Option<String>)>) {
    let mut path = prefix.to_vec();
    let mut at = 0;
    while let Some(token) = tree.get(at) {
        match token.as_str() {
            "::" => {}
            "*" => return found.push((path, None)),
            "as" => {
                let name = tree.get(at + 1).cloned();
                return found.push((path, name));
            }
            "{" => {
                let inside = &tree[at + 1..tree.len() - 1];
                let (mut depth, mut start) = (0, 0);
                for (index, token) in inside.iter().enumerate() {
                    match token.as_str() {
                        "{" => depth += 1,
                        "}" => depth -= 1,
                        "," if depth == 0 => {
                            branches(&inside[start..index], &path, found);
                            start = index + 1;
                        }
                        _ => {}
                    }
                }
                return branches(&inside[start..], &path, found);
            }
            // `self` in braces is the module before them.
            "self" if !path.is_empty() => {}
            name => path.push(name.to_owned()),
        }
        at += 1;
    }
    if !tree.is_empty() {
        let name = path.last().cloned();
        found.push((path, name));
    }
}
