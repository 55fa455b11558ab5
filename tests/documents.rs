//! The documents: links lead somewhere, on a forge and in rustdoc, and snippets are the files that the tests run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Folders that hold documents of this repository.
const FOLDERS: [&str; 6] = ["benches", "docker", "fuzz", "kernels", "src", "tests"];
/// Languages of snippets, by the extension of their files in `tests/examples`.
const LANGUAGES: [(&str, &str); 4] = [("js", "js"), ("py", "python"), ("rs", "rust"), ("sh", "sh")];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).collect();
    found.sort();
    found
}

fn find(folder: &Path, found: &mut Vec<PathBuf>) {
    for path in files(folder) {
        if path.is_dir() {
            find(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
}

/// Every Markdown file of the repository.
fn documents() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> =
        files(&root()).into_iter().filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
    for folder in FOLDERS {
        find(&root().join(folder), &mut found);
    }
    assert!(found.len() > 15, "only {} documents", found.len());
    found
}

/// The text without its fenced blocks and code spans, in which brackets are no links.
fn prose(text: &str) -> String {
    let outside: Vec<&str> = text.split("\n```").step_by(2).collect();
    outside.join("\n").split('`').step_by(2).collect::<Vec<_>>().join("")
}

/// The targets of `[text](target)`.
fn inline_targets(prose: &str) -> Vec<&str> {
    prose.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target).collect()
}

/// Label → target of each line `[label]: target`.
fn definitions<'a>(lines: impl Iterator<Item = &'a str>) -> BTreeMap<&'a str, &'a str> {
    lines.filter_map(|line| line.strip_prefix('[')?.split_once("]: ")).collect()
}

/// The name that a forge gives to a heading, for links within a page.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase();
    kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).collect::<String>().replace(' ', "-")
}

#[test]
fn links_lead_somewhere() {
    let mut wrong = Vec::new();
    for document in documents() {
        let text = read(&document);
        let prose = prose(&text);
        let anchors: Vec<String> = text
            .lines()
            .filter_map(|line| line.strip_prefix('#'))
            .map(|line| anchor(line.trim_start_matches(['#', ' '])))
            .collect();
        let defined = definitions(text.lines());
        for target in inline_targets(&prose).into_iter().chain(defined.values().copied()) {
            let leads = match target.strip_prefix('#') {
                Some(name) => anchors.iter().any(|anchor| anchor == name),
                None if target.contains("://") || target.starts_with("mailto:") => true,
                None => {
                    document.with_file_name("").join(target.split('#').next().unwrap_or_default()).exists()
                }
            };
            if !leads {
                wrong.push(format!("{}: {target} leads nowhere", document.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The page of rustdoc that includes a module's README lies elsewhere, so a relative link in it needs a definition of the
/// same label, to an item, in the including file: Markdown takes the first of two, and a forge sees only the second.
#[test]
fn chapters_are_in_rustdoc_and_their_links_work_there() {
    let mut wrong = Vec::new();
    let mut chapters = 0;
    for document in documents() {
        let Ok(inside) = document.strip_prefix(root().join("src")) else { continue };
        if !inside.ends_with("README.md") {
            continue;
        }
        chapters += 1;
        let folder = inside.parent().expect("a module's folder");
        let module = root().join("src").join(folder).join("mod.rs");
        let (including, line) = if module.exists() {
            (module, "#![doc = include_str!(\"README.md\")]".to_owned())
        } else {
            (
                root().join("src").join(folder).with_extension("rs"),
                format!("#![doc = include_str!(\"{}/README.md\")]", folder.display()),
            )
        };
        let source = read(&including);
        let Some((before, _)) = source.split_once(&line) else {
            wrong.push(format!("{} lacks the line {line}", including.display()));
            continue;
        };
        let text = read(&document);
        let in_rustdoc = definitions(before.lines().filter_map(|line| line.strip_prefix("//! ")));
        for (label, target) in definitions(text.lines()) {
            if !target.contains("://")
                && !in_rustdoc.get(label).is_some_and(|item| item.starts_with("crate::"))
            {
                wrong.push(format!("{} lacks the line //! [{label}]: crate::…", including.display()));
            }
        }
        for target in inline_targets(&prose(&text)) {
            if !target.contains("://") && !target.starts_with('#') {
                wrong.push(format!(
                    "{}: ({target}) does not work in rustdoc: define a label",
                    document.display()
                ));
            }
        }
        // A fence without a language would be compiled as Rust by rustdoc, and one of `rust` run.
        let fences = text.lines().filter_map(|line| line.strip_prefix("```"));
        for opening in
            fences.step_by(2).filter(|language| language.is_empty() || language.starts_with("rust"))
        {
            wrong.push(format!("{}: a block of the language {opening:?}", document.display()));
        }
    }
    assert!(chapters > 10, "only {chapters} chapters");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn snippets_are_the_files_that_are_run() {
    let documents: Vec<(PathBuf, String)> =
        documents().into_iter().map(|path| (path.clone(), read(&path))).collect();
    let mut examples = Vec::new();
    let mut wrong = Vec::new();
    for file in files(&root().join("tests/examples")) {
        let extension = file.extension().expect("a language").to_string_lossy().into_owned();
        let (_, language) = LANGUAGES.iter().find(|(end, _)| *end == extension).expect("a known language");
        let block = format!("```{language}\n{}```\n", read(&file));
        if !documents.iter().any(|(_, text)| text.contains(&block)) {
            wrong.push(format!("no document shows {} as it is", file.display()));
        }
        examples.push(block);
    }
    assert!(examples.len() > 5, "only {} examples", examples.len());
    // The other way round: programs in the documents are files, so that none is shown that is not run.
    for (path, text) in &documents {
        for language in ["js", "python", "rust"] {
            for (at, _) in text.match_indices(&format!("\n```{language}\n")) {
                if !examples.iter().any(|block| text[at + 1..].starts_with(block)) {
                    wrong.push(format!(
                        "{}: a block of {language} that is no file of tests/examples",
                        path.display()
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_readme_says_how_to_run_and_to_test() {
    let readme = read(&root().join("README.md"));
    for command in ["\nmake run ", "\nmake test "] {
        assert!(readme.contains(command), "{command:?}");
    }
    assert!(readme.len() < 10 << 10, "{} bytes: a chapter belongs into its module's README.md", readme.len());
}

/// The names of metrics in `text`, without the suffixes of a histogram's series.
fn metrics_in(text: &str) -> Vec<&str> {
    const FAMILIES: [&str; 6] = ["http_server_", "process_", "stt_", "sts_", "tts_", "verbatim_"];
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|name| FAMILIES.iter().any(|family| name.starts_with(family)))
        .map(|name| {
            ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name)
        })
        .collect()
}

#[test]
fn dashboard_and_alerts_use_metrics_that_there_are() {
    let defined = read(&root().join("src/telemetry/metrics.rs"));
    let defined: Vec<&str> = defined.split('"').skip(1).step_by(2).collect();
    for file in ["docker/grafana/verbatim.json", "docker/prometheus/alerts.yaml"] {
        let text = read(&root().join(file));
        let used = metrics_in(&text);
        assert!(used.len() > 8, "{file} uses {used:?}");
        let unknown: Vec<&&str> = used.iter().filter(|name| !defined.contains(name)).collect();
        assert!(unknown.is_empty(), "{file} uses {unknown:?}");
    }
}
