//! Finds import cycles between the top-level modules of a crate.
//!
//! Between crates the compiler forbids them. Within one, a cycle of two or three modules that belong together is
//! common; in a larger one no module can be read, tested or moved without the others. `module_cycles.exceptions` lists
//! the existing ones. The list is exact: the test fails if a module joins a cycle, and if a listed one has left it. It
//! is to shrink; that a line was added is seen in the change that adds it, and not by this test.
//!
//! Not seen: methods of a type that another module defines, and the output of macros.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The most modules that may form a cycle.
const CYCLE_MODULES_MAX: usize = 3;

#[test]
fn modules_of_a_crate_import_each_other_in_small_cycles_only() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/module_cycles.exceptions");
    let found: BTreeSet<String> = sources()
        .into_iter()
        .flat_map(|(name, source)| {
            let cycles = Modules::read(&source).cycles().into_iter();
            let large = cycles.filter(|cycle| cycle.len() > CYCLE_MODULES_MAX);
            large.map(move |cycle| format!("{name}: {}", cycle.join(" ")))
        })
        .collect();
    if std::env::var_os("CLEAVE_WRITE_CYCLES").is_some() {
        let lines: String = found.iter().map(|line| format!("{line}\n")).collect();
        fs::write(&file, lines).unwrap();
    }
    let listed = fs::read_to_string(&file).unwrap();
    let listed: BTreeSet<String> = listed.lines().map(str::to_owned).collect();
    let new: Vec<_> = found.difference(&listed).collect();
    assert!(new.is_empty(), "modules that import each other in a cycle: {new:#?}");
    let mended: Vec<_> = listed.difference(&found).collect();
    assert!(
        mended.is_empty(),
        "mended; delete these lines of module_cycles.exceptions: {mended:#?}"
    );
}

#[test]
fn cycles_are_found() {
    let imports = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("e", "a")];
    let mut graph: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (from, to) in imports {
        graph.entry(from.to_owned()).or_default().insert(to.to_owned());
    }
    assert_eq!(cycles_of(&graph), [["a", "b", "c"]]);
}

#[test]
fn imports_are_found_wherever_they_stand() {
    let text = r#"
        //! use crate::comment;
        pub(crate) use crate::a::{self, b::{C, d as e}, f::*};
        fn g() -> crate::h::I { super::j::k::<u8>("crate::text", '"', '\'', crate::l!()) }
        #[cfg(test)]
        mod tests { use crate::test; }
    "#;
    let paths = imported(&code_of(text));
    let paths: Vec<String> = paths.iter().map(|path| path.join("::")).collect();
    let expected = [
        "crate::a",
        "crate::a::b::C",
        "crate::a::b::d",
        "crate::a::f",
        "crate::h::I",
        "super::j::k",
        "crate::l",
    ];
    assert_eq!(paths, expected);
}

type Module = Vec<String>;

/// The folder of each crate's source, by the crate's name.
fn sources() -> Vec<(String, PathBuf)> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found: Vec<_> = fs::read_dir(crates)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().to_str().unwrap().to_owned(), entry.path().join("src")))
        .filter(|(_, source)| source.join("lib.rs").exists())
        .collect();
    found.sort();
    assert!(found.len() > 10, "too few crates: {found:?}");
    found
}

/// The code of a crate, without tests.
struct Modules {
    files: BTreeMap<Module, String>,
    /// The names that the crate's root exports.
    exported: BTreeMap<String, Module>,
}

impl Modules {
    fn read(source: &Path) -> Self {
        let mut paths = Vec::new();
        rust_files(source, &mut paths);
        let mut files = BTreeMap::new();
        for path in paths {
            let name = path.strip_prefix(source).unwrap().with_extension("");
            let mut module: Module =
                name.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
            if module.last().is_some_and(|last| last == "mod") {
                module.pop();
            }
            if !module.iter().any(|part| part == "tests" || part == "testing") {
                files.insert(module, code_of(&fs::read_to_string(&path).unwrap()));
            }
        }
        let root = files.remove(&segments("lib")).expect("the crate's root");
        let root = root.replace("use ", "use crate::");
        let exported = imported(&root).into_iter().filter_map(|path| {
            let path = path.get(1..)?.to_vec();
            Some((path.last()?.clone(), path))
        });
        Self { exported: exported.collect(), files }
    }

    /// Top-level modules that import each other, each cycle in order.
    fn cycles(&self) -> Vec<Vec<String>> {
        let mut graph: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (importer, code) in &self.files {
            for path in imported(code) {
                let Some(module) = self.module_of(importer, &path) else { continue };
                if module[0] != importer[0] {
                    graph.entry(importer[0].clone()).or_default().insert(module[0].clone());
                }
            }
        }
        cycles_of(&graph)
    }

    /// The module that contains `path`, as written in `importer`.
    fn module_of(&self, importer: &Module, path: &[String]) -> Option<Module> {
        let mut parts = path.iter().peekable();
        let mut from = match parts.next()?.as_str() {
            "crate" => Vec::new(),
            _ => importer[..importer.len() - 1].to_vec(),
        };
        while parts.next_if(|part| *part == "super").is_some() {
            from.pop();
        }
        let rest: Vec<&String> = parts.collect();
        if let (true, Some(path)) =
            (from.is_empty(), rest.first().and_then(|n| self.exported.get(*n)))
        {
            from.clone_from(path);
        }
        from.extend(rest.into_iter().cloned());
        while !from.is_empty() && !self.files.contains_key(&from) {
            from.pop();
        }
        (!from.is_empty()).then_some(from)
    }
}

/// The strongly connected components of `graph`.
fn cycles_of(graph: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reached = |from: &str| {
        let mut reached = BTreeSet::new();
        let mut pending = vec![from];
        while let Some(module) = pending.pop() {
            for next in graph.get(module).into_iter().flatten() {
                if reached.insert(next.as_str()) {
                    pending.push(next);
                }
            }
        }
        reached
    };
    let reach: BTreeMap<&str, BTreeSet<&str>> =
        graph.keys().map(|module| (module.as_str(), reached(module))).collect();
    let cycle_of = |module: &&str| {
        let each = reach[*module].iter().copied();
        let mutual = each.filter(|other| reach.get(other).is_some_and(|r| r.contains(*module)));
        mutual.map(str::to_owned).collect::<Vec<_>>()
    };
    let cycles: BTreeSet<Vec<String>> = reach.keys().map(cycle_of).collect();
    cycles.into_iter().filter(|cycle| cycle.len() > 1).collect()
}

fn segments(module: &str) -> Module {
    module.split("::").map(str::to_owned).collect()
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// `text` without comments, quoted text and the tests at its end.
fn code_of(text: &str) -> String {
    let mut code = String::new();
    for line in text.lines() {
        if line.trim() == "#[cfg(test)]" && !code.is_empty() {
            // An attribute of a single item, or of the tests, which stand last.
            code.push('\0');
            continue;
        }
        let mut rest = line;
        while let Some(at) = rest.find(['"', '\'', '/']) {
            let (before, special) = rest.split_at(at);
            code.push_str(before);
            rest = if special.starts_with("//") {
                ""
            } else if let Some(quoted) = special.strip_prefix('"') {
                let mut escaped = false;
                let end = quoted.find(|c| {
                    let ends = c == '"' && !escaped;
                    escaped = c == '\\' && !escaped;
                    ends
                });
                end.map_or("", |end| &quoted[end + 1..])
            } else {
                ["'\"'", "'\\''", "'/'"]
                    .iter()
                    .find_map(|c| special.strip_prefix(c))
                    .unwrap_or_else(|| {
                        let mut rest = special.chars();
                        rest.next();
                        rest.as_str()
                    })
            };
        }
        code.push_str(rest);
        code.push('\n');
    }
    let tests = ["\0mod tests {", "\0    mod tests {", "\0        mod tests {"];
    let end = tests.iter().filter_map(|tests| code.find(tests)).min();
    code.truncate(end.unwrap_or(code.len()));
    code
}

/// The paths of `code` that begin with `crate` or `super`, from `use` or where they are written out.
fn imported(code: &str) -> Vec<Module> {
    let mut found = Vec::new();
    for root in ["crate::", "super::"] {
        for (at, _) in code.match_indices(root) {
            let before = code[..at].chars().next_back();
            if before.is_none_or(|c| !c.is_alphanumeric() && !"_:$".contains(c)) {
                found.push((at, path_tree(&code[at..])));
            }
        }
    }
    found.sort_by_key(|(at, _)| *at);
    found.into_iter().flat_map(|(_, paths)| paths).collect()
}

/// The paths of the tree at the start of `code`, as in a `use`.
fn path_tree(code: &str) -> Vec<Module> {
    let mut paths = Vec::new();
    branch(code, &[], &mut paths);
    paths
}

/// Adds the paths of one branch to `paths`; returns the rest of `code`.
fn branch<'a>(code: &'a str, prefix: &[String], paths: &mut Vec<Module>) -> &'a str {
    let mut path = prefix.to_vec();
    let mut rest = code.trim_start();
    loop {
        if let Some(mut inner) = rest.strip_prefix('{') {
            loop {
                inner = inner.trim_start();
                if inner.is_empty() || inner.starts_with('}') {
                    return inner.get(1..).unwrap_or("");
                }
                let left = branch(inner, &path, paths);
                let end = left.find([',', '}']).unwrap_or(left.len());
                let left = &left[end..];
                inner = left.strip_prefix(',').unwrap_or(left);
            }
        }
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let (name, left) = rest.split_at(end);
        if !name.is_empty() && name != "self" {
            path.push(name.to_owned());
        }
        match left.strip_prefix("::") {
            Some(left) if !name.is_empty() => rest = left,
            _ => {
                paths.push(path);
                return left;
            }
        }
    }
}
