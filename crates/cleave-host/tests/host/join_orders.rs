//! Tests of join orders that are compared with their splits: the same rows, and EXPLAIN shows what was compared.

use crate::prepared::behind_a_slow_link;
use crate::support::{assert_no_leak, row, rows, run};

/// The join orders in EXPLAIN, each with its prediction.
fn orders(plan: &[String]) -> Vec<&str> {
    let lines = plan.iter().map(|line| line.as_str());
    let group = lines.skip_while(|line| *line != "Orders:").skip(1);
    group.take_while(|line| line.starts_with("  ")).map(str::trim).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_order_gives_the_same_rows_and_is_shown() {
    let outside = tempfile::tempdir().unwrap();
    let (_directory, database, _served) = behind_a_slow_link(outside.path()).await;
    let mut session = database.session();
    run(&mut session, "SET default_device = nas").await;
    for (table, count, reference) in [("a", 500, 7), ("b", 30_000, 500), ("c", 20_000, 30_000)] {
        run(
            &mut session,
            &format!("CREATE TABLE {table} (id int PRIMARY KEY, ref int, note text)"),
        )
        .await;
        let filled = format!(
            "INSERT INTO {table} SELECT v, v % {reference}, 'note ' || v FROM generate_series(0, {}) AS s(v)",
            count - 1
        );
        run(&mut session, &filled).await;
    }
    run(&mut session, "ANALYZE").await;
    let query = "SELECT count(*), min(b.note), sum(c.id) FROM a, b, c \
                 WHERE b.ref = a.id AND c.ref = b.id AND a.ref < 3 AND c.id % 2 = 0";
    let expected = row(&mut session, query).await;
    let plan = rows(&mut session, &format!("EXPLAIN {query}")).await;
    assert_eq!(orders(&plan), [""; 0], "{plan:#?}");
    for setting in ["on", "always"] {
        run(&mut session, &format!("SET join_order_with_split = {setting}")).await;
        assert_eq!(row(&mut session, query).await, expected, "{setting}");
        let plan = rows(&mut session, &format!("EXPLAIN {query}")).await;
        let compared = orders(&plan);
        assert!(compared.last().unwrap().starts_with("looked at: "), "{plan:#?}");
        // One of the compared orders is chosen, and the first has the least work.
        assert!(compared[0].contains(", the least work"), "{plan:#?}");
        let chosen = compared.iter().filter(|line| line.ends_with("; chosen"));
        assert_eq!(chosen.count(), 1, "{plan:#?}");
        // Of the order that is not taken no input is left.
        let pages = plan.iter().skip_while(|line| *line != "Pages:").skip(1);
        assert_eq!(pages.take_while(|line| line.starts_with("  ")).count(), 3, "{plan:#?}");
    }
    let plan = rows(&mut session, &format!("EXPLAIN {query}")).await;
    assert!(!orders(&plan)[0].ends_with("; chosen"), "{plan:#?}");
    assert!(orders(&plan)[1].contains(" % of that"), "{plan:#?}");
    let json = row(&mut session, &format!("EXPLAIN (FORMAT JSON) {query}")).await;
    assert!(json.contains("\"Orders\":[{\"order\":\""), "{json}");
    // As a hint; and where the order or the split is given, there is nothing to compare.
    for hint in
        ["join_order_with_split(off)", "split(h1)", "join_order(a b)", "cost_strategy(paper)"]
    {
        let hinted = query.replace("SELECT", &format!("/*+ {hint} */ SELECT"));
        assert_eq!(row(&mut session, &hinted).await, expected, "{hint}");
        let plan = rows(&mut session, &format!("EXPLAIN {hinted}")).await;
        assert_eq!(orders(&plan), [""; 0], "{hint}: {plan:#?}");
    }
    assert_no_leak(&database);
}
