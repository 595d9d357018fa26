//! `string_agg` within the bound of [`bounded`](super::bounded): DataFusion's aggregate, whose size is computed before
//! it grows by a batch, or by all that it has gathered.
//!
//! A delimiter is added for each row, and the memory pool hears of the growth only after each batch.

use std::mem::size_of_val;
use std::sync::{Arc, OnceLock};

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion_common::{Result, ScalarValue, internal_err, not_impl_err};
use datafusion_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion_expr::utils::AggregateOrderSensitivity;
use datafusion_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, EmitTo, GroupsAccumulator,
    ReversedUDAF, Signature,
};
use datafusion_functions_aggregate::array_agg::array_agg_udaf;
use datafusion_functions_aggregate::string_agg::string_agg_udaf;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::Literal;

use super::bounded::{check_size, sum_of_lengths};

const NAME: &str = "string_agg";
/// Rows of the largest batch that a statement may ask for. DataFusion makes a delimiter for each of them, also where it
/// is not used.
const BATCH_ROWS_MAX: usize = 65_536;

/// The function, in place of DataFusion's.
pub fn string_agg() -> Arc<AggregateUDF> {
    static FUNCTION: OnceLock<Arc<AggregateUDF>> = OnceLock::new();
    Arc::clone(FUNCTION.get_or_init(|| {
        Arc::new(AggregateUDF::from(StringAgg {
            engines: string_agg_udaf(),
            gathering: array_agg_udaf(),
        }))
    }))
}

/// The delimiter among the arguments of a `string_agg`, a literal; empty if there is none.
pub(crate) fn delimiter(arguments: &[Arc<dyn PhysicalExpr>]) -> &str {
    constant(arguments).and_then(|value| value.try_as_str().flatten()).unwrap_or_default()
}

/// The value of the delimiter, if it is the same for all rows.
fn constant(arguments: &[Arc<dyn PhysicalExpr>]) -> Option<&ScalarValue> {
    arguments.get(1)?.downcast_ref::<Literal>().map(Literal::value)
}

/// The constant delimiter, if a batch of it is within the bound.
///
/// # Errors
/// DataFusion's if it is not constant; [`check_size`]'s.
fn bounded_delimiter(arguments: &[Arc<dyn PhysicalExpr>]) -> Result<&str> {
    let is_text = |value: &ScalarValue| value.is_null() || value.try_as_str().is_some();
    if !constant(arguments).is_some_and(is_text) {
        return not_impl_err!("string_agg delimiter must be a string literal");
    }
    let delimiter = delimiter(arguments);
    let bytes = (delimiter.len() as u64).saturating_mul(BATCH_ROWS_MAX as u64);
    check_size(NAME, bytes, BATCH_ROWS_MAX)?;
    Ok(delimiter)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct StringAgg {
    engines: Arc<AggregateUDF>,
    /// For values that are ordered or distinct.
    gathering: Arc<AggregateUDF>,
}

impl AggregateUDFImpl for StringAgg {
    fn name(&self) -> &'static str {
        NAME
    }

    fn signature(&self) -> &Signature {
        self.engines.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.engines.return_type(arg_types)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        self.engines.state_fields(args)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let delimiter = bounded_delimiter(args.exprs)?.to_owned();
        if !args.is_distinct && args.order_bys.is_empty() {
            let delimiter_bytes = delimiter.len();
            return Ok(Box::new(Bounded {
                inner: self.engines.accumulator(args)?,
                delimiter_bytes,
                taken_bytes: 0,
            }));
        }
        let list = DataType::new_list(args.return_field.data_type().clone(), true);
        let values = self.gathering.accumulator(AccumulatorArgs {
            return_field: Arc::new(Field::new("values", list, true)),
            exprs: args.exprs.get(..1).unwrap_or_default(),
            expr_fields: args.expr_fields.get(..1).unwrap_or_default(),
            ..args
        })?;
        Ok(Box::new(Gathered { values, delimiter }))
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.engines.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        let delimiter_bytes = bounded_delimiter(args.exprs)?.len();
        let inner = self.engines.create_groups_accumulator(args)?;
        Ok(Box::new(Bounded { inner, delimiter_bytes, taken_bytes: 0 }))
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Reversed(string_agg())
    }

    /// Values that do not come in their order are sorted here: several aggregates may ask for several orders.
    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::SoftRequirement
    }

    fn with_beneficial_ordering(
        self: Arc<Self>,
        is_ordered: bool,
    ) -> Result<Option<Arc<dyn AggregateUDFImpl>>> {
        let gathering =
            AggregateUDF::clone(&self.gathering).with_beneficial_ordering(is_ordered)?;
        Ok(gathering.map(|gathering| {
            let gathering = Arc::new(gathering);
            Arc::new(Self { engines: Arc::clone(&self.engines), gathering }) as _
        }))
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.engines.documentation()
    }
}

/// An accumulator of DataFusion whose size is checked before it takes a batch.
#[derive(Debug)]
struct Bounded<A> {
    inner: A,
    delimiter_bytes: usize,
    /// Bytes of the text gathered so far; 0 if there is one for each group.
    taken_bytes: u64,
}

impl<A> Bounded<A> {
    /// Refuses a batch that would make the texts too large.
    fn check(&self, values: &[ArrayRef]) -> Result<u64> {
        let Some(values) = values.first() else { return Ok(0) };
        let grown = grown_by(values, self.delimiter_bytes)?;
        check_size(NAME, self.taken_bytes.saturating_add(grown), values.len())?;
        Ok(grown)
    }
}

/// The bytes of all of `values`, each with a delimiter.
fn grown_by(values: &ArrayRef, delimiter_bytes: usize) -> Result<u64> {
    let count = values.len().saturating_sub(values.null_count()) as u64;
    let delimiters = count.saturating_mul(delimiter_bytes as u64);
    let texts = sum_of_lengths(&[Arc::clone(values).into()], values.len())?;
    Ok(texts.saturating_add(delimiters))
}

impl Accumulator for Bounded<Box<dyn Accumulator>> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.taken_bytes += self.check(values)?;
        self.inner.update_batch(values)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.inner.evaluate()
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.taken_bytes = 0;
        self.inner.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.taken_bytes += self.check(states)?;
        self.inner.merge_batch(states)
    }
}

impl GroupsAccumulator for Bounded<Box<dyn GroupsAccumulator>> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.check(values)?;
        self.inner.update_batch(values, group_indices, opt_filter, total_num_groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        self.inner.evaluate(emit_to)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.inner.state(emit_to)
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.check(values)?;
        self.inner.merge_batch(values, group_indices, total_num_groups)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        self.inner.convert_to_state(values, opt_filter)
    }

    fn size(&self) -> usize {
        self.inner.size()
    }
}

/// Values that are concatenated once all have arrived.
#[derive(Debug)]
struct Gathered {
    values: Box<dyn Accumulator>,
    delimiter: String,
}

impl Accumulator for Gathered {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        // The delimiter is a column of its own, before those that order the values.
        let without: Vec<ArrayRef> =
            values.iter().take(1).chain(values.iter().skip(2)).cloned().collect();
        self.values.update_batch(&without)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let ScalarValue::List(list) = self.values.evaluate()? else {
            return internal_err!("values of {NAME} are gathered as a list");
        };
        let values = list.iter().flatten().next();
        let Some(values) = values else { return Ok(ScalarValue::LargeUtf8(None)) };
        let bytes = grown_by(&values, self.delimiter.len())?;
        check_size(NAME, bytes, values.len())?;
        let values = cast(&values, &DataType::LargeUtf8)?;
        let mut joined: Option<String> = None;
        for value in values.as_string::<i64>().iter().flatten() {
            match &mut joined {
                Some(joined) => {
                    joined.push_str(&self.delimiter);
                    joined.push_str(value);
                }
                none => {
                    let mut first = String::with_capacity(usize::try_from(bytes).unwrap_or(0));
                    first.push_str(value);
                    *none = Some(first);
                }
            }
        }
        Ok(ScalarValue::LargeUtf8(joined))
    }

    fn size(&self) -> usize {
        let own = size_of_val(self) - size_of_val(&self.values);
        own + self.values.size() + self.delimiter.capacity()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.values.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.values.merge_batch(states)
    }
}
