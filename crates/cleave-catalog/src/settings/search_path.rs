//! The setting `search_path`: the schemas of names without a schema.
//!
//! `pg_catalog` and the session's temporary objects are always searched first, and all other objects are in `public`.
//! So the path only decides whether `public` is searched. Schemas that do not exist, `"$user"` among them, may be
//! listed.
//!
//! Source: PostgreSQL's manual, "The Schema Search Path"; `SplitIdentifierString` (varlena.c).

use std::sync::Arc;

use super::{Setting, Value, Values};
use crate::identifiers::{SCHEMA, quoted};

/// A list of schemas.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SearchPath {
    /// The text as set.
    text: String,
    names: Vec<String>,
}

/// The existing schemas.
const SCHEMAS: [&str; 4] = [SCHEMA, "pg_catalog", "information_schema", "cleave"];

impl Default for SearchPath {
    fn default() -> Self {
        Self { text: SCHEMA.to_owned(), names: vec![SCHEMA.to_owned()] }
    }
}

impl SearchPath {
    /// Reads `a, "B"`: names without quotes are folded; None if it is no list of names.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut names = Vec::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            let after;
            let name = match rest.strip_prefix('"') {
                Some(quoted) => {
                    let (mut name, mut pieces) = (String::new(), quoted);
                    after = loop {
                        let (piece, behind) = pieces.split_once('"')?;
                        name.push_str(piece);
                        let Some(more) = behind.strip_prefix('"') else { break behind };
                        name.push('"');
                        pieces = more;
                    };
                    name
                }
                None => {
                    let end = rest.find(|letter: char| letter == ',' || letter.is_whitespace());
                    let (name, behind) = rest.split_at(end.unwrap_or(rest.len()));
                    after = behind;
                    if name.is_empty() || name.contains('"') {
                        return None;
                    }
                    name.to_ascii_lowercase()
                }
            };
            names.push(name);
            let behind = after.trim_start();
            rest = match behind.strip_prefix(',') {
                // A name must follow a comma.
                Some(more) if !more.trim().is_empty() => more.trim_start(),
                None if behind.is_empty() => behind,
                _ => return None,
            };
        }
        Some(Self { text: text.to_owned(), names })
    }

    /// Bytes of its text and names.
    pub(super) fn byte_count(&self) -> usize {
        let names = self.names.iter().map(|name| size_of::<String>() + name.len());
        self.text.len() + names.sum::<usize>()
    }

    /// The text of a list of `names`, each quoted if necessary.
    pub fn listed(names: &[String]) -> String {
        let quoted = names.iter().map(|name| match name.is_empty() {
            true => "\"\"".to_owned(),
            false => quoted(name),
        });
        quoted.collect::<Vec<_>>().join(", ")
    }

    /// Whether unqualified names of tables are found in `public`.
    pub fn has_public(&self) -> bool {
        self.names.iter().any(|name| name == SCHEMA)
    }

    /// The existing schemas of the path, each once; with `pg_catalog` if it is not listed and `with_own`.
    pub fn schemas(&self, with_own: bool) -> Vec<&str> {
        let mut found = Vec::new();
        if with_own && !self.names.iter().any(|name| name == "pg_catalog") {
            found.push("pg_catalog");
        }
        for name in &self.names {
            if SCHEMAS.contains(&name.as_str()) && !found.contains(&name.as_str()) {
                found.push(name);
            }
        }
        found
    }
}

pub(super) const SEARCH_PATH: Setting = Setting {
    name: "search_path",
    description: "Schemas that are searched for names without a schema",
    values: Values::SearchPath,
    get: |settings| settings.search_path.text.clone(),
    set: |settings, value| {
        if let Value::SearchPath(path) = value {
            settings.search_path = Arc::new(path);
        }
    },
};

#[cfg(test)]
mod tests {
    use super::SearchPath;

    #[test]
    fn lists_are_read_as_names() {
        let names = |text: &str| SearchPath::parse(text).map(|path| path.names);
        let read = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect());
        assert_eq!(names(""), read(&[]));
        assert_eq!(names("\"\""), read(&[""]));
        assert_eq!(names("Public , \"A \"\"b\",c"), read(&["public", "A \"b", "c"]));
        assert_eq!(names("\"$user\", public"), read(&["$user", "public"]));
        for wrong in ["a b", "a,", ",a", "\"a", "\"a\"b", "a\"b"] {
            assert_eq!(names(wrong), None, "{wrong}");
        }
    }
}
