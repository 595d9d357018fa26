//! The definition of a sequence: its name, its step and limits, and its owner. Its current value is live state outside.
//!
//! Sequences share the namespace of tables and indexes, and the ids of tables. Invariant: the step is not 0, the limits
//! are in order, and start and last value lie between them.

use std::fmt;
use std::sync::Arc;

use cleave_store::ColumnType;

use super::{CatalogState, proto};
use crate::error::{Error, Fault, NameKind, Result};
use crate::identifiers::unqualified;

/// A sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sequence {
    /// Number, of those that tables have.
    pub id: u32,
    /// Name.
    pub name: String,
    /// smallint, integer or bigint.
    pub data_type: ColumnType,
    /// INCREMENT.
    pub increment: i64,
    /// Least value.
    pub min: i64,
    /// Greatest value.
    pub max: i64,
    /// START.
    pub start: i64,
    /// CACHE, as declared.
    pub cache: i64,
    /// Whether it starts again after its last value.
    pub cycle: bool,
    /// The column that owns it.
    pub owner: Option<Owner>,
    /// The last value that may have been returned, according to the manifest.
    pub last: i64,
    /// Whether that was returned; if not, it is the next.
    pub is_called: bool,
    /// Shared by all versions of the sequence, as long as any of them exists.
    pub shared: Arc<()>,
}

/// The column that owns a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// Id of the table.
    pub table: u32,
    /// Id of the column.
    pub column: u32,
    /// Whether it is an identity column; otherwise it is only dropped with the column.
    pub is_identity: bool,
}

/// The number after `last`; None if there is none.
pub fn step(sequence: &Sequence, last: i64) -> Option<i64> {
    let next = last.checked_add(sequence.increment);
    let next = next.filter(|next| (sequence.min..=sequence.max).contains(next));
    match next {
        None if sequence.cycle && sequence.increment > 0 => Some(sequence.min),
        None if sequence.cycle => Some(sequence.max),
        next => next,
    }
}

/// Least and greatest value of a sequence's type.
#[must_use]
pub fn limits(data_type: ColumnType) -> (i64, i64) {
    match data_type {
        ColumnType::SmallInt => (i64::from(i16::MIN), i64::from(i16::MAX)),
        ColumnType::Int => (i64::from(i32::MIN), i64::from(i32::MAX)),
        _ => (i64::MIN, i64::MAX),
    }
}

impl Sequence {
    /// Whether it continues with the same step and limits.
    pub fn steps_as(&self, other: &Self) -> bool {
        let steps =
            |sequence: &Self| (sequence.increment, sequence.min, sequence.max, sequence.cycle);
        steps(self) == steps(other)
    }

    pub(super) fn encode(&self) -> proto::Sequence {
        proto::Sequence {
            id: self.id,
            name: self.name.clone(),
            bits: match self.data_type {
                ColumnType::SmallInt => 16,
                ColumnType::Int => 32,
                _ => 64,
            },
            increment: self.increment,
            min: self.min,
            max: self.max,
            start: self.start,
            cache: self.cache,
            cycle: self.cycle,
            owner: self.owner.map(|owner| proto::SequenceOwner {
                table: owner.table,
                column: owner.column,
                is_identity: owner.is_identity,
            }),
            last: self.last,
            is_called: self.is_called,
        }
    }

    /// A sequence from a manifest, or what is wrong with it.
    pub(super) fn decode(message: proto::Sequence) -> Result<Self, String> {
        let data_type = match message.bits {
            16 => ColumnType::SmallInt,
            32 => ColumnType::Int,
            64 => ColumnType::BigInt,
            bits => return Err(format!("sequence \"{}\" has {bits} bits", message.name)),
        };
        let range = message.min..=message.max;
        if message.increment == 0
            || !range.contains(&message.last)
            || !range.contains(&message.start)
        {
            return Err(format!("sequence \"{}\" is beyond its limits", message.name));
        }
        Ok(Self {
            id: message.id,
            name: message.name,
            data_type,
            increment: message.increment,
            min: message.min,
            max: message.max,
            start: message.start,
            cache: message.cache,
            cycle: message.cycle,
            owner: message.owner.map(|owner| Owner {
                table: owner.table,
                column: owner.column,
                is_identity: owner.is_identity,
            }),
            last: message.last,
            is_called: message.is_called,
            shared: Arc::default(),
        })
    }
}

/// Returns numbers of sequences.
pub trait NumberSource: fmt::Debug + Send + Sync {
    /// The next `count` numbers of `sequence`, for this caller alone.
    ///
    /// # Errors
    /// [`Error::Invalid`] beyond the last one, and if nothing can be written; errors of the log.
    fn take(&self, sequence: &Arc<Sequence>, count: usize) -> Result<Vec<i64>>;
}

/// The sequence with the written name: `name`, `public.name` or `"Name"`.
///
/// # Errors
/// [`Error::UnknownName`]; [`Error::Invalid`] for another object of that name.
pub fn named<'a>(state: &'a CatalogState, written: &str) -> Result<&'a Arc<Sequence>> {
    let name = unqualified(written).unwrap_or_else(|| written.to_owned());
    if let Some(sequence) = state.sequences.get(&name) {
        return Ok(sequence);
    }
    if state.is_name_taken(&name) {
        return Err(Error::Invalid {
            message: format!("\"{name}\" is not a sequence"),
            fault: Fault::ObjectKind,
            position: None,
        });
    }
    let names = state.sequences.keys().map(String::as_str);
    Err(Error::unknown(NameKind::Relation, &name, names))
}
