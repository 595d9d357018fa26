//! What one SELECT carries from planning to its last row: the catalog state it began with, its scans'
//! inputs, its settings, and what was measured.
//!
//! Holding the state is the claim on the pages that the statement reads (rule 30).

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use cleave_fragment::{
    FragmentContext, FragmentCounters, Morsel, MorselList, MorselSource, ReadAheadPages,
};
use cleave_plan::{ColumnFacts, TableFacts};
use cleave_store::{
    Column, PageColumns, PageRead, PageRef, PageSource, SegmentId, SegmentRef, StoreError,
};
use datafusion::arrow::array::Array;
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use futures::FutureExt;
use futures::future::BoxFuture;

use super::planned_input::PlannedInput;
use crate::catalog::{CatalogState, DeviceId, TableState};
use crate::cooperative::figures::FigureLog;
use crate::database::Database;
use crate::settings::{Settings, Stack};

/// Morsels that a scan on the host reads ahead, so that the link is busy while it decodes.
const READ_AHEAD: usize = 4;

/// One statement, while it is planned and runs.
pub struct StatementContext {
    database: Arc<Database>,
    state: Arc<CatalogState>,
    settings: Settings,
    inputs: Mutex<Vec<StatementInput>>,
    figures: Arc<FigureLog>,
}

/// A scan's input and how many rows the planner expects of it.
#[derive(Debug, Clone)]
pub struct StatementInput {
    /// The pages.
    pub input: Arc<PlannedInput>,
    /// Rows expected after the scan's predicate.
    pub row_estimate: f64,
}

impl StatementContext {
    /// A statement on `state`.
    pub fn new(database: Arc<Database>, state: Arc<CatalogState>, settings: Settings) -> Arc<Self> {
        let inputs = Mutex::default();
        Arc::new(Self { database, state, settings, inputs, figures: Arc::default() })
    }

    /// The database.
    pub fn database(&self) -> &Arc<Database> {
        &self.database
    }

    /// The catalog as the statement sees it.
    pub fn state(&self) -> &Arc<CatalogState> {
        &self.state
    }

    /// The session's settings when the statement began.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Where its fragments leave what they measured.
    pub fn figures(&self) -> &Arc<FigureLog> {
        &self.figures
    }

    /// Registers the input of one more scan and returns its number.
    pub fn add_input(&self, input: PlannedInput, row_estimate: f64) -> u32 {
        let mut inputs = self.inputs.lock().unwrap_or_else(PoisonError::into_inner);
        let number = u32::try_from(inputs.len()).unwrap_or(u32::MAX);
        inputs.push(StatementInput { input: Arc::new(input), row_estimate });
        number
    }

    /// The input `number`.
    pub fn input(&self, number: u32) -> Result<StatementInput> {
        let inputs = self.inputs.lock().unwrap_or_else(PoisonError::into_inner);
        usize::try_from(number).ok().and_then(|index| inputs.get(index)).cloned().ok_or_else(|| {
            DataFusionError::Internal(format!("the statement has no morsel input {number}"))
        })
    }

    /// All inputs so far, by number.
    pub fn inputs(&self) -> Vec<StatementInput> {
        self.inputs.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What the scans that run on the host need: every input, pages by way of the link.
    pub fn host_fragment_context(&self) -> Result<Arc<FragmentContext>> {
        let inputs = self.inputs();
        let morsels =
            (0u32..).zip(&inputs).map(|(number, input)| (number, input.input.morsels())).collect();
        self.fragment_context_with(&inputs, morsels)
    }

    /// As [`Self::host_fragment_context`], with morsels given.
    pub fn fragment_context_with(
        &self,
        inputs: &[StatementInput],
        morsels: BTreeMap<u32, Vec<Morsel>>,
    ) -> Result<Arc<FragmentContext>> {
        let mut devices: BTreeMap<DeviceId, Arc<dyn PageSource>> = BTreeMap::new();
        let mut by_segment = BTreeMap::new();
        for input in inputs {
            for (device, segment) in input.input.segments() {
                let source = match devices.get(&device) {
                    Some(source) => Arc::clone(source),
                    None => {
                        let source = self.database.page_source(device, self.settings.stack)?;
                        devices.insert(device, Arc::clone(&source));
                        source
                    }
                };
                by_segment.insert(segment.segment, source);
            }
        }
        let mut pages: Arc<dyn PageSource> = Arc::new(RoutedPages { by_segment });
        // Stack `blk` reads blocks ahead, as an operating system does.
        if self.settings.stack != Stack::Blk {
            let order = morsels.values().map(Vec::as_slice);
            let runtime = self.database.query_runtime();
            pages = Arc::new(ReadAheadPages::new(pages, order, &runtime.memory_pool));
        }
        let source = |morsels: Vec<Morsel>| MorselList::new(morsels) as Arc<dyn MorselSource>;
        Ok(Arc::new(FragmentContext {
            pages,
            snapshot: self.state.snapshot(),
            inputs: morsels.into_iter().map(|(number, list)| (number, source(list))).collect(),
            read_ahead: READ_AHEAD,
            counters: Arc::new(FragmentCounters::default()),
        }))
    }
}

impl fmt::Debug for StatementContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatementContext")
            .field("generation", &self.state.generation)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl TableFacts for StatementContext {
    fn row_count(&self, table: &str) -> Option<f64> {
        self.state.table(table).map(|table| table.row_count() as f64)
    }

    /// A primary key of one column has as many values as the table has rows; nothing else is known
    /// without statistics.
    fn distinct_count(&self, table: &str, column: &str) -> Option<f64> {
        let table = self.state.table(table)?;
        let column = table.schema.columns.iter().find(|candidate| candidate.name == column)?;
        (table.schema.primary_key == [column.id]).then(|| table.row_count() as f64)
    }

    /// What zone maps say: the bounds and NULLs of all pages together.
    fn column(&self, table: &str, column: &str) -> ColumnFacts {
        let facts = || {
            let table = self.state.table(table)?;
            let column = table.schema.columns.iter().find(|candidate| candidate.name == column)?;
            Some(column_facts(table, column))
        };
        facts().unwrap_or_default()
    }
}

fn column_facts(table: &TableState, column: &Column) -> ColumnFacts {
    let data_type = column.column_type.arrow();
    let (mut mins, mut maxs) = (Vec::new(), Vec::new());
    let (mut nulls, mut rows) = (0_u64, 0_u64);
    for segment in table.tablets.iter().flat_map(|tablet| &tablet.heap) {
        let zones = segment.zone_arrays(column.id, &data_type);
        let known = |place: &usize| zones.null_counts.is_valid(*place);
        for place in (0..segment.pages.len()).filter(known) {
            let (page_nulls, page_rows) =
                (zones.null_counts.value(place), zones.row_counts.value(place));
            nulls += page_nulls;
            rows += page_rows;
            // A page of NULLs only has no bounds, and needs none.
            if page_nulls < page_rows {
                mins.push(ScalarValue::try_from_array(&zones.mins, place).ok());
                maxs.push(ScalarValue::try_from_array(&zones.maxs, place).ok());
            }
        }
    }
    ColumnFacts {
        null_fraction: (rows > 0).then(|| nulls as f64 / rows as f64),
        min: end(mins, Ordering::Less),
        max: end(maxs, Ordering::Greater),
    }
}

/// The least or the greatest of bounds; None where one of them is not known.
fn end(bounds: Vec<Option<ScalarValue>>, wanted: Ordering) -> Option<ScalarValue> {
    let mut end: Option<ScalarValue> = None;
    for bound in bounds {
        let bound = bound.filter(|bound| !bound.is_null())?;
        if end.as_ref().is_none_or(|end| bound.partial_cmp(end) == Some(wanted)) {
            end = Some(bound);
        }
    }
    end
}

/// Sends each read to the device that its segment lies on.
#[derive(Debug)]
struct RoutedPages {
    by_segment: BTreeMap<SegmentId, Arc<dyn PageSource>>,
}

impl RoutedPages {
    fn source(&self, segment: SegmentId) -> Result<&Arc<dyn PageSource>, StoreError> {
        self.by_segment.get(&segment).ok_or_else(|| StoreError::Mismatch {
            what: "a page read",
            reason: format!("{segment} is not among the segments of the statement"),
        })
    }
}

impl PageSource for RoutedPages {
    /// The reads of one call belong to one morsel, hence to one segment.
    fn read(&self, reads: Vec<PageRead>) -> BoxFuture<'_, Result<Vec<PageColumns>, StoreError>> {
        let Some(first) = reads.first() else {
            return futures::future::ready(Ok(Vec::new())).boxed();
        };
        match self.source(first.segment.segment) {
            Ok(source) => source.read(reads),
            Err(error) => futures::future::ready(Err(error)).boxed(),
        }
    }

    fn read_overflow(
        &self,
        segment: SegmentRef,
        pages: Vec<PageRef>,
    ) -> BoxFuture<'_, Result<Vec<bytes::Bytes>, StoreError>> {
        match self.source(segment.segment) {
            Ok(source) => source.read_overflow(segment, pages),
            Err(error) => futures::future::ready(Err(error)).boxed(),
        }
    }
}
