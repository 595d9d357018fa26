//! Conditions in a normal form: AND and OR over leaves, each perhaps negated.
//!
//! A condition has one form however it is written: `5 < x`, `x > 5` and `NOT x <= 5` are the negation of the leaf
//! `x <= 5`. Under three-valued logic, NOT may be moved to the leaves by De Morgan's laws, and a leaf's negation is
//! true where the leaf is neither true nor NULL.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::datatypes::DataType;
use cleave_store::{ColumnRef, Projection};
use datafusion_common::ScalarValue;
use datafusion_expr::Operator;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::{
    BinaryExpr, CastExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr, Literal, NotExpr,
};

use super::store::LeafId;
use crate::expressions::total::is_total_cast;

/// Most bytes of the constants of a leaf.
const CONSTANT_BYTES_MAX: usize = 1024;
/// Most leaves of one condition.
const LEAVES_MAX: usize = 32;
/// Most nested parts of one condition.
const DEPTH_MAX: usize = 16;

/// A question to one column, which cannot fail.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LeafKey {
    /// The table.
    pub table_id: u32,
    /// The stable id of the column.
    pub column: u32,
    /// The type that its values are compared in.
    pub data_type: DataType,
    /// The question.
    pub kind: LeafKind,
}

/// What is asked of a column's values.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum LeafKind {
    /// They are compared with a constant that is not NULL.
    Compare(CompareWith, ScalarValue),
    /// They are among these, none of them NULL.
    In(Vec<ScalarValue>),
    /// They match a pattern.
    Like {
        /// The pattern.
        pattern: ScalarValue,
        /// Whether upper and lower case are the same.
        any_case: bool,
    },
    /// They are NULL.
    IsNull,
    /// They are true.
    IsTrue,
}

/// The comparisons that others are negations of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CompareWith {
    /// `<`.
    Less,
    /// `<=`.
    LessOrEqual,
    /// `=`.
    Equal,
}

/// A condition over leaves.
#[derive(Debug, Clone)]
pub enum Formula {
    /// All are true.
    And(Vec<Formula>),
    /// One is true.
    Or(Vec<Formula>),
    /// A leaf.
    Leaf(Leaf),
}

/// A leaf of a condition.
#[derive(Debug, Clone)]
pub struct Leaf {
    /// What it asks.
    pub key: LeafKey,
    /// Whether its negation is meant.
    pub is_negated: bool,
    /// The same as an expression, without the negation, over the columns that the condition is over.
    pub expr: Arc<dyn PhysicalExpr>,
    /// Its number, once a [run](super::HistoryUse) has given it one.
    pub id: LeafId,
    /// Those it implies, the closest first: their rows, or those of their negation, are all that may be left.
    pub implied: Vec<(LeafId, bool)>,
    /// Whether what it is true for is to be noted.
    pub is_noted: bool,
}

impl Formula {
    /// `expr`, whose columns are positions in `of`, columns of the table `table_id`, as a formula; None: it has a part
    /// that is no leaf.
    pub fn of(expr: &Arc<dyn PhysicalExpr>, table_id: u32, of: &Projection) -> Option<Self> {
        part(expr, (table_id, of), (false, 0), &mut { LEAVES_MAX })
    }

    /// Its leaves.
    pub fn leaves(&self) -> Vec<&Leaf> {
        match self {
            Self::Leaf(leaf) => vec![leaf],
            Self::And(parts) | Self::Or(parts) => parts.iter().flat_map(Self::leaves).collect(),
        }
    }

    /// The same, to be changed.
    pub fn leaves_mut(&mut self) -> Vec<&mut Leaf> {
        match self {
            Self::Leaf(leaf) => vec![leaf],
            Self::And(parts) | Self::Or(parts) => {
                parts.iter_mut().flat_map(Self::leaves_mut).collect()
            }
        }
    }
}

/// `expr`, or its negation, at `depth` of a condition that may have `leaves_left` more leaves: no more than these are
/// looked at, however long it is.
fn part(
    expr: &Arc<dyn PhysicalExpr>,
    of: (u32, &Projection),
    (is_negated, depth): (bool, usize),
    leaves_left: &mut usize,
) -> Option<Formula> {
    if depth > DEPTH_MAX {
        return None;
    }
    if let Some(not) = expr.downcast_ref::<NotExpr>() {
        return part(not.arg(), of, (!is_negated, depth + 1), leaves_left);
    }
    let is_joined = |binary: &BinaryExpr| matches!(binary.op(), Operator::And | Operator::Or);
    let binary = expr.downcast_ref::<BinaryExpr>();
    if let Some(binary) = binary.filter(|binary| is_joined(binary)) {
        let left = part(binary.left(), of, (is_negated, depth + 1), leaves_left)?;
        let right = part(binary.right(), of, (is_negated, depth + 1), leaves_left)?;
        // NOT (a AND b) is NOT a OR NOT b.
        return Some(match (*binary.op() == Operator::And) != is_negated {
            true => Formula::And(vec![left, right]),
            false => Formula::Or(vec![left, right]),
        });
    }
    *leaves_left = leaves_left.checked_sub(1)?;
    let leaf = |key: LeafKey, expr: Arc<dyn PhysicalExpr>, is_negated| {
        Some(Formula::Leaf(Leaf {
            key,
            is_negated,
            expr,
            id: LeafId::default(),
            implied: Vec::new(),
            is_noted: false,
        }))
    };
    if let Some(binary) = binary {
        let (operand, constant, operator) =
            match (constant(binary.left()), constant(binary.right())) {
                (None, Some(constant)) => (binary.left(), constant, *binary.op()),
                (Some(constant), None) => (binary.right(), constant, binary.op().swap()?),
                _ => return None,
            };
        let (with, is_opposite) = match operator {
            Operator::Lt => (CompareWith::Less, false),
            Operator::GtEq => (CompareWith::Less, true),
            Operator::LtEq => (CompareWith::LessOrEqual, false),
            Operator::Gt => (CompareWith::LessOrEqual, true),
            Operator::Eq => (CompareWith::Equal, false),
            Operator::NotEq => (CompareWith::Equal, true),
            _ => return None,
        };
        let key = key(operand, of, LeafKind::Compare(with, constant.clone()))?;
        if key.data_type != constant.data_type() {
            return None;
        }
        let operator = match with {
            CompareWith::Less => Operator::Lt,
            CompareWith::LessOrEqual => Operator::LtEq,
            CompareWith::Equal => Operator::Eq,
        };
        let constant = Arc::new(Literal::new(constant));
        let plain = Arc::new(BinaryExpr::new(Arc::clone(operand), operator, constant));
        return leaf(key, plain, is_negated != is_opposite);
    }
    if let Some(list) = expr.downcast_ref::<InListExpr>() {
        // Each value takes its own size at least.
        if list.len() * size_of::<ScalarValue>() > CONSTANT_BYTES_MAX {
            return None;
        }
        let mut values = list.list().iter().map(constant).collect::<Option<Vec<_>>>()?;
        // One order for all lists of the same values, whatever it is.
        values.sort_by_cached_key(ScalarValue::to_string);
        values.dedup();
        let key = key(list.expr(), of, LeafKind::In(values))?;
        let (operand, items) = (Arc::clone(list.expr()), list.list().to_vec());
        let plain = InListExpr::try_new(operand, items, false, of.1.schema.as_ref()).ok()?;
        return leaf(key, Arc::new(plain), is_negated != list.negated());
    }
    if let Some(like) = expr.downcast_ref::<LikeExpr>() {
        let (pattern, any_case) = (constant(like.pattern())?, like.case_insensitive());
        let key = key(like.expr(), of, LeafKind::Like { pattern, any_case })?;
        let (operand, pattern) = (Arc::clone(like.expr()), Arc::clone(like.pattern()));
        let plain = LikeExpr::new(false, any_case, operand, pattern);
        return leaf(key, Arc::new(plain), is_negated != like.negated());
    }
    if let Some(is_null) = expr.downcast_ref::<IsNullExpr>() {
        return leaf(key(is_null.arg(), of, LeafKind::IsNull)?, Arc::clone(expr), is_negated);
    }
    if let Some(is_not_null) = expr.downcast_ref::<IsNotNullExpr>() {
        let key = key(is_not_null.arg(), of, LeafKind::IsNull)?;
        let plain = Arc::new(IsNullExpr::new(Arc::clone(is_not_null.arg())));
        return leaf(key, plain, !is_negated);
    }
    leaf(key(expr, of, LeafKind::IsTrue)?, Arc::clone(expr), is_negated)
}

/// The value of `expr`, if it is a constant other than NULL.
fn constant(expr: &Arc<dyn PhysicalExpr>) -> Option<ScalarValue> {
    let value = expr.downcast_ref::<Literal>()?.value();
    (!value.is_null()).then(|| value.clone())
}

/// The leaf that asks `kind` of the column `operand`, perhaps cast without loss, unless it is too large to be kept.
fn key(
    operand: &Arc<dyn PhysicalExpr>,
    (table_id, of): (u32, &Projection),
    kind: LeafKind,
) -> Option<LeafKey> {
    let data_type = operand.data_type(of.schema.as_ref()).ok()?;
    let mut operand = operand;
    while let Some(cast) = operand.downcast_ref::<CastExpr>() {
        operand = cast.expr();
        let from = operand.data_type(of.schema.as_ref()).ok()?;
        if !is_total_cast(&from, cast.cast_type()) {
            return None;
        }
    }
    let position = operand.downcast_ref::<Column>()?.index();
    let ColumnRef::User(column) = *of.columns.get(position)? else { return None };
    let is_answer = kind != LeafKind::IsTrue || data_type == DataType::Boolean;
    let key = LeafKey { table_id, column, data_type, kind };
    (is_answer && key.constant_bytes() <= CONSTANT_BYTES_MAX).then_some(key)
}

impl LeafKey {
    /// Bytes of its constants.
    pub(super) fn constant_bytes(&self) -> usize {
        match &self.kind {
            LeafKind::Compare(_, constant) | LeafKind::Like { pattern: constant, .. } => {
                constant.size()
            }
            LeafKind::In(constants) => constants.iter().map(ScalarValue::size).sum(),
            LeafKind::IsNull | LeafKind::IsTrue => 0,
        }
    }

    /// Whether `other` or its negation is true wherever this leaf (if `is_negated`, its negation) is: Some says which,
    /// true for the negation.
    pub(super) fn implies(&self, is_negated: bool, other: &Self) -> Option<bool> {
        let (LeafKind::Compare(with, own), LeafKind::Compare(other_with, theirs)) =
            (&self.kind, &other.kind)
        else {
            return None;
        };
        if self.column != other.column || self.data_type != other.data_type {
            return None;
        }
        let order = own.partial_cmp(theirs)?;
        // Equal and yet not the same, as -0 and 0 may be: the order of values is another one.
        if order.is_eq() && own != theirs {
            return None;
        }
        use CompareWith::{Equal, Less, LessOrEqual};
        // x < own, x <= own or x = own, of x < theirs or x <= theirs.
        let is_below = match (with, other_with) {
            (_, Equal) => false,
            (Less, _) | (LessOrEqual | Equal, LessOrEqual) => order.is_le(),
            (LessOrEqual | Equal, Less) => order.is_lt(),
        };
        // x >= own, x > own or x = own, of x >= theirs (NOT x < theirs) or x > theirs (NOT x <= theirs).
        let is_above = match (with, other_with) {
            (_, Equal) => false,
            (_, Less) | (LessOrEqual, LessOrEqual) => order.is_ge(),
            (Less | Equal, LessOrEqual) => order.is_gt(),
        };
        match (with, is_negated) {
            (Equal, true) => None,
            (Equal, false) if is_below => Some(false),
            (Equal, false) => is_above.then_some(true),
            (_, false) => is_below.then_some(false),
            (_, true) => is_above.then_some(true),
        }
    }

    /// The order of the constants that two leaves compare a column with.
    pub(super) fn compare(&self, other: &Self) -> Ordering {
        match (&self.kind, &other.kind) {
            (LeafKind::Compare(_, own), LeafKind::Compare(_, theirs)) => {
                own.partial_cmp(theirs).unwrap_or(Ordering::Equal)
            }
            _ => Ordering::Equal,
        }
    }
}
