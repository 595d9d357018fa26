//! Tests of fragments that prune dead rows: their pages have gaps in the VIDs, and scans, index filters and look-ups
//! read them as the remaining rows.

use std::sync::Arc;

use arrow::array::{AsArray, BooleanArray, Int64Array, RecordBatch, StringArray};
use arrow::compute::{concat_batches, filter_record_batch};
use arrow::datatypes::{Schema, UInt64Type};
use cleave_fragment::operators::table_scan_exec::{References, TableScan};
use cleave_fragment::{
    FragmentContext, IndexFilter, IndexFilteredInput, IndexFilteredPart, Morsel, MorselList,
    MorselPage, PageSink, RowPlaces, TableScanExec, WriteRowsExec, WrittenSegment, decode_fragment,
    encode_fragment, fragment_task_context, read_written,
};
use cleave_media::{BlockAddress, Media, Memory};
use cleave_store::{
    Column, ColumnRef, ColumnType, DeadRows, EncodedPage, MediaPages, PageClass, PageRef,
    Projection, SegmentDirectory, SegmentId, SegmentKind, SegmentRef, SegmentWriter, Snapshot,
    TableSchema, VidGaps,
};
use datafusion::error::Result;
use datafusion::physical_plan::{ExecutionPlan, common};
use futures::FutureExt;
use futures::executor::block_on;
use futures::future::BoxFuture;

/// Puts pages behind what there is.
#[derive(Debug)]
struct Behind(Arc<Memory>);

impl PageSink for Behind {
    fn push(&self, page: EncodedPage) -> BoxFuture<'_, Result<PageRef>> {
        let placed = put(&self.0, &page);
        async move { Ok(placed) }.boxed()
    }

    fn finish(&self) -> BoxFuture<'_, Result<()>> {
        async { Ok(()) }.boxed()
    }
}

fn put(media: &Memory, page: &EncodedPage) -> PageRef {
    let start = BlockAddress(media.block_count());
    media.grow_to(start.0 + u64::from(page.block_count())).unwrap();
    media.write(start, &page.bytes).unwrap();
    page.page_ref(start)
}

fn context(
    media: &Arc<Memory>,
    morsels: Vec<Morsel>,
    index_filter: Option<IndexFilter>,
) -> FragmentContext {
    let filtered =
        |index_filter| (0, IndexFilteredInput::new(vec![index_filter], &morsels).unwrap());
    FragmentContext {
        pages: Arc::new(MediaPages::new(Arc::clone(media) as Arc<dyn Media>)),
        snapshot: Snapshot { commit: 5 },
        index_filters: index_filter.map(filtered).into_iter().collect(),
        inputs: [(0, MorselList::new(morsels) as _)].into(),
        indexes: Default::default(),
        peer_rows: Default::default(),
        broadcasts: Default::default(),
        sink: Some(Arc::new(Behind(Arc::clone(media)))),
        spill: None,
        tasks: None,
        locks: None,
        places: RowPlaces::default(),
        read_ahead: 1,
        history: None,
        counters: Arc::default(),
    }
}

fn executed(plan: &Arc<dyn ExecutionPlan>, context: FragmentContext) -> Vec<RecordBatch> {
    let task = fragment_task_context(Arc::new(context), Arc::default(), &[]).unwrap();
    block_on(common::collect(plan.execute(0, task).unwrap())).unwrap()
}

/// The pages of a segment, and which of their rows are dead.
fn morsels(segment: &SegmentDirectory, is_dead: impl Fn(u64) -> bool) -> Vec<Morsel> {
    let place = |entry: &cleave_store::PageEntry| MorselPage {
        page: entry.page,
        vid_first: entry.vid_first,
        gaps: entry.gaps.clone(),
        overflow: entry.overflow.clone(),
        dead: DeadRows::of_bits(entry.row_vids().map(&is_dead).collect()),
    };
    let pages = (0..).zip(&segment.pages);
    let morsel = |(number, entry)| Morsel {
        number,
        segment: segment.segment_ref(),
        pages: vec![place(entry)],
    };
    pages.map(morsel).collect()
}

#[test]
fn pages_with_gaps_are_read_as_the_rows_that_were_left() {
    for (class, count) in [(PageClass::HOT, 5000_i64), (PageClass::BULK, 100_000)] {
        let column = |id, name: &str, column_type| Column {
            id,
            name: name.into(),
            column_type,
            not_null: false,
            default: None,
            absent: None,
        };
        let columns = vec![column(1, "a", ColumnType::BigInt), column(4, "b", ColumnType::Text)];
        let schema = TableSchema {
            table_id: 1,
            version: 1,
            name: "t".into(),
            columns,
            primary_key: Vec::new(),
        };
        let texts = (0..count).map(|row| match row {
            row if row % 11 == 0 => None,
            row if row % 997 == 0 => Some("long ".repeat(20_000)),
            row => Some(format!("note {row}")),
        });
        let numbers = Int64Array::from_iter(0..count);
        let columns: Vec<arrow::array::ArrayRef> =
            vec![Arc::new(numbers), Arc::new(StringArray::from_iter(texts))];
        let rows = RecordBatch::try_new(schema.arrow(), columns).unwrap();
        let media = Arc::new(Memory::new());
        let old = SegmentRef { table_id: 1, segment: SegmentId(1), schema_version: 1, commit: 2 };
        let mut writer = SegmentWriter::new(old, &schema, class, 0, 100).unwrap();
        let mut pages = writer.push(&rows).unwrap();
        pages.extend(writer.finish().unwrap());
        let mut whole = SegmentDirectory::new(old, SegmentKind::Heap, class);
        let placed: Vec<_> =
            pages.iter().map(|page| (page, put(&media, page).extent.start)).collect();
        whole.append(&placed).unwrap();

        let output = Projection::of_table(&schema, &[0, 1]).with_version(ColumnRef::Vid);
        let none = Projection::new(Arc::new(Schema::empty()), Vec::new());
        let scan = TableScan {
            table: "t".into(),
            table_id: 1,
            output: output.clone(),
            filter: none,
            predicate: None,
            input: 0,
            fetch: None,
            references: References::None,
        };
        let scan = || Arc::new(TableScanExec::new(scan.clone(), 1)) as Arc<dyn ExecutionPlan>;
        let new = SegmentRef { segment: SegmentId(9), commit: 5, ..old };
        let written = WrittenSegment { segment: new, class, columns: vec![1, 4] };
        let plan: Arc<dyn ExecutionPlan> = Arc::new(WriteRowsExec::new(scan(), written).unwrap());
        let bytes = encode_fragment(&plan).unwrap();
        let empty = Arc::new(context(&media, Vec::new(), None));
        let task = fragment_task_context(empty, Arc::default(), &[]).unwrap();
        let plan = decode_fragment(&bytes, &task).unwrap();

        let end = 100 + u64::try_from(count).unwrap();
        let pruned = |vid: u64| vid % 7 == 3 || (900..1800).contains(&vid);
        let told = executed(&plan, context(&media, morsels(&whole, pruned), None));
        let mut entries = read_written(&told).unwrap();
        let mut left = (100..end).filter(|vid| !pruned(*vid));
        for entry in &mut entries {
            let count = usize::try_from(entry.page.row_count).unwrap();
            entry.gaps = VidGaps::of(left.by_ref().take(count)).unwrap();
        }
        assert_eq!(left.next(), None);
        let segment = SegmentDirectory::sealed(new, SegmentKind::Heap, class, entries).unwrap();
        let segment = SegmentDirectory::decode(&segment.encode()).unwrap();

        // Some of those that were left are dead since.
        let dead = |vid: u64| vid % 13 == 5;
        let read = |index_filter| {
            let found = executed(&scan(), context(&media, morsels(&segment, dead), index_filter));
            concat_batches(&output.schema, &found).unwrap()
        };
        let found = read(None);
        let is_left = |vid: u64| Some(!pruned(vid) && !dead(vid));
        let wanted = BooleanArray::from_iter((100..end).map(is_left));
        let wanted = filter_record_batch(&rows, &wanted).unwrap();
        assert_eq!(found.project(&[0, 1]).unwrap().columns(), wanted.columns());
        // An index has the rows that were pruned, too.
        let rows = (100..end).filter(|vid| vid % 5 == 0).collect();
        let part = IndexFilteredPart {
            segments: vec![SegmentId(9)],
            rows,
            ..IndexFilteredPart::default()
        };
        let found = read(Some(IndexFilter { parts: vec![part], ..IndexFilter::default() }));
        let vids = found.column(2).as_primitive::<UInt64Type>().values().to_vec();
        let wanted: Vec<u64> =
            (100..end).filter(|vid| vid % 5 == 0 && is_left(*vid) == Some(true)).collect();
        assert_eq!(vids, wanted);
        for vid in 100..3000 {
            let found = segment.slot_of(vid).map(|(entry, slot)| entry.row_vids().nth(slot.into()));
            assert_eq!(found.flatten(), Some(vid).filter(|vid| !pruned(*vid)));
        }
    }
}
