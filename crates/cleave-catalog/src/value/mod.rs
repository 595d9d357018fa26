//! Values of SQL types as text, both ways, as PostgreSQL reads and writes them.
//!
//! 1. [`build`] appends text to a typed Arrow column ([`ColumnBuilder`]): CSV, INSERT's strings, defaults.
//! 2. [`parse`] and [`interval`] read single values; [`calendar`] counts days; [`literal`] decides which columns accept
//!    a number.
//! 3. [`text`] writes any value of an Arrow array ([`ValueText`]): CSV, the shell, messages.
//! 4. [`binary`] is PostgreSQL's binary format; `list` the text of lists that clients send.
//!
//! Invariant: [`parse`] reads back text of a stored type that [`text`] wrote, as the same value. Deliberately absent:
//! time zones other than offsets (the zone is UTC), NaN in `numeric`.
//!
//! Source: PostgreSQL's manual, "Data Types".

pub mod binary;
pub mod build;
pub mod error;
pub mod interval;
pub mod list;
pub mod literal;
pub mod parse;
pub mod text;

pub use build::ColumnBuilder;
pub use cleave_fragment::functions::calendar;
pub use error::{ValueError, ValueFault};
pub use text::{ValueText, value_text};
