//! An operator whose operands have types that it is not there for.

use std::fmt;

use super::Position;

/// What [`Error::NoOperator`](super::Error::NoOperator) tells of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoOperator {
    /// The operator as SQL writes it.
    pub operator: String,
    /// The types to its left and to its right, by PostgreSQL's names.
    pub types: [String; 2],
    /// Which columns or constants stand there, by which it is found in the text; None: something else.
    pub operands: [Option<String>; 2],
    /// Where it stands.
    pub position: Option<Position>,
}

impl NoOperator {
    /// What helps.
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
