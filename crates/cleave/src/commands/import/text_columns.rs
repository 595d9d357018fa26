//! Rewrites CREATE TABLE: each column whose type this version does not have becomes `text`.
//!
//! Otherwise such a column would cost its table all rows. PostgreSQL's COPY writes every type as text, and that text is
//! kept unchanged. A constant default is kept too (`'{}'::jsonb` becomes `'{}'`); any other default of such a column is
//! dropped. The caller tells the user of each column.

use cleave_host::statement::parse_script;
use cleave_host::{Error, NameKind};

use super::plan::{Words, list_end};

/// A column that became text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TextColumn {
    pub(super) name: String,
    /// Its type in PostgreSQL.
    pub(super) data_type: String,
    /// A default that could not be kept.
    pub(super) lost_default: Option<String>,
}

/// Words that end a column's type.
const BEHIND_TYPE: [&str; 12] = [
    "default",
    "not",
    "null",
    "collate",
    "generated",
    "constraint",
    "check",
    "primary",
    "unique",
    "references",
    "storage",
    "compression",
];

/// Words that begin a table constraint.
const CONSTRAINTS: [&str; 7] =
    ["constraint", "primary", "unique", "check", "foreign", "exclude", "like"];

/// `statement` with text for unknown types, and the columns with these types; None if there are none, or it cannot be
/// parsed.
pub(super) fn with_text_columns(statement: &str) -> Option<(String, Vec<TextColumn>)> {
    let end = list_end(statement)?;
    let begin = statement.find('(')? + 1;
    let mut columns = Vec::new();
    let items: Vec<String> = split_outside(statement.get(begin..end)?, ',')
        .into_iter()
        .map(|item| match as_text(item) {
            Some((text, column)) => {
                columns.push(column);
                text
            }
            None => item.to_owned(),
        })
        .collect();
    let (head, tail) = (statement.get(..begin)?, statement.get(end..)?);
    (!columns.is_empty()).then(|| (format!("{head}{}{tail}", items.join(",")), columns))
}

/// A column's definition with type text, if its own is unknown.
fn as_text(item: &str) -> Option<(String, TextColumn)> {
    let mut words = Words(item);
    if CONSTRAINTS.iter().any(|word| Words(item).take(word)) {
        return None;
    }
    let name = words.raw_name()?;
    let rest = words.0.trim_start();
    let type_end = clause_starts(rest).first().map_or(rest.len(), |(place, _)| *place);
    let (data_type, behind) = rest.split_at(type_end);
    let data_type = data_type.trim();
    if is_known(data_type) {
        return None;
    }
    let mut column =
        TextColumn { name: name.to_owned(), data_type: data_type.to_owned(), lost_default: None };
    let indent = item.strip_suffix(item.trim_start()).unwrap_or_default();
    let mut text = format!("{indent}{name} text");
    let starts = clause_starts(behind);
    for (index, (start, word)) in starts.iter().enumerate() {
        let end = starts.get(index + 1).map_or(behind.len(), |(next, _)| *next);
        let clause = behind.get(*start..end)?.trim();
        match *word {
            "default" => match constant(clause.get("default".len()..)?.trim()) {
                Some(constant) => text.push_str(&format!(" DEFAULT {constant}")),
                None => column.lost_default = Some(clause.to_owned()),
            },
            // A collation belongs to the replaced type.
            "collate" => {}
            _ => text.push_str(&format!(" {clause}")),
        }
    }
    Some((text, column))
}

/// Whether this version has the type.
fn is_known(data_type: &str) -> bool {
    !matches!(
        parse_script(&format!("CREATE TABLE t (c {data_type})")),
        Err(Error::Unsupported { .. } | Error::UnknownName { kind: NameKind::Type, .. })
    )
}

/// A quoted constant without the cast after it.
fn constant(default: &str) -> Option<&str> {
    let body = default.strip_prefix('\'')?;
    let mut end = 0;
    loop {
        end += body.get(end..)?.find('\'')?;
        match body.get(end + 1..)?.starts_with('\'') {
            true => end += 2,
            false => break,
        }
    }
    let behind = body.get(end + 1..)?.trim();
    (behind.is_empty() || behind.starts_with("::")).then(|| default.get(..end + 2)).flatten()
}

/// The positions of clauses outside of parentheses and quotes, with the first word of each.
fn clause_starts(text: &str) -> Vec<(usize, &'static str)> {
    let mut starts = Vec::new();
    let mut is_after_not = false;
    for (place, _) in words_outside(text) {
        let at = |word: &str| Words(text.get(place..).unwrap_or_default()).take(word);
        let Some(word) = BEHIND_TYPE.into_iter().find(|word| at(word)) else {
            is_after_not = false;
            continue;
        };
        // NOT NULL is one clause.
        if !(is_after_not && word == "null") {
            starts.push((place, word));
        }
        is_after_not = word == "not";
    }
    starts
}

/// The positions of words outside of parentheses, brackets and quotes.
fn words_outside(text: &str) -> Vec<(usize, char)> {
    let mut found = Vec::new();
    let mut before = ' ';
    each_outside(text, |place, letter| {
        let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
        if is_word(letter) && !is_word(before) {
            found.push((place, letter));
        }
        before = letter;
    });
    found
}

/// Splits at a character outside of parentheses, brackets and quotes.
fn split_outside(text: &str, at: char) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    each_outside(text, |place, letter| {
        if letter == at {
            parts.extend(text.get(start..place));
            start = place + letter.len_utf8();
        }
    });
    parts.extend(text.get(start..));
    parts
}

/// Calls `visit` with each character outside of parentheses, brackets and quotes.
fn each_outside(text: &str, mut visit: impl FnMut(usize, char)) {
    let (mut depth, mut quote) = (0_usize, None);
    for (place, letter) in text.char_indices() {
        match (quote, letter) {
            (Some(open), letter) if letter == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(letter),
            (None, '(' | '[') => depth += 1,
            (None, ')' | ']') => depth = depth.saturating_sub(1),
            (None, letter) if depth == 0 => visit(place, letter),
            (None, _) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_unknown_types_become_text() {
        let statement = "CREATE TABLE public.t (\n    id integer NOT NULL,\n    \"a, b\" public.mood DEFAULT 'it''s, \
            ok'::public.mood NOT NULL,\n    \
            tags text[] DEFAULT ARRAY['x'::text, 'y'::text],\n    price numeric(8,2) DEFAULT 0.00,\n    doc jsonb \
            DEFAULT '{}'::jsonb,\n    \
            place point,\n    CONSTRAINT c CHECK ((price > (0)::numeric)),\n    PRIMARY KEY (id)\n)\nWITH \
            (fillfactor='70')";
        let (text, columns) = with_text_columns(statement).unwrap();
        let told: Vec<(&str, &str, Option<&str>)> = columns
            .iter()
            .map(|column| {
                (column.name.as_str(), column.data_type.as_str(), column.lost_default.as_deref())
            })
            .collect();
        let lost = "DEFAULT ARRAY['x'::text, 'y'::text]";
        assert_eq!(
            told,
            [
                ("\"a, b\"", "public.mood", None),
                ("tags", "text[]", Some(lost)),
                ("doc", "jsonb", None),
                ("place", "point", None)
            ]
        );
        let parts =
            ["\"a, b\" text DEFAULT 'it''s, ok' NOT NULL,", "tags text,", "doc text DEFAULT '{}',"];
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        assert!(text.ends_with("PRIMARY KEY (id)\n)\nWITH (fillfactor='70')"), "{text}");
        assert!(text.contains("price numeric(8,2) DEFAULT 0.00,"), "{text}");
        assert!(parse_script(&text).is_ok(), "{text}");
    }

    #[test]
    fn known_types_and_odd_texts_are_left_alone() {
        let known = "CREATE TABLE t (a character varying(40) DEFAULT 'x'::character varying NOT NULL, b double \
            precision, \
            c timestamp with time zone DEFAULT now(), d bit varying)";
        let (_, columns) = with_text_columns(known).unwrap();
        assert_eq!(columns.len(), 1, "{columns:?}");
        for odd in ["CREATE TABLE t", "CREATE TABLE t (", "CREATE TABLE t ()", "x(')", ""] {
            assert_eq!(with_text_columns(odd), None, "{odd}");
        }
    }
}
