//! Tables with equal rows, of which fragments change `a`, and the host `b` row by row.

use cleave_host::{Database, Outcome, Session};

use crate::support::{fragments, row, rows, run, sorted, text_of};

/// Runs `sql`, in which @ is the table, on both tables, and compares outcome and rows, of which it reads `listed`.
/// A fragment changes `a` if `by_fragment` says so.
pub(crate) async fn on_both(
    database: &Database,
    session: &mut Session,
    change: (&str, &str),
    by_fragment: bool,
) {
    let used = on_both_as("device", database, session, change).await;
    assert_eq!(used, by_fragment, "{}", change.0);
}

/// The same with another `update_placement` for `a`; returns whether a fragment has changed it.
pub(crate) async fn on_both_as(
    placement: &str,
    database: &Database,
    session: &mut Session,
    (sql, listed): (&str, &str),
) -> bool {
    let (mut ends, mut used) = (Vec::new(), false);
    for (table, placement) in [("a", placement), ("b", "host")] {
        run(session, &format!("SET update_placement = {placement}")).await;
        let before = fragments(database).await;
        let sql = sql.replace('@', table);
        let end = match session.run(&sql).await {
            Ok(outcomes) => shown(outcomes),
            // The rest shows the row, with the time of the statement.
            Err(error) => format!("{}: {error}", error.sqlstate())
                .replace(&format!("\"{table}\""), "@")
                .replace(&format!("\"{table}_"), "\"@_")
                .split("Failing row")
                .next()
                .unwrap_or_default()
                .to_owned(),
        };
        ends.push(end);
        let now = fragments(database).await > before;
        assert!(!now || table == "a", "{sql}");
        used |= now;
    }
    let shown = |end: &String| end.chars().take(300).collect::<String>();
    assert!(ends[0] == ends[1], "{sql}: {} and {}", shown(&ends[0]), shown(&ends[1]));
    same_in(session, &["host", "ndp"], (sql, listed)).await;
    used
}

/// Rows of RETURNING come in any order.
fn shown(outcomes: Vec<Outcome>) -> String {
    let shown = outcomes.into_iter().map(|outcome| match outcome {
        Outcome::Rows { schema, batches } => {
            let mut lines = text_of(&batches);
            lines.sort_unstable();
            let names: Vec<&String> = schema.fields().iter().map(|field| field.name()).collect();
            format!("{names:?} {}", lines.join("\n"))
        }
        other => format!("{other:?}"),
    });
    shown.collect::<Vec<_>>().join("; ")
}

/// Compares what is `listed` of both tables, however a query is cut, and by their indexes.
pub(crate) async fn same_rows(session: &mut Session, read: (&str, &str)) {
    same_in(session, &["auto", "host", "h0", "ndp"], read).await;
}

async fn same_in(session: &mut Session, splits: &[&str], (what, listed): (&str, &str)) {
    for split in splits {
        run(session, &format!("SET split = {split}")).await;
        let a = sorted(session, &format!("SELECT {listed} FROM a")).await;
        let b = sorted(session, &format!("SELECT {listed} FROM b")).await;
        assert_eq!(a.len(), b.len(), "{what}, {split}");
        if let Some((a, b)) = a.iter().zip(&b).find(|(a, b)| a != b) {
            panic!("{what}, {split}: {a} and {b}");
        }
    }
    run(session, "SET split = auto").await;
    for condition in [
        "price > 900 AND price < 1000",
        "note = 'new 7' OR note = 'note 7'",
        "kind = 7",
        "id = 777",
    ] {
        let count = |table| format!("SELECT count(*), sum(price) FROM {table} WHERE {condition}");
        assert_eq!(row(session, &count("a")).await, row(session, &count("b")).await, "{condition}");
    }
    // In the order of an index.
    let first =
        |table| format!("SELECT id, kind FROM {table} WHERE kind > 3 ORDER BY kind, id LIMIT 9");
    assert_eq!(rows(session, &first("a")).await, rows(session, &first("b")).await, "{what}");
}
