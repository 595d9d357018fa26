//! SQL literals: kind and text in, a value of a column's type out, by PostgreSQL's assignment rules.
//!
//! A string takes the type of its column. A number and a boolean have types of their own, which only some columns
//! accept: 1 is no boolean, and 20240229 no date.
//!
//! Source: PostgreSQL's manual, "Constants" and "Value Storage"; the assignment casts of its `pg_cast`.

use cleave_store::ColumnType;

use crate::value::{ColumnBuilder, ValueError};

/// The kinds of literal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Literal {
    /// Digits, perhaps with a point, an exponent or a minus.
    Number,
    /// In quotes.
    String,
    /// TRUE or FALSE.
    Boolean,
}

impl Literal {
    /// Whether a column of this type accepts it.
    pub fn fits(self, column_type: &ColumnType) -> bool {
        use ColumnType as Type;
        match self {
            Self::String => true,
            Self::Number => !matches!(
                column_type,
                Type::Boolean
                    | Type::Date
                    | Type::Time
                    | Type::Timestamp
                    | Type::TimestampTz
                    | Type::Interval
                    | Type::Bytea
                    | Type::Uuid
            ),
            Self::Boolean => {
                matches!(column_type, Type::Boolean | Type::Text | Type::Varchar(_) | Type::Char(_))
            }
        }
    }

    /// Its name in messages.
    pub fn type_name(self, text: &str) -> &'static str {
        match self {
            Self::Number if text.contains(['.', 'e', 'E']) => "numeric",
            Self::Number => "integer",
            Self::String => "unknown",
            Self::Boolean => "boolean",
        }
    }

    /// Appends a literal with this text to a column that accepts it.
    ///
    /// # Errors
    /// [`ValueError`] if it is no value of the type.
    pub fn append(self, column: &mut ColumnBuilder, text: &str) -> Result<(), ValueError> {
        match self {
            Self::Number => column.append_number(text),
            Self::String | Self::Boolean => column.append_text(text),
        }
    }
}
