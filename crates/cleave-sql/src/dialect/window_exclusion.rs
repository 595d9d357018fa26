//! Window frames with EXCLUDE CURRENT ROW, GROUP and TIES, which DataFusion lacks.
//!
//! 1. The parser puts a [mark](Exclusion::mark) behind the arguments of a function over such a frame.
//! 2. [`excluding`] replaces it by a window function of our own, which holds the aggregate, or the wanted place in the
//!    frame. A condition of FILTER becomes an argument.
//! 3. Its evaluator gets the frame of each row in turn, finds the row's peers by the columns of ORDER BY, and evaluates
//!    the remaining rows: at most three ranges of rows.
//!
//! ```text
//!  rows     1 2 3 … 64 | 65 … 128 | …      blocks of 64 rows have one state each, 64 blocks one, and so on:
//!  blocks   (1 … 64)   | (65 … 128) | …    a range is some rows, some blocks, some blocks of blocks, …, some rows
//! ```
//!
//! `min` and `max` of intervals compare by length, as in any aggregate; they take this path without EXCLUDE, too.
//!
//! So a frame of any length costs a few hundred values, and every row has an accumulator of its own.
//!
//! Source: PostgreSQL's `row_is_in_frame` and `eval_windowaggregates` (nodeWindowAgg.c).

use std::ops::Range;
use std::sync::Arc;

use cleave_fragment::functions::{ArgumentFault, interval_span, span};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Decimal128Array};
use datafusion::arrow::compute::{SortOptions, cast, filter, partition};
use datafusion::arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Field, FieldRef, Int64Type, IntervalMonthDayNanoType,
    Schema,
};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{ScalarValue, internal_err, not_impl_err};
use datafusion::error::Result;
use datafusion::functions_aggregate::first_last::first_value_udaf;
use datafusion::logical_expr::function::{PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion::logical_expr::planner::RawWindowExpr;
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, Expr, PartitionEvaluator, Signature, Volatility,
    WindowFunctionDefinition, WindowUDF, WindowUDFImpl,
};
use datafusion::physical_expr::aggregate::{AggregateExprBuilder, AggregateFunctionExpr};
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr, ScalarFunctionExpr};

/// Rows of a block, and blocks of the next larger one.
const BLOCK: usize = 64;

/// The rows that a frame excludes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Exclusion {
    /// The row itself.
    CurrentRow,
    /// The row and its peers.
    Group,
    /// The row's peers without itself.
    Ties,
}

impl Exclusion {
    /// All kinds that exclude rows.
    pub const ALL: [Self; 3] = [Self::CurrentRow, Self::Group, Self::Ties];

    /// The words after EXCLUDE.
    pub fn words(self) -> &'static [&'static str] {
        match self {
            Self::CurrentRow => &["CURRENT", "ROW"],
            Self::Group => &["GROUP"],
            Self::Ties => &["TIES"],
        }
    }

    /// Its mark among arguments and in the name of a window: no text of a statement has this character.
    pub fn mark(self) -> &'static str {
        match self {
            Self::CurrentRow => "\0current row",
            Self::Group => "\0group",
            Self::Ties => "\0ties",
        }
    }

    /// The mark at the end of `text`, and the text before it.
    pub fn split(text: &str) -> (&str, Option<Self>) {
        let found =
            Self::ALL.into_iter().find_map(|one| Some((text.strip_suffix(one.mark())?, one)));
        match found {
            Some((before, one)) => (before, Some(one)),
            None => (text, None),
        }
    }
}

/// The text of a query that [is marked](Exclusion::mark), with EXCLUDE written out again.
pub fn written_out(text: String) -> String {
    const BEFORE: &str = ", '";
    let mut text = text;
    let mut from = 0;
    while let Some(found) = text.get(from..).and_then(|rest| rest.find(", '\0")) {
        let start = from + found;
        from = start + BEFORE.len();
        let rest = text.get(from..).unwrap_or_default();
        let marked = |one: &Exclusion| rest.starts_with(&format!("{}')", one.mark()));
        let Some(exclusion) = Exclusion::ALL.into_iter().find(marked) else { continue };
        let end = from + exclusion.mark().len() + 1;
        let Some(close) = text.get(end..).and_then(end_of_window) else { continue };
        text.insert_str(end + close, &format!(" EXCLUDE {}", exclusion.words().join(" ")));
        text.replace_range(start..end, "");
        from = start;
    }
    text
}

/// The end of the window whose function's arguments end at the beginning of `text`.
fn end_of_window(text: &str) -> Option<usize> {
    let over = text.find(" OVER (")?;
    let mut depth = 0_usize;
    let mut quote = None;
    for (place, byte) in text.bytes().enumerate().skip(over) {
        match (byte, quote) {
            (byte, Some(open)) if byte == open => quote = None,
            (_, Some(_)) => {}
            (b'\'' | b'"', None) => quote = Some(byte),
            (b'(', None) => depth += 1,
            (b')', None) if depth == 1 => return Some(place),
            (b')', None) => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

/// `window` as a function of our own, if it is marked.
///
/// # Errors
/// A place of `nth_value` that is not positive, which DataFusion would count from the end.
pub(super) fn excluding(mut window: RawWindowExpr) -> Result<RawWindowExpr> {
    if window.func_def.name() == "nth_value"
        && let Some(Expr::Literal(place, _)) = window.args.get(1)
        && let Ok(ScalarValue::Int64(Some(..=0))) = place.cast_to(&DataType::Int64)
    {
        return Err(ArgumentFault::Place.into());
    }
    let mark = |argument: &Expr| match argument {
        Expr::Literal(ScalarValue::Utf8(Some(text)), _) => match Exclusion::split(text) {
            ("", exclusion) => exclusion,
            _ => None,
        },
        _ => None,
    };
    let Some(exclusion) = window.args.last().and_then(mark) else { return Ok(window) };
    window.args.pop();
    let of = match (window.func_def.name(), &window.func_def) {
        ("first_value", _) => Of::First,
        ("last_value", _) => Of::Last,
        ("nth_value", _) => Of::Nth,
        (_, WindowFunctionDefinition::AggregateUDF(aggregate)) => {
            Of::Aggregate(Arc::clone(aggregate))
        }
        // The others do not look at frames.
        _ => return Ok(window),
    };
    if window.distinct {
        return not_impl_err!("DISTINCT is not implemented for window functions");
    }
    let condition = window.filter.take();
    if condition.is_some() && !matches!(of, Of::Aggregate(_)) {
        return not_impl_err!("FILTER is not implemented for non-aggregate window functions");
    }
    let is_filtered = condition.is_some();
    window.args.extend(condition.map(|condition| *condition));
    window.func_def = function(window.func_def.name(), of, Some(exclusion), is_filtered);
    Ok(window)
}

/// `min` or `max` of intervals over whole frames, compared by length here.
pub(super) fn over_all(
    aggregate: Arc<AggregateUDF>,
    is_filtered: bool,
) -> WindowFunctionDefinition {
    function(aggregate.name(), Of::Aggregate(Arc::clone(&aggregate)), None, is_filtered)
}

fn function(
    name: &str,
    of: Of,
    exclusion: Option<Exclusion>,
    is_filtered: bool,
) -> WindowFunctionDefinition {
    let words = exclusion.map_or("nothing", |one| one.mark().trim_start_matches('\0'));
    let filtered = if is_filtered { ", filtered" } else { "" };
    let name = format!("{name} excluding {words}{filtered}");
    let signature = Signature::user_defined(Volatility::Immutable);
    let function = Excluding { name, of, exclusion, is_filtered, signature };
    WindowFunctionDefinition::WindowUDF(Arc::new(WindowUDF::from(function)))
}

/// What is computed of the remaining rows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Of {
    Aggregate(Arc<AggregateUDF>),
    First,
    Last,
    Nth,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Excluding {
    name: String,
    of: Of,
    exclusion: Option<Exclusion>,
    /// The last argument is the condition of FILTER.
    is_filtered: bool,
    signature: Signature,
}

impl Excluding {
    /// The arguments of the function itself.
    fn own<'a, T>(&self, args: &'a [T]) -> &'a [T] {
        let count = args.len().saturating_sub(usize::from(self.is_filtered));
        args.get(..count).unwrap_or_default()
    }
}

impl WindowUDFImpl for Excluding {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let own = self.own(given);
        let mut types = match (&self.of, own) {
            (Of::Aggregate(aggregate), own) => {
                let field = |own: &DataType| Arc::new(Field::new("", own.clone(), true));
                let fields: Vec<FieldRef> = own.iter().map(field).collect();
                let fields = fields_with_udf(&fields, aggregate.as_ref())?;
                fields.iter().map(|field| field.data_type().clone()).collect()
            }
            (Of::Nth, [value, _]) => vec![value.clone(), DataType::Int64],
            (Of::First | Of::Last, [value]) => vec![value.clone()],
            _ => return internal_err!("{} takes other arguments", self.name),
        };
        if self.is_filtered {
            types.push(DataType::Boolean);
        }
        Ok(types)
    }

    fn field(&self, args: WindowUDFFieldArgs<'_>) -> Result<FieldRef> {
        let own = self.own(args.input_fields());
        let field = match (&self.of, own.first()) {
            (Of::Aggregate(aggregate), _) => aggregate.return_field(own)?,
            (_, Some(value)) => Arc::clone(value),
            (_, None) => return internal_err!("{} takes a value", self.name),
        };
        Ok(Arc::new(field.as_ref().clone().with_name(args.name()).with_nullable(true)))
    }

    fn partition_evaluator(
        &self,
        args: PartitionEvaluatorArgs<'_>,
    ) -> Result<Box<dyn PartitionEvaluator>> {
        let exprs = self.own(args.input_exprs());
        let mut by_length = false;
        let left = match &self.of {
            Of::Aggregate(aggregate) => {
                let fields = self.own(args.input_fields()).iter().enumerate();
                let name = |place: usize| format!("argument {place}");
                let fields: Vec<Field> = fields
                    .map(|(place, field)| field.as_ref().clone().with_name(name(place)))
                    .collect();
                // Some aggregates read arguments that are the same in all rows when they are created.
                let columns = exprs.iter().enumerate().map(|(place, expr)| {
                    let column = || Arc::new(Column::new(&name(place), place));
                    match expr.is::<Literal>() {
                        true => Arc::clone(expr),
                        false => column() as Arc<dyn PhysicalExpr>,
                    }
                });
                let columns: Vec<_> = columns.collect();
                let schema = Arc::new(Schema::new(fields));
                let is_interval = match schema.fields().first() {
                    Some(field) => matches!(field.data_type(), DataType::Interval(_)),
                    None => false,
                };
                let built = match (aggregate.name(), columns.as_slice()) {
                    (name @ ("min" | "max"), [interval]) if is_interval => {
                        by_length = true;
                        let length = ScalarFunctionExpr::try_new(
                            interval_span(),
                            vec![Arc::clone(interval)],
                            &schema,
                            Arc::new(ConfigOptions::default()),
                        )?;
                        let options = SortOptions { descending: name == "max", nulls_first: false };
                        let by = PhysicalSortExpr { expr: Arc::new(length), options };
                        AggregateExprBuilder::new(first_value_udaf(), columns).order_by(vec![by])
                    }
                    _ => AggregateExprBuilder::new(Arc::clone(aggregate), columns),
                };
                Left::Aggregated(Box::new(built.schema(schema).alias(&self.name).build()?))
            }
            Of::First => Left::At(Place::First),
            Of::Last => Left::At(Place::Last),
            Of::Nth => Left::At(Place::Nth),
        };
        Ok(Box::new(Evaluator {
            left,
            by_length,
            exclusion: self.exclusion,
            own_count: exprs.len(),
            arg_count: args.input_exprs().len(),
            row: 0,
            group: 0,
            partition: None,
        }))
    }
}

/// What is done with the remaining rows.
#[derive(Debug)]
enum Left {
    Aggregated(Box<AggregateFunctionExpr>),
    At(Place),
}

#[derive(Debug, Clone, Copy)]
enum Place {
    First,
    Last,
    Nth,
}

/// The evaluator of one partition, called for each of its rows in turn.
#[derive(Debug)]
struct Evaluator {
    left: Left,
    /// The aggregate takes the length of its argument as well.
    by_length: bool,
    exclusion: Option<Exclusion>,
    /// Number of arguments of the function itself, and of all arguments; the columns of ORDER BY follow.
    own_count: usize,
    arg_count: usize,
    /// The next row, and the group of peers that contains it or the row before it.
    row: usize,
    group: usize,
    partition: Option<Partition>,
}

/// Data about all rows of a partition.
#[derive(Debug)]
struct Partition {
    /// Groups of rows that are equal in ORDER BY.
    peers: Vec<Range<usize>>,
    /// For each row, and for the end, how many rows before it pass FILTER; None: all do.
    taken_before: Option<Vec<usize>>,
    /// Arguments of the rows, states of blocks of rows, states of blocks of these, and so on.
    levels: Vec<Vec<ArrayRef>>,
}

impl PartitionEvaluator for Evaluator {
    fn uses_window_frame(&self) -> bool {
        true
    }

    fn evaluate(&mut self, values: &[ArrayRef], range: &Range<usize>) -> Result<ScalarValue> {
        let partition = match self.partition.take() {
            Some(partition) => partition,
            None => self.partition(values)?,
        };
        let row = self.row;
        self.row += 1;
        while partition.peers.get(self.group).is_some_and(|peers| peers.end <= row) {
            self.group += 1;
        }
        let own = row..row.saturating_add(1);
        let peers = partition.peers.get(self.group).cloned().unwrap_or_else(|| own.clone());
        let runs = kept(self.exclusion, range, own, peers);
        let value = match &self.left {
            Left::Aggregated(aggregate) => partition.aggregated(aggregate, &runs),
            Left::At(place) => value_at(*place, values, row, &runs),
        };
        self.partition = Some(partition);
        value
    }
}

impl Evaluator {
    fn partition(&self, values: &[ArrayRef]) -> Result<Partition> {
        let rows = values.first().map_or(0, |first| first.len());
        let order = values.get(self.arg_count..).unwrap_or_default();
        // Without an order all are peers.
        let everything = 0..rows;
        let peers = match order {
            [] => vec![everything],
            order => partition(order)?.ranges(),
        };
        let mut own = values.get(..self.own_count).unwrap_or_default().to_vec();
        let mut taken_before = None;
        if let Some(condition) =
            values.get(self.own_count).filter(|_| self.own_count < self.arg_count)
        {
            let condition = condition.as_boolean();
            let mut taken = 0;
            let mut before = vec![0];
            for takes in condition {
                taken += usize::from(takes == Some(true));
                before.push(taken);
            }
            taken_before = Some(before);
            own = own.iter().map(|own| filter(own, condition)).collect::<Result<_, _>>()?;
        }
        if self.by_length
            && let Some(intervals) = own.first()
        {
            own.push(lengths(intervals)?);
        }
        let levels = match &self.left {
            Left::Aggregated(aggregate) => levels(aggregate, own)?,
            Left::At(_) => Vec::new(),
        };
        Ok(Partition { peers, taken_before, levels })
    }
}

/// The lengths by which intervals compare.
fn lengths(intervals: &ArrayRef) -> Result<ArrayRef> {
    let spans: Decimal128Array = intervals.as_primitive::<IntervalMonthDayNanoType>().unary(span);
    Ok(Arc::new(spans.with_precision_and_scale(DECIMAL128_MAX_PRECISION, 0)?))
}

/// The rows kept of a frame, from its beginning to its end.
fn kept(
    exclusion: Option<Exclusion>,
    frame: &Range<usize>,
    own: Range<usize>,
    peers: Range<usize>,
) -> [Range<usize>; 3] {
    let out = match exclusion {
        None => frame.end..frame.end,
        Some(Exclusion::CurrentRow) => own.clone(),
        Some(Exclusion::Group | Exclusion::Ties) => peers,
    };
    let within = |run: Range<usize>| {
        let start = run.start.max(frame.start);
        start..run.end.min(frame.end).max(start)
    };
    let stays = if exclusion == Some(Exclusion::Ties) { own } else { 0..0 };
    [within(0..out.start), within(stays), within(out.end..usize::MAX)]
}

/// The states of blocks above `rows`.
fn levels(aggregate: &AggregateFunctionExpr, rows: Vec<ArrayRef>) -> Result<Vec<Vec<ArrayRef>>> {
    let mut levels = vec![rows];
    loop {
        let is_rows = levels.len() == 1;
        let Some(below) = levels.last() else { return Ok(levels) };
        let count = below.first().map_or(0, |first| first.len()) / BLOCK;
        if count == 0 {
            return Ok(levels);
        }
        let mut columns: Vec<Vec<ScalarValue>> = Vec::new();
        for block in 0..count {
            let mut accumulator = aggregate.create_accumulator()?;
            let start = block * BLOCK;
            feed(accumulator.as_mut(), below, start..start + BLOCK, is_rows)?;
            let state = accumulator.state()?;
            columns.resize_with(state.len(), Vec::new);
            for (column, value) in columns.iter_mut().zip(state) {
                column.push(value);
            }
        }
        let columns = columns.into_iter().map(ScalarValue::iter_to_array);
        let above = columns.collect::<Result<Vec<_>>>()?;
        levels.push(above);
    }
}

fn feed(
    accumulator: &mut dyn Accumulator,
    values: &[ArrayRef],
    run: Range<usize>,
    is_rows: bool,
) -> Result<()> {
    if run.is_empty() {
        return Ok(());
    }
    let values: Vec<ArrayRef> =
        values.iter().map(|values| values.slice(run.start, run.end - run.start)).collect();
    match is_rows {
        true => accumulator.update_batch(&values),
        false => accumulator.merge_batch(&values),
    }
}

impl Partition {
    fn aggregated(
        &self,
        aggregate: &AggregateFunctionExpr,
        runs: &[Range<usize>],
    ) -> Result<ScalarValue> {
        let mut accumulator = aggregate.create_accumulator()?;
        for run in runs {
            let taken = |row: usize| match &self.taken_before {
                Some(before) => before.get(row).copied().unwrap_or_default(),
                None => row,
            };
            if !run.is_empty() {
                self.add(accumulator.as_mut(), taken(run.start)..taken(run.end))?;
            }
        }
        accumulator.evaluate()
    }

    /// Adds rows from the first to the last of `run`, by the largest blocks that it contains.
    fn add(&self, accumulator: &mut dyn Accumulator, mut run: Range<usize>) -> Result<()> {
        let mut ends = Vec::new();
        for (level, values) in self.levels.iter().enumerate() {
            let (first, end) = (run.start.div_ceil(BLOCK), run.end / BLOCK);
            if first >= end || level + 1 == self.levels.len() {
                feed(accumulator, values, run, level == 0)?;
                break;
            }
            feed(accumulator, values, run.start..first * BLOCK, level == 0)?;
            ends.push((level, values, end * BLOCK..run.end));
            run = first..end;
        }
        ends.into_iter()
            .rev()
            .try_for_each(|(level, values, run)| feed(accumulator, values, run, level == 0))
    }
}

/// The value of one of the remaining rows.
fn value_at(
    place: Place,
    values: &[ArrayRef],
    row: usize,
    runs: &[Range<usize>],
) -> Result<ScalarValue> {
    let Some(value) = values.first() else { return Ok(ScalarValue::Null) };
    let found = match place {
        Place::First => runs.iter().find(|run| !run.is_empty()).map(|run| run.start),
        Place::Last => runs.iter().rfind(|run| !run.is_empty()).map(|run| run.end - 1),
        Place::Nth => {
            let wanted = values.get(1).map(|wanted| cast(wanted, &DataType::Int64)).transpose()?;
            let wanted = wanted.as_ref().map(|wanted| wanted.as_primitive::<Int64Type>());
            let wanted = wanted.filter(|wanted| wanted.is_valid(row)).map(|w| w.value(row));
            match wanted {
                None => None,
                Some(wanted @ 1..) => nth(runs, wanted),
                Some(_) => return Err(ArgumentFault::Place.into()),
            }
        }
    };
    match found {
        Some(found) => ScalarValue::try_from_array(value, found),
        None => ScalarValue::try_new_null(value.data_type()),
    }
}

/// The row that is the `wanted`th of `runs`.
fn nth(runs: &[Range<usize>], wanted: i64) -> Option<usize> {
    let mut left = usize::try_from(wanted).ok()?.checked_sub(1)?;
    for run in runs {
        if left < run.len() {
            return Some(run.start + left);
        }
        left -= run.len();
    }
    None
}
