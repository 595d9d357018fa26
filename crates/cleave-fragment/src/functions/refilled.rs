//! An aggregate over a window whose start moves, computed anew from the rows that are left.
//!
//! For aggregates that cannot take a row away exactly. While rows only enter, they are added to what there is. Once one
//! has left, the next result costs a pass over all rows of the window, as in PostgreSQL, which computes aggregates of
//! floats so.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::compute::concat;
use arrow::datatypes::{FieldRef, Schema};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::function::AccumulatorArgs;
use datafusion_expr::{Accumulator, AggregateUDF};
use datafusion_physical_expr::{PhysicalExpr, PhysicalSortExpr};

use crate::wanted;

/// See the module.
#[derive(Debug)]
pub(super) struct Refilled {
    recipe: Recipe,
    inner: Box<dyn Accumulator>,
    /// The rows of the window, a column for each argument, in parts.
    rows: Vec<Vec<ArrayRef>>,
    /// Rows at their start that have left.
    gone: usize,
    /// A row has left since `inner` was filled.
    is_stale: bool,
}

/// What makes an accumulator.
#[derive(Debug)]
struct Recipe {
    function: Arc<AggregateUDF>,
    return_field: FieldRef,
    schema: Schema,
    ignore_nulls: bool,
    order_bys: Vec<PhysicalSortExpr>,
    is_reversed: bool,
    name: String,
    is_distinct: bool,
    exprs: Vec<Arc<dyn PhysicalExpr>>,
    expr_fields: Vec<FieldRef>,
}

impl Recipe {
    fn make(&self) -> Result<Box<dyn Accumulator>> {
        self.function.accumulator(AccumulatorArgs {
            return_field: Arc::clone(&self.return_field),
            schema: &self.schema,
            ignore_nulls: self.ignore_nulls,
            order_bys: &self.order_bys,
            is_reversed: self.is_reversed,
            name: &self.name,
            is_distinct: self.is_distinct,
            exprs: &self.exprs,
            expr_fields: &self.expr_fields,
        })
    }
}

impl Refilled {
    /// `function`, of which this uses the accumulator that takes no row away.
    pub(super) fn new(function: &Arc<AggregateUDF>, args: AccumulatorArgs) -> Result<Self> {
        let recipe = Recipe {
            function: Arc::clone(function),
            return_field: args.return_field,
            schema: args.schema.clone(),
            ignore_nulls: args.ignore_nulls,
            order_bys: args.order_bys.to_vec(),
            is_reversed: args.is_reversed,
            name: args.name.to_owned(),
            is_distinct: args.is_distinct,
            exprs: args.exprs.to_vec(),
            expr_fields: args.expr_fields.to_vec(),
        };
        let inner = recipe.make()?;
        Ok(Self { recipe, inner, rows: Vec::new(), gone: 0, is_stale: false })
    }

    /// Fills a new accumulator with the rows that are left.
    fn refill(&mut self) -> Result<()> {
        wanted::look()?;
        let mut columns = Vec::new();
        for column in 0..self.recipe.exprs.len() {
            let parts: Vec<_> =
                self.rows.iter().filter_map(|part| Some(part.get(column)?.as_ref())).collect();
            if parts.is_empty() {
                continue;
            }
            let all = concat(&parts)?;
            let gone = self.gone.min(all.len());
            columns.push(all.slice(gone, all.len() - gone));
        }
        self.inner = self.recipe.make()?;
        self.rows.clear();
        if columns.first().is_some_and(|column| !column.is_empty()) {
            self.inner.update_batch(&columns)?;
            self.rows.push(columns);
        }
        (self.gone, self.is_stale) = (0, false);
        Ok(())
    }
}

impl Accumulator for Refilled {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.rows.push(values.to_vec());
        match self.is_stale {
            true => Ok(()),
            false => self.inner.update_batch(values),
        }
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let left = values.first().map_or(0, |column| column.len());
        self.gone += left;
        self.is_stale |= left > 0;
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        if self.is_stale {
            self.refill()?;
        }
        self.inner.evaluate()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        if self.is_stale {
            self.refill()?;
        }
        self.inner.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.inner.merge_batch(states)
    }

    fn size(&self) -> usize {
        let rows = self.rows.iter().flatten().map(|column| column.get_array_memory_size());
        size_of_val(self) + self.inner.size() + rows.sum::<usize>()
    }
}
