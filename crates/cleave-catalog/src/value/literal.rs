//! Literals of SQL: what kind one is and its text in, a value of a column's type out, as PostgreSQL assigns them.
//!
//! A string takes the type of its column. A number and a boolean have a type of their own, which some columns take and
//! others do not: 1 is no boolean, and 20240229 no date.
//!
//! Source: PostgreSQL's manual, "Constants" and "Value Storage"; the assignment casts of its `pg_cast`.

use cleave_store::ColumnType;

use crate::value::{ColumnBuilder, ValueError};

/// What a constant is written as.
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
    /// Whether a column of this type takes it.
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

    /// What it is called in a message.
    pub fn name(self) -> &'static str {
        match self {
            Self::Number => "a number",
            Self::String => "a string",
            Self::Boolean => "a boolean",
        }
    }

    /// Appends one whose text is `text` to a column that takes it.
    ///
    /// # Errors
    /// [`ValueError`] where it is no value of the type.
    pub fn append(self, column: &mut ColumnBuilder, text: &str) -> Result<(), ValueError> {
        match self {
            Self::Number => column.append_number(text),
            Self::String | Self::Boolean => column.append_text(text),
        }
    }
}
