//! The kinds of page columns: the value types with their tags, and the version columns.
//!
//! ```text
//! tag  1 Int16   2 Int32   3 Int64    4 Float32     5 Float64          6 Decimal128(p,s)   7 Boolean   8 Utf8
//!      9 Date32 10 Time64 11 Timestamp 12 TimestampUtc 13 Interval     14 Binary          15 Uuid     16 UInt64
//!     17 Numeric
//! ```
//!
//! Invariant: a tag is never given to another type. Times are in microseconds, decimals and intervals take 16
//! bytes, numerics without a precision 32, all values are in Arrow's own little-endian layout. UInt64 is of version
//! columns only.

use arrow::datatypes::{DataType, IntervalUnit, TimeUnit};

use crate::error::StoreError;
use crate::page_source::ColumnRef;
use crate::schema::{ColumnType, TableSchema};

/// Type of the values of one chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ValueType {
    /// `smallint`.
    Int16,
    /// `integer`.
    Int32,
    /// `bigint`.
    Int64,
    /// `real`.
    Float32,
    /// `double precision`.
    Float64,
    /// `numeric(precision, scale)`.
    Decimal128 {
        /// Decimal digits in all.
        precision: u8,
        /// Decimal digits after the point.
        scale: i8,
    },
    /// `numeric` without a precision: 38 digits before and 38 behind the point.
    Numeric,
    /// `boolean`.
    Boolean,
    /// `text`, `character varying` and `character`.
    Utf8,
    /// `date`.
    Date32,
    /// `time`.
    Time64,
    /// `timestamp`.
    Timestamp,
    /// `timestamptz`.
    TimestampUtc,
    /// `interval`.
    Interval,
    /// `bytea`, and keys of index runs.
    Binary,
    /// `uuid`.
    Uuid,
    /// VIDs and commit numbers.
    UInt64,
}

/// Layout of values in a plain chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// One bit a value.
    Bits,
    /// So many bytes a value.
    Fixed(usize),
    /// Offsets of 32 bits, then bytes.
    Bytes,
}

/// Version columns of rows to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versions {
    /// VIDs.
    pub vid: VidColumn,
    /// Commit numbers.
    pub commit: CommitColumn,
}

/// VIDs of rows to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VidColumn {
    /// The first row has `first`, each other one more than the row before.
    Sequence {
        /// VID of the first row.
        first: u64,
    },
    /// One VID for each row.
    Each(Vec<u64>),
}

/// Commit numbers of rows to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommitColumn {
    /// One run writes the whole segment: its commit number is the segment's (`docs/design/rules.md`, rule 26).
    Segment,
    /// One for each row.
    Each(Vec<u64>),
}

/// Every column of a table's pages: the user's in declared order, then the version columns.
#[must_use]
pub fn all_columns(schema: &TableSchema) -> Vec<ColumnRef> {
    let user = schema.columns.iter().map(|column| ColumnRef::User(column.id));
    user.chain([ColumnRef::Vid, ColumnRef::Commit]).collect()
}

impl ValueType {
    /// The value type of an Arrow type; None if pages cannot store it.
    #[must_use]
    pub fn from_arrow(data_type: &DataType) -> Option<Self> {
        Some(match data_type {
            DataType::Int16 => Self::Int16,
            DataType::Int32 => Self::Int32,
            DataType::Int64 => Self::Int64,
            DataType::Float32 => Self::Float32,
            DataType::Float64 => Self::Float64,
            DataType::Decimal128(precision, scale) => {
                Self::Decimal128 { precision: *precision, scale: *scale }
            }
            other if *other == ColumnType::NUMERIC.arrow() => Self::Numeric,
            DataType::Boolean => Self::Boolean,
            DataType::Utf8 => Self::Utf8,
            DataType::Date32 => Self::Date32,
            DataType::Time64(TimeUnit::Microsecond) => Self::Time64,
            DataType::Timestamp(TimeUnit::Microsecond, None) => Self::Timestamp,
            DataType::Timestamp(TimeUnit::Microsecond, Some(zone)) if zone.as_ref() == "UTC" => {
                Self::TimestampUtc
            }
            DataType::Interval(IntervalUnit::MonthDayNano) => Self::Interval,
            DataType::Binary => Self::Binary,
            DataType::FixedSizeBinary(16) => Self::Uuid,
            DataType::UInt64 => Self::UInt64,
            _ => return None,
        })
    }

    /// The Arrow type.
    #[must_use]
    pub fn arrow(self) -> DataType {
        match self {
            Self::Int16 => DataType::Int16,
            Self::Int32 => DataType::Int32,
            Self::Int64 => DataType::Int64,
            Self::Float32 => DataType::Float32,
            Self::Float64 => DataType::Float64,
            Self::Decimal128 { precision, scale } => DataType::Decimal128(precision, scale),
            Self::Numeric => ColumnType::NUMERIC.arrow(),
            Self::Boolean => DataType::Boolean,
            Self::Utf8 => DataType::Utf8,
            Self::Date32 => DataType::Date32,
            Self::Time64 => DataType::Time64(TimeUnit::Microsecond),
            Self::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            Self::TimestampUtc => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Self::Interval => DataType::Interval(IntervalUnit::MonthDayNano),
            Self::Binary => DataType::Binary,
            Self::Uuid => DataType::FixedSizeBinary(16),
            Self::UInt64 => DataType::UInt64,
        }
    }

    /// The type of a version column's values; None for the user's columns.
    pub(crate) fn of_version_column(column: ColumnRef) -> Option<Self> {
        match column {
            ColumnRef::User(_) => None,
            ColumnRef::Vid | ColumnRef::Commit => Some(Self::UInt64),
        }
    }

    /// Tag, precision and scale as pages store them; the latter two are 0 but for decimals.
    pub(crate) fn tag(self) -> (u8, u8, i8) {
        match self {
            Self::Int16 => (1, 0, 0),
            Self::Int32 => (2, 0, 0),
            Self::Int64 => (3, 0, 0),
            Self::Float32 => (4, 0, 0),
            Self::Float64 => (5, 0, 0),
            Self::Decimal128 { precision, scale } => (6, precision, scale),
            Self::Boolean => (7, 0, 0),
            Self::Utf8 => (8, 0, 0),
            Self::Date32 => (9, 0, 0),
            Self::Time64 => (10, 0, 0),
            Self::Timestamp => (11, 0, 0),
            Self::TimestampUtc => (12, 0, 0),
            Self::Interval => (13, 0, 0),
            Self::Binary => (14, 0, 0),
            Self::Uuid => (15, 0, 0),
            Self::UInt64 => (16, 0, 0),
            Self::Numeric => (17, 0, 0),
        }
    }

    /// The type of a stored tag; None for an unknown tag.
    pub(crate) fn from_tag(tag: u8, precision: u8, scale: i8) -> Option<Self> {
        if tag != 6 && (precision, scale) != (0, 0) {
            return None;
        }
        Some(match tag {
            1 => Self::Int16,
            2 => Self::Int32,
            3 => Self::Int64,
            4 => Self::Float32,
            5 => Self::Float64,
            6 if (1..=38).contains(&precision) && scale.unsigned_abs() <= 38 => {
                Self::Decimal128 { precision, scale }
            }
            7 => Self::Boolean,
            8 => Self::Utf8,
            9 => Self::Date32,
            10 => Self::Time64,
            11 => Self::Timestamp,
            12 => Self::TimestampUtc,
            13 => Self::Interval,
            14 => Self::Binary,
            15 => Self::Uuid,
            16 => Self::UInt64,
            17 => Self::Numeric,
            _ => return None,
        })
    }

    pub(crate) fn layout(self) -> Layout {
        match self {
            Self::Boolean => Layout::Bits,
            Self::Int16 => Layout::Fixed(2),
            Self::Int32 | Self::Float32 | Self::Date32 => Layout::Fixed(4),
            Self::Int64
            | Self::Float64
            | Self::Time64
            | Self::Timestamp
            | Self::TimestampUtc
            | Self::UInt64 => Layout::Fixed(8),
            Self::Decimal128 { .. } | Self::Interval | Self::Uuid => Layout::Fixed(16),
            Self::Numeric => Layout::Fixed(32),
            Self::Utf8 | Self::Binary => Layout::Bytes,
        }
    }

    /// True for values of numbers of up to 64 bits, and for decimals that may fit 64 bits.
    pub(crate) fn is_integral(self) -> bool {
        matches!(
            self,
            Self::Int16
                | Self::Int32
                | Self::Int64
                | Self::Date32
                | Self::Time64
                | Self::Timestamp
                | Self::TimestampUtc
                | Self::UInt64
                | Self::Decimal128 { .. }
        )
    }

    /// True for values that may be stored as a sequence: a first value and a step of one.
    pub(crate) fn counts(self) -> bool {
        matches!(self, Self::Int32 | Self::Int64 | Self::UInt64)
    }
}

impl Versions {
    /// Version columns of rows that one run loads into a segment of its own: VIDs from `first` on.
    #[must_use]
    pub fn loaded(first: u64) -> Self {
        Self { vid: VidColumn::Sequence { first }, commit: CommitColumn::Segment }
    }

    /// VID of the first row; None if there are no rows.
    pub(crate) fn vid_first(&self) -> Option<u64> {
        match &self.vid {
            VidColumn::Sequence { first } => Some(*first),
            VidColumn::Each(vids) => vids.first().copied(),
        }
    }

    /// The same, with consecutive VIDs stored as a sequence.
    pub(crate) fn in_sequence(mut self) -> Self {
        if let VidColumn::Each(vids) = &self.vid
            && let Some(first) = vids.first().copied()
            && vids
                .iter()
                .zip(vids.iter().skip(1))
                .all(|(vid, next)| vid.checked_add(1) == Some(*next))
        {
            self.vid = VidColumn::Sequence { first };
        }
        self
    }

    /// Refuses columns that do not have one value for each of `row_count` rows, or VIDs past the last.
    pub(crate) fn check(&self, row_count: usize) -> Result<(), StoreError> {
        let lengths = [
            ("vid", if let VidColumn::Each(vids) = &self.vid { Some(vids.len()) } else { None }),
            (
                "commit",
                if let CommitColumn::Each(all) = &self.commit { Some(all.len()) } else { None },
            ),
        ];
        for (name, length) in lengths {
            if let Some(length) = length.filter(|length| *length != row_count) {
                return Err(StoreError::Mismatch {
                    what: "version columns",
                    reason: format!("{length} values of {name} for {row_count} rows"),
                });
            }
        }
        if let VidColumn::Sequence { first } = self.vid
            && first.checked_add(row_count as u64).is_none()
        {
            return Err(StoreError::OutOfRange { what: "vid", value: first, max: u64::MAX });
        }
        Ok(())
    }

    /// The version columns of rows `from..to`, which [`Versions::check`] has found to exist.
    pub(crate) fn slice(&self, from: usize, to: usize) -> Self {
        fn part<T: Clone>(all: &[T], from: usize, to: usize) -> Vec<T> {
            all.get(from..to).unwrap_or_default().to_vec()
        }
        Self {
            vid: match &self.vid {
                VidColumn::Sequence { first } => {
                    VidColumn::Sequence { first: first.wrapping_add(from as u64) }
                }
                VidColumn::Each(vids) => VidColumn::Each(part(vids, from, to)),
            },
            commit: match &self.commit {
                CommitColumn::Segment => CommitColumn::Segment,
                CommitColumn::Each(all) => CommitColumn::Each(part(all, from, to)),
            },
        }
    }

    /// Appends the version columns of `next_count` rows to these of `count` rows.
    ///
    /// # Errors
    /// [`StoreError::Mismatch`] if only one side has commit numbers and the other uses the segment's.
    pub(crate) fn extend(
        self,
        count: usize,
        next: Self,
        next_count: usize,
    ) -> Result<Self, StoreError> {
        let vid = match (self.vid, next.vid) {
            (VidColumn::Sequence { first }, VidColumn::Sequence { first: second })
                if first.checked_add(count as u64) == Some(second) =>
            {
                VidColumn::Sequence { first }
            }
            (left, right) => {
                let mut all = left.into_each(count);
                all.extend(right.into_each(next_count));
                VidColumn::Each(all)
            }
        };
        let commit = match (self.commit, next.commit) {
            (CommitColumn::Segment, CommitColumn::Segment) => CommitColumn::Segment,
            (CommitColumn::Each(mut all), CommitColumn::Each(more)) => {
                all.extend(more);
                CommitColumn::Each(all)
            }
            _ => {
                return Err(StoreError::Mismatch {
                    what: "version columns",
                    reason: "rows with commit numbers and rows without, in one page".into(),
                });
            }
        };
        Ok(Self { vid, commit })
    }
}

impl VidColumn {
    fn into_each(self, count: usize) -> Vec<u64> {
        match self {
            Self::Sequence { first } => {
                (0..count as u64).map(|slot| first.wrapping_add(slot)).collect()
            }
            Self::Each(vids) => vids,
        }
    }
}
