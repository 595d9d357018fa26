//! A statement without its constants, and what kind of statement it is.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use cleave_sql::statement::without_constants::without_constants;

/// What statements that differ in constants alone have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    text: Arc<str>,
    hash: u64,
    kind: StatementKind,
}

/// What a statement is for, by its first word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StatementKind {
    /// A query: SELECT, WITH, VALUES, TABLE, FETCH.
    Select,
    /// INSERT.
    Insert,
    /// UPDATE.
    Update,
    /// DELETE.
    Delete,
    /// COPY.
    Copy,
    /// BEGIN, COMMIT, ROLLBACK and their kin.
    Transaction,
    /// CREATE, ALTER, DROP and their kin.
    Definition,
    /// All others.
    Other,
}

impl StatementKind {
    /// All kinds.
    pub const ALL: [Self; 8] = [
        Self::Select,
        Self::Insert,
        Self::Update,
        Self::Delete,
        Self::Copy,
        Self::Transaction,
        Self::Definition,
        Self::Other,
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Select => "select",
            Self::Insert => "insert",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::Copy => "copy",
            Self::Transaction => "transaction",
            Self::Definition => "definition",
            Self::Other => "other",
        }
    }

    /// Whether its constants are values of rows, and never what lets somebody in.
    #[must_use]
    pub fn is_of_rows(self) -> bool {
        matches!(self, Self::Select | Self::Insert | Self::Update | Self::Delete)
    }

    fn of(text: &str) -> Self {
        let text = text.trim_start_matches(['(', ' ']);
        let end = text.find(|letter: char| !letter.is_ascii_alphabetic()).unwrap_or(text.len());
        let word = text.get(..end).unwrap_or_default().to_ascii_lowercase();
        match word.as_str() {
            "select" | "with" | "values" | "table" | "fetch" => Self::Select,
            "insert" => Self::Insert,
            "update" => Self::Update,
            "delete" => Self::Delete,
            "copy" => Self::Copy,
            "begin" | "start" | "commit" | "end" | "rollback" | "abort" | "savepoint"
            | "release" => Self::Transaction,
            "create" | "alter" | "drop" | "truncate" | "grant" | "revoke" | "comment"
            | "refresh" => Self::Definition,
            _ => Self::Other,
        }
    }
}

impl Shape {
    /// That of a statement's text.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let text = without_constants(text);
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        Self { hash: hasher.finish(), kind: StatementKind::of(&text), text: text.into() }
    }

    /// Its text, with parameters in the place of constants.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What identifies it.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// What kind of statement it is of.
    #[must_use]
    pub fn kind(&self) -> StatementKind {
        self.kind
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_says_the_kind() {
        for (text, kind) in [
            ("((SELECT 1))", StatementKind::Select),
            ("-- a\nwith a as (values (1)) table a", StatementKind::Select),
            ("Insert into t values (1)", StatementKind::Insert),
            ("CREATE TABLE t (a int)", StatementKind::Definition),
            ("END", StatementKind::Transaction),
            ("SELECTED", StatementKind::Other),
            ("", StatementKind::Other),
        ] {
            assert_eq!(Shape::of(text).kind(), kind, "{text}");
        }
        assert_eq!(Shape::of("SELECT 1"), Shape::of(" SELECT  'a';"));
    }
}
