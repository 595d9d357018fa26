//! Compiles an aggregate over one scan to a program: steps on columns of 64-bit integers.
//!
//! Invariant: the steps give the results of DataFusion's expressions, digit for digit, as long as no step exceeds 64
//! bits, which the caller ensures. An expression that is not certain to do so has no program.

use crate::walk::Walk;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion_common::ScalarValue;
use datafusion_common::tree_node::Transformed;
use datafusion_expr::Operator;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::ScalarFunctionExpr;
use datafusion_physical_expr::aggregate::AggregateFunctionExpr;
use datafusion_physical_expr::expressions::{CastExpr, Column, Literal};
use datafusion_physical_expr_common::physical_expr::is_volatile;
use datafusion_physical_plan::ExecutionPlan;
use datafusion_physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion_physical_plan::projection::ProjectionExec;

use crate::expressions::total::cast_factor;
use crate::functions::exact_sum;
use crate::functions::narrow_numerics::{Arithmetic, arithmetic};
use crate::operators::table_scan_exec::TableScanExec;

/// Most expressions that are examined; those of a projection count as often as they are used.
const EXPRESSION_COUNT_MAX: usize = 256;
/// The limits of a step that may have any number of 64 bits.
const EVERY: (i64, i64) = (i64::MIN, i64::MAX);
/// Most projections between the aggregate and its scan.
const LEVEL_COUNT_MAX: usize = 8;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Program {
    /// Each uses columns, or steps before it.
    pub(super) steps: Vec<Step>,
    /// For each step, the least and greatest value of its type. A page on which it may leave them is not taken.
    pub(super) limits: Vec<(i64, i64)>,
    /// For each step, whether its numbers are used; of others the bounds alone are.
    pub(super) is_computed: Vec<bool>,
    pub(super) aggregates: Vec<Aggregate>,
    /// Columns of the scan's output by which rows are grouped.
    pub(super) group_columns: Vec<usize>,
    /// The schema of a batch of those columns.
    pub(super) group_schema: SchemaRef,
    /// The keys of the aggregate, over such a batch.
    pub(super) group_keys: Vec<Arc<dyn PhysicalExpr>>,
    /// The keys, then a state of each aggregate.
    pub(super) states: SchemaRef,
}

/// One number for each row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// A column of the scan's output.
    Column(usize),
    /// The product of two steps.
    Product(usize, usize),
    /// The sum of two steps, each times its factor.
    Sum(usize, i64, usize, i64),
    /// A step times a factor, plus a constant.
    Affine(usize, i64, i64),
}

/// The aggregate over a step's numbers.
///
/// The sum of `x * factor + plus` is `sum(x) * factor + count(x) * plus`. So sums that differ only there share the
/// cells of the first of them, which adds up `x`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Aggregate {
    pub(super) kind: Kind,
    /// The step whose numbers are added up or compared; `None` counts rows.
    pub(super) step: Option<usize>,
    /// The place of the aggregate that has its cells.
    pub(super) cells: usize,
    pub(super) factor: i64,
    pub(super) plus: i64,
}

impl Aggregate {
    /// Its number for a group of `count` numbers, from the cells' one. Exact, even if a product wraps: the result fits
    /// 64 bits, because the bounds of the outer step are checked.
    pub(super) fn of_cells(&self, value: i64, count: i64) -> i64 {
        value.wrapping_mul(self.factor).wrapping_add(count.wrapping_mul(self.plus))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Count,
    Sum,
    Min,
    Max,
}

impl Program {
    /// The program of `aggregate`, if it has one.
    pub(super) fn of(aggregate: &AggregateExec) -> Option<Self> {
        let keys = aggregate.group_expr();
        let is_plain = *aggregate.mode() == AggregateMode::Partial
            && !keys.has_grouping_set()
            && aggregate.limit_options().is_none()
            && aggregate.filter_expr().iter().all(Option::is_none);
        if !is_plain {
            return None;
        }
        let mut reader = Reader::of(aggregate.input())?;
        let group_keys: Vec<_> =
            keys.expr().iter().map(|(key, _)| reader.key(key)).collect::<Option<_>>()?;
        let mut aggregates: Vec<Aggregate> = Vec::new();
        for own in aggregate.aggr_expr() {
            let (kind, step) = reader.aggregate(own)?;
            aggregates.push(reader.sharing(kind, step, &aggregates));
        }
        let states = aggregate.schema();
        let is_empty = aggregates.is_empty() && group_keys.is_empty();
        if states.fields().len() != group_keys.len() + aggregates.len() || is_empty {
            return None;
        }
        let fields = reader.group_columns.iter().map(|column| reader.field(*column).cloned());
        let group_schema = Schema::new(fields.collect::<Option<Vec<Field>>>()?);
        let is_computed = reader.computed_steps(&aggregates);
        Some(Self {
            steps: reader.steps,
            limits: reader.limits,
            is_computed,
            aggregates,
            group_columns: reader.group_columns,
            group_schema: Arc::new(group_schema),
            group_keys,
            states,
        })
    }

    /// The columns of the scan's output whose NULLs make the numbers of `step` NULL.
    pub(super) fn columns_of(&self, step: usize) -> Vec<usize> {
        let mut columns = Vec::new();
        let mut left = vec![step];
        while let Some(step) = left.pop() {
            match self.steps.get(step) {
                Some(Step::Column(column)) => columns.push(*column),
                Some(Step::Product(a, b) | Step::Sum(a, _, b, _)) => left.extend([*a, *b]),
                Some(Step::Affine(a, ..)) => left.push(*a),
                None => {}
            }
        }
        columns.sort_unstable();
        columns.dedup();
        columns
    }
}

/// Reads expressions down to the columns of the scan.
struct Reader<'a> {
    /// The projections above the scan, lowest first.
    levels: Vec<&'a ProjectionExec>,
    scan: SchemaRef,
    steps: Vec<Step>,
    limits: Vec<(i64, i64)>,
    group_columns: Vec<usize>,
    expressions_left: usize,
}

/// The result of reading an expression.
#[derive(Clone, Copy)]
enum Operand {
    Step(usize),
    Constant(i64),
}

impl<'a> Reader<'a> {
    fn of(input: &'a Arc<dyn ExecutionPlan>) -> Option<Self> {
        let mut levels = Vec::new();
        let mut node = input;
        while let Some(projection) = node.downcast_ref::<ProjectionExec>() {
            levels.push(projection);
            node = projection.input();
        }
        let scan = node.downcast_ref::<TableScanExec>()?;
        if scan.scan().fetch.is_some() || levels.len() > LEVEL_COUNT_MAX {
            return None;
        }
        levels.reverse();
        Some(Self {
            levels,
            scan: scan.schema(),
            steps: Vec::new(),
            limits: Vec::new(),
            group_columns: Vec::new(),
            expressions_left: EXPRESSION_COUNT_MAX,
        })
    }

    fn field(&self, column: usize) -> Option<&Field> {
        self.scan.fields().get(column).map(AsRef::as_ref)
    }

    /// A group's key over the columns of a batch of group columns.
    fn key(&mut self, key: &Arc<dyn PhysicalExpr>) -> Option<Arc<dyn PhysicalExpr>> {
        if is_volatile(key) {
            return None;
        }
        let mut is_plain = true;
        let moved = Arc::clone(key).transform_up(|expr| {
            let Some(column) = expr.downcast_ref::<Column>() else {
                return Ok(Transformed::no(expr));
            };
            let Some(origin) = self.origin(column.index()) else {
                is_plain = false;
                return Ok(Transformed::no(expr));
            };
            let known = self.group_columns.iter().position(|known| *known == origin);
            let place = known.unwrap_or_else(|| {
                self.group_columns.push(origin);
                self.group_columns.len() - 1
            });
            let moved: Arc<dyn PhysicalExpr> = Arc::new(Column::new(column.name(), place));
            Ok(Transformed::yes(moved))
        });
        moved.ok().filter(|_| is_plain).map(|moved| moved.data)
    }

    /// The column of the scan that a column of the aggregate's input passes on unchanged.
    fn origin(&self, column: usize) -> Option<usize> {
        let mut column = column;
        for level in self.levels.iter().rev() {
            column = level.expr().get(column)?.expr.downcast_ref::<Column>()?.index();
        }
        self.field(column).map(|_| column)
    }

    /// The aggregate of `kind` over a step, behind those `before` it.
    fn sharing(&self, kind: Kind, step: Option<usize>, before: &[Aggregate]) -> Aggregate {
        let (mut step, mut factor, mut plus) = (step, 1_i64, 0_i64);
        while let (Kind::Sum, Some(Step::Affine(of, times, more))) =
            (kind, step.and_then(|step| self.steps.get(step)))
        {
            plus = plus.wrapping_add(factor.wrapping_mul(*more));
            factor = factor.wrapping_mul(*times);
            step = Some(*of);
        }
        let known = before.iter().position(|known| (known.kind, known.step) == (kind, step));
        Aggregate { kind, step, cells: known.unwrap_or(before.len()), factor, plus }
    }

    /// Which steps the cells of `aggregates` use.
    fn computed_steps(&self, aggregates: &[Aggregate]) -> Vec<bool> {
        let mut is_computed = vec![false; self.steps.len()];
        let mut left: Vec<usize> =
            aggregates.iter().filter_map(|aggregate| aggregate.step).collect();
        while let Some(place) = left.pop() {
            if let Some(is_computed) = is_computed.get_mut(place) {
                *is_computed = true;
            }
            match self.steps.get(place) {
                Some(Step::Product(a, b) | Step::Sum(a, _, b, _)) => left.extend([*a, *b]),
                Some(Step::Affine(a, ..)) => left.push(*a),
                Some(Step::Column(_)) | None => {}
            }
        }
        is_computed
    }

    /// What is aggregated, and over which step.
    fn aggregate(&mut self, own: &AggregateFunctionExpr) -> Option<(Kind, Option<usize>)> {
        if own.is_distinct() || !own.order_bys().is_empty() {
            return None;
        }
        let arguments = own.expressions();
        let [argument] = arguments.as_slice() else { return None };
        let constant = argument.downcast_ref::<Literal>();
        let kind = match own.fun().name() {
            "count" => match constant {
                Some(constant) if !constant.value().is_null() => {
                    return Some((Kind::Count, None));
                }
                _ => Kind::Count,
            },
            "min" => Kind::Min,
            "max" => Kind::Max,
            name if name == exact_sum().name() => Kind::Sum,
            _ => return None,
        };
        let Operand::Step(step) = self.operand(argument, self.levels.len())? else { return None };
        // A column's numbers have its type; an expression may have that of a narrower integer.
        if kind != Kind::Sum && !matches!(self.steps.get(step), Some(Step::Column(_))) {
            return None;
        }
        let states = own.state_fields().ok()?;
        let [state] = states.as_slice() else { return None };
        let fits = match (kind, state.data_type()) {
            (Kind::Count, state) => *state == DataType::Int64,
            (Kind::Sum, state) => matches!(state, DataType::Int64 | DataType::Decimal128(..)),
            (Kind::Min | Kind::Max, state) => self.steps.get(step).is_some_and(|step| {
                matches!(step, Step::Column(column)
                    if self.field(*column).is_some_and(|field| field.data_type() == state))
            }),
        };
        fits.then_some((kind, Some(step)))
    }

    /// Reads `expr`, over the output of the projections below `level`.
    fn operand(&mut self, expr: &Arc<dyn PhysicalExpr>, level: usize) -> Option<Operand> {
        self.expressions_left = self.expressions_left.checked_sub(1)?;
        if let Some(column) = expr.downcast_ref::<Column>() {
            let Some(below) = level.checked_sub(1) else {
                let is_number = is_number(self.field(column.index())?.data_type());
                return is_number.then(|| self.step(Step::Column(column.index()), EVERY));
            };
            let projection = *self.levels.get(below)?;
            return self.operand(&projection.expr().get(column.index())?.expr, below);
        }
        if let Some(literal) = expr.downcast_ref::<Literal>() {
            return match literal.value() {
                ScalarValue::Decimal128(Some(value), ..) => {
                    i64::try_from(*value).ok().map(Operand::Constant)
                }
                ScalarValue::Int16(Some(value)) => Some(Operand::Constant((*value).into())),
                ScalarValue::Int32(Some(value)) => Some(Operand::Constant((*value).into())),
                ScalarValue::Int64(Some(value)) => Some(Operand::Constant(*value)),
                _ => None,
            };
        }
        let input = self.input_schema(level);
        if let Some(cast) = expr.downcast_ref::<CastExpr>() {
            let from = cast.expr().data_type(&input).ok()?;
            let value = self.operand(cast.expr(), level)?;
            return self.scaled(value, cast_factor(&from, cast.cast_type())?);
        }
        let function = expr.downcast_ref::<ScalarFunctionExpr>()?;
        let operator = match function.name() {
            "checked_add" => Operator::Plus,
            "checked_subtract" => Operator::Minus,
            "checked_multiply" => Operator::Multiply,
            _ => return None,
        };
        let [left, right] = function.args() else { return None };
        let types = (left.data_type(&input).ok()?, right.data_type(&input).ok()?);
        let (arithmetic, limits) = match (arithmetic(operator, &types.0, &types.1), &types) {
            (Some(arithmetic), _) => (arithmetic, EVERY),
            (None, (left, right)) if left == right => (whole(operator)?, limits(left)?),
            _ => return None,
        };
        let (left, right) = (self.operand(left, level)?, self.operand(right, level)?);
        let result = self.computed(arithmetic, left, right, limits)?;
        match result {
            Operand::Constant(value) if !(limits.0..=limits.1).contains(&value) => None,
            result => Some(result),
        }
    }

    fn input_schema(&self, level: usize) -> SchemaRef {
        match level.checked_sub(1).and_then(|below| self.levels.get(below)) {
            Some(projection) => projection.schema(),
            None => Arc::clone(&self.scan),
        }
    }

    fn computed(
        &mut self,
        how: Arithmetic,
        left: Operand,
        right: Operand,
        limits: (i64, i64),
    ) -> Option<Operand> {
        use Operand::{Constant, Step as Of};
        let mut step = |step| self.step(step, limits);
        Some(match (how, left, right) {
            (Arithmetic::Product, Of(a), Of(b)) => step(Step::Product(a.min(b), a.max(b))),
            (Arithmetic::Product, Of(a), Constant(c))
            | (Arithmetic::Product, Constant(c), Of(a)) => step(Step::Affine(a, c, 0)),
            (Arithmetic::Product, Constant(c), Constant(d)) => Constant(c.checked_mul(d)?),
            (Arithmetic::Sum(x, y), Of(a), Of(b)) => step(Step::Sum(a, x, b, y)),
            (Arithmetic::Sum(x, y), Of(a), Constant(c)) => {
                step(Step::Affine(a, x, c.checked_mul(y)?))
            }
            (Arithmetic::Sum(x, y), Constant(c), Of(b)) => {
                step(Step::Affine(b, y, c.checked_mul(x)?))
            }
            (Arithmetic::Sum(x, y), Constant(c), Constant(d)) => {
                Constant(c.checked_mul(x)?.checked_add(d.checked_mul(y)?)?)
            }
        })
    }

    fn scaled(&mut self, value: Operand, factor: i64) -> Option<Operand> {
        match value {
            Operand::Constant(value) => value.checked_mul(factor).map(Operand::Constant),
            Operand::Step(_) if factor == 1 => Some(value),
            Operand::Step(step) => Some(self.step(Step::Affine(step, factor, 0), EVERY)),
        }
    }

    fn step(&mut self, step: Step, limits: (i64, i64)) -> Operand {
        let mut known = self.steps.iter().zip(&self.limits);
        let known = known.position(|known| known == (&step, &limits));
        Operand::Step(known.unwrap_or_else(|| {
            self.steps.push(step);
            self.limits.push(limits);
            self.steps.len() - 1
        }))
    }
}

/// The arithmetic of integers of one type.
fn whole(operator: Operator) -> Option<Arithmetic> {
    match operator {
        Operator::Plus => Some(Arithmetic::Sum(1, 1)),
        Operator::Minus => Some(Arithmetic::Sum(1, -1)),
        Operator::Multiply => Some(Arithmetic::Product),
        _ => None,
    }
}

/// The least and the greatest integer of a type.
fn limits(data_type: &DataType) -> Option<(i64, i64)> {
    match data_type {
        DataType::Int16 => Some((i16::MIN.into(), i16::MAX.into())),
        DataType::Int32 => Some((i32::MIN.into(), i32::MAX.into())),
        DataType::Int64 => Some(EVERY),
        _ => None,
    }
}

/// Types whose values pages store as 64-bit integers, if they fit.
fn is_number(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::Decimal128(..)
            | DataType::Date32
            | DataType::Time64(_)
            | DataType::Timestamp(..)
    )
}
