//! Imports go down only: the table in `src/lib.rs` says which module may use which, the one in `src/circles.md` which files
//! of a module may import each other in a circle. Here both are checked.

#[path = "architecture/graph.rs"]
mod graph;
#[path = "architecture/source.rs"]
mod source;
#[path = "architecture/tokens.rs"]
mod tokens;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use graph::{Graph, room};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src")
}

fn text(file: &Path) -> Option<String> {
    std::fs::read_to_string(root().join(file)).ok()
}

/// The rows of a table, as cells, of lines that begin with `start`.
fn rows(text: &str, start: &str) -> Vec<Vec<String>> {
    let rows = text.lines().filter_map(|line| line.strip_prefix(start)).skip(1);
    rows.map(|row| row.trim_end_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect())
        .collect()
}

fn names(cell: Option<&String>) -> BTreeSet<String> {
    let names = cell.map(String::as_str).unwrap_or_default().split(',').map(str::trim);
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Module → what it may use. `all` is kept as a word.
fn table() -> BTreeMap<String, BTreeSet<String>> {
    let library = text(Path::new("lib.rs")).expect("src/lib.rs");
    let (_, section) = library.split_once("//! # Who may use whom\n").expect("the heading");
    let rows = rows(section, "//! | ").into_iter();
    rows.map(|cells| (cells[0].clone(), names(cells.get(1)))).collect()
}

/// Files of a circle → why it stays.
fn listed_circles() -> BTreeMap<BTreeSet<String>, String> {
    let rows = rows(&text(Path::new("circles.md")).expect("src/circles.md"), "| ").into_iter();
    rows.map(|cells| (names(cells.first()), cells.get(1).cloned().unwrap_or_default())).collect()
}

fn sources(folder: &Path, found: &mut BTreeSet<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("readable") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.insert(path.strip_prefix(root()).expect("inside").to_owned());
        }
    }
}

#[test]
fn every_import_is_in_the_table() {
    let table = table();
    let graph = Graph::read(&text, true);
    assert!(graph.files.len() > 50, "only {} sources", graph.files.len());
    let mut wrong = Vec::new();
    for (file, named) in graph.rooms_named() {
        let path = &graph.files[file];
        let module = room(path);
        if module == "lib" {
            continue;
        }
        let Some(allowed) = table.get(&module) else {
            wrong.push(format!("{} is of a module that the table lacks", path.display()));
            continue;
        };
        for import in named {
            let known = table.contains_key(&import);
            if known && import != module && !allowed.contains(&import) && !allowed.contains("all") {
                wrong.push(format!("{} uses {import}, which {module} may not", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_table_has_the_modules_of_the_crate() {
    let graph = Graph::read(&text, true);
    let declared: BTreeSet<String> =
        graph.files.iter().map(|file| room(file)).filter(|room| room != "lib").collect();
    let listed: BTreeSet<String> = table().into_keys().collect();
    let lacking: Vec<&String> = declared.difference(&listed).collect();
    let stale: Vec<&String> = listed.difference(&declared).collect();
    assert!(lacking.is_empty(), "the table in src/lib.rs lacks {lacking:?}");
    assert!(stale.is_empty(), "src/lib.rs has rows for {stale:?}, and declares no such module");
    for (module, uses) in table() {
        let unknown: Vec<&String> =
            uses.iter().filter(|name| *name != "all" && !listed.contains(*name)).collect();
        assert!(unknown.is_empty(), "{module} may use {unknown:?}, which are no modules");
    }
}

#[test]
fn every_file_belongs_to_a_module() {
    let reached: BTreeSet<PathBuf> = Graph::read(&text, true).files.into_iter().collect();
    let mut there = BTreeSet::new();
    sources(&root(), &mut there);
    there.remove(Path::new("main.rs"));
    let lost: Vec<&PathBuf> = there.difference(&reached).collect();
    assert!(lost.is_empty(), "no module declares {lost:?}");
}

/// Code of tests may import as it likes: it entangles no product.
#[test]
fn files_of_a_module_import_each_other_in_no_circle_that_is_not_listed() {
    let graph = Graph::read(&text, false);
    let edges = graph.edges();
    let count: usize = edges.values().map(BTreeMap::len).sum();
    assert!(count > 300, "only {count} imports");
    let mut listed = listed_circles();
    let (mut missing, mut why) = (Vec::new(), Vec::new());
    for circle in graph.cycles() {
        let files: BTreeSet<String> =
            circle.iter().map(|&file| graph.files[file].display().to_string()).collect();
        match listed.remove(&files) {
            Some(reason) if reason.len() > 10 => continue,
            _ => missing.push(format!("| {} | WHY |", files.into_iter().collect::<Vec<_>>().join(", "))),
        }
        for &file in &circle {
            for (to, names) in edges[&file].iter().filter(|(to, _)| circle.contains(to)) {
                let names = names.iter().cloned().collect::<Vec<_>>().join(", ");
                why.push(format!(
                    "    {} → {}: {names}",
                    graph.files[file].display(),
                    graph.files[*to].display()
                ));
            }
        }
        why.push(String::new());
    }
    let stale: Vec<String> =
        listed.into_keys().map(|files| files.into_iter().collect::<Vec<_>>().join(", ")).collect();
    assert!(
        missing.is_empty() && stale.is_empty(),
        "circles of imports that src/circles.md does not list: open them, or paste these rows with a reason:\n\n{}\n\n{}\nrows that are no circle any more, to be removed:\n\n{}\n",
        missing.join("\n"),
        why.join("\n"),
        stale.join("\n"),
    );
}

/// A name that is spelled twice can be misspelled once: modules count by the constants of `telemetry::metrics`.
#[test]
fn metrics_are_named_in_one_place() {
    let metrics = Path::new("telemetry/metrics.rs");
    let mut files = BTreeSet::new();
    sources(&root(), &mut files);
    let mut wrong = Vec::new();
    for file in files.iter().filter(|file| *file != metrics) {
        let source = text(file).expect("readable");
        for kind in ["counter!(\"", "gauge!(\"", "histogram!(\""] {
            if source.contains(kind) {
                wrong.push(format!(
                    "{} names a metric itself ({kind}…): use {}",
                    file.display(),
                    metrics.display()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The circles of a crate that is written down as (file, source).
fn circles(crate_: &[(&str, &str)]) -> Vec<Vec<String>> {
    let read = |file: &Path| {
        crate_.iter().find(|(name, _)| Path::new(name) == file).map(|(_, text)| (*text).to_owned())
    };
    let graph = Graph::read(&read, false);
    let name = |file: usize| graph.files[file].display().to_string();
    graph.cycles().into_iter().map(|circle| circle.into_iter().map(name).collect()).collect()
}

#[test]
fn a_module_file_that_only_declares_and_re_exports_is_in_no_circle() {
    let library = ("lib.rs", "mod room;");
    let child = ("room/a.rs", "use super::B;\npub struct A(B);");
    let other = ("room/b.rs", "pub struct B;");
    let only_names = ("room/mod.rs", "mod a;\nmod b;\npub use a::A;\npub use b::B;");
    assert!(circles(&[library, child, other, only_names]).is_empty());
    let uses = ("room/mod.rs", "mod a;\nmod b;\npub use a::A;\npub struct B;\npub fn make() -> A { A(B) }");
    assert_eq!(circles(&[library, child, other, uses]), [["room/mod.rs", "room/a.rs"]]);
}

#[test]
fn circles_are_found_by_every_kind_of_path() {
    let library = ("lib.rs", "mod room;\nmod other;");
    let module = ("room/mod.rs", "mod a;\nmod b;");
    let elsewhere = ("other.rs", "pub use crate::room::a::A;");
    let a = ("room/a.rs", "pub struct A;\nfn f() { super::b::g(); }");
    for b in [
        "pub fn g(_: crate::room::a::A) {}",
        "use super::a::A;\npub fn g(_: A) {}",
        "use super::{a::{self as first}};\npub fn g(_: first::A) {}",
        "use super::a::*;\npub fn g(_: A) {}",
        "mod inner { pub fn h(_: super::super::a::A) {} }\npub fn g() {}",
        "use crate::other::A;\npub fn g(_: A) {}",
    ] {
        let found = circles(&[library, module, elsewhere, a, ("room/b.rs", b)]);
        assert_eq!(found, [["room/a.rs", "room/b.rs"]], "{b}");
    }
    for b in [
        "// super::a::A\npub fn g() { let _ = \"super::a::A\"; }",
        "pub fn g() {}\n#[cfg(test)]\nmod tests { use super::super::a::A; }",
        "pub fn g() {}\n#[cfg(test)]\nmod tests;",
        "/* /* */ super::a::A */ pub fn g<'a>(_: &'a str) { let _ = ('\\'', r#\"super::a::A\"#); }",
    ] {
        let found = circles(&[library, module, elsewhere, a, ("room/b.rs", b)]);
        assert!(found.is_empty(), "{b}: {found:?}");
    }
}
