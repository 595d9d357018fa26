//! Intervals under `IntervalStyle = sql_standard`: a minus before the first field alone is of all fields.
//!
//! ```text
//!  interval '-1 2:03:04'  ─▶ interval '0 months -1 days -7384000000 microseconds'
//! ```
//!
//! Texts of columns and of clients are read as in the other styles.
//!
//! Source: PostgreSQL's documentation, "Interval Input".

use std::ops::ControlFlow;

use cleave_fragment::functions::interval_text::{self, Fields};
use datafusion::sql::sqlparser::ast::{self, DataType, Expr};

use super::lower_calls::{in_units, names_of};
use crate::visiting::visit_expressions_mut;

/// Gives the constants of `query` the signs that this style gives them.
pub fn sign_intervals(query: &mut ast::Query) {
    let flow: ControlFlow<()> = visit_expressions_mut(query, |expression| {
        let text = match expression {
            Expr::Interval(interval) => {
                let fields = names_of(interval);
                match interval.value.as_mut() {
                    Expr::Value(value) => Some((&mut value.value, fields)),
                    _ => None,
                }
            }
            Expr::Cast { expr, data_type: DataType::Interval { fields, .. }, .. } => {
                match expr.as_mut() {
                    Expr::Value(value) => Some((&mut value.value, named(fields))),
                    _ => None,
                }
            }
            Expr::TypedString(ast::TypedString {
                value,
                data_type: DataType::Interval { fields, .. },
                ..
            }) => Some((&mut value.value, named(fields))),
            _ => None,
        };
        if let Some((ast::Value::SingleQuotedString(text), fields)) = text
            && text.trim_start().starts_with('-')
            && let Some(fields) = Fields::named(&fields)
            && let Ok(read) = interval_text::parse_in(text, fields, true)
        {
            *text = in_units(read);
        }
        ControlFlow::Continue(())
    });
    debug_assert!(flow.is_continue(), "nothing stops the visit");
}

fn named(fields: &Option<ast::IntervalFields>) -> String {
    fields.as_ref().map(ToString::to_string).unwrap_or_default()
}
