//! `\h`: the forms of statements.
//!
//! Only the main forms: `docs/reference/sql.md` has all of them.

use cleave_host::suggest;

/// The forms of the statements that begin with `words`; without words, the names of all.
pub(crate) fn help(words: &str) -> Result<String, String> {
    let words = words.trim().trim_end_matches(';').to_ascii_uppercase();
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut text = String::new();
    if words.is_empty() {
        for row in FORMS.chunks(3) {
            let names: Vec<String> = row.iter().map(|(name, _)| format!("{name:26}")).collect();
            text.push_str(format!("  {}", names.concat()).trim_end());
            text.push('\n');
        }
        text.push_str("\\h NAME shows the form of one\n");
        return Ok(text);
    }
    for (name, form) in FORMS.iter().filter(|(name, _)| name.starts_with(&words)) {
        text.push_str(&format!("{name}\n  {}\n\n", form.replace('\n', "\n  ")));
    }
    if text.is_empty() {
        let near = suggest::nearest(&words, FORMS.iter().map(|(name, _)| *name));
        let near = near.map_or("\\h lists all".to_owned(), |near| format!("did you mean {near}?"));
        return Err(format!("there is no help on {words}; {near}"));
    }
    Ok(text)
}

/// Names of statements and their forms, by name.
const FORMS: &[(&str, &str)] = &[
    ("ALTER DEVICE", "ALTER DEVICE name RESYNC | DRAIN [TO device, ...] | UNDRAIN"),
    (
        "ALTER ROLE",
        "ALTER ROLE name [PASSWORD 'text'] [VALID UNTIL 'time'] [[NO]LOGIN] ...\n\
         ALTER ROLE name SET setting = value",
    ),
    (
        "ALTER SYSTEM",
        "ALTER SYSTEM SET name = value\n\
         ALTER SYSTEM RESET name",
    ),
    (
        "ALTER TABLE",
        "ALTER TABLE [IF EXISTS] name\n  \
           ADD [COLUMN] column type ... | DROP [COLUMN] column | RENAME [COLUMN] column TO name | RENAME TO name |\n  \
           ALTER [COLUMN] column ... | ADD CONSTRAINT ... | DROP CONSTRAINT name | OWNER TO role",
    ),
    ("ANALYZE", "ANALYZE [VERBOSE] [table [(column, ...)], ...]"),
    ("BACKUP", "BACKUP TO 'folder'"),
    ("BATCH", "BATCH BEGIN; query; ... BATCH END;"),
    ("BEGIN", "BEGIN [ISOLATION LEVEL level] [READ ONLY | READ WRITE]"),
    ("CHECKPOINT", "CHECKPOINT"),
    ("COMMENT", "COMMENT ON TABLE | VIEW | INDEX | COLUMN ... name IS 'text' | NULL"),
    ("COMMIT", "COMMIT [AND CHAIN]"),
    (
        "COPY",
        "COPY table [(column, ...)] FROM 'file' | STDIN [WITH (option, ...)]\n\
         COPY table [(column, ...)] | (query) TO 'file' | STDOUT [WITH (option, ...)]\n\
         options: FORMAT csv | text | binary | parquet, HEADER, DELIMITER 'x', NULL 'x', QUOTE 'x'",
    ),
    (
        "CREATE DEVICE",
        "CREATE DEVICE name WITH (address = 'host:port', token_file = '/file' [, ca = '/file'])\n\
         CREATE DEVICE name WITH (local = '/socket')\n\
         CREATE DEVICE name WITH (mirrors = 'device, device, ...')",
    ),
    (
        "CREATE INDEX",
        "CREATE [UNIQUE] INDEX [CONCURRENTLY] [[IF NOT EXISTS] name] ON table\n  \
           (column [ASC | DESC] [NULLS FIRST | LAST], ...)",
    ),
    (
        "CREATE MATERIALIZED VIEW",
        "CREATE MATERIALIZED VIEW [IF NOT EXISTS] name [WITH (device = ..., tablets = ...)]\n  \
           AS query [WITH [NO] DATA]",
    ),
    (
        "CREATE ROLE",
        "CREATE ROLE name [LOGIN] [SUPERUSER] [PASSWORD 'text'] [IN ROLE role, ...] ...",
    ),
    ("CREATE SEQUENCE", "CREATE SEQUENCE [IF NOT EXISTS] name [START n] [INCREMENT n] ..."),
    (
        "CREATE TABLE",
        "CREATE [TEMP] TABLE [IF NOT EXISTS] name\n  \
           (column type [NOT NULL] [DEFAULT value] [PRIMARY KEY] [UNIQUE] [REFERENCES table], ...)\n  \
           [WITH (device = name, mirrors = n, tablets = n)]",
    ),
    ("CREATE TABLE AS", "CREATE [TEMP] TABLE [IF NOT EXISTS] name [WITH (device = name)] AS query"),
    ("CREATE VIEW", "CREATE [OR REPLACE] [TEMP] VIEW name [(column, ...)] AS query"),
    ("DECLARE", "DECLARE name [NO SCROLL] CURSOR [WITH HOLD] FOR query"),
    ("DELETE", "DELETE FROM table [AS alias] [USING ...] [WHERE condition] [RETURNING ...]"),
    ("DROP DEVICE", "DROP DEVICE [IF EXISTS] name"),
    ("DROP INDEX", "DROP INDEX [IF EXISTS] name, ... [CASCADE]"),
    ("DROP ROLE", "DROP ROLE [IF EXISTS] name, ..."),
    ("DROP TABLE", "DROP TABLE [IF EXISTS] name, ... [CASCADE]"),
    ("DROP VIEW", "DROP VIEW [IF EXISTS] name, ... [CASCADE]"),
    (
        "EXPLAIN",
        "EXPLAIN [ANALYZE] [VERBOSE] statement\n\
         EXPLAIN (FORMAT JSON) statement",
    ),
    ("FETCH", "FETCH [count | ALL] FROM cursor"),
    (
        "GRANT",
        "GRANT privilege, ... | ALL ON table, ... TO role, ... [WITH GRANT OPTION]\n\
         GRANT role, ... TO role, ...",
    ),
    (
        "INSERT",
        "INSERT INTO table [(column, ...)] VALUES (value, ...), ... | query\n  \
           [ON CONFLICT ...] [RETURNING ...]",
    ),
    ("LOCK", "LOCK [TABLE] table, ... [IN mode MODE] [NOWAIT]"),
    (
        "PREPARE",
        "PREPARE name [(type, ...)] AS statement; EXECUTE name [(value, ...)]; DEALLOCATE name",
    ),
    ("REFRESH MATERIALIZED VIEW", "REFRESH MATERIALIZED VIEW [CONCURRENTLY] name"),
    ("RESET", "RESET name | ALL"),
    ("REVOKE", "REVOKE privilege, ... | ALL ON table, ... FROM role, ... [CASCADE]"),
    ("ROLLBACK", "ROLLBACK [TO savepoint]"),
    ("SAVEPOINT", "SAVEPOINT name; ROLLBACK TO name; RELEASE name"),
    (
        "SELECT",
        "[WITH [RECURSIVE] name AS (query), ...]\n\
         SELECT [DISTINCT] expression [AS name], ...\n  \
           FROM table [AS alias] [JOIN ... ON condition] [WHERE condition]\n  \
           [GROUP BY ...] [HAVING condition] [ORDER BY ...] [LIMIT n] [OFFSET n]\n  \
           [FOR UPDATE | NO KEY UPDATE | SHARE | KEY SHARE [NOWAIT | SKIP LOCKED]]",
    ),
    ("SET", "SET [LOCAL] name = value"),
    ("SHOW", "SHOW name | ALL | TABLES | STATISTICS [FOR table]"),
    ("TRUNCATE", "TRUNCATE [TABLE] name, ... [RESTART IDENTITY] [CASCADE]"),
    (
        "UPDATE",
        "UPDATE table [AS alias] SET column = value, ... [FROM ...] [WHERE condition] [RETURNING ...]",
    ),
    ("VACUUM", "VACUUM [FULL] [VERBOSE] [ANALYZE] [table, ...]"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_found_by_their_first_words() {
        let text = help("create  table;").unwrap();
        assert!(text.contains("CREATE TABLE AS\n") && !text.contains("CREATE VIEW"), "{text}");
        assert!(help("").unwrap().contains("VACUUM"));
        assert!(help("selct").unwrap_err().contains("did you mean SELECT?"));
        assert!(FORMS.is_sorted_by_key(|(name, _)| *name));
    }
}
