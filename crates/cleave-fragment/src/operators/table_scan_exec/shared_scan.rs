//! A scan beside others of its table: it evaluates their leaves on the pages that it reads, and waits for a page on
//! which another one is about to evaluate its own.
//!
//! Invariants: the rows are those of the scan alone; what fails here is the other scan's to find, when it evaluates the
//! leaf itself. The columns are those that this scan reads anyhow.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arrow::datatypes::DataType;
use cleave_store::{ColumnRef, Projection};

use super::TableScan;
use super::condition::Condition;
use super::scan_page::ScanPage;
use crate::filter_history::live::{AskedLeaf, Held, LiveScan, LiveScans, Turn};
use crate::filter_history::{FilterHistory, HistoryUse, Leaf, LeafId, PageKey};
use crate::morsel::MorselSource;
use crate::waiting;

/// Most leaves of others that are evaluated on one page.
const LEAVES_MAX: usize = 16;
/// Most leaves of others whose conditions are kept.
const CONDITIONS_KEPT_MAX: usize = 64;

/// One partition of a scan that shares what it evaluates.
pub(super) struct SharedScan {
    history: Arc<FilterHistory>,
    own: Arc<LiveScan>,
    /// Whether pages are claimed and waited for.
    waits: bool,
    /// The columns that the scan names.
    columns: [Projection; 2],
    /// Leaves of others as conditions; None: not of this scan's columns.
    conditions: Mutex<HashMap<LeafId, Option<Arc<Condition>>>>,
}

impl SharedScan {
    /// `scan` of `morsels`, which asks `leaves`, under way. `waits`: it reads each page to its end, whatever rows it
    /// finds.
    pub(super) fn begin(
        (used, history): (&HistoryUse, &Arc<FilterHistory>),
        scan: &TableScan,
        leaves: Vec<Leaf>,
        (morsels, waits): (&Arc<dyn MorselSource>, bool),
    ) -> Self {
        let own = used.asks((scan.table_id, scan.input), leaves, &scan.filter, morsels);
        Self {
            history: Arc::clone(history),
            own,
            waits,
            columns: [scan.filter.clone(), scan.output.clone()],
            conditions: Mutex::default(),
        }
    }

    /// The leaves that others ask of `page` and that are not known.
    pub(super) fn wanted(&self, page: &PageKey) -> Vec<Arc<AskedLeaf>> {
        let mut wanted: Vec<Arc<AskedLeaf>> = Vec::new();
        for other in self.history.live().beside(&self.own) {
            if wanted.len() == LEAVES_MAX {
                break;
            }
            if !other.wants(page) {
                continue;
            }
            let before = wanted.len();
            for asked in other.asked() {
                let is_same = |known: &Arc<AskedLeaf>| known.leaf.id == asked.leaf.id;
                if wanted.iter().any(is_same) || self.history.knows(&asked.leaf, page) {
                    continue;
                }
                wanted.push(Arc::clone(asked));
                if wanted.len() == LEAVES_MAX {
                    break;
                }
            }
            if wanted.len() > before {
                other.is_served();
            }
        }
        wanted
    }

    /// A leaf that another scan asks as a condition that can be evaluated on all rows of `page`, which was read for
    /// this one; None: it cannot.
    pub(super) fn condition(
        &self,
        asked: &AskedLeaf,
        page: &ScanPage<'_>,
    ) -> Option<Arc<Condition>> {
        let column = ColumnRef::User(asked.leaf.key.column);
        if !page.read.columns.contains(&column) {
            return None;
        }
        let mut conditions = self.conditions.lock().unwrap_or_else(PoisonError::into_inner);
        if conditions.len() >= CONDITIONS_KEPT_MAX && !conditions.contains_key(&asked.leaf.id) {
            conditions.clear();
        }
        let made = conditions.entry(asked.leaf.id).or_insert_with(|| self.made(asked, column));
        let condition = made.as_ref().map(Arc::clone)?;
        // Long values may lie on other pages. These were read for the scan's own conditions only.
        let [filter, _] = &self.columns;
        let were_read = || filter.columns.contains(&column) && !page.known.is_whole();
        let is_short = type_of(&asked.of, column).is_some_and(has_fixed_size);
        (is_short || were_read()).then_some(condition)
    }

    fn made(&self, asked: &AskedLeaf, column: ColumnRef) -> Option<Arc<Condition>> {
        let theirs = type_of(&asked.of, column)?;
        // A column is opened once for a page, by whoever asks first.
        let mut own = self.columns.iter().filter_map(|columns| type_of(columns, column));
        let condition =
            own.all(|own| own == theirs).then(|| Condition::new(&asked.leaf.expr, &asked.of));
        condition?.ok().filter(|condition| !condition.may_fail()).map(Arc::new)
    }

    /// Whether there are others to wait for.
    pub(super) fn may_wait(&self) -> bool {
        self.waits && !self.history.live().beside(&self.own).is_empty()
    }

    /// Whose turn it is to evaluate `page`.
    pub(super) fn turn(&self, page: PageKey) -> Turn {
        LiveScans::turn(&self.history, page, &self.own)
    }

    /// Waits for the end of another scan's claim to `page`, within limits; false: it does not wait.
    pub(super) async fn waits_for(&self, page: &PageKey, held: Held) -> bool {
        let Some(limit) = self.own.wait_limit() else { return false };
        if waiting::timeout(limit, held.ended).await.is_none() {
            self.history.live().end_claim(page, held.number);
        }
        true
    }

    /// It has waited, and may have been answered.
    pub(super) fn has_waited(&self, is_answered: bool) {
        self.own.has_waited(is_answered);
    }

    /// The scan begins to read the morsel with this number.
    pub(super) fn begins(&self, morsel: u32) {
        self.own.begins(morsel);
    }

    /// The scan has read a morsel and evaluated its conditions, in this time.
    pub(super) fn has_read(&self, time: Duration) {
        self.own.has_read(time);
    }
}

/// The type of `column` among `columns`.
fn type_of(columns: &Projection, column: ColumnRef) -> Option<&DataType> {
    let place = columns.columns.iter().position(|other| *other == column)?;
    Some(columns.schema.fields().get(place)?.data_type())
}

fn has_fixed_size(data_type: &DataType) -> bool {
    data_type.is_primitive() || *data_type == DataType::Boolean
}
