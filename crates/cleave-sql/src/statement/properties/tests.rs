//! Tests: rows of the table with exceptional values.

use super::*;
use crate::statement::parse_script;

fn with_properties<T>(sql: &str, of: impl Fn(&Properties<'_>) -> T) -> T {
    let mut statements = parse_script(sql).unwrap();
    of(&statements.pop().unwrap().statement.properties())
}

#[test]
fn rollback_to_runs_in_a_failed_block_and_is_none_of_its_borders() {
    let place = |sql| with_properties(sql, |row| row.place);
    assert_eq!(place("ROLLBACK TO s"), Place::Restores);
    assert!(place("ROLLBACK TO s").is_in_failed_block() && !place("ROLLBACK TO s").is_border());
    assert!(place("ROLLBACK").is_in_failed_block() && place("ROLLBACK").is_border());
    assert!(!place("BEGIN").is_in_failed_block() && place("BEGIN").is_border());
    assert!(!place("RELEASE s").is_in_failed_block());
}

#[test]
fn only_a_cursor_that_is_not_held_needs_a_block() {
    let place = |sql| with_properties(sql, |row| row.place);
    assert_eq!(place("DECLARE c CURSOR FOR SELECT 1"), Place::InBlock);
    assert_eq!(place("DECLARE c CURSOR WITH HOLD FOR SELECT 1"), Place::Anywhere);
    assert_eq!(place("BACKUP TO '/b'"), Place::OutsideReading);
    assert_eq!(place("VACUUM t"), Place::Outside);
    assert_eq!(place("ALTER TABLE t MOVE TABLET 0 TO a"), Place::Outside);
    assert_eq!(place("ALTER TABLE t ADD COLUMN a int"), Place::Anywhere);
}

#[test]
fn what_is_written_outside_of_the_session_is_a_change() {
    let changes = |sql| with_properties(sql, |row| row.effect == Effect::Changes);
    for sql in [
        "INSERT INTO t VALUES (1)",
        "WITH x AS (DELETE FROM t RETURNING a) SELECT a FROM x",
        "EXPLAIN ANALYZE DELETE FROM t",
        "COPY t FROM STDIN",
        "COPY t TO '/tmp/t.csv'",
        "CREATE TEMPORARY TABLE u (a int)",
        "CREATE ROLE r",
        "GRANT SELECT ON t TO r",
        "ANALYZE t",
        "VACUUM t",
        "CHECKPOINT",
        "BACKUP TO '/b'",
        "ALTER SYSTEM SET autovacuum = off",
    ] {
        assert!(changes(sql), "{sql}");
    }
    for sql in [
        "SELECT 1",
        "EXPLAIN DELETE FROM t",
        "COPY t TO STDOUT",
        "BEGIN READ WRITE",
        "COMMIT",
        "SET split = host",
        "SET ROLE NONE",
        "SHOW ALL",
        "PREPARE p AS DELETE FROM t",
        "EXECUTE p",
    ] {
        assert!(!changes(sql), "{sql}");
    }
}

#[test]
fn rows_are_counted_by_what_changes_them() {
    let tag = |sql| with_properties(sql, |row| row.tag.after_rows(2));
    assert_eq!(tag("INSERT INTO t VALUES (1), (2) RETURNING a"), "INSERT 0 2");
    assert_eq!(
        tag("WITH x AS (DELETE FROM t RETURNING a) UPDATE u SET b = 1 RETURNING b"),
        "UPDATE 2"
    );
    assert_eq!(tag("WITH x AS (DELETE FROM t RETURNING a) SELECT a FROM x"), "SELECT 2");
    assert_eq!(tag("SHOW ALL"), "SHOW");
    assert_eq!(tag("EXPLAIN DELETE FROM t"), "EXPLAIN");
    assert_eq!(tag("VACUUM VERBOSE t"), "SELECT 2");
}

#[test]
fn upkeep_of_all_tables_is_a_superusers() {
    let rights = |sql| with_properties(sql, |row| matches!(row.rights, Rights::Superuser(..)));
    assert!(rights("VACUUM") && rights("ANALYZE") && rights("SHOW STATISTICS"));
    assert!(!rights("VACUUM t") && !rights("ANALYZE t") && !rights("SHOW STATISTICS FOR t"));
    assert!(rights("CHECKPOINT") && rights("BACKUP TO '/b'"));
}

#[test]
fn who_has_lost_its_role_may_still_end_a_transaction_and_take_another_role() {
    let without_role = |sql| with_properties(sql, |row| row.without_role);
    for sql in ["COMMIT", "ROLLBACK TO s", "RELEASE s", "RESET ALL", "SET ROLE NONE"] {
        assert!(without_role(sql), "{sql}");
    }
    for sql in ["BEGIN", "SAVEPOINT s", "SHOW ALL", "CREATE ROLE r", "SELECT 1"] {
        assert!(!without_role(sql), "{sql}");
    }
}

#[test]
fn explain_runs_a_statement_with_analyze_alone() {
    let returns = |sql| with_properties(sql, |row| row.returns_changes);
    let runs = |sql| with_properties(sql, |row| row.runs.is_some());
    assert!(returns("EXPLAIN ANALYZE DELETE FROM t RETURNING a"));
    assert!(!returns("EXPLAIN DELETE FROM t RETURNING a"));
    assert!(runs("EXPLAIN ANALYZE EXECUTE p") && runs("EXECUTE p"));
    assert!(!runs("EXPLAIN EXECUTE p"));
}
