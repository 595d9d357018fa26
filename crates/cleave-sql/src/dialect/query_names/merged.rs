//! USING and NATURAL: two columns become one, which comes first and has the value of whichever side has a row.
//!
//! DataFusion merges to the left side alone, and finds the column by its name only in some places. So the column is
//! rewritten to its expression wherever its name stands alone; the condition to ON where the other side may have rows
//! without a match (RIGHT and FULL JOIN).

use cleave_catalog::error::{Error, Fault, NameKind, Position, Result};
use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, Expr, Ident, JoinConstraint, JoinOperator,
};

use super::Walk;
use super::from::{FromItem, Offered};
use crate::dialect::row_comparison::binary;
use crate::statement::catalog_syntax::call;
use crate::statement::names::{fold, position_of};

/// The side of a merged column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Left,
    Right,
    Either,
}

impl Walk<'_> {
    /// The columns that `left` and `right` offer together.
    pub(super) fn join(
        &mut self,
        left: FromItem,
        operator: &mut JoinOperator,
        right: FromItem,
    ) -> Result<FromItem> {
        let (side, constraint) = match operator {
            JoinOperator::Join(constraint)
            | JoinOperator::Inner(constraint)
            | JoinOperator::Left(constraint)
            | JoinOperator::LeftOuter(constraint) => (Side::Left, constraint),
            JoinOperator::Right(constraint) | JoinOperator::RightOuter(constraint) => {
                (Side::Right, constraint)
            }
            JoinOperator::FullOuter(constraint) => (Side::Either, constraint),
            JoinOperator::CrossJoin(constraint) => (Side::Left, constraint),
            _ => return Ok(beside(left, right)),
        };
        let names = match constraint {
            JoinConstraint::On(condition) => {
                let merged = [left.merged.as_slice(), &right.merged].concat();
                self.in_expressions(condition, &merged)?;
                return Ok(beside(left, right));
            }
            JoinConstraint::None => return Ok(beside(left, right)),
            JoinConstraint::Using(names) => names.iter().filter_map(using_name).collect(),
            JoinConstraint::Natural => match common(&left, &right) {
                Some(names) => names,
                None => return unknown(side, left, right),
            },
        };
        let (Some(ours), Some(theirs)) = (&left.offered, &right.offered) else {
            return unknown(side, left, right);
        };
        let mut columns = Vec::with_capacity(names.len());
        for (name, position) in &names {
            let one = only(ours, name, "left").map_err(|error| error.at(*position))?;
            let other = only(theirs, name, "right").map_err(|error| error.at(*position))?;
            columns.push((one, other));
        }
        let merged: Vec<Offered> = columns
            .iter()
            .map(|(one, other)| {
                let expr = match side {
                    Side::Left => one.expr.clone(),
                    Side::Right => other.expr.clone(),
                    Side::Either => call("coalesce", vec![one.expr.clone(), other.expr.clone()]),
                };
                Offered { name: one.name.clone(), expr }
            })
            .collect();
        let is_merged = |item: &FromItem| {
            names.iter().any(|(name, _)| item.merged.iter().any(|known| known.name == *name))
        };
        if side != Side::Left || is_merged(&left) || is_merged(&right) {
            let equal = columns.iter().map(|(one, other)| {
                binary(one.expr.clone(), BinaryOperator::Eq, other.expr.clone())
            });
            let condition = equal.reduce(|one, other| binary(one, BinaryOperator::And, other));
            let always = || Expr::value(ast::Value::Boolean(true));
            *constraint = JoinConstraint::On(condition.unwrap_or_else(always));
        } else if *constraint == JoinConstraint::Natural {
            let names = names
                .iter()
                .map(|(name, _)| ast::ObjectName::from(vec![Ident::with_quote('"', name)]));
            *constraint = match names.len() {
                0 => JoinConstraint::On(Expr::value(ast::Value::Boolean(true))),
                _ => JoinConstraint::Using(names.collect()),
            };
        }
        let is_new = |column: &&Offered| names.iter().all(|(name, _)| *name != column.name);
        let others = ours.iter().chain(theirs).filter(is_new).cloned();
        let offered = merged.iter().cloned().chain(others).collect();
        let mut known = left.merged.clone();
        known.extend(right.merged.iter().cloned());
        known.retain(|column| is_new(&column));
        known.extend(merged);
        let leaves = left.leaves.into_iter().chain(right.leaves).collect();
        Ok(FromItem { offered: Some(offered), leaves, merged: known, is_reordered: true })
    }
}

/// Notes which tables may have no row for one of the other side's.
pub(super) fn note_missing(left: &mut FromItem, operator: &JoinOperator, right: &mut FromItem) {
    let (of_left, of_right) = match operator {
        JoinOperator::Left(_) | JoinOperator::LeftOuter(_) => (false, true),
        JoinOperator::Right(_) | JoinOperator::RightOuter(_) => (true, false),
        JoinOperator::FullOuter(_) => (true, true),
        _ => (false, false),
    };
    for (may_miss, side) in [(of_left, left), (of_right, right)] {
        side.leaves.iter_mut().for_each(|leaf| leaf.may_miss |= may_miss);
    }
}

/// The columns of both, concatenated.
fn beside(left: FromItem, right: FromItem) -> FromItem {
    let offered = left.offered.zip(right.offered);
    FromItem {
        offered: offered.map(|(ours, theirs)| ours.into_iter().chain(theirs).collect()),
        leaves: left.leaves.into_iter().chain(right.leaves).collect(),
        merged: left.merged.into_iter().chain(right.merged).collect(),
        is_reordered: left.is_reordered || right.is_reordered,
    }
}

/// A join of unknown columns, which DataFusion merges to the left side.
fn unknown(side: Side, left: FromItem, right: FromItem) -> Result<FromItem> {
    if side != Side::Left {
        return Err(Error::unsupported(
            "RIGHT or FULL JOIN with USING or NATURAL of a function's columns",
        ));
    }
    let is_reordered = left.is_reordered || right.is_reordered;
    Ok(FromItem { offered: None, is_reordered, ..beside(left, right) })
}

/// The common column names of both, in the order of the left side's.
fn common(left: &FromItem, right: &FromItem) -> Option<Vec<(String, Option<Position>)>> {
    let (ours, theirs) = (left.offered.as_ref()?, right.offered.as_ref()?);
    let is_common = |column: &&Offered| theirs.iter().any(|other| other.name == column.name);
    let mut names: Vec<(String, Option<Position>)> = Vec::new();
    for column in ours.iter().filter(is_common) {
        if names.iter().all(|(known, _)| *known != column.name) {
            names.push((column.name.clone(), None));
        }
    }
    Some(names)
}

fn using_name(name: &ast::ObjectName) -> Option<(String, Option<Position>)> {
    let ident = name.0.last()?.as_ident()?;
    Some((fold(ident), position_of(ident.span.start)))
}

/// The only column of this name.
fn only<'a>(offered: &'a [Offered], name: &str, side: &str) -> Result<&'a Offered> {
    let mut found = offered.iter().filter(|column| column.name == name);
    match (found.next(), found.next()) {
        (Some(column), None) => Ok(column),
        (Some(_), Some(_)) => Err(Error::Invalid {
            message: format!(
                "common column name \"{name}\" appears more than once in {side} table"
            ),
            fault: Fault::AmbiguousColumn,
            position: None,
        }),
        (None, _) => {
            let known = offered.iter().map(|column| column.name.as_str());
            let place = format!("the {side} table of USING");
            Err(Error::unknown(NameKind::Column, name, known).within(place))
        }
    }
}
