//! One condition of a scan: a page and the rows kept so far in, the rows that also satisfy it out.
//!
//! 1. [`Condition::new`] finds the columns it uses, whether it may fail, and whether it compares one column with one
//!    number, looks it up among keys, or asks whether a text is empty.
//! 2. [`Condition::narrow`] takes the cheapest way that the page's encodings offer: a comparison or look-up of integers
//!    on their packed form, the lengths of texts; any condition on one column once for each distinct value; else the
//!    expression over decoded columns, of the kept rows alone where they are few or the condition may fail.
//! 3. Its cost and the rows it kept are counted: [`Condition::rank`] is its place among others, and an optional
//!    condition is skipped where it saves no work ([`Condition::pays`]).
//!
//! A look-up in a join's hash table that has been probed about as often as there are integers between its bounds is
//! probed with each of these once, and is a set of integers from then on.
//!
//! Invariants: a condition that may fail is evaluated only on rows that are visible and satisfy those before it, as
//! users expect of `b <> 0 AND a / b > 1`; the way taken changes time and never rows.

use crate::walk::Walk;
use std::cmp::Ordering;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arrow::array::{
    Array, ArrayRef, BooleanBufferBuilder, RecordBatch, RecordBatchOptions, new_null_array,
};
use arrow::buffer::BooleanBuffer;
use arrow::compute::concat;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use cleave_media::thread_cpu_time;
use cleave_store::{ColumnRef, IntegerSet, OpenColumn, OverflowValues, Pick, Projection};
use datafusion_common::cast::as_boolean_array;
use datafusion_common::tree_node::Transformed;
use datafusion_common::{Result, ScalarValue, internal_err};
use datafusion_expr::Operator;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::{BinaryExpr, Column, InListExpr, IsNullExpr, Literal};
use datafusion_physical_plan::ColumnarValue;

use super::scan_page::{ScanPage, external, true_bits};
use crate::expressions::key_filter::KeyFilterExpr;
use crate::expressions::key_set::KeySetExpr;
use crate::expressions::key_set::compact::{KeyBounds, integers_in, is_always, tabulated};
use crate::expressions::total::cannot_fail;

/// If at most one row in so many is kept, a condition sees the kept ones only.
const FEW: usize = 4;

/// The weight, in rows, of the assumed cost of a condition against the measured one.
const ROWS_ASSUMED: f64 = 8192.0;
/// Rows after which an optional condition has to pay.
const ROWS_ON_TRIAL: u64 = 1 << 16;
/// Least cost of a row that is not removed: decoding it, and a look-up in a join.
const NS_PER_ROW_LEFT: f64 = 40.0;
/// A condition that does not pay is tried on one page in so many, because data varies along a table.
const TRY_AGAIN: u64 = 16;
/// Most integers between the bounds of a look-up that is made a set: 2 MiB.
const LOOK_UP_SPAN_MAX: u64 = 1 << 24;

/// One of the conditions that a scan's rows must all satisfy.
pub(super) struct Condition {
    /// Over the columns of `columns` alone, in their order.
    expr: Arc<dyn PhysicalExpr>,
    /// The columns that it uses, each once.
    columns: Projection,
    /// Whether a value may make it fail.
    may_fail: bool,
    /// Whether it only saves work.
    is_optional: bool,
    short_cut: ShortCut,
    figures: Figures,
}

/// A short cut for values in their stored form.
enum ShortCut {
    None,
    Comparison(Comparison),
    Keys(Arc<IntegerSet>),
    LookUp(LookUp),
    /// A text is empty, or is not.
    Emptiness(bool),
}

/// A look-up of integers that is not yet a set of them.
struct LookUp {
    bounds: KeyBounds,
    /// Rows that it was evaluated on.
    asked: AtomicU64,
    keys: OnceLock<IntegerSet>,
}

/// Measurements of a condition, over all partitions of a scan.
#[derive(Default)]
struct Figures {
    asked: AtomicU64,
    left: AtomicU64,
    nanoseconds: AtomicU64,
    /// Pages for which it was skipped.
    left_out: AtomicU64,
}

/// A column of integers, or of a type ordered like them, compared with a number.
struct Comparison {
    other: i128,
    operator: Operator,
    /// Whether NULLs satisfy it too.
    or_null: bool,
}

impl Condition {
    /// The condition `expr`, whose columns are positions in `of`.
    pub(super) fn new(expr: &Arc<dyn PhysicalExpr>, of: &Projection) -> Result<Self> {
        let may_fail = !cannot_fail(expr, &of.schema);
        let mut positions: Vec<usize> = Vec::new();
        let moved = Arc::clone(expr).transform_up(|expr| {
            let Some(column) = expr.downcast_ref::<Column>() else {
                return Ok(Transformed::no(expr));
            };
            let known = positions.iter().position(|position| *position == column.index());
            let index = known.unwrap_or_else(|| {
                positions.push(column.index());
                positions.len() - 1
            });
            let moved: Arc<dyn PhysicalExpr> = Arc::new(Column::new(column.name(), index));
            Ok(Transformed::yes(moved))
        })?;
        let mut fields = Vec::with_capacity(positions.len());
        let mut columns = Vec::with_capacity(positions.len());
        for position in positions {
            let (Some(column), true) =
                (of.columns.get(position), position < of.schema.fields().len())
            else {
                return internal_err!(
                    "a condition speaks of column {position}, which the scan has not"
                );
            };
            columns.push(*column);
            // A dictionary's values are evaluated together with NULL.
            fields.push(Field::clone(of.schema.field(position)).with_nullable(true));
        }
        let columns = of.others(Arc::new(Schema::new(fields)), columns);
        let expr = moved.data;
        let short_cut = match Comparison::of(&expr, &columns.schema) {
            Some(comparison) => ShortCut::Comparison(comparison),
            None => match emptiness(&expr) {
                Some(empty) => ShortCut::Emptiness(empty),
                None => keys(&expr).map_or(ShortCut::None, ShortCut::Keys),
            },
        };
        // Key filters are approximate, so no result may depend on them.
        let is_optional = expr.is::<KeyFilterExpr>();
        Ok(Self { expr, columns, may_fail, is_optional, short_cut, figures: Figures::default() })
    }

    /// The same as an optional condition: any row may pass. `bounds` are those of the column that it looks up, if it
    /// does.
    pub(super) fn optional(mut self, bounds: Option<KeyBounds>) -> Self {
        self.is_optional = true;
        let operand = self.expr.children().first().is_some_and(|operand| operand.is::<Column>());
        if let Some(bounds) = bounds.filter(|bounds| operand && bounds.span() < LOOK_UP_SPAN_MAX) {
            let (asked, keys) = (AtomicU64::default(), OnceLock::new());
            self.short_cut = ShortCut::LookUp(LookUp { bounds, asked, keys });
        }
        self
    }

    pub(super) fn may_fail(&self) -> bool {
        self.may_fail
    }

    /// Whether it only saves work: no result depends on it.
    pub(super) fn is_optional(&self) -> bool {
        self.is_optional
    }

    /// Whether it needs only fixed-width columns that are among `read`.
    pub(super) fn needs_only(&self, read: &[ColumnRef]) -> bool {
        let is_fixed = |field: &Arc<Field>| field.data_type().is_primitive();
        self.columns.schema.fields().iter().all(is_fixed)
            && self.columns.columns.iter().all(|column| read.contains(column))
    }

    /// The column that it compares with a number, if it does.
    pub(super) fn compared(&self) -> Option<ColumnRef> {
        match (&self.short_cut, self.columns.columns.as_slice()) {
            (ShortCut::Comparison(_), [column]) => Some(*column),
            _ => None,
        }
    }

    /// The column of integers whose values it finds in a set, if it does.
    pub(super) fn looked_up_in_set(&self) -> Option<ColumnRef> {
        let has_set = match &self.short_cut {
            ShortCut::Keys(_) => true,
            ShortCut::LookUp(look_up) => look_up.keys.get().is_some(),
            ShortCut::None | ShortCut::Comparison(_) | ShortCut::Emptiness(_) => false,
        };
        match self.columns.columns.as_slice() {
            [column] if has_set => Some(*column),
            _ => None,
        }
    }

    /// Whether it is a look-up in a hash table whose keys are all known by now.
    #[cfg(test)]
    pub(super) fn is_tabulated(&self) -> bool {
        matches!(&self.short_cut, ShortCut::LookUp(look_up) if look_up.keys.get().is_some())
    }

    /// Nanoseconds for each row that it removes, as far as is known: the least comes first.
    pub(super) fn rank(&self) -> f64 {
        let (assumed_ns, figures) = (self.assumed_ns(), &self.figures);
        let asked = figures.asked.load(Relaxed) as f64;
        let left_out = asked - figures.left.load(Relaxed) as f64;
        let ns = figures.nanoseconds.load(Relaxed) as f64;
        (ns + assumed_ns * ROWS_ASSUMED) / (left_out + ROWS_ASSUMED / 2.0).max(1.0)
    }

    /// The assumed cost for each row, before anything is measured.
    fn assumed_ns(&self) -> f64 {
        match self.short_cut {
            ShortCut::Comparison(_) => 0.3,
            ShortCut::Keys(_) | ShortCut::Emptiness(_) => 1.0,
            ShortCut::None | ShortCut::LookUp(_) => 20.0,
        }
    }

    /// Whether to evaluate it on the next page.
    pub(super) fn pays(&self) -> bool {
        let figures = &self.figures;
        let asked = figures.asked.load(Relaxed);
        if !self.is_optional || asked < ROWS_ON_TRIAL {
            return true;
        }
        let left_out = asked.saturating_sub(figures.left.load(Relaxed)) as f64;
        let ns = figures.nanoseconds.load(Relaxed) as f64;
        ns <= left_out * NS_PER_ROW_LEFT
            || figures.left_out.fetch_add(1, Relaxed) % TRY_AGAIN == TRY_AGAIN - 1
    }

    /// The rows of `kept` that satisfy it. `overflow` has the long values of all rows, or of the kept ones.
    pub(super) fn narrow(
        &self,
        page: &mut ScanPage<'_>,
        kept: BooleanBuffer,
        overflow: &OverflowValues,
        batch_size: usize,
    ) -> Result<BooleanBuffer> {
        let kept_count = kept.count_set_bits();
        if kept_count == 0 || is_always(&self.expr) {
            return Ok(kept);
        }
        // Not the time of day: a thread that is put aside, as by a quota of a slow device, would make any condition
        // look expensive, and optional ones be skipped.
        let before = thread_cpu_time();
        let left = self.narrow_rows(page, kept, kept_count, overflow, batch_size)?;
        let time = thread_cpu_time().saturating_sub(before);
        self.figures.add(kept_count, left.count_set_bits(), time);
        Ok(left)
    }

    fn narrow_rows(
        &self,
        page: &mut ScanPage<'_>,
        kept: BooleanBuffer,
        kept_count: usize,
        overflow: &OverflowValues,
        batch_size: usize,
    ) -> Result<BooleanBuffer> {
        page.open(&self.columns, overflow)?;
        if !self.may_fail
            && let Some(left) = self.on_encoded(page, &kept, kept_count)?
        {
            return Ok(left);
        }
        let all = kept_count == kept.len();
        let few = kept_count * FEW <= kept.len();
        if !all && (few || self.may_fail) {
            let satisfied = self.evaluate(page, Some(&kept), batch_size)?;
            // The answers are for the kept rows; the others stay out.
            let mut bits = BooleanBufferBuilder::new(kept.len());
            bits.append_n(kept.len(), false);
            for (slot, satisfied) in kept.set_indices().zip(satisfied.iter()) {
                bits.set_bit(slot, satisfied);
            }
            return Ok(bits.finish());
        }
        let satisfied = self.evaluate(page, None, batch_size)?;
        Ok(if all { satisfied } else { &kept & &satisfied })
    }

    /// The rows of `kept` that satisfy it, if that can be told without decoding them.
    fn on_encoded(
        &self,
        page: &ScanPage<'_>,
        kept: &BooleanBuffer,
        kept_count: usize,
    ) -> Result<Option<BooleanBuffer>> {
        let [column] = self.columns.columns[..] else {
            return Ok(None);
        };
        let column = page.column(column)?;
        let left = match &self.short_cut {
            ShortCut::None => None,
            ShortCut::Comparison(Comparison { other, operator, or_null }) => {
                let satisfied = column.compare(*other, |order| holds(*operator, order));
                satisfied.map(|satisfied| match column.nulls().filter(|_| *or_null) {
                    Some(nulls) => kept & &(&satisfied | &!nulls.inner()),
                    None => kept & &satisfied,
                })
            }
            ShortCut::Emptiness(empty) => column.emptiness(*empty, kept),
            ShortCut::Keys(keys) => column.contained_in(keys, kept),
            ShortCut::LookUp(look_up) => self
                .looked_up(look_up, kept_count)?
                .and_then(|keys| column.contained_in(keys, kept)),
        };
        if left.is_some() {
            return Ok(left);
        }
        // A dictionary with more values than remaining rows is not worth evaluating.
        match column.distinct_values().map_err(external)? {
            Some(values) if values.len() <= kept_count => self.on_distinct(column, values, kept),
            _ => Ok(None),
        }
    }

    /// The keys of a look-up, once so many rows were looked up that probing for all keys costs little more.
    fn looked_up<'a>(
        &self,
        look_up: &'a LookUp,
        kept_count: usize,
    ) -> Result<Option<&'a IntegerSet>> {
        if let Some(keys) = look_up.keys.get() {
            return Ok(Some(keys));
        }
        let before = look_up.asked.fetch_add(kept_count as u64, Relaxed);
        let enough = look_up.bounds.span() / 2;
        // One of the partitions does it; the others continue without.
        if before > enough || before + (kept_count as u64) <= enough {
            return Ok(None);
        }
        let keys = tabulated(&look_up.bounds, |keys| {
            let count = keys.len();
            self.answers(vec![keys], count)
        })?;
        Ok(Some(look_up.keys.get_or_init(|| keys)))
    }

    /// Evaluates once for each distinct value, and once for NULL.
    fn on_distinct(
        &self,
        column: &OpenColumn,
        values: ArrayRef,
        kept: &BooleanBuffer,
    ) -> Result<Option<BooleanBuffer>> {
        let count = values.len();
        let has_nulls = column.nulls().is_some_and(|nulls| nulls.null_count() > 0);
        let values = if has_nulls {
            concat(&[&values, &new_null_array(values.data_type(), 1)])?
        } else {
            values
        };
        let asked = values.len();
        let answers = self.answers(vec![values], asked)?;
        let null = has_nulls && answers.value(count);
        let codes = answers.slice(0, count).bit_chunks().iter_padded().collect();
        Ok(column.coded_in(&IntegerSet::of_bits(0, codes), null, kept))
    }

    /// The answer for each row, or each kept row.
    fn evaluate(
        &self,
        page: &ScanPage<'_>,
        kept: Option<&BooleanBuffer>,
        batch_size: usize,
    ) -> Result<BooleanBuffer> {
        let mut bits = BooleanBufferBuilder::new(page.row_count());
        for range in page.ranges(kept, batch_size) {
            let pick = Pick::new(range, kept, self.columns.columns.len()).map_err(external)?;
            let arrays = page.decode(&self.columns.columns, &pick)?;
            bits.append_buffer(&self.answers(arrays, pick.count())?);
        }
        Ok(bits.finish())
    }

    /// For each row of these columns, whether the condition is true: NULL is not.
    fn answers(&self, arrays: Vec<ArrayRef>, row_count: usize) -> Result<BooleanBuffer> {
        let options = RecordBatchOptions::new().with_row_count(Some(row_count));
        let schema = SchemaRef::clone(&self.columns.schema);
        let batch = RecordBatch::try_new_with_options(schema, arrays, &options)?;
        Ok(match self.expr.evaluate(&batch)? {
            ColumnarValue::Scalar(ScalarValue::Boolean(Some(true))) => {
                BooleanBuffer::new_set(row_count)
            }
            ColumnarValue::Scalar(ScalarValue::Boolean(_)) => BooleanBuffer::new_unset(row_count),
            value => {
                let array = value.into_array(row_count)?;
                true_bits(as_boolean_array(&array)?)
            }
        })
    }
}

/// Whether `expr` is true for the empty text alone (true), or for all others alone (false). No text sorts before the
/// empty one.
fn emptiness(expr: &Arc<dyn PhysicalExpr>) -> Option<bool> {
    let binary = expr.downcast_ref::<BinaryExpr>()?;
    let (left, right) = (binary.left(), binary.right());
    let (literal, operator) = match (left.is::<Column>(), right.is::<Column>()) {
        (true, false) => (right, *binary.op()),
        (false, true) => (left, binary.op().swap()?),
        _ => return None,
    };
    let is_empty = match literal.downcast_ref::<Literal>()?.value() {
        ScalarValue::Utf8(Some(text)) => text.is_empty(),
        ScalarValue::Binary(Some(bytes)) => bytes.is_empty(),
        _ => false,
    };
    match operator {
        Operator::Eq | Operator::LtEq => is_empty.then_some(true),
        Operator::NotEq | Operator::Gt => is_empty.then_some(false),
        _ => None,
    }
}

/// The set that answers `expr` for integers of a column, if it is such a look-up.
fn keys(expr: &Arc<dyn PhysicalExpr>) -> Option<Arc<IntegerSet>> {
    if let Some(set) = expr.downcast_ref::<KeySetExpr>() {
        return set.operand().is::<Column>().then(|| Arc::clone(set.members()));
    }
    if let Some(list) = expr.downcast_ref::<InListExpr>().filter(|list| list.expr().is::<Column>())
    {
        let (members, _) = IntegerSet::collect(integers_in(list)?);
        return Some(Arc::new(members));
    }
    let (operand, integers) = expr.downcast_ref::<KeyFilterExpr>()?.likely_integers()?;
    operand.is::<Column>().then(|| Arc::new(integers))
}

impl Figures {
    fn add(&self, asked: usize, left: usize, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.asked.fetch_add(asked as u64, Relaxed);
        self.left.fetch_add(left as u64, Relaxed);
        self.nanoseconds.fetch_add(nanoseconds, Relaxed);
    }
}

impl Comparison {
    /// `expr` as a comparison, if it is one.
    fn of(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<Self> {
        let binary = expr.downcast_ref::<BinaryExpr>()?;
        if *binary.op() == Operator::Or {
            let null =
                binary.left().downcast_ref::<IsNullExpr>()?.arg().downcast_ref::<Column>()?;
            let own = Self::of(binary.right(), schema)?;
            let compared = binary.right().downcast_ref::<BinaryExpr>()?.left();
            let is_same = compared.downcast_ref::<Column>() == Some(null);
            return (is_same && !own.or_null).then_some(Self { or_null: true, ..own });
        }
        let (column, literal, operator) =
            match (binary.left().downcast_ref::<Column>(), binary.right().downcast_ref::<Column>())
            {
                (Some(column), None) => (column, binary.right(), *binary.op()),
                (None, Some(column)) => (column, binary.left(), binary.op().swap()?),
                _ => return None,
            };
        let value = literal.downcast_ref::<Literal>()?.value();
        let data_type = schema.fields().get(column.index())?.data_type();
        let comparable = match (data_type, value.data_type()) {
            (DataType::Decimal128(_, scale), DataType::Decimal128(_, other)) => *scale == other,
            (left, right) => *left == right,
        };
        let other = match value {
            ScalarValue::Int16(value) => (*value)?.into(),
            ScalarValue::Int32(value) | ScalarValue::Date32(value) => (*value)?.into(),
            ScalarValue::Int64(value)
            | ScalarValue::Time64Microsecond(value)
            | ScalarValue::TimestampMicrosecond(value, _) => (*value)?.into(),
            ScalarValue::Decimal128(value, _, _) => (*value)?,
            _ => return None,
        };
        use Operator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
        let known = matches!(operator, Eq | NotEq | Lt | LtEq | Gt | GtEq);
        (comparable && known).then_some(Self { other, operator, or_null: false })
    }
}

fn holds(operator: Operator, order: Ordering) -> bool {
    match operator {
        Operator::Eq => order.is_eq(),
        Operator::NotEq => order.is_ne(),
        Operator::Lt => order.is_lt(),
        Operator::LtEq => order.is_le(),
        Operator::Gt => order.is_gt(),
        Operator::GtEq => order.is_ge(),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
