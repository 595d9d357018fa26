//! Tests of aggregates over encoded pages: they give the results of DataFusion's aggregates.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, Date32Array, Decimal128Array, Int32Array, Int64Array, RecordBatch, StringArray,
};
use arrow::datatypes::{DataType, Field, Schema};

use crate::support::{batches, fresh, rows, run, sorted};

const ROWS: i32 = 150_000;

/// Columns of few and many values, with and without NULLs, narrow and as wide as their type.
fn table() -> RecordBatch {
    let ids = || 0..ROWS;
    let numeric = |values: Vec<Option<i128>>, precision, scale| -> ArrayRef {
        let array = Decimal128Array::from(values);
        Arc::new(array.with_precision_and_scale(precision, scale).unwrap())
    };
    let flag = ids().map(|id| ["A", "N", "R"].get(usize::try_from(id % 7).unwrap()).copied());
    let mode = ids()
        .map(|id| Some(["AIR", "RAIL", "SHIP", "TRUCK"][usize::try_from(id / 13 % 4).unwrap()]));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(ids().collect::<Int32Array>())),
        ("flag", Arc::new(flag.collect::<StringArray>())),
        ("mode", Arc::new(mode.collect::<StringArray>())),
        ("line", Arc::new(ids().map(|id| id % 7 + 1).collect::<Int32Array>())),
        (
            "day",
            Arc::new(
                ids().map(|id| (id % 11 != 0).then_some(9000 + id % 365)).collect::<Date32Array>(),
            ),
        ),
        ("qty", numeric(ids().map(|id| Some(i128::from(id % 50 * 100))).collect(), 15, 2)),
        (
            "price",
            numeric(
                ids().map(|id| Some(i128::from(id) * 977 % 10_000_019 - 5_000_000)).collect(),
                15,
                2,
            ),
        ),
        (
            "discount",
            numeric(ids().map(|id| (id % 5 != 3).then_some(i128::from(id % 11))).collect(), 15, 2),
        ),
        (
            "part",
            Arc::new(
                ids()
                    .map(|id| (id % 3 != 0).then_some(id.wrapping_mul(7919) % 200_000))
                    .collect::<Int32Array>(),
            ),
        ),
        ("wide", Arc::new(ids().map(|id| i64::MAX - i64::from(id)).collect::<Int64Array>())),
        ("nothing", Arc::new(Int32Array::new_null(ROWS.unsigned_abs() as usize))),
        ("order_number", Arc::new(ids().map(|id| id / 5 - 9000).collect::<Int32Array>())),
        // Texts that a page codes by symbols: many of them, some NULL, most of them empty.
        (
            "phrase",
            Arc::new(
                ids()
                    .map(|id| match id % 7 {
                        0 | 2 => {
                            let word =
                                ["river", "paper", "green"][usize::try_from(id % 3).unwrap()];
                            Some(format!("{word} bicycle {}", i64::from(id) * 7919 % 1500))
                        }
                        6 if id % 4 == 0 => None,
                        _ => Some(String::new()),
                    })
                    .collect::<StringArray>(),
            ),
        ),
        (
            "label",
            Arc::new(
                ids()
                    .map(|id| (id % 9 != 0).then(|| format!("label {} {id:9}", id % 100 / 99)))
                    .map(|label| label.map(|label| label[..label.len() - 2].to_owned()))
                    .collect::<StringArray>(),
            ),
        ),
        (
            "site",
            Arc::new(
                ids()
                    .map(|id| (id % 6 != 1).then_some(i64::from(id) * 7919 % 700 * 1_000_000_007))
                    .collect::<Int64Array>(),
            ),
        ),
        ("odd", Arc::new(ids().map(|id| id / 3 % 2 * 60_000 - id).collect::<Int32Array>())),
    ];
    let fields =
        columns.iter().map(|(name, array)| Field::new(*name, array.data_type().clone(), true));
    let schema = Schema::new(fields.collect::<Vec<_>>());
    RecordBatch::try_new(Arc::new(schema), columns.into_iter().map(|(_, array)| array).collect())
        .unwrap()
}

const DEFINITION: &str = "CREATE TABLE t (id int NOT NULL, flag char(1), mode varchar(10), line int, day date, \
    qty numeric(15,2), price numeric(15,2), discount numeric(15,2), part int, wide bigint, nothing int, \
    order_number int, phrase varchar, label varchar, site bigint, odd int)";

/// The rows that EXPLAIN ANALYZE says left an operator.
fn row_count(line: &str) -> Option<u64> {
    let (_, rest) = line.split_once("(rows=")?;
    rest.split([',', ')']).next()?.parse().ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aggregates_on_what_pages_store_give_what_the_engine_gives() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, DEFINITION).await;
    assert_eq!(table().column(4).data_type(), &DataType::Date32);
    session.load("t", batches(vec![table()]), None).await.unwrap();
    // Hot pages beside the bulk ones, with values that no page before has.
    run(&mut session, "INSERT INTO t VALUES (-1, 'Z', 'HORSE', 9, NULL, 1.00, 2.00, NULL, 3, 4, 5), (-2, NULL, NULL, \
        NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)").await;
    // Each with whether rows are aggregated in encoded form.
    let queries = [
        (
            "SELECT flag, mode, sum(qty), sum(price), sum(price * (1 - discount)), sum(price * (1 - discount) * (1 + \
                qty)), avg(qty), avg(discount), count(*) FROM t WHERE day <= DATE '1995-06-01' GROUP BY flag, mode",
            true,
        ),
        (
            "SELECT mode, count(*), sum(price), max(part), min(part), count(part) FROM t WHERE qty > 25 GROUP BY mode",
            true,
        ),
        (
            "SELECT mode, count(*), sum(price), max(part) FROM t WHERE qty > 48 AND flag = 'A' GROUP BY mode",
            false,
        ),
        (
            "SELECT sum(price), count(*), min(price), max(day), sum(part), count(discount), sum(discount) FROM t",
            true,
        ),
        (
            "SELECT count(*), sum(price * qty), min(price), max(day), count(discount), sum(discount), min(discount) \
                FROM t WHERE qty > 25",
            true,
        ),
        (
            "SELECT count(*), sum(price * qty), min(price), max(day), count(discount), sum(discount), min(discount) \
                FROM t WHERE qty > 42",
            true,
        ),
        (
            "SELECT count(*), sum(price * qty), min(price), max(day), count(discount), sum(discount), min(discount) \
                FROM t WHERE qty <= 48",
            true,
        ),
        // Of inserted rows alone, on a page that is not packed.
        ("SELECT sum(price) FROM t WHERE id < 0", true),
        ("SELECT sum(price), max(id) FROM t WHERE id > 149000", true),
        (
            "SELECT line, count(*), sum(qty - discount), sum(qty + price), sum(line) FROM t GROUP BY line",
            true,
        ),
        ("SELECT line, flag, day, count(*) FROM t GROUP BY line, flag, day", false),
        ("SELECT day, sum(qty) FROM t GROUP BY day", true),
        ("SELECT id, sum(qty) FROM t WHERE id % 1000 = 0 GROUP BY id", false),
        ("SELECT flag, sum(wide), count(wide) FROM t GROUP BY flag", false),
        ("SELECT flag, max(wide), min(wide) FROM t GROUP BY flag", false),
        ("SELECT flag, sum(nothing), count(nothing), max(nothing) FROM t GROUP BY flag", false),
        (
            "SELECT flag, sum(qty) FILTER (WHERE line = 1), count(DISTINCT line) FROM t GROUP BY flag",
            false,
        ),
        ("SELECT upper(mode), sum(qty) FROM t GROUP BY upper(mode)", true),
        // Groups that lie in order, also where few rows of each are left.
        (
            "SELECT order_number, sum(qty), count(*), count(discount), min(price), max(discount), sum(price * \
                discount), max(day) FROM t GROUP BY order_number",
            true,
        ),
        (
            "SELECT order_number, sum(qty), count(part) FROM t WHERE part > 70000 GROUP BY order_number",
            true,
        ),
        (
            "SELECT order_number, sum(qty), min(id) FROM t WHERE qty > 20 GROUP BY order_number",
            true,
        ),
        ("SELECT order_number % 100, sum(qty) FROM t GROUP BY order_number % 100", true),
        (
            "SELECT o, m, count(*) FROM (SELECT order_number AS o, id / 15 AS x, line AS l, count(*) AS m FROM t GROUP \
                BY order_number, id / 15, line) AS s GROUP BY o, m",
            false,
        ),
        (
            "SELECT count(*), max(s) FROM (SELECT sum(qty) AS s FROM t GROUP BY order_number) AS s",
            true,
        ),
        // Groups by texts, by wide integers, and of several columns.
        (
            "SELECT phrase, count(*), sum(qty), min(day), count(discount) FROM t GROUP BY phrase",
            true,
        ),
        ("SELECT phrase, max(part) FROM t WHERE phrase <> '' AND qty > 10 GROUP BY phrase", true),
        ("SELECT count(DISTINCT phrase) FROM (SELECT phrase FROM t WHERE qty > 4) AS s", true),
        ("SELECT DISTINCT phrase FROM t", true),
        ("SELECT DISTINCT flag, mode FROM t WHERE line > 2", true),
        ("SELECT count(DISTINCT label) FROM t", true),
        ("SELECT site, count(*), sum(price) FROM t GROUP BY site", true),
        ("SELECT site, flag, count(part) FROM t WHERE line <> 3 GROUP BY site, flag", true),
        (
            "SELECT phrase, flag, mode, sum(price), max(site) FROM t GROUP BY phrase, flag, mode",
            false,
        ),
        ("SELECT site, phrase, min(qty) FROM t WHERE id < 60000 GROUP BY site, phrase", false),
        ("SELECT phrase, day, count(*), sum(line) FROM t GROUP BY phrase, day", false),
        ("SELECT phrase, id, count(*) FROM t GROUP BY phrase, id", false),
        ("SELECT count(DISTINCT part) FROM t WHERE id >= 0", false),
        ("SELECT order_number, odd, count(*) FROM t GROUP BY order_number, odd", false),
        ("SELECT odd, count(*) FROM t GROUP BY odd", false),
        ("SELECT mode, sum(price * price * price) FROM t GROUP BY mode", false),
        (
            "SELECT flag, sum(qty) FROM (SELECT flag, qty FROM t LIMIT 100000) AS some GROUP BY flag HAVING sum(qty) \
                < 0",
            false,
        ),
        (
            "SELECT x.flag, sum(x.both) FROM (SELECT flag, qty + discount AS both FROM t WHERE line < 5) AS x GROUP \
                BY x.flag",
            true,
        ),
    ];
    let mut unexpected = Vec::new();
    for split in ["host", "h0"] {
        run(&mut session, &format!("SET split = {split}")).await;
        for (query, is_taken) in queries {
            run(&mut session, "SET dense_aggregates = off").await;
            let expected = sorted(&mut session, query).await;
            run(&mut session, "SET dense_aggregates = on").await;
            assert_eq!(sorted(&mut session, query).await, expected, "{split}: {query}");
            if split == "host" {
                let plan = rows(&mut session, &format!("EXPLAIN ANALYZE VERBOSE {query}")).await;
                // More states leave the operator than come from the aggregate below it.
                let taken = plan.iter().zip(plan.iter().skip(1)).any(|(line, below)| {
                    line.contains("DenseAggregateExec") && row_count(line) > row_count(below)
                });
                let plan = plan.join("\n");
                if taken != is_taken {
                    unexpected.push(format!(
                        "taken: {taken}: {query}
{plan}"
                    ));
                }
            }
        }
    }
    assert!(unexpected.is_empty(), "{}", unexpected.join("\n\n"));
    // Dead rows, rows of the delta, and pages of other encodings.
    run(&mut session, "DELETE FROM t WHERE id % 5 = 0 OR phrase LIKE 'green%'").await;
    let moved = "UPDATE t SET phrase = 'moved ' || id % 50, site = NULL WHERE id % 1000 = 1";
    run(&mut session, moved).await;
    for split in ["host", "h0"] {
        run(&mut session, &format!("SET split = {split}")).await;
        for (query, _) in queries {
            run(&mut session, "SET dense_aggregates = off").await;
            let expected = sorted(&mut session, query).await;
            run(&mut session, "SET dense_aggregates = on").await;
            assert_eq!(sorted(&mut session, query).await, expected, "{split}, dead rows: {query}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_of_values_are_those_of_rows_that_are_asked_for() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, DEFINITION).await;
    session.load("t", batches(vec![table()]), None).await.unwrap();
    // The product of the widest rows leaves 128 bits, where they are asked for.
    let product =
        "sum((wide::numeric(19,0) * wide::numeric(19,0)) * (wide::numeric(19,0) * price))";
    for dense in ["on", "off"] {
        run(&mut session, &format!("SET dense_aggregates = {dense}")).await;
        let error = crate::support::refused(
            &mut session,
            &format!("SELECT {product} FROM t WHERE id > 10"),
        )
        .await;
        assert_eq!(error.sqlstate(), "22003", "{dense}: {error}");
        let some = rows(&mut session, &format!("SELECT {product} FROM t WHERE id < -5")).await;
        assert_eq!(some, ["NULL"], "{dense}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_one_narrow_value_below_zero_are_summed_as_such() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    run(&mut session, "CREATE TABLE t (g int, a smallint, b int, c bigint)").await;
    run(&mut session, "INSERT INTO t VALUES (1, -1, -2, -3), (1, -1, -2, -3)").await;
    let sums = "SELECT g, sum(a), sum(b), sum(c), min(b), max(b) FROM t GROUP BY g";
    for on in ["on", "off"] {
        run(&mut session, &format!("SET dense_aggregates = {on}")).await;
        assert_eq!(rows(&mut session, sums).await, ["1,-2,-4,-6,-2,-2"], "{on}");
    }
}
