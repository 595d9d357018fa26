//! Fragments: the plans that a device runs, as bytes.
//!
//! Seeds are the fragments of real statements. A decoded plan must be printable.

use std::sync::{Arc, OnceLock};

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use cleave_device::{Runtime, RuntimeOptions};
use cleave_fragment::expressions::key_filter::KeyFilterExpr;
use cleave_fragment::expressions::key_set::compact_keys;
use cleave_fragment::link::DeviceService;
use cleave_fragment::operators::table_scan_exec::{References, TableScan};
use cleave_fragment::{
    MergeRunsExec, TableScanExec, WriteRunExec, decode_fragment, encode_fragment,
    unread_task_context,
};
use cleave_host::{Database, Error, OpenOptions, Outcome};
use cleave_media::{Memory, random_bytes};
use cleave_store::{BloomFilter, ColumnRef, Projection, SegmentId, SegmentRef};
use datafusion_common::cast::as_string_array;
use datafusion_common::{DataFusionError, ScalarValue};
use datafusion_execution::TaskContext;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::{Column, in_list, is_null, lit};
use datafusion_physical_plan::{ExecutionPlan, displayable};

use super::Target;
use crate::mutate::Shape;

/// Fragments.
pub const TARGET: Target = Target { name: "fragments", shape: Shape::BareMessage, seeds, run };

/// Decodes one input.
fn run(input: &[u8]) {
    let Some(task) = task() else { return };
    let Ok(plan) = decode_fragment(input, task) else { return };
    let shown = displayable(plan.as_ref()).indent(true).to_string();
    assert!(!shown.is_empty(), "a plan without operators");
}

fn task() -> Option<&'static TaskContext> {
    static TASK: OnceLock<Option<Arc<TaskContext>>> = OnceLock::new();
    TASK.get_or_init(|| unread_task_context().ok()).as_deref()
}

const TABLES: &str = "
    CREATE TABLE title (id integer PRIMARY KEY, title text NOT NULL, year integer, note varchar(40),
        price numeric(12, 2), rating double precision, seen date, at timestamp, tagged bytea, done boolean);
    CREATE TABLE keyword (id integer PRIMARY KEY, movie_id integer NOT NULL, word text, weight real);
    INSERT INTO title VALUES (1, 'one', 1999, NULL, 2.50, 7.5, '2001-02-03', '2001-02-03 04:05:06', NULL, true),
        (2, 'two', NULL, 'x', 3, NULL, NULL, NULL, '\\x00ff', NULL);
    INSERT INTO keyword VALUES (1, 1, 'murder', 0.5), (2, 2, NULL, NULL);";

/// Statements with many kinds of leaves, filters, projections, aggregates and orders.
const QUERIES: [&str; 22] = [
    "SELECT * FROM title",
    "SELECT title FROM title WHERE year BETWEEN 1990 AND 2000 AND title LIKE '%one%'",
    "SELECT id FROM title WHERE note IS NULL OR note NOT IN ('a', 'b', 'c')",
    "SELECT id FROM title WHERE price * 2 > 4.5 AND rating / 3 < 2.5",
    "SELECT count(*), sum(year), min(title), max(price), avg(rating) FROM title",
    "SELECT year, count(*), count(note) FROM title GROUP BY year",
    "SELECT year, count(DISTINCT note) FROM title GROUP BY year",
    "SELECT substr(title, 1, 3), upper(note) FROM title WHERE length(title) > 2",
    "SELECT id, title FROM title ORDER BY rating DESC NULLS LAST, id LIMIT 3",
    "SELECT id FROM title LIMIT 1 OFFSET 1",
    "SELECT extract(year FROM seen), count(*) FROM title GROUP BY 1",
    "SELECT id FROM title WHERE at > '2000-01-01' AND seen < date '2020-01-01' - interval '3 days'",
    "SELECT CASE WHEN done THEN 'yes' ELSE coalesce(note, 'no') END FROM title",
    "SELECT id FROM title WHERE tagged = '\\x00ff' OR cast(year AS text) ~ '^19'",
    "SELECT t.id FROM title t, keyword k WHERE t.id = k.movie_id AND k.word = 'murder'",
    "SELECT t.year, count(*) FROM title t JOIN keyword k ON t.id = k.movie_id GROUP BY t.year",
    "SELECT id FROM title WHERE id IN (SELECT movie_id FROM keyword WHERE weight > 0.1)",
    "SELECT t.id, k.word FROM title t LEFT JOIN keyword k ON t.id = k.movie_id AND length(k.word) < t.year",
    "SELECT count(*) FROM title t JOIN keyword k ON t.rating > k.weight",
    "SELECT t.id FROM title t, keyword k WHERE NOT EXISTS (SELECT 1 FROM keyword o WHERE o.movie_id = t.id)",
    // The build side is not a table: it is broadcast.
    "SELECT t.id, v.word FROM title t JOIN (VALUES (1, 'a'), (2, 'b')) AS v (id, word) ON t.id = v.id",
    "SELECT id FROM title WHERE year IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19)",
];

fn seeds() -> Vec<Vec<u8>> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_stack_size(32 << 20)
        .enable_all()
        .build();
    let Ok(runtime) = runtime else { return Vec::new() };
    match runtime.block_on(fragments()) {
        Ok(fragments) => fragments,
        Err(error) => panic!("no fragments to begin with: {error}"),
    }
}

/// The fragments of all queries, from a database of its own over media in memory.
async fn fragments() -> Result<Vec<Vec<u8>>, Error> {
    let name: [u8; 8] = random_bytes().map_err(|error| {
        Error::io("draw", std::path::Path::new("a name"), std::io::Error::other(error))
    })?;
    let name = format!("cleave-fuzz-{:016x}", u64::from_le_bytes(name));
    let directory = std::env::temp_dir().join(name);
    let found = fragments_in(&directory).await;
    drop(std::fs::remove_dir_all(&directory));
    found
}

async fn fragments_in(directory: &std::path::Path) -> Result<Vec<Vec<u8>>, Error> {
    let options = OpenOptions::new(Arc::new(|path| {
        let options = RuntimeOptions { cores: 1, io_threads: 1, ..RuntimeOptions::new([7; 16]) };
        let runtime = Runtime::new(Arc::new(Memory::new()), options)
            .map_err(|error| Error::io("start", path, std::io::Error::other(error)))?;
        Ok(runtime as Arc<dyn DeviceService>)
    }));
    let database = Database::open(directory, options.create(true)).await?;
    let mut session = database.session();
    session.run(TABLES).await?;
    let mut fragments = Vec::new();
    session.set("late_materialisation", "always")?;
    for split in ["ndp", "h0", "h1"] {
        session.set("split", split)?;
        for query in QUERIES {
            // Some of them cannot run on a device as a whole.
            let outcomes = session.run(&format!("EXPLAIN (FORMAT FRAGMENT) {query}")).await;
            for outcome in outcomes.unwrap_or_default() {
                let Outcome::Rows { batches, .. } = outcome else { continue };
                for batch in batches {
                    let lines = as_string_array(batch.column(0))?;
                    fragments.extend(lines.iter().flatten().map(bytes_of));
                }
            }
        }
    }
    let id: Arc<dyn PhysicalExpr> = Arc::new(Column::new("id", 0));
    let keys = (0..40).map(|key: i32| lit(key * key)).collect();
    let wanted = in_list(Arc::clone(&id), keys, &false, &id_column())?;
    fragments.push(scan_for(compact_keys(wanted)?)?);
    let likely = KeyFilterExpr::new(vec![id], BloomFilter::of(&[1, 1 << 40]));
    fragments.push(scan_for(Arc::new(likely))?);
    fragments.push(merge_of_runs()?);
    let items = ["one", "a text that is too long to be in its view"].map(ScalarValue::from);
    let texts = ScalarValue::new_list_nullable(&items, &DataType::Utf8);
    fragments.push(scan_for(is_null(lit(ScalarValue::List(texts)))?)?);
    fragments.sort();
    fragments.dedup();
    Ok(fragments)
}

fn id_column() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("id", DataType::Int32, true)]))
}

/// A scan with the filter that a join's build side hands down.
fn scan_for(wanted: Arc<dyn PhysicalExpr>) -> Result<Vec<u8>, DataFusionError> {
    let columns = Projection::new(id_column(), vec![ColumnRef::User(1)]);
    let scan = TableScan {
        table: "title".into(),
        table_id: 1,
        output: columns.clone(),
        filter: columns,
        predicate: Some(wanted),
        input: 0,
        fetch: None,
        references: References::None,
    };
    let plan: Arc<dyn ExecutionPlan> = Arc::new(TableScanExec::new(scan, 1));
    encode_fragment(&plan)
}

/// A merge of index runs that writes the result where it runs.
fn merge_of_runs() -> Result<Vec<u8>, DataFusionError> {
    let segment = SegmentRef { table_id: 1, segment: SegmentId(7), schema_version: 1, commit: 5 };
    let entries = Arc::new(MergeRunsExec::new(0, 1));
    let plan: Arc<dyn ExecutionPlan> = Arc::new(WriteRunExec::new(entries, segment, true)?);
    encode_fragment(&plan)
}

/// Decodes hexadecimal digits.
fn bytes_of(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks_exact(2);
    let pairs = pairs.filter_map(|pair| str::from_utf8(pair).ok());
    pairs.filter_map(|pair| u8::from_str_radix(pair, 16).ok()).collect()
}
