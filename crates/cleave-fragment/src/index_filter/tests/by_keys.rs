//! Index filters by the keys that a scan's filters list: the rows of the filter alone, read only from pages that may
//! have them.

use arrow::array::{ArrayRef, Int64Array, StringArray};
use cleave_store::{IndexKey, KeyColumn};
use datafusion_common::ScalarValue;
use datafusion_expr::Operator;
use datafusion_physical_expr::expressions::{
    BinaryExpr, Column, DynamicFilterPhysicalExpr, InListExpr, lit,
};

use super::*;
use crate::expressions::key_set::compact_keys;
use crate::index_input::FENCE_BYTES_MAX;
use crate::morsel::Morsel;
use crate::operators::table_scan_exec::TableScanExec;

/// An index on media over the values `columns`, whose row of slot `s` has VID `s`, with its fences.
fn index(columns: &[ArrayRef], key: &IndexKey) -> (Arc<Memory>, IndexPages) {
    let segment = SegmentRef { table_id: 1, segment: SegmentId(9), schema_version: 1, commit: 1 };
    let entries = key.entries(columns, 0..).unwrap();
    let mut entries: Vec<(&[u8], u64)> = entries.iter().flatten().zip(0..).collect();
    entries.sort_unstable();
    let mut writer = RunWriter::new(segment, 0, false).unwrap();
    let mut encoded = Vec::new();
    for (entry, vid) in &entries {
        encoded.extend(writer.push(entry, *vid).unwrap());
    }
    encoded.extend(writer.finish().unwrap().pages);
    let cut = |entry: &[u8]| entry[..entry.len().min(FENCE_BYTES_MAX)].to_vec();
    let (media, mut pages, mut fences, mut next) =
        (Arc::new(Memory::new()), Vec::new(), Vec::new(), 0);
    for page in encoded {
        let start = media.block_count();
        media.grow_to(start + u64::from(page.block_count())).unwrap();
        media.write(BlockAddress(start), &page.bytes).unwrap();
        pages.push(page.page_ref(BlockAddress(start)));
        fences.push(cut(entries[next].0));
        next += page.row_count as usize;
    }
    fences.push(cut(entries[next - 1].0));
    (media, IndexPages { segment, pages, fences })
}

fn column(name: &str, index: usize) -> Arc<dyn PhysicalExpr> {
    Arc::new(Column::new(name, index))
}

fn is_in(column: Arc<dyn PhysicalExpr>, values: ArrayRef) -> Arc<dyn PhysicalExpr> {
    let schema = scan(None).filter.schema;
    Arc::new(InListExpr::try_new_from_array(column, values, false, &schema).unwrap())
}

fn keys(column: u32, thrift: Thrift) -> ScanKeys {
    ScanKeys {
        index: "t_k".into(),
        column,
        descending: false,
        nulls_first: false,
        rows_per_key: 1,
        page_count: 77,
        thrift,
    }
}

/// Pages of 1000 rows each of segment 1, from VID 0 on.
fn morsels(page_count: u32) -> Vec<Morsel> {
    let segment = SegmentRef { table_id: 1, segment: SegmentId(1), schema_version: 1, commit: 1 };
    let pages = (0..page_count).map(|number| {
        let mut page = page(u64::from(number) * 1000, 1000);
        page.page.page = number;
        page.page.extent.block_count = 4;
        page
    });
    vec![Morsel { number: 0, segment, pages: pages.collect() }]
}

fn by_keys(keys: ScanKeys, run: IndexPages) -> IndexFilter {
    IndexFilter { keys: Some(keys), parts: vec![part(run)], ..index_filter(Vec::new()) }
}

/// A bigint index of 50,000 rows, five of each value, spread over the rows.
fn spread() -> (Arc<Memory>, IndexPages) {
    let values: ArrayRef = Arc::new(Int64Array::from_iter_values((0..50_000).map(|n| n % 10_000)));
    let key = IndexKey::new(vec![KeyColumn::ascending(DataType::Int64)], false).unwrap();
    index(&[values], &key)
}

/// The hits on all pages that are filtered by an index; None if they are not.
fn found(pass: &IndexFilteredPass, page_count: u32) -> Option<Vec<u64>> {
    let pages = morsels(page_count).remove(0).pages;
    let hits: Option<Vec<&[u64]>> =
        pages.iter().map(|page| pass.hits_on(SegmentId(1), page)).collect();
    Some(hits?.concat())
}

#[test]
fn keys_of_a_filter_find_its_rows_on_few_pages_of_the_index() {
    let (media, run) = spread();
    assert!(run.pages.len() > 8, "{run:?}");
    let input =
        IndexFilteredInput::new(vec![by_keys(keys(1, Thrift::None), run)], &morsels(50)).unwrap();
    let values: ArrayRef = Arc::new(Int64Array::from(vec![Some(17), None, Some(4_000), Some(17)]));
    let scan = scan(Some(is_in(column("k", 0), values)));
    let pass = input.of_pass(0);
    let figures = block_on(resolve(&pass, &scan, &MediaPages::new(media), &unbounded())).unwrap();
    let mut expected: Vec<u64> =
        (0..5).flat_map(|n| [n * 10_000 + 17, n * 10_000 + 4_000]).collect();
    expected.sort_unstable();
    assert_eq!(found(&pass, 50), Some(expected));
    let [figures] = figures.as_slice() else { panic!("{figures:?}") };
    assert_eq!((figures.used, figures.keys, figures.entries), (1, 2, 10));
    assert!(figures.pages_read <= 3 && figures.pages == 77, "{figures:?}");
    assert!(input.is_in_force());
}

#[test]
fn each_pass_asks_the_filters_that_it_has() {
    let (media, run) = spread();
    let source = MediaPages::new(media);
    let input =
        IndexFilteredInput::new(vec![by_keys(keys(1, Thrift::None), run)], &morsels(50)).unwrap();
    let dynamic = Arc::new(DynamicFilterPhysicalExpr::new(vec![column("k", 0)], lit(true)));
    let scan = scan(Some(Arc::clone(&dynamic) as Arc<dyn PhysicalExpr>));
    let of_pass = |number| {
        let pass = input.of_pass(number);
        block_on(resolve(&pass, &scan, &source, &unbounded())).unwrap();
        found(&pass, 50).map(|hits| hits.len())
    };
    // A join that has not read its build side has no keys.
    assert_eq!(of_pass(0), None);
    assert!(!input.is_in_force());
    let list: Vec<i64> = (0..20).collect();
    dynamic.update(is_in(column("k", 0), Arc::new(Int64Array::from(list)))).unwrap();
    assert_eq!(of_pass(1), Some(100));
    dynamic.update(lit(false)).unwrap();
    assert_eq!(of_pass(2), Some(0));
}

#[test]
fn rows_that_the_index_lacks_are_looked_at() {
    let (media, run) = spread();
    let mut index_filter = by_keys(keys(1, Thrift::None), run);
    index_filter.parts[0].hot = vec![SegmentId(1)];
    index_filter.parts[0].vid_covered = 20_500;
    let input = IndexFilteredInput::new(vec![index_filter], &morsels(50)).unwrap();
    let equal: Arc<dyn PhysicalExpr> =
        Arc::new(BinaryExpr::new(lit(3_i64), Operator::Eq, column("k", 0)));
    let pass = input.of_pass(0);
    block_on(resolve(&pass, &scan(Some(equal)), &MediaPages::new(media), &unbounded())).unwrap();
    let pages = morsels(50).remove(0).pages;
    let on = |place: usize| pass.hits_on(SegmentId(1), &pages[place]);
    assert_eq!(on(10), Some(&[10_003][..]));
    assert_eq!(on(19), Some(&[][..]));
    // Row 20,500 is in no run.
    assert_eq!((on(20), on(40)), (None, None));
}

#[test]
fn what_does_not_pay_or_fit_is_gone_without() {
    let (media, run) = spread();
    let source = MediaPages::new(media);
    let many: ArrayRef = Arc::new(Int64Array::from_iter_values((0..3_000).map(|n| n * 3)));
    let few: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let outcome = |thrift, list: &ArrayRef, pool: Arc<dyn MemoryPool>| {
        let index_filter = by_keys(keys(1, thrift), run.clone());
        let pass = IndexFilteredInput::new(vec![index_filter], &morsels(50)).unwrap().of_pass(0);
        let scan = scan(Some(is_in(column("k", 0), Arc::clone(list))));
        let figures = block_on(resolve(&pass, &scan, &source, &pool)).unwrap();
        (found(&pass, 50).map(|hits| hits.len()), figures.len())
    };
    assert_eq!(outcome(Thrift::None, &many, unbounded()), (Some(15_000), 1));
    // Pages of 16 KiB, of which a few hits touch few, and many all.
    assert_eq!(outcome(Thrift::Reads, &few, unbounded()), (Some(10), 1));
    assert_eq!(outcome(Thrift::Reads, &many, unbounded()), (None, 1));
    // More than one key for eight rows are not even weighed.
    let too_many: ArrayRef = Arc::new(Int64Array::from_iter_values(0..6_251));
    assert_eq!(outcome(Thrift::Work, &too_many, unbounded()), (None, 0));
    let small: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(50_000));
    assert_eq!(outcome(Thrift::None, &few, Arc::clone(&small)), (None, 1));
    assert_eq!(small.reserved(), 0);
}

#[test]
fn a_key_of_many_rows_is_known_by_the_fences_alone() {
    let values: ArrayRef = Arc::new(Int64Array::from_iter_values((0..50_000).map(|n| n / 40_000)));
    let key = IndexKey::new(vec![KeyColumn::ascending(DataType::Int64)], false).unwrap();
    let (media, run) = index(&[values], &key);
    let source = MediaPages::new(media);
    for (thrift, reads) in [(Thrift::Reads, false), (Thrift::None, true)] {
        let index_filter = by_keys(keys(1, thrift), run.clone());
        let pass = IndexFilteredInput::new(vec![index_filter], &morsels(50)).unwrap().of_pass(0);
        let equal: Arc<dyn PhysicalExpr> =
            Arc::new(BinaryExpr::new(column("k", 0), Operator::Eq, lit(0_i64)));
        let figures = block_on(resolve(&pass, &scan(Some(equal)), &source, &unbounded())).unwrap();
        assert!(figures.len() == 1 && (figures[0].pages_read > 0) == reads, "{figures:?}");
        assert_eq!(found(&pass, 50).map(|hits| hits.len()), reads.then_some(40_000));
    }
}

#[test]
fn what_is_sent_has_only_the_pages_that_may_have_the_keys() {
    let (media, run) = spread();
    let source = MediaPages::new(media);
    let sent = |thrift, filter: Option<Arc<dyn PhysicalExpr>>, above: &[Arc<dyn PhysicalExpr>]| {
        let scan = TableScanExec::new(scan(filter), 1).with_dynamic_filters(above.to_vec());
        by_keys(keys(1, thrift), run.clone()).for_scan(&scan, &morsels(50)).unwrap()
    };
    let list = |count: i64, step: i64| -> Arc<dyn PhysicalExpr> {
        let values = Int64Array::from_iter_values((0..count).map(|n| 8_000 - n * step));
        is_in(column("k", 0), Arc::new(values))
    };
    let few = sent(Thrift::None, Some(list(3, 4_000)), &[]).unwrap();
    let kept = &few.parts[0].runs[0];
    assert!(kept.pages.len() <= 6 && kept.fences.len() == kept.pages.len() + 1, "{kept:?}");
    let found_by = |index_filter: IndexFilter, filter| {
        let pass = IndexFilteredInput::new(vec![index_filter], &morsels(50)).unwrap().of_pass(0);
        block_on(resolve(&pass, &scan(Some(filter)), &source, &unbounded())).unwrap();
        found(&pass, 50)
    };
    let all = by_keys(keys(1, Thrift::None), run.clone());
    assert_eq!(found_by(few, list(3, 4_000)), found_by(all.clone(), list(3, 4_000)));
    // Index filters that do not pay are not sent, and neither are those that will get no keys.
    assert_eq!(sent(Thrift::Reads, Some(list(2_000, 3)), &[]), None);
    assert_eq!(sent(Thrift::None, None, &[]), None);
    assert_eq!(sent(Thrift::None, None, &[lit(true)]), Some(all));
}

#[test]
fn of_several_indexes_the_one_that_saves_most_is_read() {
    let (media, run) = spread();
    let unique = IndexKey::new(vec![KeyColumn::ascending(DataType::Utf8)], true).unwrap();
    let texts: ArrayRef =
        Arc::new(StringArray::from_iter_values((0..50_000).map(|n| format!("text {n:06}"))));
    let (other_media, other) = index(&[texts], &unique);
    // Both lie on one media, one behind the other.
    let shift = media.block_count();
    media.grow_to(shift + other_media.block_count()).unwrap();
    let mut other = other;
    for page in &mut other.pages {
        let bytes = other_media.read(page.extent).unwrap().into_bytes();
        page.extent.start = BlockAddress(page.extent.start.0 + shift);
        media.write(page.extent.start, &bytes).unwrap();
    }
    let by_text = ScanKeys { index: "t_t".into(), ..keys(2, Thrift::None) };
    let index_filters = vec![by_keys(keys(1, Thrift::None), run), by_keys(by_text, other)];
    let input = IndexFilteredInput::new(index_filters, &morsels(50)).unwrap();
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..2_000));
    let texts: ArrayRef =
        Arc::new(StringArray::from(vec!["text 000017", "text 040000", "no text"]));
    let both = BinaryExpr::new(
        compact_keys(is_in(column("k", 0), numbers)).unwrap(),
        Operator::And,
        is_in(column("t", 1), texts),
    );
    let pass = input.of_pass(0);
    let scan = scan(Some(Arc::new(both)));
    let figures = block_on(resolve(&pass, &scan, &MediaPages::new(media), &unbounded())).unwrap();
    assert_eq!(found(&pass, 50), Some(vec![17, 40_000]));
    assert!(figures.len() == 1 && figures[0].index == "t_t", "{figures:?}");
}

#[test]
fn index_filters_by_keys_that_no_host_sends_are_refused_by_name() {
    let (_, run) = spread();
    let refusal = |index_filters: Vec<IndexFilter>| {
        IndexFilteredInput::new(index_filters, &[]).unwrap_err().to_string()
    };
    let good = by_keys(keys(1, Thrift::Work), run.clone());
    for fences in [Vec::new(), run.fences[1..].to_vec(), run.fences.iter().rev().cloned().collect()]
    {
        let bad = by_keys(keys(1, Thrift::Work), IndexPages { fences, ..run.clone() });
        assert!(refusal(vec![bad]).contains("without their fences"));
    }
    let ranges = IndexFilter { ranges: vec![range("a", None)], ..good.clone() };
    assert!(refusal(vec![ranges]).contains("ranges beside"));
    let named = ScanKeys { index: "x".repeat(2000), ..keys(1, Thrift::Work) };
    assert!(refusal(vec![by_keys(named, run)]).contains("2000 bytes"));
    assert!(refusal(vec![good, index_filter(Vec::new())]).contains("filtered by an index twice"));
}

proptest! {
    #[test]
    fn hits_are_those_of_a_plain_filter(
        values in prop::collection::vec(prop::option::of(-40_i64..40), 1..3000),
        wanted in prop::collection::vec(-50_i64..50, 0..30),
        descending: bool,
        nulls_first: bool,
        as_text: bool,
    ) {
        let data_type = if as_text { DataType::Utf8 } else { DataType::Int64 };
        // Longer than a fence.
        let text = |value: i64| format!("a text that is longer than a fence {value}");
        let array = |values: Vec<Option<i64>>| -> ArrayRef {
            match as_text {
                true => Arc::new(StringArray::from_iter(values.iter().map(|v| v.map(text)))),
                false => Arc::new(Int64Array::from(values)),
            }
        };
        let key = KeyColumn { data_type, descending, nulls_first };
        let (media, run) = index(&[array(values.clone())], &IndexKey::new(vec![key], false).unwrap());
        let (name, place, id) = if as_text { ("t", 1, 2) } else { ("k", 0, 1) };
        let keys = ScanKeys { descending, nulls_first, ..keys(id, Thrift::None) };
        let pass = IndexFilteredInput::new(vec![by_keys(keys, run)], &[]).unwrap().of_pass(0);
        let filter = match wanted.as_slice() {
            [] => lit(false),
            _ => is_in(column(name, place), array(wanted.iter().copied().map(Some).collect())),
        };
        let source = MediaPages::new(media);
        block_on(resolve(&pass, &scan(Some(filter)), &source, &unbounded())).unwrap();
        let expected: Vec<u64> = values
            .iter()
            .zip(0..)
            .filter(|(value, _)| value.is_some_and(|value| wanted.contains(&value)))
            .map(|(_, vid)| vid)
            .collect();
        let all = page(0, u32::try_from(values.len()).unwrap());
        prop_assert_eq!(pass.hits_on(SegmentId(1), &all), Some(expected.as_slice()));
    }
}

#[test]
fn a_null_key_finds_nothing() {
    let (media, run) = spread();
    let pass =
        IndexFilteredInput::new(vec![by_keys(keys(1, Thrift::None), run)], &[]).unwrap().of_pass(0);
    let equal: Arc<dyn PhysicalExpr> =
        Arc::new(BinaryExpr::new(column("k", 0), Operator::Eq, lit(ScalarValue::Int64(None))));
    block_on(resolve(&pass, &scan(Some(equal)), &MediaPages::new(media), &unbounded())).unwrap();
    assert_eq!(pass.hits_on(SegmentId(1), &page(0, 60_000)), Some(&[][..]));
}
