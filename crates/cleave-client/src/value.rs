//! Values of parameters.
//!
//! A value is sent as text, and its parameter is declared to have the value's own type, so that `$1 + $2` has one: it
//! means the same as in a database of this process. Text and NULL have no type. Theirs is what the statement decides:
//! `WHERE day = $1` compares by the type of `day`.

/// The OID of `boolean`.
const BOOL: u32 = 16;
/// The OID of `bytea`.
pub(crate) const BYTEA: u32 = 17;
/// The OID of `bigint`.
const INT8: u32 = 20;
/// The OID of `integer`.
const INT4: u32 = 23;
/// The OID of `text`.
pub(crate) const TEXT: u32 = 25;
/// The OID of `double precision`.
const FLOAT8: u32 = 701;

/// A parameter of a statement.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// NULL.
    Null,
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Float(f64),
    /// Text, and every type in its text form, where the statement decides the type.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// A value of any type in its text form.
    Typed {
        /// The type's OID in PostgreSQL's catalog, as 1700 for `numeric`.
        type_oid: u32,
        /// Its text.
        text: String,
    },
}

impl Value {
    /// The type to declare; None: the statement decides.
    pub(crate) fn own_type(&self) -> Option<u32> {
        Some(match self {
            Self::Null | Self::Text(_) => return None,
            Self::Bool(_) => BOOL,
            Self::Int(value) if i32::try_from(*value).is_ok() => INT4,
            Self::Int(_) => INT8,
            Self::Float(_) => FLOAT8,
            Self::Bytes(_) => BYTEA,
            Self::Typed { type_oid, .. } => *type_oid,
        })
    }

    /// Its bytes for a parameter of type `oid`, None for NULL, and whether they are binary.
    pub(crate) fn encoded(&self, oid: u32) -> (Option<Vec<u8>>, bool) {
        let text = match self {
            Self::Null => return (None, false),
            Self::Bytes(bytes) if oid == BYTEA => return (Some(bytes.clone()), true),
            Self::Bytes(bytes) => hexadecimal(bytes),
            Self::Bool(true) => "t".to_owned(),
            Self::Bool(false) => "f".to_owned(),
            Self::Int(value) => value.to_string(),
            Self::Float(value) if value.is_nan() => "NaN".to_owned(),
            Self::Float(f64::INFINITY) => "Infinity".to_owned(),
            Self::Float(f64::NEG_INFINITY) => "-Infinity".to_owned(),
            // The shortest digits that read back as the same number; whole ones read as integers too.
            Self::Float(value) if *value == 0.0 || (1e-5..1e15).contains(&value.abs()) => {
                value.to_string()
            }
            Self::Float(value) => format!("{value:e}"),
            Self::Text(text) | Self::Typed { text, .. } => text.clone(),
        };
        (Some(text.into_bytes()), false)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

/// The text form of `bytea`.
fn hexadecimal(bytes: &[u8]) -> String {
    let digit = |half: u8| char::from_digit(u32::from(half), 16).unwrap_or('0');
    let digits = bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]);
    "\\x".chars().chain(digits).collect()
}
