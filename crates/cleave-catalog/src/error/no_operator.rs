//! The error of an operator that does not exist for the types of its operands.

use std::fmt;

use super::Position;

/// Details of [`Error::NoOperator`](super::Error::NoOperator).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoOperator {
    /// The operator as SQL writes it.
    pub operator: String,
    /// The types of its left and right operand, by PostgreSQL's names.
    pub types: [String; 2],
    /// The columns or constants that are its operands, for finding it in the text; None: another expression.
    pub operands: [Option<String>; 2],
    /// Its position.
    pub position: Option<Position>,
}

impl NoOperator {
    /// The hint.
    pub(super) const HINT: &'static str = "No operator matches the given name and argument types. You might need to \
        add explicit type casts.";
}

impl fmt::Display for NoOperator {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operator, types: [left, right], .. } = self;
        let place = super::At(self.position);
        write!(
            formatter,
            "{place}operator does not exist: {left} {operator} {right}; {}",
            Self::HINT
        )
    }
}
