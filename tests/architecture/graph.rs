//! Files and who imports whom, with `crate::`, `self::`, `super::`, names of modules and re-exports followed to the file
//! that defines an item.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::source::{Import, Scope, path_attributes, scopes};

pub struct Graph {
    /// Relative to `src`.
    pub files: Vec<PathBuf>,
    modules: Vec<Module>,
}

struct Module {
    file: usize,
    parent: Option<usize>,
    path: Vec<String>,
    /// Two of one name where a feature chooses between them.
    children: BTreeMap<String, Vec<usize>>,
    scope: Scope,
}

/// The text of a file, by its path in `src`; `None` where there is no such file.
pub type Sources<'a> = &'a dyn Fn(&Path) -> Option<String>;

/// Re-exports of re-exports are followed so far; a chain that is longer goes round.
const STEPS_MAX: usize = 12;

impl Graph {
    /// All files that `lib.rs` reaches. Without `with_tests`, those that only tests compile are left out.
    pub fn read(sources: Sources, with_tests: bool) -> Self {
        let mut graph = Self { files: Vec::new(), modules: Vec::new() };
        graph.add(sources, PathBuf::from("lib.rs"), None, Vec::new(), with_tests);
        graph
    }

    fn add(
        &mut self,
        sources: Sources,
        file: PathBuf,
        parent: Option<usize>,
        path: Vec<String>,
        with_tests: bool,
    ) -> usize {
        let source = sources(&file).unwrap_or_else(|| panic!("{} is missing", file.display()));
        let attributes = path_attributes(&source);
        // `mod.rs` and `lib.rs` have their children beside them, other files in a folder of their name.
        let is_folder = file.ends_with("mod.rs") || file.ends_with("lib.rs");
        let folder = if is_folder { file.with_file_name("") } else { file.with_extension("") };
        self.files.push(file.clone());
        let index = self.files.len() - 1;
        let mut own = None;
        for scope in scopes(&source, with_tests) {
            let inner = [path.clone(), scope.path.clone()].concat();
            let parent = match scope.path.len() {
                0 => parent,
                _ => self
                    .modules
                    .iter()
                    .position(|module| module.file == index && module.path == inner[..inner.len() - 1]),
            };
            let inside: PathBuf = scope.path.iter().collect();
            let declared = scope.files.clone();
            self.modules.push(Module {
                file: index,
                parent,
                path: inner.clone(),
                children: BTreeMap::new(),
                scope,
            });
            let this = self.modules.len() - 1;
            own.get_or_insert(this);
            if let (Some(parent), Some(name)) = (parent, inner.last()) {
                self.modules[parent].children.entry(name.clone()).or_default().push(this);
            }
            let mut named: BTreeMap<String, usize> = BTreeMap::new();
            for name in declared {
                let nth = named.entry(name.clone()).and_modify(|nth| *nth += 1).or_insert(0);
                let beside = folder.join(&inside);
                let usual = [beside.join(format!("{name}.rs")), beside.join(&name).join("mod.rs")];
                let other = attributes
                    .iter()
                    .find(|(module, _)| *module == name)
                    .map(|(_, other)| file.with_file_name(other));
                // If two declarations share a name, the one with `#[path]` counts as the second.
                let usual = usual.into_iter().find(|usual| sources(usual).is_some());
                let found = [usual, other].into_iter().flatten().nth(*nth);
                let found = found.unwrap_or_else(|| panic!("{}: no file for `mod {name};`", file.display()));
                let child_path = [inner.clone(), vec![name]].concat();
                self.add(sources, found, Some(this), child_path, with_tests);
            }
        }
        own.expect("a file has a scope")
    }

    /// Which file uses items of which others, with the names that lead there.
    pub fn edges(&self) -> BTreeMap<usize, BTreeMap<usize, BTreeSet<String>>> {
        let mut edges: BTreeMap<usize, BTreeMap<usize, BTreeSet<String>>> = BTreeMap::new();
        for (index, module) in self.modules.iter().enumerate() {
            let imported = module.scope.imports.iter().flat_map(|import| self.imported(index, import));
            let mentioned = module.scope.mentions.iter().flat_map(|path| {
                self.resolve(index, path, 0)
                    .into_iter()
                    .map(|file| (file, path.last().cloned().unwrap_or_default()))
            });
            let from = edges.entry(module.file).or_default();
            for (file, name) in imported.chain(mentioned).filter(|(file, _)| *file != module.file) {
                from.entry(file).or_default().insert(name);
            }
        }
        edges
    }

    /// The first words of the absolute paths that each file names.
    pub fn rooms_named(&self) -> BTreeMap<usize, BTreeSet<String>> {
        let mut named: BTreeMap<usize, BTreeSet<String>> = BTreeMap::new();
        for (index, module) in self.modules.iter().enumerate() {
            let imports = module.scope.imports.iter().map(|import| &import.path);
            for path in imports.chain(&module.scope.mentions) {
                if let Some(room) = self.absolute(index, path).and_then(|path| path.into_iter().next()) {
                    named.entry(module.file).or_default().insert(room);
                }
            }
        }
        named
    }

    /// `crate::`, `self::` and `super::` done away with; `None` for other paths.
    fn absolute(&self, from: usize, path: &[String]) -> Option<Vec<String>> {
        let mut at = self.modules[from].path.clone();
        let mut rest = path;
        match rest.first()?.as_str() {
            "crate" => at.clear(),
            "self" => {}
            "super" => {
                at.pop();
            }
            _ => return None,
        }
        rest = &rest[1..];
        while rest.first().is_some_and(|word| word == "super") {
            at.pop();
            rest = &rest[1..];
        }
        Some([at, rest.to_vec()].concat())
    }

    fn imported(&self, from: usize, import: &Import) -> Vec<(usize, String)> {
        let scope = &self.modules[from].scope;
        match &import.name {
            // A re-export alone uses nothing, and a path that begins with it is resolved as one.
            Some(name) if import.is_public && !scope.words.contains(name) => Vec::new(),
            Some(name) => {
                self.resolve(from, &import.path, 0).into_iter().map(|file| (file, name.clone())).collect()
            }
            None => {
                let words = scope.words.iter().chain(&scope.heads);
                let words: Vec<&String> = words.filter(|word| !scope.items.contains(*word)).collect();
                let targets = self.modules_at(from, &import.path, 0).into_iter();
                let found = targets.flat_map(|target| words.iter().map(move |word| (target, *word)));
                let files = |(target, word): (usize, &String)| {
                    let files = self.known(target, std::slice::from_ref(word), 0);
                    files.into_iter().map(|file| (file, word.clone())).collect::<Vec<_>>()
                };
                found.flat_map(files).collect()
            }
        }
    }

    /// The files that define what `path` leads to.
    fn resolve(&self, from: usize, path: &[String], steps: usize) -> BTreeSet<usize> {
        let Some((first, rest)) = path.split_first().filter(|_| steps < STEPS_MAX) else {
            return BTreeSet::new();
        };
        let module = &self.modules[from];
        match first.as_str() {
            "crate" => self.walk(0, rest, steps),
            "self" => self.walk(from, rest, steps),
            "super" => module.parent.map_or_else(BTreeSet::new, |parent| self.walk(parent, rest, steps)),
            name if module.children.contains_key(name) => self.walk(from, path, steps),
            name => self.by_import(from, name, rest, steps).unwrap_or_default(),
        }
    }

    /// From inside a module: what is not found there is taken to be made by a macro.
    fn walk(&self, module: usize, path: &[String], steps: usize) -> BTreeSet<usize> {
        match path.first().map(String::as_str) {
            None => BTreeSet::new(),
            Some("super") => self.modules[module]
                .parent
                .map_or_else(BTreeSet::new, |parent| self.walk(parent, &path[1..], steps)),
            Some("self") => self.walk(module, &path[1..], steps),
            Some(name) => {
                let is_import = self.modules[module]
                    .scope
                    .imports
                    .iter()
                    .any(|import| import.name.as_deref() == Some(name));
                let is_child = self.modules[module].children.contains_key(name);
                let found = self.known(module, path, steps);
                if found.is_empty() && !is_import && !is_child {
                    return BTreeSet::from([self.modules[module].file]);
                }
                found
            }
        }
    }

    /// From inside a module, as far as it is declared.
    fn known(&self, module: usize, path: &[String], steps: usize) -> BTreeSet<usize> {
        let Some((name, rest)) = path.split_first().filter(|_| steps < STEPS_MAX) else {
            return BTreeSet::new();
        };
        let this = &self.modules[module];
        if let Some(children) = this.children.get(name)
            && !(rest.is_empty() && this.scope.items.contains(name))
        {
            return children.iter().flat_map(|&child| self.walk(child, rest, steps + 1)).collect();
        }
        if this.scope.items.contains(name) {
            return BTreeSet::from([this.file]);
        }
        self.by_import(module, name, rest, steps).unwrap_or_default()
    }

    fn by_import(&self, module: usize, name: &str, rest: &[String], steps: usize) -> Option<BTreeSet<usize>> {
        let imports = &self.modules[module].scope.imports;
        let named: Vec<&Import> =
            imports.iter().filter(|import| import.name.as_deref() == Some(name)).collect();
        // A function and a module may share a name: what a path goes on from is a module or a type.
        let goes_on = |import: &Import| {
            rest.is_empty()
                || name.starts_with(char::is_uppercase)
                || !self.modules_at(module, &import.path, steps + 1).is_empty()
        };
        if let Some(import) = named.iter().find(|import| goes_on(import)).or(named.first()) {
            // `use json;` of another crate would lead to itself.
            if import.path.first().is_some_and(|first| first == name) && import.path.len() == 1 {
                return None;
            }
            let path = [import.path.clone(), rest.to_vec()].concat();
            return Some(self.resolve(module, &path, steps + 1));
        }
        let globs = imports.iter().filter(|import| import.name.is_none());
        let path = [vec![name.to_owned()], rest.to_vec()].concat();
        let mut found = globs.flat_map(|glob| self.modules_at(module, &glob.path, steps + 1));
        found.find_map(|target| {
            let files = if target == module { BTreeSet::new() } else { self.known(target, &path, steps + 1) };
            (!files.is_empty()).then_some(files)
        })
    }

    /// The modules that `path` names itself.
    fn modules_at(&self, from: usize, path: &[String], steps: usize) -> Vec<usize> {
        if steps >= STEPS_MAX {
            return Vec::new();
        }
        let mut at = vec![from];
        for (index, word) in path.iter().enumerate() {
            at = match word.as_str() {
                "crate" => vec![0],
                "self" => at,
                "super" => at.iter().filter_map(|&module| self.modules[module].parent).collect(),
                name => at.iter().flat_map(|&module| self.named(module, name, index, steps)).collect(),
            };
        }
        at
    }

    fn named(&self, module: usize, name: &str, index: usize, steps: usize) -> Vec<usize> {
        if let Some(children) = self.modules[module].children.get(name) {
            return children.clone();
        }
        let imports = &self.modules[module].scope.imports;
        match imports.iter().find(|import| index == 0 && import.name.as_deref() == Some(name)) {
            Some(import) if import.path.len() > 1 => self.modules_at(module, &import.path, steps + 1),
            _ => Vec::new(),
        }
    }

    /// Groups of files of one room that use each other in a circle.
    pub fn cycles(&self) -> Vec<BTreeSet<usize>> {
        let edges = self.edges();
        let reach = |from: usize| {
            let (mut found, mut open) = (BTreeSet::new(), vec![from]);
            while let Some(file) = open.pop() {
                let next = edges.get(&file).into_iter().flat_map(BTreeMap::keys);
                for &next in next.filter(|&&next| room(&self.files[next]) == room(&self.files[from])) {
                    if found.insert(next) {
                        open.push(next);
                    }
                }
            }
            found
        };
        let reached: Vec<BTreeSet<usize>> = (0..self.files.len()).map(reach).collect();
        let circle = |file: usize| -> BTreeSet<usize> {
            reached[file].iter().copied().filter(|&other| reached[other].contains(&file)).collect()
        };
        let circles: BTreeSet<BTreeSet<usize>> = (0..self.files.len()).map(circle).collect();
        circles.into_iter().filter(|circle| circle.len() > 1).collect()
    }
}

/// The part of the crate that a file belongs to: `sts` for `sts/room/mod.rs`, `app` for `app.rs`.
pub fn room(file: &Path) -> String {
    let first = file.iter().next().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    first.trim_end_matches(".rs").to_owned()
}
