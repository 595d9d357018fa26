//! SQL identifiers: quoting, folding and splitting names.
//!
//! Source: PostgreSQL's manual, "Identifiers and Key Words".

/// The only schema of permanent objects.
pub const SCHEMA: &str = "public";
/// The schema of a session's temporary objects, as statements call it.
pub const TEMPORARY_SCHEMA: &str = "pg_temp";
/// DataFusion's name for the catalog of a database's tables.
pub const CATALOG: &str = "cleave";
/// What is between the schema and the name in [`key_of`].
pub const KEY_MARK: char = '⟨';

/// Key words that are no names without quotes, or not everywhere, in order: PostgreSQL's of all categories but
/// "unreserved" (`pg_get_keywords`).
const KEY_WORDS: &str = "\
    all analyse analyze and any array as asc asymmetric authorization between bigint binary bit boolean both case \
    cast char character check coalesce collate collation column concurrently constraint create cross current_catalog \
    current_date current_role current_schema current_time current_timestamp current_user dec decimal default \
    deferrable desc distinct do else end except exists extract false fetch float for foreign freeze from full grant \
    greatest group grouping having ilike in initially inner inout int integer intersect interval into is isnull join \
    lateral leading least left like limit localtime localtimestamp national natural nchar none normalize not notnull \
    null nullif numeric offset on only or order out outer overlaps overlay placing position precision primary real \
    references returning right row select session_user setof similar smallint some substring symmetric table \
    tablesample then time timestamp to trailing treat trim true union unique user using values varchar variadic \
    verbose when where window with xmlattributes xmlconcat xmlelement xmlexists xmlforest xmlnamespaces xmlparse \
    xmlpi xmlroot xmlserialize xmltable";

/// A name, quoted if SQL needs it.
pub fn quoted(name: &str) -> String {
    let is_plain = name.starts_with(|letter: char| letter.is_ascii_lowercase() || letter == '_')
        && name
            .chars()
            .all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_');
    let is_key_word = || KEY_WORDS.split(' ').any(|word| word == name);
    if is_plain && !is_key_word() { name.to_owned() } else { in_quotes(name) }
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
    let ours = [SCHEMA, TEMPORARY_SCHEMA, "pg_catalog"];
    let is_ours = parts.iter().all(|part| ours.contains(&part.as_str()));
    is_ours.then_some(name)
}

/// The schema and the name of a name that has a schema.
pub fn schema_and_name(written: &str) -> Option<(String, String)> {
    if !written.contains('.') {
        return None;
    }
    let mut parts = parts_of(written);
    let (name, schema) = (parts.pop()?, parts.pop()?);
    parts.is_empty().then_some((schema, name))
}

/// What a catalog version calls the object `name` of `schema` while another object has the plain name.
pub fn key_of(schema: &str, name: &str) -> String {
    format!("{schema}{KEY_MARK}{name}⟩")
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
