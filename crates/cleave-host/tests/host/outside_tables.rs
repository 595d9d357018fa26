//! Tests of tables from outside the database, which the program of a session offers: they are looked up last, are read
//! anew by each statement, and their joins leave the rest of the plan to devices.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int32Array, RecordBatch, StringArray};
use arrow::datatypes::SchemaRef;
use cleave_host::activity::Act;
use cleave_host::outside_tables::{OutsideTables, supported_filters, with_fewer_rows};
use cleave_host::{Database, Session};
use datafusion::catalog::{Session as CatalogSession, TableProvider};
use datafusion::datasource::{MemTable, ViewTable};
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::{
    Expr, LogicalPlanBuilder, TableProviderFilterPushDown, TableType, col, lit,
};
use datafusion::physical_plan::ExecutionPlan;
use futures::future::BoxFuture;

use crate::support::{answer, fresh, refused, row, rows, run};

/// Offers one table, `df`, and a `t` that hides nothing.
#[derive(Debug)]
struct Frames(RecordBatch);

impl OutsideTables for Frames {
    fn table(&self, name: &str) -> Option<Arc<dyn TableProvider>> {
        let rows = vec![vec![self.0.clone()]];
        let table = MemTable::try_new(self.0.schema(), rows).unwrap();
        ["df", "t"].contains(&name).then(|| Arc::new(table) as Arc<dyn TableProvider>)
    }
}

/// Offers a `df` that is no table, but a plan with one value.
#[derive(Debug)]
struct Constant(i32);

impl OutsideTables for Constant {
    fn table(&self, name: &str) -> Option<Arc<dyn TableProvider>> {
        let one = LogicalPlanBuilder::values(vec![vec![lit(self.0)]]).unwrap();
        let plan = one.project([col("column1").alias("id")]).unwrap().build().unwrap();
        let view = ViewTable::new(plan, None);
        (name == "df").then(|| Arc::new(view) as Arc<dyn TableProvider>)
    }
}

/// A `df` whose scan leaves out rows by the conditions of the query.
#[derive(Debug)]
struct Fewer(RecordBatch);

impl OutsideTables for Fewer {
    fn table(&self, name: &str) -> Option<Arc<dyn TableProvider>> {
        let table = MemTable::try_new(self.0.schema(), vec![vec![self.0.clone()]]).unwrap();
        (name == "df").then(|| Arc::new(FewerRows(table)) as Arc<dyn TableProvider>)
    }
}

#[derive(Debug)]
struct FewerRows(MemTable);

impl TableProvider for FewerRows {
    fn schema(&self) -> SchemaRef {
        self.0.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> PlanResult<Vec<TableProviderFilterPushDown>> {
        Ok(supported_filters(filters))
    }

    fn scan<'a, 's, 'c, 'e, 'f>(
        &'a self,
        session: &'s dyn CatalogSession,
        columns: Option<&'c Vec<usize>>,
        filters: &'e [Expr],
        limit: Option<usize>,
    ) -> BoxFuture<'f, PlanResult<Arc<dyn ExecutionPlan>>>
    where
        'a: 'f,
        's: 'f,
        'c: 'f,
        'e: 'f,
    {
        Box::pin(async move {
            let scan = self.0.scan(session, columns, &[], limit).await?;
            with_fewer_rows(session, filters, scan)
        })
    }
}

/// A table of these ids, with their names.
fn offered(ids: &[i32]) -> Option<Arc<dyn OutsideTables>> {
    let names: StringArray = ids.iter().map(|id| Some(format!("name {id}"))).collect();
    let columns: [(&str, ArrayRef); 2] =
        [("id", Arc::new(Int32Array::from(ids.to_vec()))), ("name", Arc::new(names))];
    Some(Arc::new(Frames(RecordBatch::try_from_iter(columns).unwrap())))
}

async fn with_frame() -> (tempfile::TempDir, Arc<Database>, Session) {
    let (directory, database) = fresh().await;
    let mut session = database.session();
    run(
        &mut session,
        "CREATE TABLE t (id int PRIMARY KEY, n int); \
         INSERT INTO t SELECT v, v % 10 FROM generate_series(1, 20000) AS s(v); CHECKPOINT",
    )
    .await;
    session.set_outside_tables(offered(&[1, 2, 30]));
    (directory, database, session)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_join_with_a_table_from_outside_leaves_the_scan_to_the_device() {
    let (_directory, _database, mut session) = with_frame().await;
    let joined = "SELECT df.name, t.n FROM t JOIN df USING (id) WHERE t.n < 5";
    let expected = ["name 1,1", "name 2,2", "name 30,0"];
    for split in ["host", "h0", "h1", "auto"] {
        run(&mut session, &format!("SET split = {split}")).await;
        assert_eq!(answer(&mut session, joined).await, expected, "{split}");
    }
    run(&mut session, "SET split = ndp").await;
    let error = refused(&mut session, joined).await;
    assert!(error.to_string().contains("does not run on a device"), "{error}");
    run(&mut session, "RESET split").await;
    let cut = "SELECT DISTINCT split_taken FROM cleave.query_log WHERE text LIKE '%df.name%' AND split_asked = 'h0'";
    assert_eq!(row(&mut session, cut).await, "h0");
}

#[tokio::test]
async fn a_scan_leaves_out_rows_by_the_conditions_of_the_query() {
    let (_directory, database) = fresh().await;
    let mut session = database.session();
    let ids: Int32Array = (0..1_000).map(|id| (id % 10 != 0).then_some(id)).collect();
    let special = [0.0, -0.0, f64::NAN, f64::INFINITY, -1.5, 1.5];
    let values: Float64Array = special.iter().cycle().take(1_000).copied().map(Some).collect();
    let columns: [(&str, ArrayRef); 2] = [("id", Arc::new(ids)), ("v", Arc::new(values))];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let conditions = [
        "id < 100 AND v > 0.5",
        "id >= 990 AND v <= 0",
        "100 > id AND 0 = v",
        "id BETWEEN 500 AND 510 AND v < 'NaN'::double precision",
        "id = 501 OR id = 502",
        "id < 100 AND id + 1 > 3 AND v < 2",
        "id < -1 AND v IS NULL",
        "id > 5",
    ];
    for condition in conditions {
        let query = format!("SELECT count(*), sum(id), max(v), count(v) FROM df WHERE {condition}");
        session.set_outside_tables(Some(Arc::new(Frames(batch.clone()))));
        let expected = row(&mut session, &query).await;
        session.set_outside_tables(Some(Arc::new(Fewer(batch.clone()))));
        assert_eq!(row(&mut session, &query).await, expected, "{condition}");
    }
    let plan = rows(&mut session, "EXPLAIN SELECT v FROM df WHERE id > 5 AND v + 1 < 9").await;
    let scan = "Scan of a table of the caller: columns id, v, only rows with id > 5";
    assert!(plan.join("\n").contains(scan), "{plan:?}");
}

#[tokio::test]
async fn it_is_looked_up_last_and_read_anew_by_each_statement() {
    let (_directory, database, mut session) = with_frame().await;
    assert_eq!(row(&mut session, "SELECT count(*) FROM t").await, "20000");
    let of_with = "WITH df AS (SELECT 7 AS id) SELECT * FROM df";
    assert_eq!(row(&mut session, of_with).await, "7");
    assert_eq!(
        rows(&mut session, "SELECT * FROM df WHERE id > 1").await,
        ["2,name 2", "30,name 30"]
    );
    // A prepared statement is described anew.
    run(&mut session, "PREPARE p AS SELECT * FROM df WHERE id < $1").await;
    assert_eq!(rows(&mut session, "EXECUTE p (2)").await, ["1,name 1"]);
    session.set_outside_tables(offered(&[0]));
    assert_eq!(rows(&mut session, "EXECUTE p (2)").await, ["0,name 0"]);
    // Neither its plan nor its result is used again.
    let cached = || {
        let activity = database.activity();
        (activity.count(Act::CachedPlan), activity.count(Act::ReusedResult))
    };
    run(&mut session, "SET result_reuse = on").await;
    let before = cached();
    for count in 1..5_i32 {
        session.set_outside_tables(offered(&(0..count).collect::<Vec<_>>()));
        let counted = "SELECT count(*), max(df.id) FROM df LEFT JOIN t ON t.id = df.id";
        assert_eq!(row(&mut session, counted).await, format!("{count},{}", count - 1));
    }
    // Nor those of a view of the program's, whose plan comes in the place of its name.
    for id in 1..5_i32 {
        session.set_outside_tables(Some(Arc::new(Constant(id))));
        let joined = "SELECT max(t.id), max(df.id) FROM t JOIN df ON t.id >= df.id";
        assert_eq!(row(&mut session, joined).await, format!("20000,{id}"));
    }
    assert_eq!(cached(), before);
    // Other sessions have none, nor has this one once they are taken back.
    let unknown = "relation \"df\" does not exist";
    let mut other = database.session();
    assert!(refused(&mut other, "SELECT * FROM df").await.to_string().contains(unknown));
    session.set_outside_tables(None);
    assert!(refused(&mut session, "SELECT * FROM df").await.to_string().contains(unknown));
}

#[tokio::test]
async fn statements_take_rows_over_and_nothing_in_the_catalog_refers_to_it() {
    let (_directory, _database, mut session) = with_frame().await;
    run(&mut session, "CREATE TABLE taken AS SELECT * FROM df").await;
    run(&mut session, "INSERT INTO taken SELECT id + 1, upper(name) FROM df").await;
    run(&mut session, "UPDATE t SET n = -1 FROM df WHERE t.id = df.id").await;
    run(&mut session, "DELETE FROM t USING df WHERE t.id = df.id AND df.name = 'name 30'").await;
    session.set_outside_tables(None);
    assert_eq!(row(&mut session, "SELECT count(*), max(id) FROM taken").await, "6,31");
    assert_eq!(answer(&mut session, "SELECT id FROM t WHERE n = -1").await, ["1", "2"]);
    session.set_outside_tables(offered(&[1]));
    for view in ["VIEW", "MATERIALIZED VIEW"] {
        let error = refused(&mut session, &format!("CREATE {view} v AS SELECT * FROM df")).await;
        assert_eq!(error.sqlstate(), "0A000");
        assert!(error.to_string().contains("a view of \"df\""), "{error}");
    }
    // A view names what it was made of.
    run(&mut session, "CREATE VIEW w AS SELECT count(*) AS n FROM taken").await;
    assert_eq!(row(&mut session, "SELECT n FROM w, df").await, "6");
}
