//! Completions for the Tab key: SQL keywords, and the tables, columns and settings of the open database.
//!
//! [`Vocabulary::complete`] looks at the word before the cursor and at the words before that: after `FROM` come tables,
//! after `SET` settings, after `alias.` the columns of its table, after `schema.` its tables. Where the table of an
//! alias is not typed yet, the columns of all tables that it may be for are offered.

use std::collections::{BTreeMap, BTreeSet};

use cleave_host::statement::catalog_tables;

use super::meta_command;

/// All possible completions; refreshed from the catalog after each statement.
#[derive(Debug, Default, Clone)]
pub(crate) struct Vocabulary {
    /// Column names by table name.
    pub(crate) tables: BTreeMap<String, Vec<String>>,
    /// Names of settings.
    pub(crate) settings: BTreeSet<String>,
}

impl Vocabulary {
    /// Completions of the word that ends at byte `position` of `text`: where that word starts, and its candidates.
    pub(crate) fn complete(&self, text: &str, position: usize) -> (usize, Vec<String>) {
        let before = text.get(..position).unwrap_or(text);
        let word_start = before
            .rfind(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '.' | '\\' | '?')))
            .map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8));
        let word = &before[word_start..];
        if word.starts_with('\\') {
            return (word_start, starting_with(meta_command::names(), word));
        }
        if let Some((qualifier, prefix)) = word.rsplit_once('.') {
            let start = word_start + qualifier.len() + 1;
            return (start, self.members(&qualifier.to_lowercase(), prefix, text));
        }
        (word_start, self.offers(text, &before[..word_start], word))
    }

    fn offers(&self, text: &str, before: &str, word: &str) -> Vec<String> {
        let tables = || self.tables.keys().map(String::as_str);
        let settings = || self.settings.iter().map(String::as_str);
        let previous = before.split_whitespace().next_back().unwrap_or_default().to_lowercase();
        match previous.as_str() {
            "from" | "join" | "into" | "table" | "update" | "copy" | "exists" | "\\d"
            | "\\stats" | "analyze" => starting_with(tables(), word),
            "set" | "show" | "reset" | "\\set" => starting_with(settings(), word),
            _ => {
                let mentioned: BTreeSet<&str> = words(text)
                    .filter_map(|name| self.tables.get(&name.to_lowercase()))
                    .flatten()
                    .map(String::as_str)
                    .collect();
                let mut offers = starting_with(mentioned.into_iter(), word);
                if !word.is_empty() {
                    offers.extend(starting_with(tables(), word));
                    offers.extend(keywords_starting_with(word));
                }
                let mut seen = BTreeSet::new();
                offers.retain(|offer| seen.insert(offer.to_lowercase()));
                offers
            }
        }
    }

    /// What may follow `qualifier.`.
    fn members(&self, qualifier: &str, prefix: &str, text: &str) -> Vec<String> {
        let table = qualifier.strip_prefix("public.").unwrap_or(qualifier);
        if let Some(columns) = self.columns_of(table, text) {
            return starting_with(columns.iter().map(String::as_str), prefix);
        }
        if table == "public" {
            return starting_with(self.tables.keys().map(String::as_str), prefix);
        }
        let of_schema =
            starting_with(catalog_tables::tables(table).map(|shape| shape.name), prefix);
        if !of_schema.is_empty() {
            return of_schema;
        }
        if !table.starts_with(|first: char| first.is_alphabetic() || first == '_') {
            return Vec::new();
        }
        // An alias before its FROM: people take a table's first letters, or those of its words.
        let is_for = |name: &str| name.starts_with(table) || initials(name) == table;
        let columns_if = |is_meant: &dyn Fn(&str) -> bool| {
            let tables = self.tables.iter().filter(|(name, _)| is_meant(name));
            let columns: BTreeSet<&str> =
                tables.flat_map(|(_, columns)| columns).map(String::as_str).collect();
            starting_with(columns.into_iter(), prefix)
        };
        let likely = columns_if(&is_for);
        if likely.is_empty() { columns_if(&|_| true) } else { likely }
    }

    /// The columns of `qualifier.`: those of a table of that name, or of one with that alias (`title AS t`).
    fn columns_of(&self, qualifier: &str, text: &str) -> Option<&Vec<String>> {
        if let Some(columns) = self.tables.get(qualifier) {
            return Some(columns);
        }
        let words: Vec<&str> = words(text).collect();
        words.iter().enumerate().find_map(|(index, name)| {
            let columns = self.tables.get(&name.to_lowercase())?;
            let next = words.get(index + 1)?;
            let alias = if next.eq_ignore_ascii_case("as") { words.get(index + 2)? } else { next };
            alias.eq_ignore_ascii_case(qualifier).then_some(columns)
        })
    }
}

/// The first letters of a name's words: `mk` of `movie_keyword`.
fn initials(name: &str) -> String {
    name.split('_').filter_map(|word| word.chars().next()).collect()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty())
}

fn starting_with<'a>(names: impl Iterator<Item = &'a str>, prefix: &str) -> Vec<String> {
    let prefix = prefix.to_lowercase();
    // A name with control characters would be written to the terminal as it is.
    let names = names.filter(|name| !name.contains(char::is_control));
    names.filter(|name| name.to_lowercase().starts_with(&prefix)).map(str::to_owned).collect()
}

/// Keywords in the case that the user began to write.
fn keywords_starting_with(word: &str) -> Vec<String> {
    let lower_case = word.chars().next().is_some_and(char::is_lowercase);
    starting_with(KEYWORDS.iter().copied(), word)
        .into_iter()
        .map(|keyword| if lower_case { keyword.to_lowercase() } else { keyword })
        .collect()
}

/// Keywords, one or several words each.
pub(super) const KEYWORDS: &[&str] = &[
    "ALL",
    "ALTER TABLE",
    "ANALYZE",
    "AND",
    "AS",
    "ASC",
    "AVG",
    "BEGIN",
    "BETWEEN",
    "BIGINT",
    "BOOLEAN",
    "BY",
    "BYTEA",
    "CASE",
    "CAST",
    "CHARACTER VARYING",
    "COALESCE",
    "COMMIT",
    "CONFLICT",
    "COPY",
    "COUNT",
    "CREATE INDEX",
    "CREATE MATERIALIZED VIEW",
    "CREATE TABLE",
    "CREATE VIEW",
    "CROSS JOIN",
    "CSV",
    "CURRENT_DATE",
    "DATE",
    "DEFAULT",
    "DELETE FROM",
    "DELIMITER",
    "DESC",
    "DISTINCT",
    "DOUBLE PRECISION",
    "DROP TABLE",
    "ELSE",
    "END",
    "EXCEPT",
    "EXISTS",
    "EXPLAIN",
    "EXTRACT",
    "FALSE",
    "FILTER",
    "FROM",
    "FULL JOIN",
    "GRANT",
    "GROUP BY",
    "HAVING",
    "HEADER",
    "IF EXISTS",
    "IF NOT EXISTS",
    "ILIKE",
    "IN",
    "INNER JOIN",
    "INSERT INTO",
    "INTEGER",
    "INTERSECT",
    "INTERVAL",
    "INTO",
    "IS NOT NULL",
    "IS NULL",
    "JOIN",
    "LEFT JOIN",
    "LIKE",
    "LIMIT",
    "MAX",
    "MIN",
    "NOT",
    "NOT NULL",
    "NULL",
    "NULLS FIRST",
    "NULLS LAST",
    "NUMERIC",
    "OFFSET",
    "ON",
    "OR",
    "ORDER BY",
    "OVER",
    "PARTITION BY",
    "PRIMARY KEY",
    "REAL",
    "RECURSIVE",
    "REFERENCES",
    "RETURNING",
    "REVOKE",
    "RIGHT JOIN",
    "ROLLBACK",
    "SELECT",
    "SET",
    "SHOW",
    "SMALLINT",
    "SUBSTRING",
    "SUM",
    "TABLE",
    "TEXT",
    "THEN",
    "TIME",
    "TIMESTAMP",
    "TIMESTAMPTZ",
    "TRUE",
    "UNION",
    "UNION ALL",
    "UPDATE",
    "USING",
    "UUID",
    "VACUUM",
    "VALUES",
    "VARCHAR",
    "WHEN",
    "WHERE",
    "WITH",
];

#[cfg(test)]
mod tests;
