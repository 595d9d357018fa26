//! SQL identifiers: quoting, folding and splitting names.
//!
//! Source: PostgreSQL's manual, "Identifiers and Key Words".

/// The only schema.
pub const SCHEMA: &str = "public";
/// The engine's name for the catalog of a database's tables.
pub const CATALOG: &str = "cleave";

/// A name, quoted if SQL needs it.
pub fn quoted(name: &str) -> String {
    let is_plain = name.starts_with(|letter: char| letter.is_ascii_lowercase() || letter == '_')
        && name
            .chars()
            .all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_');
    if is_plain { name.to_owned() } else { in_quotes(name) }
}

/// A name in quotes.
pub fn in_quotes(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// `name` without the suffix that `name_columns` added.
pub fn shown_name(name: &str) -> &str {
    let number = name.strip_suffix('⟩').and_then(|name| name.rsplit_once('⟨'));
    match number {
        Some((shown, number)) if number.bytes().all(|digit| digit.is_ascii_digit()) => shown,
        _ => name,
    }
}

/// The last part of a written name, folded; None if its schema is not the one of tables.
pub fn unqualified(written: &str) -> Option<String> {
    let mut parts = parts_of(written);
    let name = parts.pop()?;
    let is_ours = parts.iter().all(|part| ["public", "pg_catalog"].contains(&part.as_str()));
    is_ours.then_some(name)
}

/// Whether a name has a schema.
pub fn has_schema(written: &str) -> bool {
    parts_of(written).len() > 1
}

/// The parts of a written name, folded.
fn parts_of(written: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut is_quoted = false;
    for letter in written.trim().chars() {
        match (letter, parts.last_mut()) {
            ('"', _) => is_quoted = !is_quoted,
            ('.', _) if !is_quoted => parts.push(String::new()),
            (letter, Some(part)) if is_quoted => part.push(letter),
            (letter, Some(part)) => part.extend(letter.to_lowercase()),
            (_, None) => {}
        }
    }
    parts
}
