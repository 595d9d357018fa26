//! Calls of functions that stand for an operator or a cast of SQL, as a person wrote them: `checked_add(a, 1)` is
//! `a + 1`. A call in, how it is written out.
//!
//! Source: `cleave_fragment::functions` and `cleave_sql::dialect`, which put these functions in their place.

use std::sync::Arc;

use cleave_fragment::functions::{CHECKED_CHAIN, link_of};
use datafusion::common::ScalarValue;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};

/// How tightly operators hold together, as DataFusion has it.
const CONCATENATION: u8 = 30;
const SUM: u8 = 40;
const PRODUCT: u8 = 45;

/// How a call is written.
pub(super) enum Call<'a> {
    /// Operators between operands, from the left; of one precedence.
    Operators { links: Vec<&'static str>, precedence: u8, operands: &'a [Arc<dyn PhysicalExpr>] },
    /// The operand alone: the function changes how it is computed, and not what it is.
    Operand(&'a Arc<dyn PhysicalExpr>),
    /// The operand as a value of another type.
    Cast(&'a Arc<dyn PhysicalExpr>, &'static str),
    /// By its name.
    Named,
}

impl<'a> Call<'a> {
    /// How `call` is written.
    pub(super) fn of(call: &'a ScalarFunctionExpr) -> Self {
        match (call.name(), call.args()) {
            (CHECKED_CHAIN, [links, operands @ ..]) => chain(links, operands),
            ("concatenate", operands @ [_, _, ..]) => {
                let links = vec!["||"; operands.len() - 1];
                Self::Operators { links, precedence: CONCATENATION, operands }
            }
            ("double_of", [operand]) => Self::Cast(operand, "double precision"),
            ("real_of", [operand]) => Self::Cast(operand, "real"),
            ("numeric_of" | "rounded_numeric_of", [operand]) => Self::Cast(operand, "numeric"),
            ("text_of", [operand]) => Self::Cast(operand, "text"),
            (
                "assigned" | "constant" | "interval_span" | "like_pattern" | "opaque",
                [operand, ..],
            ) => Self::Operand(operand),
            (name, operands @ [_, _]) => match operator(name) {
                Some((link, precedence)) => {
                    Self::Operators { links: vec![link], precedence, operands }
                }
                None => Self::Named,
            },
            _ => Self::Named,
        }
    }
}

/// The operator that a function of two operands stands for.
fn operator(function: &str) -> Option<(&'static str, u8)> {
    if let Some(link) = link_of(function) {
        return link_text(link);
    }
    Some(match function {
        "time_plus" | "date_plus" => ("+", SUM),
        "time_minus" | "date_minus" | "moments_between" | "days_between" => ("-", SUM),
        "interval_times" => ("*", PRODUCT),
        "checked_divide" | "quotient" | "average_of" | "interval_divided" => ("/", PRODUCT),
        _ => return None,
    })
}

fn link_text(link: char) -> Option<(&'static str, u8)> {
    match link {
        '+' => Some(("+", SUM)),
        '-' => Some(("-", SUM)),
        '*' => Some(("*", PRODUCT)),
        _ => None,
    }
}

/// A chain of operators, which its first argument lists.
fn chain<'a>(listed: &Arc<dyn PhysicalExpr>, operands: &'a [Arc<dyn PhysicalExpr>]) -> Call<'a> {
    let listed = listed.downcast_ref::<Literal>().map(Literal::value);
    let Some(ScalarValue::Utf8(Some(listed))) = listed else { return Call::Named };
    let links: Option<Vec<_>> = listed.chars().map(link_text).collect();
    let Some(links) = links.filter(|links| links.len() + 1 == operands.len()) else {
        return Call::Named;
    };
    let Some(precedence) = links.first().map(|(_, precedence)| *precedence) else {
        return Call::Named;
    };
    // Evaluated from the left, whatever the operators: SQL would need brackets.
    if links.iter().any(|(_, other)| *other != precedence) {
        return Call::Named;
    }
    let links = links.into_iter().map(|(link, _)| link).collect();
    Call::Operators { links, precedence, operands }
}
