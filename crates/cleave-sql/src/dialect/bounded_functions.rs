//! Replaces functions whose memory or time DataFusion does not limit by limited ones: `||` of texts and bytes, and of
//! lists; LIKE and ILIKE with [many wildcards](super::functions::like_by_steps).

use cleave_fragment::functions::bounded::in_place_of;
use cleave_fragment::functions::{concatenate, is_concatenated, lower};
use cleave_fragment::walk::{Walk, WalkPlan};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::type_coercion::binary::BinaryTypeCoercer;
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, Like, LogicalPlan, Operator, cast,
};
use datafusion::optimizer::AnalyzerRule;

use super::functions::like_by_steps;
use super::rewrite::{has_expression, rewrite_expressions};

/// Wildcards `%` of a pattern that DataFusion looks for.
const WILDCARD_COUNT_MAX: usize = 16;

/// Replaces a chain of `||` by one function that builds the whole result at once, and functions bound without a look-up
/// by the limited ones of their name. Types are settled by then.
#[derive(Debug)]
pub struct BoundedFunctions;

impl AnalyzerRule for BoundedFunctions {
    fn name(&self) -> &'static str {
        "bounded_functions"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let concerns = |expr: &Expr| match expr {
            Expr::Like(like) => goes_by_steps(like),
            Expr::ScalarFunction(function) => in_place_of(&function.func).is_some(),
            Expr::BinaryExpr(binary) => binary.op == Operator::StringConcat,
            _ => false,
        };
        if !has_expression(&plan, concerns)? {
            return Ok(plan);
        }
        let bounded = |plan| rewrite_expressions(plan, &|expr, schema| Ok(bounded(expr, schema)));
        Ok(plan.transform_up_everywhere(bounded)?.data)
    }
}

fn bounded(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    match expr {
        Expr::ScalarFunction(function) => match in_place_of(&function.func) {
            Some(ours) => Transformed::yes(ours.call(function.args)),
            None => Transformed::no(Expr::ScalarFunction(function)),
        },
        Expr::Like(like)
            if goes_by_steps(&like)
                && type_of(&like.expr, schema) == Some(DataType::Utf8)
                && type_of(&like.pattern, schema) == Some(DataType::Utf8) =>
        {
            let (mut text, mut pattern) = (plain(like.expr, schema), plain(like.pattern, schema));
            if like.case_insensitive {
                [&mut text, &mut pattern].into_iter().for_each(|part| {
                    let own = std::mem::take(&mut **part);
                    **part = lower().call(vec![own]);
                });
            }
            let found = like_by_steps().call(vec![*text, *pattern]);
            Transformed::yes(if like.negated { !found } else { found })
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::StringConcat, right })
            if type_of(&left, schema).is_some_and(|left| Some(left) == type_of(&right, schema)) =>
        {
            // Texts that some functions make in another form, for which the expressions around this have been typed.
            let own = type_of_link(&left, &right, schema);
            let right = plain(right, schema);
            let mut operands = match without_cast(*left) {
                Expr::ScalarFunction(chain) if is_chain(&chain) => chain.args,
                left => vec![*plain(Box::new(left), schema)],
            };
            operands.push(*right);
            let chain = concatenate().call(operands);
            Transformed::yes(match own {
                Some(own) if is_other_text(&own) => cast(chain, own),
                _ => chain,
            })
        }
        expr => Transformed::no(expr),
    }
}

fn is_call(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(call) if !is_chain(call))
}

/// Whether LIKE is not left to DataFusion: its pattern has many wildcards, or may have them.
fn goes_by_steps(like: &Like) -> bool {
    let is_long = match &*like.pattern {
        Expr::Literal(pattern, _) => pattern.try_as_str().flatten().is_some_and(|pattern| {
            pattern.bytes().filter(|byte| *byte == b'%').nth(WILDCARD_COUNT_MAX).is_some()
        }),
        // What a call makes may be long; `||` of short texts is not.
        pattern => pattern.exists(|part| Ok(is_call(part))).unwrap_or(true),
    };
    is_long && like.escape_char.is_none_or(|escape| escape == '\\')
}

/// The type of `left || right`.
fn type_of_link(left: &Expr, right: &Expr, schema: &DFSchema) -> Option<DataType> {
    let left = match left {
        // Its operands have been made plain.
        Expr::ScalarFunction(chain) if is_chain(chain) => type_of(left, schema)?,
        left => left.get_type(schema).ok()?,
    };
    let types = (left, right.get_type(schema).ok()?);
    BinaryTypeCoercer::new(&types.0, &Operator::StringConcat, &types.1).get_result_type().ok()
}

fn is_other_text(own: &DataType) -> bool {
    matches!(own, DataType::Utf8View | DataType::LargeUtf8)
}

fn plain(text: Box<Expr>, schema: &DFSchema) -> Box<Expr> {
    match text.get_type(schema) {
        Ok(own) if is_other_text(&own) => Box::new(cast(*text, DataType::Utf8)),
        _ => text,
    }
}

/// A chain without the cast to another form of texts.
fn without_cast(expr: Expr) -> Expr {
    match expr {
        Expr::Cast(cast)
            if is_other_text(cast.field.data_type())
                && matches!(&*cast.expr, Expr::ScalarFunction(own) if is_chain(own)) =>
        {
            *cast.expr
        }
        expr => expr,
    }
}

fn is_chain(function: &ScalarFunction) -> bool {
    *function.func == *concatenate()
}

/// The type of an operand, where it is one of those that the function takes.
fn type_of(expr: &Expr, schema: &DFSchema) -> Option<DataType> {
    // A chain is asked once for each link: its type is that of its last operand.
    if let Expr::ScalarFunction(function) = expr
        && is_chain(function)
        && let Some(last) = function.args.last()
    {
        return type_of(last, schema);
    }
    match expr.get_type(schema).ok()? {
        own if is_other_text(&own) => Some(DataType::Utf8),
        own => is_concatenated(&own).then_some(own),
    }
}
