//! A scan's own conditions and the [filter history](crate::filter_history): what is known of a page before it is read,
//! and what is noted of it.
//!
//! A scan with others of its table under way [shares](super::shared_scan) with them: leaves that they ask of a page are
//! noted as its own are.
//!
//! Only conditions before the first that may fail take part: one behind it is not evaluated where that one fails, so
//! its answer may not leave rows out before.
//!
//! Invariant: rows are those of the scan without a history.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::Array;
use arrow::buffer::BooleanBuffer;
use cleave_store::{ColumnRef, OverflowValues, Pick, SegmentRef};
use datafusion_common::{Result, internal_err};
use datafusion_physical_expr::{PhysicalExpr, split_conjunction};
use datafusion_physical_plan::metrics::{Count, ExecutionPlanMetricsSet, MetricBuilder};

use super::TableScan;
use super::condition::Condition;
use super::scan_page::{ScanPage, external};
use super::shared_scan::SharedScan;
use crate::expressions::key_set::compact::is_implied;
use crate::filter_history::live::{AskedLeaf, Claim, Turn};
use crate::filter_history::{
    FilterHistory, Formula, HistoryUse, Leaf, LeafKind, LeafRows, PageKey, RowSet, counts,
};
use crate::morsel::{Morsel, MorselPage, MorselSource};

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
    /// What it does for other scans, and they for it.
    shared: Option<SharedScan>,
    answered_pages: Count,
    unread_pages: Count,
    noted_pages: Count,
    shared_pages: Count,
}

/// Whether a scan shares what it evaluates with others of its table.
pub(super) struct Shares<'a> {
    /// Its input; None: it may end before it has read all of it, and shares nothing.
    pub(super) morsels: Option<&'a Arc<dyn MorselSource>>,
    /// Whether it waits for what others evaluate.
    pub(super) waits: bool,
}

/// How leaves are evaluated on a page.
#[derive(Clone, Copy)]
struct Within<'a> {
    key: &'a PageKey,
    overflow: &'a OverflowValues,
    batch_size: usize,
    /// The leaves that other scans ask of it.
    wanted: &'a [Arc<AskedLeaf>],
}

impl Within<'_> {
    /// Whether what `leaf` is true for is to be noted.
    fn notes(&self, leaf: &Leaf) -> bool {
        leaf.is_noted || self.wanted.iter().any(|other| other.leaf.id == leaf.id)
    }
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

impl TableScan {
    /// Its conditions as a filter history knows them; None: it has none, or one that takes no part.
    pub fn formulas(&self) -> Option<Vec<Formula>> {
        let parts = split_conjunction(self.predicate.as_ref()?);
        let asked = parts.iter().filter(|part| !is_implied(part, parts.iter().copied()));
        asked.map(|part| Formula::of(part, self.table_id, &self.filter)).collect()
    }
}

impl ScanHistory {
    /// The history of the `partition` of `scan` whose conditions are `conditions`; None: none of them takes part.
    pub(super) fn of<'a>(
        used: Option<&HistoryUse>,
        scan: &TableScan,
        conditions: impl Iterator<Item = (&'a Arc<dyn PhysicalExpr>, &'a Arc<Condition>)>,
        shares: Shares<'_>,
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
        let shared = shares.morsels.map(|morsels| {
            let leaves = asked.iter().flatten().flat_map(|asked| asked.formula.leaves());
            let leaves = leaves.cloned().collect();
            SharedScan::begin((used, history), scan, leaves, (morsels, shares.waits))
        });
        let counter = |name| MetricBuilder::new(metrics).counter(name, partition);
        Ok(Some(Self {
            history: Arc::clone(history),
            asked,
            is_complete,
            shared,
            answered_pages: counter(counts::ANSWERED),
            unread_pages: counter(counts::UNREAD),
            noted_pages: counter(counts::NOTED),
            shared_pages: counter(counts::SHARED),
        }))
    }

    /// The scan begins to read `morsel`: first it waits for another one that is about to evaluate its conditions there,
    /// within limits. Others wait for this one until the claim is dropped.
    pub(super) async fn begins(&self, morsel: &Morsel) -> Option<Claim> {
        let shared = self.shared.as_ref()?;
        let first = morsel.pages.first();
        let first = first.filter(|_| shared.may_wait());
        let first = first.and_then(|page| PageKey::of(&morsel.segment, &page.page));
        let claim = match first {
            Some(page) if !self.is_settled(&page) => self.claim(shared, page).await,
            _ => None,
        };
        shared.begins(morsel.number);
        claim
    }

    async fn claim(&self, shared: &SharedScan, page: PageKey) -> Option<Claim> {
        let held = match shared.turn(page) {
            Turn::Own(claim) => return Some(claim),
            Turn::Beside => return None,
            Turn::Wait(held) => held,
        };
        if !shared.waits_for(&page, held).await {
            return None;
        }
        let is_answered = self.is_settled(&page);
        shared.has_waited(is_answered);
        if is_answered {
            return None;
        }
        match shared.turn(page) {
            Turn::Own(claim) => Some(claim),
            Turn::Beside | Turn::Wait(_) => None,
        }
    }

    /// Whether no condition is left to be evaluated on `page`.
    fn is_settled(&self, page: &PageKey) -> bool {
        let known = self.known_of(page);
        known.is_whole || !known.may_have_rows()
    }

    /// It has read a morsel and evaluated its conditions, in this time.
    pub(super) fn has_read(&self, time: Duration) {
        if let Some(shared) = &self.shared {
            shared.has_read(time);
        }
    }

    /// What is known of `page`, before it is read.
    pub(super) fn known(&self, segment: &SegmentRef, page: &MorselPage) -> KnownRows {
        let Some(key) = PageKey::of(segment, &page.page) else { return KnownRows::default() };
        let known = self.known_of(&key);
        if !known.may_have_rows() {
            self.unread_pages.add(1);
        } else if known.is_whole {
            self.answered_pages.add(1);
        }
        known
    }

    fn known_of(&self, key: &PageKey) -> KnownRows {
        let mut known = KnownRows { page: Some(*key), ..KnownRows::default() };
        let (mut count, mut rows) = (0, None);
        for (index, asked) in self.asked.iter().enumerate() {
            let Some(Asked { formula, .. }) = asked else { continue };
            let Some((left, is_exact)) = self.history.rows(formula, key) else { continue };
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
        known
    }

    /// The rows of `kept`, all that are visible and that an index may have found, which the history leaves. It notes
    /// what is not known yet, where most rows are kept; then [`KnownRows::answered`] of the page has that too. What
    /// other scans ask of the page is noted with it.
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
        let shared = self.shared.as_ref().filter(|_| notes);
        let wanted = shared.map(|shared| shared.wanted(&key)).unwrap_or_default();
        let within = Within { key: &key, overflow, batch_size, wanted: &wanted };
        let mut has_noted = false;
        for (index, asked) in self.asked.iter().enumerate() {
            let is_answered = page.known.answered & (1 << index) != 0;
            let Some(asked) = asked.as_ref().filter(|_| notes && !is_answered) else { continue };
            if !asked.formula.leaves().iter().any(|leaf| within.notes(leaf)) {
                continue;
            }
            let mut leaves = asked.leaves.iter();
            let rows = self.evaluated(&asked.formula, &mut leaves, page, within)?;
            page.known.answered |= 1 << index;
            has_noted = true;
            kept = Some(match kept {
                Some(kept) => &kept & &rows,
                None => rows,
            });
        }
        self.noted_pages.add(usize::from(has_noted));
        let mut has_shared = false;
        for other in &wanted {
            has_shared |= self.note_for(other, page, within);
        }
        self.shared_pages.add(usize::from(has_shared));
        Ok(kept)
    }

    /// Evaluates on `page` a leaf that another scan asks, if its column was read; whether it was noted.
    fn note_for(&self, other: &AskedLeaf, page: &mut ScanPage<'_>, within: Within<'_>) -> bool {
        let is_open = !self.history.knows(&other.leaf, within.key);
        let shared = self.shared.as_ref().filter(|_| is_open);
        let condition = shared.and_then(|shared| shared.condition(other, page));
        let Some(condition) = condition else { return false };
        let Ok(rows) = evaluated_leaf(&other.leaf, &condition, page, within) else { return false };
        self.history.note(&other.leaf, within.key, rows);
        true
    }

    /// The rows of `page` for which `formula` is true: of its leaves, those not known are evaluated and noted.
    fn evaluated<'a>(
        &self,
        formula: &Formula,
        leaves: &mut impl Iterator<Item = &'a Arc<Condition>>,
        page: &mut ScanPage<'_>,
        within: Within<'_>,
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
        within: Within<'_>,
    ) -> Result<BooleanBuffer> {
        if let Some(rows) = self.history.leaf_rows(leaf, within.key) {
            return Ok(rows);
        }
        let Some(condition) = condition else {
            return internal_err!("a leaf of a condition has no condition");
        };
        let rows = evaluated_leaf(leaf, condition, page, within)?;
        let answer = rows.rows(leaf.is_negated);
        if within.notes(leaf) {
            self.history.note(leaf, within.key, rows);
        }
        Ok(answer)
    }
}

/// The rows of `page` for which the plain form of `leaf`, which is `condition`, is true, and for which it is NULL.
fn evaluated_leaf(
    leaf: &Leaf,
    condition: &Condition,
    page: &mut ScanPage<'_>,
    Within { key, overflow, batch_size, .. }: Within<'_>,
) -> Result<LeafRows> {
    let all = BooleanBuffer::new_set(page.row_count());
    let is_true = condition.narrow(page, all, overflow, batch_size)?;
    let is_null = match leaf.key.kind {
        LeafKind::IsNull => RowSet::None,
        _ => nulls(page, ColumnRef::User(leaf.key.column))?,
    };
    Ok(LeafRows { is_true: RowSet::of(&is_true), is_null, row_count: key.row_count() })
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
