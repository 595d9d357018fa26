//! Joins, aggregates and sorts that outgrow their memory: refused without space, finished with it, over every link, and
//! nothing written elsewhere.

use std::sync::Arc;

use arrow::array::AsArray;
use arrow::compute::SortOptions;
use arrow::datatypes::Int32Type;
use cleave_fragment::Morsel;
use cleave_fragment::command::{DeviceErrorCause, Execute, Request};
use cleave_fragment::link::RunStream;
use cleave_media::{Extent, Media};
use datafusion_common::{JoinType, NullEquality};
use datafusion_physical_expr::expressions::Column;
use datafusion_physical_expr::{LexOrdering, PhysicalExpr, PhysicalSortExpr};
use datafusion_physical_plan::ExecutionPlan;
use datafusion_physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion_physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion_physical_plan::sorts::sort::SortExec;

use crate::bench::{
    Bench, ROW_COUNT, benches, device_error, extent, memory, options, scan, scan_with,
};

/// Too little for half of the table.
pub(crate) const MEMORY_BYTES: u64 = 1 << 20;
/// Spill space: in pieces, none of which touches another.
const RESERVED: u64 = 10_000;
const PIECES: u64 = 40;

fn column(name: &str, index: usize) -> Arc<dyn PhysicalExpr> {
    Arc::new(Column::new(name, index))
}

/// A self-join by name.
pub(crate) fn join() -> Arc<dyn ExecutionPlan> {
    let join = HashJoinExec::try_new(
        scan(None),
        scan_with(None, 1, 1),
        vec![(column("name", 1), column("name", 1))],
        None,
        &JoinType::Inner,
        Some(vec![0, 3]),
        PartitionMode::CollectLeft,
        NullEquality::NullEqualsNothing,
        false,
    );
    Arc::new(join.unwrap())
}

/// The distinct rows.
fn groups() -> Arc<dyn ExecutionPlan> {
    let input = scan(None);
    let by = PhysicalGroupBy::new_single(vec![
        (column("id", 0), "id".to_owned()),
        (column("name", 1), "name".to_owned()),
    ]);
    let (mode, schema) = (AggregateMode::Single, input.schema());
    Arc::new(AggregateExec::try_new(mode, by, Vec::new(), Vec::new(), input, schema).unwrap())
}

/// The rows by name, descending.
fn sorted() -> Arc<dyn ExecutionPlan> {
    let options = SortOptions { descending: true, nulls_first: true };
    let order = LexOrdering::new([PhysicalSortExpr::new(column("name", 1), options)]).unwrap();
    Arc::new(SortExec::new(order, scan(None)))
}

fn pieces() -> Vec<Extent> {
    (0..PIECES).map(|number| extent(RESERVED + number * 60, 50)).collect()
}

/// `plan` over both inputs, in `memory_bytes`.
pub(crate) fn request(
    bench: &Bench,
    run: u64,
    (plan, memory_bytes): (&Arc<dyn ExecutionPlan>, u64),
    morsels: &[Morsel],
    reserved: Vec<Extent>,
) -> Execute {
    let inputs = vec![(0, morsels.to_vec()), (1, morsels.to_vec())];
    Execute { memory_bytes, inputs, reserved, ..bench.request(run, plan, morsels) }
}

async fn ids(stream: &mut RunStream) -> Vec<i32> {
    let mut found = Vec::new();
    while let Some(batch) = stream.next().await.unwrap() {
        found.extend(batch.column(0).as_primitive::<Int32Type>().values());
    }
    found.sort_unstable();
    found
}

fn metric(stream: &RunStream, name: &str) -> u64 {
    let operators = &stream.report().unwrap().operators;
    operators.iter().filter(|metric| metric.name == name).map(|metric| metric.value).sum()
}

/// Blocks behind the table that are not zero.
fn written(media: &Arc<dyn Media>) -> Vec<u64> {
    let is_written = |block: &u64| {
        let bytes = media.read(extent(*block, 1)).unwrap();
        bytes.iter().any(|byte| *byte != 0)
    };
    (5_000..media.block_count()).filter(is_written).collect()
}

#[tokio::test]
async fn with_space_they_finish_within_their_memory_and_write_nowhere_else() {
    for (place, bench) in benches().await.into_iter().enumerate() {
        let morsels = bench.load().await;
        bench.reserve(RESERVED, u32::try_from(PIECES).unwrap() * 60).await;
        // Each scan emits all rows, and so do the operators above.
        let plans = [
            (join(), MEMORY_BYTES, 3),
            (groups(), MEMORY_BYTES / 2, 2),
            (sorted(), MEMORY_BYTES / 4, 2),
        ];
        for (number, (plan, memory_bytes, nodes)) in plans.iter().enumerate() {
            let (run, plan) = (10 * (number as u64 + 1), (plan, *memory_bytes));
            // Without space: no row, and the reason.
            let mut stream = bench.execute(request(&bench, run, plan, &morsels, vec![])).await;
            let (cause, message) = device_error(stream.next().await);
            assert_eq!(cause, DeviceErrorCause::OutOfMemory, "{message}");
            drop(stream);
            let request = request(&bench, run + 1, plan, &morsels, pieces());
            let mut stream = bench.execute(request).await;
            assert_eq!(ids(&mut stream).await, (0..ROW_COUNT).collect::<Vec<_>>());
            let report = stream.report().unwrap().clone();
            let spilled = metric(&stream, "spilled_bytes");
            assert!(spilled > 200_000, "{place} {number}: {spilled}");
            assert!(metric(&stream, "spill_count") >= 4);
            assert_eq!(metric(&stream, "output_rows"), nodes * ROW_COUNT as u64);
            let peak = report.peak_memory_bytes;
            assert!(peak <= *memory_bytes, "{place} {number}: {peak}");
            // Spilled rows are read again, from the media.
            assert!(report.media_bytes > spilled, "{} of {spilled}", report.media_bytes);
            assert_eq!(report.partitions, 1);
        }
        let blocks = written(&bench.media);
        assert!(!blocks.is_empty());
        let pieces = pieces();
        let is_inside =
            |block: &&u64| pieces.iter().any(|piece| piece.contains(extent(**block, 1)));
        assert_eq!(blocks.iter().find(|block| !is_inside(block)), None);
    }
}

#[tokio::test]
async fn space_that_is_too_small_is_told_and_is_free_for_the_next_run() {
    let bench = Bench::embedded(memory(), options()).await;
    let morsels = bench.load().await;
    bench.reserve(RESERVED, u32::try_from(PIECES).unwrap() * 60).await;
    let small = vec![extent(RESERVED, 20)];
    let mut stream =
        bench.execute(request(&bench, 1, (&join(), MEMORY_BYTES), &morsels, small.clone())).await;
    let (cause, message) = device_error(stream.next().await);
    assert_eq!(cause, DeviceErrorCause::OutOfReserved, "{message}");
    assert!(message.contains("20 blocks"), "{message}");
    // Told when it has stopped: the blocks are free for the next run at once.
    let all = [small, pieces()[1..].to_vec()].concat();
    let mut stream =
        bench.execute(request(&bench, 2, (&join(), MEMORY_BYTES), &morsels, all)).await;
    assert_eq!(ids(&mut stream).await.len(), ROW_COUNT as usize);
}

#[tokio::test]
async fn a_run_that_is_cancelled_leaves_its_space_and_memory() {
    for bench in benches().await {
        let morsels = bench.load().await;
        bench.reserve(RESERVED, u32::try_from(PIECES).unwrap() * 60).await;
        let mut stream =
            bench.execute(request(&bench, 1, (&join(), MEMORY_BYTES), &morsels, pieces())).await;
        assert!(stream.next().await.unwrap().is_some(), "it is in the midst of its parts");
        bench.call_run(1, Request::Cancel).await.unwrap();
        let mut other =
            bench.execute(request(&bench, 2, (&join(), MEMORY_BYTES), &morsels, pieces())).await;
        assert_eq!(ids(&mut other).await.len(), ROW_COUNT as usize);
        drop((stream, other));
        bench.reach_idle().await;
    }
}

#[tokio::test]
async fn spoilt_blocks_are_an_error() {
    let bench = Bench::embedded(
        Arc::new(spoiling::Spoiling { media: memory(), from: RESERVED }),
        options(),
    )
    .await;
    let morsels = bench.load().await;
    bench.reserve(RESERVED, u32::try_from(PIECES).unwrap() * 60).await;
    let mut stream =
        bench.execute(request(&bench, 1, (&join(), MEMORY_BYTES), &morsels, pieces())).await;
    let (cause, message) = device_error(stream.next().await);
    assert_eq!(cause, DeviceErrorCause::Corrupt, "{message}");
}

mod spoiling {
    //! Media that flips a bit in reads behind a block.

    use cleave_media::{AlignedBuffer, BlockAddress, MediaError};

    use super::*;

    #[derive(Debug)]
    pub(super) struct Spoiling {
        pub(super) media: Arc<dyn Media>,
        pub(super) from: u64,
    }

    impl Media for Spoiling {
        fn read(&self, extent: Extent) -> Result<AlignedBuffer, MediaError> {
            let mut bytes = self.media.read(extent)?;
            if extent.start.0 >= self.from
                && let Some(byte) = bytes.get_mut(100)
            {
                *byte ^= 1;
            }
            Ok(bytes)
        }

        fn write(&self, start: BlockAddress, data: &[u8]) -> Result<(), MediaError> {
            self.media.write(start, data)
        }

        fn sync(&self) -> Result<(), MediaError> {
            self.media.sync()
        }

        fn block_count(&self) -> u64 {
            self.media.block_count()
        }

        fn grow_to(&self, block_count: u64) -> Result<(), MediaError> {
            self.media.grow_to(block_count)
        }

        fn bytes_read(&self) -> u64 {
            self.media.bytes_read()
        }

        fn bytes_written(&self) -> u64 {
            self.media.bytes_written()
        }
    }
}
