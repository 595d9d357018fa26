//! Operands that are evaluated once, as in PostgreSQL. DataFusion copies an operand: `x BETWEEN a AND b` becomes `x >=
//! a AND x <= b`, and `coalesce(x, y)` becomes `CASE WHEN x IS NOT NULL THEN x ELSE y END`, so `random()` and `nextval`
//! would give two values.
//!
//! If such an operand is volatile, the expression becomes a function, whose arguments are all evaluated first.
//!
//! Calls that wait, as `pg_advisory_unlock(1)`, are evaluated before the expressions around them, equal ones once. If
//! one is volatile, the second call of equal text becomes another function.

use cleave_fragment::walk::{Walk, WalkPlan};
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::compute::kernels::cmp::{gt_eq, lt_eq};
use datafusion::arrow::compute::kernels::zip::zip;
use datafusion::arrow::compute::{and_kleene, is_not_null};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::async_udf::{AsyncScalarUDF, AsyncScalarUDFImpl};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::type_coercion::binary::try_type_union_resolution;
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility, not,
};
use datafusion::optimizer::AnalyzerRule;

use super::rewrite::has_expression;

/// See the module.
#[derive(Debug)]
pub struct VolatileOperands;

impl AnalyzerRule for VolatileOperands {
    fn name(&self) -> &'static str {
        "volatile_operands"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        if !has_expression(&plan, |expr| copies_volatile(expr) || waits(expr))? {
            return Ok(plan);
        }
        let rewritten = plan.transform_up_everywhere(|node| {
            let mut calls: Vec<Expr> = Vec::new();
            node.change_expressions(|expr| {
                expr.transform_up(|expr| match waits(&expr) {
                    true => Ok(told_apart(expr, &mut calls)),
                    false => Ok(once(expr)),
                })
            })
        });
        Ok(rewritten?.data)
    }
}

/// Whether `expr` is a volatile call that waits.
fn waits(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(call) if call.func.as_async().is_some())
        && expr.is_volatile_node()
}

/// `call`, different from those before it in `calls`.
fn told_apart(call: Expr, calls: &mut Vec<Expr>) -> Transformed<Expr> {
    let is_known = calls.contains(&call);
    calls.push(call.clone());
    match call {
        Expr::ScalarFunction(call) if is_known => {
            let placed = Placed { inner: call.func, place: calls.len() };
            let func = Arc::new(AsyncScalarUDF::new(Arc::new(placed)).into_scalar_udf());
            Transformed::yes(Expr::ScalarFunction(ScalarFunction { func, args: call.args }))
        }
        call => Transformed::no(call),
    }
}

/// A function that waits, as it is called at one place.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Placed {
    inner: Arc<ScalarUDF>,
    place: usize,
}

impl ScalarUDFImpl for Placed {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(types)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.inner.invoke_with_args(args)
    }
}

impl AsyncScalarUDFImpl for Placed {
    fn invoke_async_with_args<'a, 'f>(
        &'a self,
        args: ScalarFunctionArgs,
    ) -> Pin<Box<dyn Future<Output = Result<ColumnarValue>> + Send + 'f>>
    where
        'a: 'f,
    {
        match self.inner.as_async() {
            Some(inner) => Box::pin(inner.invoke_async_with_args(args)),
            None => Box::pin(ready(self.inner.invoke_with_args(args))),
        }
    }
}

/// Whether DataFusion would copy a volatile operand of `expr`.
fn copies_volatile(expr: &Expr) -> bool {
    match expr {
        Expr::Between(between) => between.expr.is_volatile(),
        Expr::ScalarFunction(function) if function.func.name() == "coalesce" => {
            let copied = function.args.split_last().map(|(_, copied)| copied);
            copied.is_some_and(|copied| copied.iter().any(Expr::is_volatile))
        }
        _ => false,
    }
}

fn once(expr: Expr) -> Transformed<Expr> {
    if !copies_volatile(&expr) {
        return Transformed::no(expr);
    }
    match expr {
        Expr::Between(between) => {
            let args = vec![*between.expr, *between.low, *between.high];
            let call = call(&BETWEEN, args);
            Transformed::yes(if between.negated { not(call) } else { call })
        }
        Expr::ScalarFunction(function) => Transformed::yes(call(&COALESCE, function.args)),
        other => Transformed::no(other),
    }
}

fn call(function: &LazyLock<Arc<ScalarUDF>>, args: Vec<Expr>) -> Expr {
    Expr::ScalarFunction(ScalarFunction { func: Arc::clone(function), args })
}

static BETWEEN: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| Once::function("between_once"));
static COALESCE: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| Once::function("coalesce_once"));

/// `between_once(x, low, high)` or `coalesce_once(x, …)`.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Once {
    name: &'static str,
    signature: Signature,
}

impl Once {
    fn function(name: &'static str) -> Arc<ScalarUDF> {
        let signature = Signature::user_defined(Volatility::Volatile);
        Arc::new(ScalarUDF::new_from_impl(Self { name, signature }))
    }

    fn is_between(&self) -> bool {
        self.name == "between_once"
    }
}

impl ScalarUDFImpl for Once {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types.iter().find(|data_type| !data_type.is_null()) {
            _ if self.is_between() => Ok(DataType::Boolean),
            Some(data_type) => Ok(data_type.clone()),
            None => Ok(DataType::Null),
        }
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        if types.is_empty() {
            return plan_err!("{} of nothing", self.name);
        }
        try_type_union_resolution(types)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = args.args.iter().map(|arg| arg.to_array(args.number_rows));
        let arrays: Vec<ArrayRef> = arrays.collect::<Result<_>>()?;
        if self.is_between() {
            let [value, low, high] = arrays.as_slice() else {
                return exec_err!("BETWEEN has two bounds");
            };
            let both = and_kleene(&gt_eq(value, low)?, &lt_eq(value, high)?)?;
            return Ok(ColumnarValue::Array(Arc::new(both)));
        }
        let mut rest = arrays.into_iter();
        let Some(mut found) = rest.next() else { return exec_err!("COALESCE of nothing") };
        for other in rest {
            if found.logical_null_count() == 0 {
                break;
            }
            found = zip(&is_not_null(&found)?, &found, &other)?;
        }
        Ok(ColumnarValue::Array(found))
    }
}
