//! Indexes whose runs a device across a link makes: the entries are those that the host makes, whatever the columns,
//! the memory and the statement; and a key that comes twice has its name.

use std::path::Path;
use std::sync::Arc;

use cleave_host::activity::Act;
use cleave_host::check::CheckOptions;
use cleave_host::{Database, Session};

use crate::index_filter::attached;
use crate::support::{assert_no_leak, refused, row, rows, run};

/// 45,000 rows, of which some are dead and some long, NULL or negative, on the device of `mode`.
async fn filled(
    mode: &str,
    outside: &Path,
) -> (tempfile::TempDir, Arc<Database>, Session, Box<dyn std::any::Any>) {
    let (directory, database, served) = attached(mode, outside).await;
    let mut session = database.session();
    run(&mut session, "SET default_device = 'other'; SET update_placement = host").await;
    run(&mut session, "CREATE TABLE t (id int, kind int, note text, price numeric(10,2))").await;
    // Segments of their own.
    for first in [1, 15_001, 30_001] {
        let rows = format!(
            "SELECT v, v % 1000 - 500, \
             CASE WHEN v % 7 > 0 THEN repeat('n', v % 90) || v % 50 END, v * 0.5 \
             FROM generate_series({first}, {}) AS s(v)",
            first + 14_999
        );
        run(&mut session, &format!("INSERT INTO t {rows}")).await;
    }
    run(
        &mut session,
        "DELETE FROM t WHERE id % 11 = 0; UPDATE t SET price = -1 WHERE id % 500 = 1",
    )
    .await;
    run(&mut session, "CHECKPOINT").await;
    (directory, database, session, Box::new(served))
}

async fn sound(database: &Arc<Database>) {
    let report = database.check(&CheckOptions::default()).await.unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
    assert_no_leak(database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_makes_the_entries_that_the_host_makes() {
    for mode in ["remote", "local"] {
        let outside = tempfile::tempdir().unwrap();
        let (_directory, database, mut session, _served) = filled(mode, outside.path()).await;
        let made = || database.activity().count(Act::IndexFragment);
        let builds = [
            ("", "CREATE INDEX ON t (kind)", 4),
            ("", "CREATE UNIQUE INDEX ON t (id)", 4),
            ("", "CREATE INDEX ON t (note DESC NULLS LAST, kind)", 4),
            ("", "CREATE INDEX ON t (price, note)", 4),
            ("SET ndp = off", "CREATE INDEX ON t (kind DESC)", 0),
            // The host sorts what does not fit into its memory.
            ("SET ndp = on; SET device_memory = '1MB'", "CREATE INDEX ON t (kind, id DESC)", 1),
        ];
        for (settings, build, least) in builds {
            run(&mut session, settings).await;
            let before = made();
            run(&mut session, build).await;
            let fragments = made() - before;
            assert!(
                fragments >= least && (fragments > 0) == (least > 0),
                "{mode}, {build}: {fragments}"
            );
        }
        sound(&database).await;
        run(&mut session, "SET device_memory = '64MB'").await;
        for condition in
            ["kind = -3", "id = 12345", "note = 'nnnnn5'", "price = -1 AND note > 'nnn'"]
        {
            let count = format!("SELECT count(*), sum(id) FROM t WHERE {condition}");
            run(&mut session, "SET index_scan = off").await;
            let scanned = row(&mut session, &count).await;
            run(&mut session, "SET index_scan = on").await;
            assert_eq!(row(&mut session, &count).await, scanned, "{mode}, {condition}");
        }
        let error = refused(&mut session, "CREATE UNIQUE INDEX ON t (kind)").await;
        assert_eq!(error.sqlstate(), "23505", "{mode}");
        assert!(error.to_string().contains("kind"), "{mode}: {error}");
        sound(&database).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_rows_that_fragments_write_do_not_cross_the_link() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, mut session, _served) = filled("remote", outside.path()).await;
    let made = || database.activity().count(Act::IndexFragment);
    run(&mut session, "CREATE UNIQUE INDEX ON t (id); CREATE INDEX ON t (kind)").await;
    run(
        &mut session,
        "CREATE TABLE u (id int PRIMARY KEY, note text); SET update_placement = device",
    )
    .await;
    let before = made();
    run(&mut session, "INSERT INTO u SELECT id, note FROM t").await;
    assert_eq!(made(), before + 1, "of the new rows' primary key");
    let changed = "SELECT count(*), sum(id % 1000 + 500) FROM t WHERE id % 3 = 0";
    let wanted = row(&mut session, changed).await;
    run(&mut session, "UPDATE t SET kind = kind + 1000 WHERE id % 3 = 0").await;
    assert_eq!(made(), before + 3, "of both indexes of the new versions");
    let sums = rows(&mut session, "SELECT count(*), sum(kind) FROM t WHERE kind >= 500").await;
    assert_eq!(sums, [wanted]);
    let twice = "INSERT INTO u SELECT id, note FROM t WHERE id = 5000";
    assert_eq!(refused(&mut session, twice).await.sqlstate(), "23505");
    sound(&database).await;
}
