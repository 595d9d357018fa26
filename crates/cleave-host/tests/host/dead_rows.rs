//! Tests of scans over pages with dead rows: every operator, on either side, gives the rows of a model.

use std::collections::BTreeMap;

use cleave_host::Session;
use cleave_media::SplitMix64;

use crate::support::{assert_no_leak, fresh, row, rows, run};

/// Rows that are loaded as whole pages, and more than a batch has.
const LOADED: i64 = 30_000;
/// How a statement may be run.
const WAYS: [[&str; 4]; 7] = [
    ["split = host", "threads = 1", "dense_aggregates = on", "stack = native"],
    ["split = host", "threads = 2", "dense_aggregates = on", "stack = ndp"],
    ["split = host", "threads = 2", "dense_aggregates = off", "stack = ndp"],
    ["split = host", "threads = 2", "dense_aggregates = on", "stack = blk"],
    ["split = ndp", "threads = 2", "dense_aggregates = on", "stack = ndp"],
    ["split = ndp", "threads = 1", "dense_aggregates = off", "stack = ndp"],
    ["split = h0", "threads = 2", "dense_aggregates = on", "stack = ndp"],
];

/// One row but for its key: a few values with NULLs, one of many, one as wide as its type.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Row {
    part: Option<i64>,
    amount: i64,
    wide: i64,
}

type Model = BTreeMap<i64, Row>;

fn loaded(id: i64) -> Row {
    Row { part: (id % 7 != 3).then_some(id % 5), amount: id * 7919 % 1000, wide: i64::MAX - id }
}

/// Queries that pages can answer in encoded form, and some that need each row, with the model's answers.
fn expected(model: &Model) -> Vec<(&'static str, Vec<String>)> {
    let or_null = |value: Option<i64>| value.map_or("NULL".to_owned(), |value| value.to_string());
    let sum =
        |rows: &[Row]| or_null((!rows.is_empty()).then(|| rows.iter().map(|row| row.amount).sum()));
    let all: Vec<Row> = model.values().copied().collect();
    let few: Vec<Row> = all.iter().filter(|row| row.amount < 300).copied().collect();
    let parts: Vec<i64> = all.iter().filter_map(|row| row.part).collect();
    let amounts = || all.iter().map(|row| row.amount);
    let mut by_part: BTreeMap<String, Vec<Row>> = BTreeMap::new();
    for row in &all {
        by_part.entry(or_null(row.part)).or_default().push(*row);
    }
    let by_part = by_part.iter().map(|(part, rows)| {
        let most = or_null(rows.iter().map(|row| row.amount).max());
        format!("{part},{},{},{most}", rows.len(), sum(rows))
    });
    let late = model.iter().filter(|(id, _)| **id % 997 == 5);
    vec![
        ("SELECT count(*) FROM t", vec![all.len().to_string()]),
        ("SELECT sum(amount) FROM t", vec![sum(&all)]),
        (
            "SELECT count(*), count(part), sum(part), min(amount), max(amount), min(wide), max(wide) FROM t",
            vec![format!(
                "{},{},{},{},{},{},{}",
                all.len(),
                parts.len(),
                or_null((!parts.is_empty()).then(|| parts.iter().sum())),
                or_null(amounts().min()),
                or_null(amounts().max()),
                or_null(all.iter().map(|row| row.wide).min()),
                or_null(all.iter().map(|row| row.wide).max()),
            )],
        ),
        (
            "SELECT count(*), sum(amount) FROM t WHERE amount < 300",
            vec![format!("{},{}", few.len(), sum(&few))],
        ),
        ("SELECT part, count(*), sum(amount), max(amount) FROM t GROUP BY part", by_part.collect()),
        (
            "SELECT id, part, amount, wide, note FROM t WHERE id % 997 = 5",
            late.map(|(id, row)| {
                format!("{id},{},{},{},note {}", or_null(row.part), row.amount, row.wide, id % 11)
            })
            .collect(),
        ),
        (
            "SELECT count(*) FROM t AS a JOIN t AS b ON a.amount = b.id WHERE a.part = 1",
            vec![
                all.iter()
                    .filter(|row| row.part == Some(1) && model.contains_key(&row.amount))
                    .count()
                    .to_string(),
            ],
        ),
    ]
}

async fn assert_rows(session: &mut Session, model: &Model, ways: &[[&str; 4]], what: &str) {
    let expected = expected(model);
    for way in ways {
        for setting in way {
            run(session, &format!("SET {setting}")).await;
        }
        for (query, expected) in &expected {
            let mut found = rows(session, query).await;
            found.sort_unstable();
            let mut expected = expected.clone();
            expected.sort_unstable();
            assert_eq!(found, expected, "{what}, {way:?}: {query}");
        }
    }
}

/// Changes some rows, as a statement does it, and the model.
async fn change(session: &mut Session, model: &mut Model, random: &mut SplitMix64) -> String {
    let mut below = |end: u64| i64::try_from(random.next_u64() % end).unwrap();
    let (every, rest) = (below(40) + 2, below(2));
    let (low, high) = (below(30_000), below(30_000));
    let sql = match below(8) {
        // A few of every page, or whole pages, or rows in a few of them.
        0 | 1 => {
            for (_, row) in model.iter_mut().filter(|(id, _)| **id % every == rest) {
                row.amount += 1;
            }
            format!("UPDATE t SET amount = amount + 1 WHERE id % {every} = {rest}")
        }
        2 => {
            model.retain(|id, _| id % every != rest);
            format!("DELETE FROM t WHERE id % {every} = {rest}")
        }
        3 => {
            model.retain(|id, _| !(low..high).contains(id) || id % 16 == 0);
            format!("DELETE FROM t WHERE id >= {low} AND id < {high} AND id % 16 <> 0")
        }
        4..6 => {
            let end = low + 400;
            for (_, row) in model.range_mut(low..end) {
                (row.part, row.wide) = (row.part.map(|part| part + 1), row.wide.wrapping_neg());
            }
            format!("UPDATE t SET part = part + 1, wide = -wide WHERE id >= {low} AND id < {end}")
        }
        6 => {
            for (_, row) in model.iter_mut().filter(|(id, _)| **id % every == rest) {
                row.part = None;
            }
            format!("UPDATE t SET part = NULL WHERE id % {every} = {rest}")
        }
        _ => {
            let first = model.last_key_value().map_or(0, |(id, _)| id + 1);
            let end = first + below(2000) + 1;
            model.extend((first..end).map(|id| (id, loaded(id))));
            insert(first, end)
        }
    };
    run(session, &sql).await;
    sql
}

fn insert(first: i64, end: i64) -> String {
    format!(
        "INSERT INTO t SELECT i, CASE WHEN i % 7 <> 3 THEN i % 5 END, i * 7919 % 1000, {} - i, 'note ' || i % 11 \
         FROM generate_series({first}, {}) AS g (i)",
        i64::MAX,
        end - 1
    )
}

async fn history(seed: u64, placement: &str, steps: usize) {
    let mut random = SplitMix64::new(seed);
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    let create =
        "CREATE TABLE t (id bigint PRIMARY KEY, part bigint, amount int, wide bigint, note text)";
    run(&mut session, &format!("{create} {placement}")).await;
    run(&mut session, &insert(0, LOADED)).await;
    run(&mut session, "ALTER SYSTEM SET version_retention = 100").await;
    let mut model: Model = (0..LOADED).map(|id| (id, loaded(id))).collect();
    let mut older = database.session();
    let mut held: Option<Model> = None;
    let mut past: Option<(String, Model)> = None;
    for step in 0..steps {
        let what = format!(
            "seed {seed}, step {step}: {}",
            change(&mut session, &mut model, &mut random).await
        );
        let way = usize::try_from(random.next_u64()).unwrap_or(step) % WAYS.len();
        let ways = [WAYS[way], WAYS[(way + 1 + step) % WAYS.len()]];
        assert_rows(&mut session, &model, &ways, &what).await;
        // A reader of an older snapshot still sees it.
        match &held {
            None => {
                run(&mut older, "BEGIN ISOLATION LEVEL REPEATABLE READ").await;
                assert_eq!(
                    row(&mut older, "SELECT count(*) FROM t").await,
                    model.len().to_string()
                );
                held = Some(model.clone());
            }
            Some(model) => {
                assert_rows(&mut older, model, &ways[..1], &format!("held before {what}")).await;
                if step % 4 == 3 {
                    run(&mut older, "COMMIT").await;
                    held = None;
                }
            }
        }
        // Own changes are seen before they are committed, by nobody else, and gone with the transaction.
        if step % 3 == 2 {
            let mut own = model.clone();
            run(&mut session, "BEGIN").await;
            let sql = change(&mut session, &mut own, &mut random).await;
            assert_rows(&mut session, &own, &ways[..1], &format!("own {sql} behind {what}")).await;
            run(&mut session, "ROLLBACK").await;
            assert_rows(&mut session, &model, &ways[..1], &format!("back from {sql}, {what}"))
                .await;
        }
        if step == steps / 2 {
            tokio::time::sleep(std::time::Duration::from_millis(250)).await;
            past = Some((row(&mut session, "SELECT now()").await, model.clone()));
            tokio::time::sleep(std::time::Duration::from_millis(250)).await;
        }
    }
    assert_rows(&mut session, &model, &WAYS, "the end").await;
    if let Some((at, model)) = &past {
        run(&mut session, &format!("SET as_of = '{at}'")).await;
        assert_rows(&mut session, model, &WAYS, &format!("as of {at}")).await;
        run(&mut session, "RESET as_of").await;
    }
    drop(older);
    assert_no_leak(&database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scans_over_dead_rows_have_the_rows_of_a_model() {
    history(1, "", 12).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scans_over_dead_rows_of_a_divided_table_have_the_rows_of_a_model() {
    history(2, "WITH (tablets = 2, tablet_by = hash (id))", 8).await;
}
