//! The layers of the host: which of its modules may import which, until crates of their own enforce it.
//!
//! [`LAYERS`] says what each layer may import, [`MODULES`] which module is in which layer, and `layers.exceptions` which
//! imports break the rule today. The list is exact: a new import upward fails, and so does an entry that is mended and
//! still listed. So it only shrinks.
//!
//! Not seen: methods of a type that another layer defines, and what a macro makes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The layers, the lowest first, and what each may import beside itself.
const LAYERS: &[(&str, &[&str])] = &[
    ("values", &[]),
    ("catalog", &["values"]),
    ("sql", &["values", "catalog"]),
    ("engine", &["values", "catalog"]),
    ("query", &["values", "catalog", "sql", "engine"]),
    ("replica", &["values", "catalog", "engine"]),
    ("session", &["values", "catalog", "sql", "engine", "query", "replica"]),
];

/// The layer of each module; of several that fit, the longest counts.
const MODULES: &[(&str, &str)] = &[
    ("acting", "values"),
    ("activity", "values"),
    ("advisory_locks", "values"),
    ("backends", "values"),
    ("commitment", "values"),
    ("error", "values"),
    ("identifiers", "values"),
    ("login_secret", "values"),
    ("password", "values"),
    ("query_memory", "values"),
    ("role_fault", "values"),
    ("sequence_values", "values"),
    ("settings", "values"),
    ("storage_error", "values"),
    ("suggest", "values"),
    ("tasks", "values"),
    ("value", "values"),
    ("catalog", "catalog"),
    ("index", "catalog"),
    ("copy", "sql"),
    ("dialect", "sql"),
    ("engine::unnest_subqueries", "sql"),
    ("statement", "sql"),
    ("buffer_pool", "engine"),
    ("storage_engine", "engine"),
    ("delta", "engine"),
    ("device", "engine"),
    ("host_pages", "engine"),
    ("log", "engine"),
    ("sequences", "engine"),
    ("statistics", "engine"),
    ("versions", "engine"),
    ("write", "engine"),
    ("check_constraints", "query"),
    ("cooperative", "query"),
    ("engine", "query"),
    ("point_path", "query"),
    ("query_engine", "query"),
    ("query_log", "query"),
    ("range_path", "query"),
    ("statement::select", "query"),
    ("statistics::analyze", "query"),
    ("statistics::listing", "query"),
    ("archive", "replica"),
    ("backup", "replica"),
    ("check", "replica"),
    ("inspect", "replica"),
    ("log_copy", "replica"),
    ("replication", "replica"),
    ("autovacuum", "session"),
    ("database", "session"),
    ("login", "session"),
    ("session", "session"),
];

#[test]
fn modules_of_the_host_import_downwards_only() {
    let host = Host::read();
    let found = host.upward_imports();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/layers.exceptions");
    if std::env::var_os("CLEAVE_WRITE_LAYERS").is_some() {
        let lines: String = found.iter().map(|line| format!("{line}\n")).collect();
        fs::write(&file, lines).unwrap();
    }
    let listed = fs::read_to_string(&file).unwrap();
    let listed: BTreeSet<String> = listed.lines().map(str::to_owned).collect();
    let new: Vec<_> = found.difference(&listed).collect();
    assert!(new.is_empty(), "imports of a higher layer; move what they name down: {new:#?}");
    let mended: Vec<_> = listed.difference(&found).collect();
    assert!(mended.is_empty(), "mended; delete these lines of layers.exceptions: {mended:#?}");
}

#[test]
fn each_module_of_the_host_has_a_layer() {
    let host = Host::read();
    let without: Vec<_> = host.files.keys().filter(|module| layer_of(module).is_none()).collect();
    assert!(without.is_empty(), "add these to MODULES: {without:?}");
    let is_there = |name: &str| host.files.contains_key(&segments(name));
    let gone: Vec<_> = MODULES.iter().filter(|(name, _)| !is_there(name)).collect();
    assert!(gone.is_empty(), "MODULES names modules that are not there: {gone:?}");
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

/// The code of the host, without tests.
struct Host {
    files: BTreeMap<Module, String>,
    /// What the crate's root gives names to.
    exported: BTreeMap<String, Module>,
}

impl Host {
    fn read() -> Self {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cleave-host/src");
        let mut paths = Vec::new();
        rust_files(&source, &mut paths);
        let mut files = BTreeMap::new();
        for path in paths {
            let name = path.strip_prefix(&source).unwrap().with_extension("");
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
        let exported = imported(&root).into_iter().map(|path| {
            let path = path[1..].to_vec();
            (path.last().unwrap().clone(), path)
        });
        Self { exported: exported.collect(), files }
    }

    /// `importer (layer) -> imported (layer)` of each that goes upward.
    fn upward_imports(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for (importer, code) in &self.files {
            let Some(from) = layer_of(importer) else { continue };
            let (_, allowed) = LAYERS.iter().find(|(name, _)| *name == from).unwrap();
            for path in imported(code) {
                let Some(module) = self.module_of(importer, &path) else { continue };
                let to = layer_of(&module).unwrap_or(from);
                if to != from && !allowed.contains(&to) {
                    let (importer, module) = (importer.join("::"), module.join("::"));
                    found.insert(format!("{importer} ({from}) -> {module} ({to})"));
                }
            }
        }
        found
    }

    /// The module in which `path`, as `importer` writes it, stands.
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

fn segments(module: &str) -> Module {
    module.split("::").map(str::to_owned).collect()
}

fn layer_of(module: &Module) -> Option<&'static str> {
    let fits = MODULES.iter().filter(|(name, _)| module.starts_with(&segments(name)));
    fits.max_by_key(|(name, _)| name.len()).map(|(_, layer)| *layer)
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
            // Of a single item, or of the tests, which stand last.
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

/// Puts the paths of one branch into `paths`; returns what is left of `code`.
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
