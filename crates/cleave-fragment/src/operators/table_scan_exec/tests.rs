//! A scan with the keys of joins above it emits the rows of a filter above the scan, however pages store the column and
//! however the join gives its keys.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int64Array, RecordBatch};
use arrow::compute::{cast, concat_batches, filter_record_batch};
use arrow::datatypes::DataType;
use cleave_media::{BlockAddress, Media, Memory};
use cleave_store::{
    Column as TableColumn, ColumnType, Encoding, MediaPages, PageClass, PageSource, SegmentId,
    SegmentRef, SegmentWriter, Snapshot, TableSchema, parse_header,
};
use datafusion_common::ScalarValue;
use datafusion_common::cast::as_boolean_array;
use datafusion_common::hash_utils::create_hashes;
use datafusion_execution::runtime_env::RuntimeEnv;
use datafusion_expr::Operator;
use datafusion_physical_expr::expressions::{
    BinaryExpr, Column, DynamicFilterPhysicalExpr, InListExpr, lit,
};
use datafusion_physical_expr::projection::ProjectionExpr;
use datafusion_physical_plan::joins::join_hash_map::{JoinHashMapType, JoinHashMapU32};
use datafusion_physical_plan::joins::{HashTableLookupExpr, Map, SeededRandomState};
use datafusion_physical_plan::projection::ProjectionExec;
use datafusion_physical_plan::{ExecutionPlan, common};
use futures::executor::block_on;
use proptest::prelude::{any, prop, prop_assert_eq, proptest};

use super::*;
use crate::codec::{decode_fragment, encode_fragment};
use crate::filter_history::HistoryUse;
use crate::fragment::fragment_task_context;
use crate::fragment::unread_task_context;
use crate::morsel::{Morsel, MorselList, MorselPage};
use crate::operators::fetch_columns_exec::{FetchColumnsExec, FetchedColumns};
use crate::row_places::RowPlaces;

const SEGMENT: SegmentRef =
    SegmentRef { table_id: 1, segment: SegmentId(1), schema_version: 1, commit: 1 };
const TYPES: [ColumnType; 4] =
    [ColumnType::SmallInt, ColumnType::Int, ColumnType::BigInt, ColumnType::Date];

/// Sequences of column values, chosen for the encodings that pages use for them.
const SHAPES: [fn(i64, i64) -> i64; 8] = [
    |row, random| random.rem_euclid(1000) - 500 + row % 2,
    |_, random| random,
    |row, random| row * 9 + random.rem_euclid(3) - 5000,
    |row, _| (row / 90).wrapping_mul(0x0123_4567_89ab_cdef),
    |_, random| random.rem_euclid(5).wrapping_mul(0x0123_4567_89ab_cdef),
    |_, _| -7,
    |row, _| row + 40,
    |row, _| [i64::MIN, i64::MAX, 0, -1][usize::try_from(row % 4).unwrap()],
];

struct Stored {
    schema: TableSchema,
    batch: RecordBatch,
    media: Arc<Memory>,
    morsels: Vec<Morsel>,
    encodings: Vec<Encoding>,
}

/// A column of this shape, every so many of its rows NULL; 0: none.
fn shaped(shape: usize, random: &[i64], null_odds: usize) -> Vec<Option<i64>> {
    let rows = (0..).zip(random).enumerate();
    let value = |(at, (row, random)): (usize, (i64, &i64))| {
        (null_odds == 0 || at % null_odds > 0).then(|| SHAPES[shape](row, *random))
    };
    rows.map(value).collect()
}

/// `wide` truncated to the bits of the column type.
fn values(column_type: &ColumnType, wide: &[Option<i64>]) -> ArrayRef {
    let bits = match column_type {
        ColumnType::SmallInt => 48,
        ColumnType::BigInt => 0,
        _ => 32,
    };
    // The low bits, sign-extended.
    let narrow = wide.iter().map(|value| value.map(|value| value << bits >> bits));
    let array: ArrayRef = Arc::new(narrow.collect::<Int64Array>());
    typed(&array, column_type)
}

fn typed(array: &ArrayRef, column_type: &ColumnType) -> ArrayRef {
    match column_type {
        ColumnType::SmallInt => cast(array, &DataType::Int16).unwrap(),
        ColumnType::BigInt => Arc::clone(array),
        ColumnType::Int => cast(array, &DataType::Int32).unwrap(),
        _ => cast(&cast(array, &DataType::Int32).unwrap(), &DataType::Date32).unwrap(),
    }
}

/// A table with a column `k` of a given type and a column `n` that counts the rows by sevens, on pages of at most 700
/// rows.
fn stored(column_type: &ColumnType, wide: &[Option<i64>], class: PageClass) -> Stored {
    let types = [*column_type, ColumnType::Int];
    let columns = (1..).zip(["k", "n"]).zip(types).map(|((id, name), column_type)| TableColumn {
        id,
        name: name.into(),
        column_type,
        not_null: false,
        default: None,
        absent: None,
    });
    let schema = TableSchema {
        table_id: 1,
        version: 1,
        name: "t".into(),
        columns: columns.collect(),
        primary_key: Vec::new(),
    };
    let counts: Vec<Option<i64>> = (0..wide.len() as i64).map(|row| Some(row % 7)).collect();
    let arrays = vec![values(column_type, wide), values(&ColumnType::Int, &counts)];
    let batch = RecordBatch::try_new(schema.arrow(), arrays).unwrap();
    let (media, mut morsels, mut encodings) = (Arc::new(Memory::new()), Vec::new(), Vec::new());
    for from in (0..batch.num_rows()).step_by(700) {
        let rows = batch.slice(from, 700.min(batch.num_rows() - from));
        let mut writer = SegmentWriter::new(SEGMENT, &schema, class, 0, from as u64).unwrap();
        writer.push(&rows).unwrap();
        for page in writer.finish().unwrap() {
            let start = BlockAddress(media.block_count());
            media.grow_to(start.0 + u64::from(page.block_count())).unwrap();
            media.write(start, &page.bytes).unwrap();
            let place = page.page_ref(start);
            let bytes = page.bytes.into_bytes();
            let header = parse_header(&bytes, &place, &SEGMENT).unwrap();
            encodings.push(header.entry(ColumnRef::User(1)).unwrap().encoding);
            let page = MorselPage {
                page: place,
                vid_first: from as u64,
                gaps: Default::default(),
                overflow: Vec::new(),
                dead: Default::default(),
            };
            let number = u32::try_from(morsels.len()).unwrap();
            morsels.push(Morsel { number, segment: SEGMENT, pages: vec![page] });
        }
    }
    Stored { schema, batch, media, morsels, encodings }
}

/// The form in which a join hands its keys down.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Handed {
    List,
    /// Too long for a list.
    HashTable,
    Bounds,
}

fn column(name: &str, index: usize) -> Arc<dyn PhysicalExpr> {
    Arc::new(Column::new(name, index))
}

fn both(
    left: Arc<dyn PhysicalExpr>,
    operator: Operator,
    right: Arc<dyn PhysicalExpr>,
) -> Arc<dyn PhysicalExpr> {
    Arc::new(BinaryExpr::new(left, operator, right))
}

/// The filter of a join whose build side has `keys`, over column `index`.
fn learnt(
    of: &RecordBatch,
    index: usize,
    keys: &ArrayRef,
    handed: Handed,
) -> Arc<dyn PhysicalExpr> {
    let schema = of.schema();
    let operand = column(schema.field(index).name(), index);
    let mut each: Vec<ScalarValue> = (0..keys.len())
        .map(|row| ScalarValue::try_from_array(keys, row).unwrap())
        .filter(|key| !key.is_null())
        .collect();
    each.sort_by(|left, right| left.partial_cmp(right).unwrap());
    let (Some(first), Some(last)) = (each.first(), each.last()) else { return lit(false) };
    let bounds = both(
        both(Arc::clone(&operand), Operator::GtEq, lit(first.clone())),
        Operator::And,
        both(Arc::clone(&operand), Operator::LtEq, lit(last.clone())),
    );
    let keys: Arc<dyn PhysicalExpr> = match handed {
        Handed::Bounds => return bounds,
        Handed::List => {
            let keys = Arc::clone(keys);
            Arc::new(InListExpr::try_new_from_array(operand, keys, false, &schema).unwrap())
        }
        Handed::HashTable => {
            let state = SeededRandomState::with_seed(7);
            let keys = ScalarValue::iter_to_array(each).unwrap();
            let mut hashes = vec![0; keys.len()];
            create_hashes([&keys], state.random_state(), &mut hashes).unwrap();
            let mut map = JoinHashMapU32::with_capacity(keys.len());
            map.update_from_iter(Box::new(hashes.iter().enumerate()), 0);
            let map = Arc::new(Map::HashMap(Box::new(map)));
            Arc::new(HashTableLookupExpr::new(vec![operand], state, map, "keys".into()))
        }
    };
    both(bounds, Operator::And, keys)
}

fn scan(table: &Stored, predicate: Option<Arc<dyn PhysicalExpr>>) -> TableScan {
    let all = Projection::of_table(&table.schema, &[0, 1]);
    TableScan {
        table: "t".into(),
        table_id: 1,
        output: all.clone(),
        filter: all,
        predicate,
        input: 3,
        fetch: None,
        references: References::None,
    }
}

fn rows(table: &Stored, plan: &dyn ExecutionPlan) -> RecordBatch {
    try_rows(table, plan).unwrap()
}

fn try_rows(table: &Stored, plan: &dyn ExecutionPlan) -> Result<RecordBatch> {
    rows_of(table, plan, Snapshot { commit: 1 })
}

fn rows_of(table: &Stored, plan: &dyn ExecutionPlan, snapshot: Snapshot) -> Result<RecordBatch> {
    let pages = Arc::new(MediaPages::new(Arc::clone(&table.media) as Arc<dyn Media>));
    rows_from(pages, table, plan, snapshot)
}

fn rows_from(
    pages: Arc<dyn PageSource>,
    table: &Stored,
    plan: &dyn ExecutionPlan,
    snapshot: Snapshot,
) -> Result<RecordBatch> {
    rows_with_history(pages, table, plan, snapshot, None)
}

fn rows_with_history(
    pages: Arc<dyn PageSource>,
    table: &Stored,
    plan: &dyn ExecutionPlan,
    snapshot: Snapshot,
    history: Option<HistoryUse>,
) -> Result<RecordBatch> {
    let context = context_over(pages, table, snapshot, history);
    let task = fragment_task_context(Arc::new(context), Arc::new(RuntimeEnv::default()), &[]);
    let stream = plan.execute(0, task?)?;
    let batches = block_on(common::collect(stream))?;
    Ok(concat_batches(&table.batch.schema(), &batches)?)
}

fn context_over(
    pages: Arc<dyn PageSource>,
    table: &Stored,
    snapshot: Snapshot,
    history: Option<HistoryUse>,
) -> FragmentContext {
    FragmentContext {
        pages,
        snapshot,
        inputs: BTreeMap::from([(3, MorselList::new(table.morsels.clone()) as _)]),
        index_filters: BTreeMap::new(),
        indexes: BTreeMap::new(),
        peer_rows: Default::default(),
        broadcasts: BTreeMap::new(),
        sink: None,
        spill: None,
        tasks: None,
        locks: None,
        places: RowPlaces::default(),
        read_ahead: 1,
        history,
        counters: Arc::default(),
    }
}

/// The rows of `batch` for which all of `filters` are true.
fn filtered(batch: &RecordBatch, filters: &[Arc<dyn PhysicalExpr>]) -> RecordBatch {
    filters.iter().fold(batch.clone(), |batch, filter| {
        let answers = filter.evaluate(&batch).unwrap().into_array(batch.num_rows()).unwrap();
        filter_record_batch(&batch, as_boolean_array(&answers).unwrap()).unwrap()
    })
}

/// A scan that receives `filters`, one by one, before its first row.
fn scan_below(
    table: &Stored,
    predicate: Option<Arc<dyn PhysicalExpr>>,
    filters: &[Arc<dyn PhysicalExpr>],
) -> TableScanExec {
    below(scan(table, predicate), filters)
}

/// A scan that reads `k` for its output alone, with a predicate over `n`.
fn own_alone(table: &Stored, predicate: Option<Arc<dyn PhysicalExpr>>) -> TableScan {
    TableScan { filter: Projection::of_table(&table.schema, &[1]), ..scan(table, predicate) }
}

fn below(scan: TableScan, filters: &[Arc<dyn PhysicalExpr>]) -> TableScanExec {
    let in_flight = filters.iter().map(|filter| {
        let columns = vec![column("k", 0), column("n", 1)];
        let dynamic = DynamicFilterPhysicalExpr::new(columns, lit(true));
        dynamic.update(Arc::clone(filter)).unwrap();
        Arc::new(dynamic) as Arc<dyn PhysicalExpr>
    });
    TableScanExec::new(scan, 1).with_dynamic_filters(in_flight.collect())
}

/// Fetches the column `k` of the rows whose `n` and references are in `rows`.
fn fetching(
    table: &Stored,
    rows: Arc<dyn ExecutionPlan>,
    places: Vec<usize>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let fetched = FetchedColumns {
        table: "t".into(),
        input: 3,
        columns: Projection::of_table(&table.schema, &[0]),
        reference: 1,
        schema: table.batch.schema(),
        places,
    };
    Ok(Arc::new(FetchColumnsExec::new(rows, fetched)?))
}

#[test]
fn columns_of_rows_that_are_referred_to_are_fetched_here_and_after_crossing() {
    let wide: Vec<Option<i64>> = (0..2000).map(|row| (row % 9 != 0).then_some(row * 3)).collect();
    for class in [PageClass::BULK, PageClass::HOT] {
        let table = stored(&ColumnType::BigInt, &wide, class);
        let predicate = both(column("n", 1), Operator::Lt, lit(3));
        let whole = TableScanExec::new(scan(&table, Some(predicate)), 1);
        let expected = rows(&table, &whole);
        assert!(expected.num_rows() > 800);
        let referring: Arc<dyn ExecutionPlan> = Arc::new(whole.referring(&[1]));
        assert_eq!(referring.schema().fields().len(), 2);
        let plan = fetching(&table, Arc::clone(&referring), vec![2, 0]).unwrap();
        assert_eq!(rows(&table, plan.as_ref()), expected);
        let bytes = encode_fragment(&plan).unwrap();
        let back = decode_fragment(&bytes, &unread_task_context().unwrap()).unwrap();
        assert_eq!(rows(&table, back.as_ref()), expected);
        // A page that was not entered, and a row that is on no page, are refused.
        for foreign in [1_u64 << 40, 699 + (2 << 32), u64::MAX] {
            let row = |name: &str, expr| ProjectionExpr { expr, alias: name.to_owned() };
            let forged = vec![row("n", column("n", 0)), row("row", lit(foreign))];
            let forged = ProjectionExec::try_new(forged, Arc::clone(&referring)).unwrap();
            let plan = fetching(&table, Arc::new(forged), vec![2, 0]).unwrap();
            let error = try_rows(&table, plan.as_ref()).unwrap_err().to_string();
            assert!(error.contains("a row is referred to "), "{error}");
        }
        assert!(fetching(&table, Arc::clone(&referring), vec![0, 2]).is_err(), "other types");
        assert!(fetching(&table, Arc::clone(&referring), vec![7, 0]).is_err(), "no such column");
        assert!(fetching(&table, Arc::new(whole), vec![2, 0]).is_err(), "no references");
    }
}

#[test]
fn shapes_are_stored_in_every_encoding() {
    let mut random = 1_i64;
    let mut seen = Vec::new();
    for shape in SHAPES {
        let wide: Vec<Option<i64>> = (0..700)
            .map(|row| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                Some(shape(row, random >> 8 ^ random << 20))
            })
            .collect();
        seen.extend(stored(&ColumnType::BigInt, &wide, PageClass::BULK).encodings);
    }
    for encoding in [
        Encoding::Integers,
        Encoding::Dictionary,
        Encoding::Plain,
        Encoding::Constant,
        Encoding::Sequence,
    ] {
        assert!(seen.contains(&encoding), "no page is {encoding:?}: {seen:?}");
    }
}

proptest! {
    #[test]
    fn a_scan_with_keys_equals_a_filter_above_it(
        type_index in 0..TYPES.len(),
        shape in 0..SHAPES.len(),
        random in prop::collection::vec(any::<i64>(), 1..2200),
        null_odds in prop::sample::select(vec![0_usize, 2, 40]),
        bulk in any::<bool>(),
        key_odds in 1_i64..6,
        other_keys in prop::collection::vec(any::<i64>(), 17..40),
        handed in prop::sample::select(vec![Handed::List, Handed::HashTable, Handed::Bounds]),
        second in prop::collection::vec(0..9_i64, 0..20),
        own in any::<bool>(),
        own_first in any::<bool>(),
    ) {
        let wide = shaped(shape, &random, null_odds);
        let class =
            if bulk { PageClass::BULK } else { PageClass { chunk_alignment: 64, ..PageClass::BULK } };
        let column_type = &TYPES[type_index];
        let table = stored(column_type, &wide, class);
        // Some of the distinct values, values beside them, and others.
        let is_key = |value: i64| (value.wrapping_mul(0x5851_f42d_4c95_7f2d) >> 40) % key_odds == 0;
        let keys: Vec<Option<i64>> = wide
            .iter()
            .filter(|value| value.is_none_or(is_key))
            .copied()
            .chain(other_keys.iter().map(|key| Some(key % 1200)))
            .chain(other_keys.iter().take(3).map(|key| Some(*key)))
            .chain([wide[0].map(|value| value.wrapping_add(1))])
            .collect();
        let keys = values(column_type, &keys);
        let mut filters = vec![learnt(&table.batch, 0, &keys, handed)];
        if !second.is_empty() {
            let second: Vec<Option<i64>> = second.iter().map(|key| Some(*key)).collect();
            let second = values(&ColumnType::Int, &second);
            filters.push(learnt(&table.batch, 1, &second, Handed::List));
        }
        let predicate = own.then(|| both(column("n", 1), Operator::NotEq, lit(3)));
        let scan = if own_first {
            let own = own.then(|| both(column("n", 0), Operator::NotEq, lit(3)));
            below(own_alone(&table, own), &filters)
        } else {
            scan_below(&table, predicate.clone(), &filters)
        };
        filters.extend(predicate);
        prop_assert_eq!(rows(&table, &scan), filtered(&table.batch, &filters));
    }
}

#[test]
fn keys_of_a_hash_table_are_tabulated_after_some_rows() {
    let wide: Vec<Option<i64>> = (0..7000).map(|row| Some(row * 7919 % 2003)).collect();
    let table = stored(&ColumnType::Int, &wide, PageClass::BULK);
    let keys: Vec<Option<i64>> = (0..500).map(|key| Some(key * 4)).collect();
    let filter = learnt(&table.batch, 0, &values(&ColumnType::Int, &keys), Handed::HashTable);
    let scan = scan_below(&table, None, &[Arc::clone(&filter)]);
    let of = &scan.scan.output;
    let conditions = scan.filters_above.conditions(of).unwrap();
    let tabulated = || conditions.list().iter().filter(|one| one.is_tabulated()).count();
    assert_eq!(tabulated(), 0);
    assert_eq!(rows(&table, &scan), filtered(&table.batch, &[filter]));
    assert_eq!(tabulated(), 1);
}

#[test]
fn a_filter_is_taken_apart_once_a_generation() {
    let wide: Vec<Option<i64>> = (0..50).map(Some).collect();
    let table = stored(&ColumnType::Int, &wide, PageClass::BULK);
    let dynamic = Arc::new(DynamicFilterPhysicalExpr::new(vec![column("k", 0)], lit(true)));
    let filters = vec![Arc::clone(&dynamic) as Arc<dyn PhysicalExpr>];
    let scan = TableScanExec::new(scan(&table, None), 2).with_dynamic_filters(filters);
    // DataFusion makes nodes from one another; they share the conditions.
    let copy = scan.clone();
    let now = |scan: &TableScanExec| scan.filters_above.conditions(&scan.scan.output).unwrap();
    assert!(now(&scan).list().is_empty());
    let keys: Vec<Option<i64>> = (0..40).map(|key| Some(key * 3)).chain([None]).collect();
    let keys = values(&ColumnType::Int, &keys);
    dynamic.update(learnt(&table.batch, 0, &keys, Handed::List)).unwrap();
    let known = now(&scan);
    // Bounds add nothing to the keys.
    assert_eq!(known.list().len(), 1);
    assert!(Arc::ptr_eq(&known, &now(&copy)));
    dynamic.update(lit(false)).unwrap();
    assert!(!Arc::ptr_eq(&known, &now(&copy)));
    assert_eq!(rows(&table, &copy).num_rows(), 0);
}

mod dead;
mod early_keys;
mod history;
mod shared;
