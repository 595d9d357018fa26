//! Expressions with volatile calls, simplified so that each call still stands once.
//!
//! DataFusion copies operands: `CASE WHEN random() < 0.5 THEN a ELSE b END` becomes `random() < 0.5 AND a OR NOT
//! (random() < 0.5) AND b`, and `floor(random() * 10) = 3` becomes `random() * 10 >= 3 AND random() * 10 < 4`. So:
//!
//! 1. each call becomes a column of its own, which no rule takes for another one;
//! 2. the expression is simplified, and the calls are put back;
//! 3. if a call would stand twice, the expression stays, and its parts are simplified instead.

use std::collections::HashMap;
use std::sync::Arc;

use cleave_fragment::walk::{Walk, WalkPlan};
use datafusion::arrow::datatypes::Field;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, DFSchemaRef};
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::simplify::ExprSimplifyResult;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use datafusion::optimizer::OptimizerConfig;
use datafusion::optimizer::simplify_expressions::{ExprSimplifier, SimplifyContext};

/// Prefix of the reserved names of such columns.
const CALL: &str = "__volatile_call_";

/// Simplifies the expressions of one operator, as DataFusion's rule does.
pub(super) fn simplify_node(
    plan: LogicalPlan,
    config: &dyn OptimizerConfig,
) -> Result<Transformed<LogicalPlan>> {
    let schema = match &plan {
        LogicalPlan::TableScan(scan) => {
            let (name, schema) = (scan.table_name.clone(), scan.source.schema());
            DFSchema::try_from_qualified_schema(name, &schema)?
        }
        _ => merge_schema(&plan.inputs()),
    };
    // The sides of a join's conditions are those of its inputs.
    let may_swap = !matches!(plan, LogicalPlan::Join(_));
    let schema = Arc::new(schema);
    let simplifier = Simplifier::new(&schema, config, may_swap);
    let names = NamePreserver::new(&plan);
    let simplify = |expr: Expr| {
        let name = names.save(&expr);
        Ok(simplifier.simplify(expr)?.update_data(|expr| name.restore(expr)))
    };
    plan.change_expressions(|expr| match expr {
        expr @ Expr::GroupingSet(_) => expr.map_children(simplify),
        expr => simplify(expr),
    })
}

/// Simplifies expressions over one schema.
pub(super) struct Simplifier<'a> {
    schema: &'a DFSchemaRef,
    config: &'a dyn OptimizerConfig,
    /// Whether a comparison's sides may change places.
    may_swap: bool,
}

impl<'a> Simplifier<'a> {
    pub(super) fn new(
        schema: &'a DFSchemaRef,
        config: &'a dyn OptimizerConfig,
        may_swap: bool,
    ) -> Self {
        Self { schema, config, may_swap }
    }

    /// `expr`, simplified.
    pub(super) fn simplify(&self, expr: Expr) -> Result<Transformed<Expr>> {
        let mut calls: Vec<Expr> = Vec::new();
        let without = expr.clone().transform_down(|part| {
            if !part.is_volatile_node() {
                return Ok(Transformed::no(part));
            }
            let column = Expr::Column(Column::from_name(name_of(calls.len())));
            calls.push(self.simplified_call(part)?);
            Ok(Transformed::new(column, true, TreeNodeRecursion::Jump))
        })?;
        let schema = self.with_columns(&calls)?;
        let simplified =
            self.simplifier(schema).simplify_with_cycle_count_transformed(without.data)?;
        let simplified = simplified.0;
        if calls.is_empty() {
            return Ok(simplified);
        }
        let mut places = vec![0; calls.len()];
        simplified.data.apply(|part| {
            if let Some(count) = place_of(part).and_then(|place| places.get_mut(place)) {
                *count += 1;
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        if places.into_iter().any(|count| count > 1) {
            return expr.map_children(|part| self.simplify(part));
        }
        let restored = simplified.data.transform_up(|part| {
            let call = place_of(&part).and_then(|place| calls.get(place));
            Ok(call.map_or_else(|| Transformed::no(part), |call| Transformed::yes(call.clone())))
        })?;
        let is_changed = simplified.transformed || restored.data != expr;
        Ok(Transformed::new_transformed(restored.data, is_changed))
    }

    /// A volatile call, with what the function itself makes of it: `nextval` finds its sequence then.
    fn simplified_call(&self, call: Expr) -> Result<Expr> {
        let call = call.map_children(|argument| self.simplify(argument))?.data;
        let Expr::ScalarFunction(ScalarFunction { func, args }) = call else { return Ok(call) };
        let context = self.context(Arc::clone(self.schema));
        Ok(match func.simplify(args, &context)? {
            ExprSimplifyResult::Simplified(simplified) => simplified,
            ExprSimplifyResult::Original(args) => {
                Expr::ScalarFunction(ScalarFunction { func, args })
            }
        })
    }

    fn simplifier(&self, schema: DFSchemaRef) -> ExprSimplifier {
        ExprSimplifier::new(self.context(schema)).with_canonicalize(self.may_swap)
    }

    fn context(&self, schema: DFSchemaRef) -> SimplifyContext {
        SimplifyContext::builder()
            .with_schema(schema)
            .with_config_options(self.config.options())
            .with_query_execution_start_time(self.config.query_execution_start_time())
            .build()
    }

    /// The schema, with a column for each call.
    fn with_columns(&self, calls: &[Expr]) -> Result<DFSchemaRef> {
        if calls.is_empty() {
            return Ok(Arc::clone(self.schema));
        }
        let fields = calls.iter().enumerate().map(|(place, call)| {
            Ok(Arc::new(Field::new(name_of(place), call.get_type(self.schema)?, true)))
        });
        let fields = fields.map(|field| field.map(|field| (None, field)));
        let columns = DFSchema::new_with_metadata(fields.collect::<Result<_>>()?, HashMap::new())?;
        Ok(Arc::new(self.schema.join(&columns)?))
    }
}

/// Names sort as the calls stand: of two columns DataFusion puts the lesser on the left.
fn name_of(place: usize) -> String {
    format!("{CALL}{place:08}")
}

fn place_of(expr: &Expr) -> Option<usize> {
    match expr {
        Expr::Column(column) => column.name.strip_prefix(CALL)?.parse().ok(),
        _ => None,
    }
}
