//! Spilled batches come back unchanged, or not at all.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray, StringViewArray};
use arrow::compute::concat_batches;
use cleave_media::{BLOCK_SIZE, BlockAddress, Media};
use datafusion_execution::memory_pool::{MemoryPool, UnboundedMemoryPool};
use datafusion_physical_plan::metrics::ExecutionPlanMetricsSet;
use futures::TryStreamExt;
use futures::executor::block_on;

use super::testing::MemorySpace;
use super::*;

fn batch(from: i32, count: i32) -> RecordBatch {
    let texts =
        (from..from + count).map(|n| (n % 3 != 0).then(|| format!("a longer text no. {n}")));
    let texts: Vec<Option<String>> = texts.collect();
    let numbers: ArrayRef = Arc::new(Int32Array::from_iter_values(from..from + count));
    let views: ArrayRef = Arc::new(StringViewArray::from_iter(texts.iter().cloned()));
    let texts: ArrayRef = Arc::new(StringArray::from_iter(texts));
    RecordBatch::try_from_iter_with_nullable([
        ("number", numbers, false),
        ("text", texts, true),
        ("view", views, true),
    ])
    .unwrap()
}

fn writer(space: &Arc<MemorySpace>, count: usize, bytes: usize) -> (RunsWriter, SpillFigures) {
    let space = Arc::clone(space) as Arc<dyn SpillSpace>;
    let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
    let figures = SpillFigures::new(&ExecutionPlanMetricsSet::new(), 0);
    let schema = batch(0, 1).schema();
    (RunsWriter::new(&space, &schema, count, (&pool, bytes), figures.clone()), figures)
}

fn whole(run: &Arc<SpillRun>) -> Result<RecordBatch> {
    let batches: Vec<RecordBatch> = block_on(run.batches(0).try_collect())?;
    Ok(concat_batches(&batch(0, 1).schema(), &batches)?)
}

#[test]
fn runs_come_back_in_order_as_often_as_they_are_read_and_give_their_blocks_back() {
    let space = MemorySpace::new(1000);
    let (mut writer, figures) = writer(&space, 2, 8192);
    for (number, part) in (0..40).zip([0, 1].into_iter().cycle()) {
        block_on(writer.push(part, batch(100 * number, 100))).unwrap();
    }
    let runs = block_on(writer.finish()).unwrap();
    for (part, run) in (0..).zip(&runs) {
        let expected: Vec<RecordBatch> =
            (0..40).filter(|n| n % 2 == part).map(|n| batch(100 * n, 100)).collect();
        let expected = concat_batches(&batch(0, 1).schema(), &expected).unwrap();
        for _ in 0..2 {
            assert_eq!(whole(run).unwrap(), expected);
        }
        assert_eq!(run.row_count(), 2000);
    }
    assert_eq!((figures.runs.value(), figures.rows.value()), (2, 4000));
    let used = space.used_blocks();
    assert_eq!(figures.bytes.value() as u64, used * BLOCK_SIZE as u64);
    assert!(used > 8, "more than what is gathered at once");
    drop(runs);
    assert_eq!(space.used_blocks(), 0);
}

#[test]
fn a_slice_takes_no_more_than_its_rows() {
    let space = MemorySpace::new(1000);
    let (mut writer, _) = writer(&space, 1, 1 << 20);
    block_on(writer.push(0, batch(0, 8000).slice(17, 5))).unwrap();
    let runs = block_on(writer.finish()).unwrap();
    assert_eq!(space.used_blocks(), 1);
    assert_eq!(whole(&runs[0]).unwrap(), batch(17, 5));
}

#[test]
fn what_is_not_what_was_written_is_an_error() {
    let space = MemorySpace::new(1000);
    let (mut writer, _) = writer(&space, 1, 1 << 20);
    block_on(writer.push(0, batch(0, 300))).unwrap();
    let runs = block_on(writer.finish()).unwrap();
    let place = Extent { start: BlockAddress(0), block_count: 1 };
    let written = space.media.read(place).unwrap();
    // Each part of a frame: magic, stamp, length, checksum, body.
    for at in [0, 9, 17, 23, 25, 64, 3000] {
        let mut spoilt = written.clone();
        spoilt[at] ^= 4;
        space.media.write(place.start, &spoilt).unwrap();
        let error = whole(&runs[0]).unwrap_err();
        assert!(error.to_string().contains("corrupt"), "byte {at}: {error}");
    }
    space.media.write(place.start, &written).unwrap();
    assert_eq!(whole(&runs[0]).unwrap(), batch(0, 300));
}

#[test]
fn no_room_is_an_error() {
    let space = MemorySpace::new(3);
    let (mut writer, _) = writer(&space, 1, 8192);
    let pushed = (0..40).try_for_each(|n| block_on(writer.push(0, batch(100 * n, 100))));
    let error = pushed.unwrap_err();
    assert!(error.to_string().contains("3 blocks"), "{error}");
}
