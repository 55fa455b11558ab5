//! Imports go down only: the table in `src/lib.rs` says who may use whom, and here it is held to.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Module → what it may use. `all` is kept as a word.
fn table() -> BTreeMap<String, BTreeSet<String>> {
    let source = std::fs::read_to_string(root().join("lib.rs")).expect("src/lib.rs");
    let rows = source.lines().filter_map(|line| line.strip_prefix("//! | "));
    rows.filter_map(|row| {
        let mut cells = row.trim_end_matches('|').split('|').map(str::trim);
        let (module, uses) = (cells.next()?, cells.next().unwrap_or_default());
        let uses = uses.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned);
        Some((module.to_owned(), uses.collect()))
    })
    .collect()
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src")
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("readable") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Names that follow `crate::`, in a path or in the braces of a `use`.
fn imports(source: &str) -> BTreeSet<String> {
    let name = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let mut found = BTreeSet::new();
    for (at, _) in source.match_indices("crate::") {
        let rest = &source[at + "crate::".len()..];
        let Some(group) = rest.strip_prefix('{') else {
            found.insert(name(rest));
            continue;
        };
        let mut depth = 0;
        let mut start = true;
        for (offset, c) in group.char_indices() {
            match c {
                '}' if depth == 0 => break,
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => start = true,
                c if c.is_whitespace() => {}
                _ if start => {
                    found.insert(name(&group[offset..]));
                    start = false;
                }
                _ => {}
            }
        }
    }
    found
}

#[test]
fn every_import_is_in_the_table() {
    let table = table();
    let mut files = Vec::new();
    sources(&root(), &mut files);
    assert!(files.len() > 50, "only {} sources", files.len());
    let mut wrong = Vec::new();
    for file in files {
        let path = file.strip_prefix(root()).expect("inside").to_owned();
        let module = path.iter().next().expect("a name").to_string_lossy().trim_end_matches(".rs").to_owned();
        if module == "lib" || module == "main" {
            continue;
        }
        let Some(allowed) = table.get(&module) else {
            wrong.push(format!("{} is a module that the table lacks", path.display()));
            continue;
        };
        let source = std::fs::read_to_string(&file).expect("readable");
        for import in imports(&source) {
            let known = table.contains_key(&import);
            if known && import != module && !allowed.contains(&import) && !allowed.contains("all") {
                wrong.push(format!("{} uses {import}, which {module} may not", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
