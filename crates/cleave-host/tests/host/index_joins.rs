//! Tests of joins whose keys the scan of the other side looks up in an index: the same rows as without in every attach
//! mode and split, and fewer pages.

use cleave_host::Session;
use cleave_media::SplitMix64;

use crate::index_filter::{attached, filled, session_on};
use crate::support::{batches, numbered, row, rows, run};

/// Joins of all the kinds that hand keys down, with numbers that change.
fn joins(random: &mut SplitMix64) -> Vec<String> {
    let mut number = |below: u64| random.below(below);
    let list = |count: u64, number: &mut dyn FnMut(u64) -> u64| {
        let keys = (0..count).map(|_| format!("({})", number(8009)));
        keys.chain(["(NULL)".to_owned(), "(-5)".to_owned()]).collect::<Vec<_>>().join(", ")
    };
    let few = list(3, &mut number);
    let more = list(60, &mut number);
    let word = number(9973);
    let (low, high) = (number(40_000), number(300));
    let sums = "count(*), sum(t.id), min(t.word), max(t.many)";
    vec![
        format!("SELECT {sums} FROM (VALUES {few}) AS k(many) JOIN t ON t.many = k.many"),
        format!("SELECT {sums} FROM (VALUES {more}) AS k(many) JOIN t ON t.many = k.many"),
        format!(
            "SELECT {sums} FROM t WHERE many IN (SELECT many FROM t AS o WHERE o.word = 'w{word}')"
        ),
        format!(
            "SELECT {sums} FROM t WHERE NOT EXISTS (SELECT 1 FROM t AS o WHERE o.many = t.many AND o.word = 'w{word}')"
        ),
        format!(
            "SELECT {sums}, count(o.id) FROM t AS o LEFT JOIN t ON t.word = o.word AND t.few = o.few WHERE o.id \
             BETWEEN {low} AND {low} + {high}"
        ),
        format!(
            "SELECT {sums} FROM t AS o JOIN t ON t.few = o.few AND t.many = o.many WHERE o.word = 'w{word}'"
        ),
        format!("SELECT {sums} FROM t AS o JOIN t ON t.f = o.f WHERE o.id = {low} AND t.id < 300"),
        format!("SELECT {sums} FROM t AS o JOIN t ON t.many = o.many WHERE o.id < 0"),
        format!("SELECT {sums} FROM t AS o JOIN t ON t.id = o.many WHERE o.word LIKE 'w{word}%'"),
        format!(
            "SELECT {sums} FROM t AS o JOIN t ON t.many = o.many AND t.word <> o.word WHERE o.few = 2"
        ),
        format!(
            "SELECT t.few, {sums} FROM t AS o JOIN t ON t.many = o.many JOIN t AS p ON p.word = t.word WHERE o.id = \
             {low} GROUP BY t.few"
        ),
        format!(
            "WITH RECURSIVE r(n, id) AS (SELECT 1, {low} UNION ALL SELECT n + 1, t.id + 1 FROM r JOIN t ON t.id = \
             r.id WHERE n < 20) SELECT count(*), sum(id), max(n), 0 FROM r"
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn joins_give_the_same_rows_in_every_attach_mode_and_split() {
    for (seed, mode) in (41..).zip(["embedded", "remote", "local"]) {
        let outside = tempfile::tempdir().unwrap();
        let (_directory, database, _served) = attached(mode, outside.path()).await;
        let mut session = session_on(&database, mode).await;
        filled(&mut session).await;
        let (mut here, mut there) = (0, 0);
        for sql in joins(&mut SplitMix64::new(seed)) {
            run(&mut session, "SET index_scan = off; SET split = auto").await;
            let expected = row_or_more(&mut session, &sql).await;
            for (split, setting) in [
                ("host", "always"),
                ("h0", "always"),
                ("auto", "always"),
                ("h0", "on"),
                ("host", "on"),
            ] {
                let set = format!("SET split = {split}; SET index_scan = {setting}");
                run(&mut session, &set).await;
                let found = row_or_more(&mut session, &sql).await;
                assert_eq!(found, expected, "{mode}, {set}: {sql}");
            }
            run(&mut session, "SET index_scan = always").await;
            for (split, count) in [("host", &mut here), ("h0", &mut there)] {
                run(&mut session, &format!("SET split = {split}")).await;
                let analyzed = rows(&mut session, &format!("EXPLAIN ANALYZE {sql}")).await;
                *count += usize::from(analyzed.iter().any(|line| line.contains(" entries on ")));
            }
        }
        assert!(here > 4 && there > 4, "{mode}: keys were looked up {here} and {there} times");
    }
}

async fn row_or_more(session: &mut Session, sql: &str) -> Vec<String> {
    let mut found = rows(session, sql).await;
    found.sort_unstable();
    found
}

/// What follows `name: ` in a line of `explained`.
fn said<'a>(explained: &'a [String], name: &str) -> Option<&'a str> {
    explained.iter().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(": "))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_lie_on_few_pages_leave_the_others_out_where_the_scan_runs() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _served) = attached("remote", outside.path()).await;
    let mut session = database.session();
    run(&mut session, "SET default_device = 'other'").await;
    run(&mut session, "CREATE TABLE t (id int PRIMARY KEY, note text)").await;
    run(&mut session, "CREATE INDEX t_note ON t (note)").await;
    for part in 0..8 {
        let part = numbered(part * 12_500..(part + 1) * 12_500);
        session.load("t", batches(vec![part]), None).await.unwrap();
    }
    run(&mut session, "CREATE TABLE k (note text)").await;
    run(
        &mut session,
        "INSERT INTO k SELECT note FROM t WHERE id IN (77, 12000, 12001) UNION ALL SELECT NULL",
    )
    .await;
    let sql = "SELECT count(*), sum(t.id) FROM k JOIN t ON t.note = k.note";
    let explained = rows(&mut session, &format!("EXPLAIN {sql}")).await.join("\n");
    assert!(
        explained.contains("may go through index t_note by the keys of the join above"),
        "{explained}"
    );
    let mut link_bytes = Vec::new();
    for (split, setting) in [("h0", "on"), ("h0", "off"), ("host", "on"), ("host", "off")] {
        run(&mut session, &format!("SET split = {split}; SET index_scan = {setting}")).await;
        let device = database.device_named("other").unwrap();
        database.buffer_pool().clear();
        let before = device.traffic();
        assert_eq!(row(&mut session, sql).await, "3,24078", "{split}, {setting}");
        link_bytes.push(device.traffic().since(before).received_bytes);
        database.buffer_pool().clear();
        let analyzed = rows(&mut session, &format!("EXPLAIN ANALYZE {sql}")).await;
        let (name, scanned) = if split == "h0" { ("index", ": 3") } else { ("t", "") };
        let looked_up = analyzed.iter().find(|line| {
            line.trim().starts_with(&format!("{name}: t_note, 3 keys: 3 entries on "))
        });
        assert_eq!(looked_up.is_some(), setting == "on", "{split}, {setting}: {analyzed:#?}");
        if split == "h0" {
            let rows_scanned: Vec<&String> =
                analyzed.iter().filter(|line| line.contains("rows scanned: ")).collect();
            let of_few = rows_scanned.iter().any(|line| line.ends_with(scanned));
            assert_eq!(of_few, setting == "on", "{rows_scanned:?}");
        }
        assert!(said(&analyzed, "execution time").is_some());
    }
    let [_, _, through, without] = link_bytes[..] else { panic!() };
    assert!(through < without / 2, "fewer pages cross: {link_bytes:?}");
}
