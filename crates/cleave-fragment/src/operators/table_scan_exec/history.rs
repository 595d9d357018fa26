//! A scan's own conditions and the [filter history](crate::filter_history): what is known of a page before it is read,
//! and what is noted of it.
//!
//! Only conditions before the first that may fail take part: one behind it is not evaluated where that one fails, so
//! its answer may not leave rows out before.
//!
//! Invariant: rows are those of the scan without a history.

use std::sync::Arc;

use arrow::array::Array;
use arrow::buffer::BooleanBuffer;
use cleave_store::{ColumnRef, OverflowValues, Pick, SegmentRef};
use datafusion_common::{Result, internal_err};
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_plan::metrics::{Count, ExecutionPlanMetricsSet, MetricBuilder};

use super::TableScan;
use super::condition::Condition;
use super::scan_page::{ScanPage, external};
use crate::filter_history::{
    FilterHistory, Formula, HistoryUse, Leaf, LeafKind, LeafRows, PageKey, RowSet, counts,
};
use crate::morsel::MorselPage;

/// Conditions that take part: as many as a mask has bits.
pub(super) const CONDITIONS_MAX: usize = 64;
/// A page of which a smaller share of the rows is left before the conditions is not evaluated as a whole.
const SHARE_LEFT_MIN: (usize, usize) = (3, 4);

/// The history of one partition of a scan.
pub(super) struct ScanHistory {
    history: Arc<FilterHistory>,
    /// The scan's conditions, in their order, as far as they take part.
    asked: Vec<Option<Asked>>,
    /// Whether these are all.
    is_complete: bool,
    answered_pages: Count,
    unread_pages: Count,
    noted_pages: Count,
}

/// A condition that takes part.
struct Asked {
    formula: Formula,
    /// Its leaves as conditions, in the order of [`Formula::leaves`].
    leaves: Vec<Arc<Condition>>,
}

/// What the history knows of a page before it is read.
#[derive(Debug, Clone, Default)]
pub(super) struct KnownRows {
    /// The page, if it has a history.
    page: Option<PageKey>,
    /// The only rows that may be left; None: any.
    rows: Option<BooleanBuffer>,
    /// The conditions that all of these satisfy: bits by their index.
    answered: u64,
    /// Whether these are all conditions of the scan.
    is_whole: bool,
}

impl KnownRows {
    /// Whether a row may be left.
    pub(super) fn may_have_rows(&self) -> bool {
        self.rows.as_ref().is_none_or(|rows| rows.count_set_bits() > 0)
    }

    /// Whether no condition of the scan is left to be evaluated.
    pub(super) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// The conditions that need not be evaluated: bits by their index.
    pub(super) fn answered(&self) -> u64 {
        self.answered
    }
}

impl ScanHistory {
    /// The history of the `partition` of `scan` whose conditions are `conditions`; None: none of them takes part.
    pub(super) fn of<'a>(
        used: Option<&HistoryUse>,
        scan: &TableScan,
        conditions: impl Iterator<Item = (&'a Arc<dyn PhysicalExpr>, &'a Arc<Condition>)>,
        (metrics, partition): (&ExecutionPlanMetricsSet, usize),
    ) -> Result<Option<Self>> {
        let Some((used, history)) = used.and_then(|used| Some((used, used.history()?))) else {
            return Ok(None);
        };
        let (mut asked, mut is_complete) = (Vec::new(), true);
        for (expr, condition) in conditions {
            if condition.may_fail() || asked.len() == CONDITIONS_MAX {
                is_complete = false;
                break;
            }
            let takes_part = !condition.is_optional();
            let formula = Formula::of(expr, scan.table_id, &scan.filter).filter(|_| takes_part);
            let Some(mut formula) = formula else {
                is_complete = false;
                asked.push(None);
                continue;
            };
            used.sighted(&mut formula);
            let leaves = formula.leaves();
            let leaves = leaves.iter().map(|leaf| Condition::new(&leaf.expr, &scan.filter));
            let leaves = leaves.map(|leaf| Ok(Arc::new(leaf?))).collect::<Result<_>>()?;
            asked.push(Some(Asked { formula, leaves }));
        }
        if asked.iter().all(Option::is_none) {
            return Ok(None);
        }
        let counter = |name| MetricBuilder::new(metrics).counter(name, partition);
        Ok(Some(Self {
            history: Arc::clone(history),
            asked,
            is_complete,
            answered_pages: counter(counts::ANSWERED),
            unread_pages: counter(counts::UNREAD),
            noted_pages: counter(counts::NOTED),
        }))
    }

    /// What is known of `page`, before it is read.
    pub(super) fn known(&self, segment: &SegmentRef, page: &MorselPage) -> KnownRows {
        let Some(key) = PageKey::of(segment, &page.page) else { return KnownRows::default() };
        let mut known = KnownRows { page: Some(key), ..KnownRows::default() };
        let (mut count, mut rows) = (0, None);
        for (index, asked) in self.asked.iter().enumerate() {
            let Some(Asked { formula, .. }) = asked else { continue };
            let Some((left, is_exact)) = self.history.rows(formula, &key) else { continue };
            if is_exact {
                known.answered |= 1 << index;
                count += 1;
            }
            rows = Some(match rows {
                Some(before) => &before & &left,
                None => left,
            });
        }
        known.is_whole = self.is_complete && count == self.asked.len();
        known.rows = rows;
        if !known.may_have_rows() {
            self.unread_pages.add(1);
        } else if known.is_whole {
            self.answered_pages.add(1);
        }
        known
    }

    /// The rows of `kept`, all that are visible and that an index may have found, which the history leaves. It notes
    /// what is not known yet, where most rows are kept; then [`KnownRows::answered`] of the page has that too.
    pub(super) fn narrow(
        &self,
        page: &mut ScanPage<'_>,
        kept: Option<BooleanBuffer>,
        overflow: &OverflowValues,
        batch_size: usize,
    ) -> Result<Option<BooleanBuffer>> {
        let row_count = page.row_count();
        let Some(key) = page.known.page.filter(|key| key.row_count() as usize == row_count) else {
            // Its reference says otherwise: what is known is of another page.
            let is_asked = !page.known.is_whole;
            page.known = KnownRows::default();
            return match is_asked {
                true => Ok(kept),
                false => internal_err!(
                    "page {} of {} has {row_count} rows, and its reference says otherwise",
                    page.place.page.page,
                    page.read.segment.segment
                ),
            };
        };
        let share = kept.as_ref().map_or(row_count, BooleanBuffer::count_set_bits);
        let (least, of) = SHARE_LEFT_MIN;
        // Long values were read of all rows only if none was left out before.
        let notes = page.selection.is_none() && row_count > 0 && share * of >= row_count * least;
        let mut kept = match (kept, page.known.rows.take()) {
            (Some(kept), Some(known)) => Some(&kept & &known),
            (kept, known) => kept.or(known),
        };
        let mut has_noted = false;
        for (index, asked) in self.asked.iter().enumerate() {
            let is_answered = page.known.answered & (1 << index) != 0;
            let Some(asked) = asked.as_ref().filter(|_| notes && !is_answered) else { continue };
            if !asked.formula.leaves().iter().any(|leaf| leaf.is_noted) {
                continue;
            }
            let mut leaves = asked.leaves.iter();
            let within = (&key, overflow, batch_size);
            let rows = self.evaluated(&asked.formula, &mut leaves, page, within)?;
            page.known.answered |= 1 << index;
            has_noted = true;
            kept = Some(match kept {
                Some(kept) => &kept & &rows,
                None => rows,
            });
        }
        self.noted_pages.add(usize::from(has_noted));
        Ok(kept)
    }

    /// The rows of `page` for which `formula` is true: of its leaves, those not known are evaluated and noted.
    fn evaluated<'a>(
        &self,
        formula: &Formula,
        leaves: &mut impl Iterator<Item = &'a Arc<Condition>>,
        page: &mut ScanPage<'_>,
        within: (&PageKey, &OverflowValues, usize),
    ) -> Result<BooleanBuffer> {
        let (parts, is_and) = match formula {
            Formula::Leaf(leaf) => return self.leaf(leaf, leaves.next(), page, within),
            Formula::And(parts) => (parts, true),
            Formula::Or(parts) => (parts, false),
        };
        let mut rows: Option<BooleanBuffer> = None;
        for part in parts {
            let more = self.evaluated(part, leaves, page, within)?;
            rows = Some(match rows {
                Some(rows) if is_and => &rows & &more,
                Some(rows) => &rows | &more,
                None => more,
            });
        }
        Ok(rows.unwrap_or_else(|| BooleanBuffer::new_set(page.row_count())))
    }

    fn leaf(
        &self,
        leaf: &Leaf,
        condition: Option<&Arc<Condition>>,
        page: &mut ScanPage<'_>,
        (key, overflow, batch_size): (&PageKey, &OverflowValues, usize),
    ) -> Result<BooleanBuffer> {
        if let Some(rows) = self.history.leaf_rows(leaf, key) {
            return Ok(rows);
        }
        let Some(condition) = condition else {
            return internal_err!("a leaf of a condition has no condition");
        };
        let all = BooleanBuffer::new_set(page.row_count());
        let is_true = condition.narrow(page, all, overflow, batch_size)?;
        let is_null = match leaf.key.kind {
            LeafKind::IsNull => RowSet::None,
            _ => nulls(page, ColumnRef::User(leaf.key.column))?,
        };
        let rows = LeafRows { is_true: RowSet::of(&is_true), is_null, row_count: key.row_count() };
        let answer = rows.rows(leaf.is_negated);
        if leaf.is_noted {
            self.history.note(leaf, key, rows);
        }
        Ok(answer)
    }
}

/// The rows of `page` whose value of `column`, which is open, is NULL.
fn nulls(page: &ScanPage<'_>, column: ColumnRef) -> Result<RowSet> {
    let opened = page.column(column)?;
    if opened.is_stored() {
        let nulls = opened.nulls().map(|nulls| RowSet::of(&!nulls.inner()));
        return Ok(nulls.unwrap_or(RowSet::None));
    }
    // A page written before the column was added: one value for all rows.
    let first = Pick::new(0..1, None, 1).map_err(external)?;
    let is_null = page.decode(&[column], &first)?.iter().any(|values| values.is_null(0));
    Ok(if is_null { RowSet::All } else { RowSet::None })
}
