//! Estimates the number of distinct values of a column: a HyperLogLog sketch of 4096 registers, within 1.6 % (one
//! standard error). It also keeps the [`KeyCounts`] of the same hashes.
//!
//! Invariant: a value's hash is the same on every machine, so registers of different devices can be merged.
//!
//! Source: Flajolet and others, "HyperLogLog", 2007; the estimate is O. Ertl's, "New cardinality estimation algorithms
//! for HyperLogLog sketches", 2017, algorithm 6, which needs no corrections by range.

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Int16Type, Int32Type, Int64Type, Time64MicrosecondType,
    TimeUnit, TimestampMicrosecondType,
};
use arrow::row::{RowConverter, SortField};
use datafusion_common::Result;

use super::key_counts::KeyCounts;

/// Bits of a hash that choose a register.
const INDEX_BITS: u32 = 12;
/// Registers.
pub(super) const REGISTER_COUNT: usize = 1 << INDEX_BITS;
/// The remaining bits of a hash.
const RANK_BITS: u32 = u64::BITS - INDEX_BITS;

/// For each register the greatest rank of its hashes: the position of their first set bit.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Registers(Vec<u8>);

impl Registers {
    /// Registers of no value.
    pub(super) fn new() -> Self {
        Self(vec![0; REGISTER_COUNT])
    }

    /// None if these are not registers.
    pub(super) fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let is_rank = |rank: &u8| u32::from(*rank) <= RANK_BITS + 1;
        (bytes.len() == REGISTER_COUNT && bytes.iter().all(is_rank)).then(|| Self(bytes.to_vec()))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Adds the values of other rows.
    pub(super) fn merge(&mut self, other: &Self) {
        for (own, other) in self.0.iter_mut().zip(&other.0) {
            *own = (*own).max(*other);
        }
    }

    /// Adds the values of `array` that are not NULL. They are also added to `keys` if `pages` has the page of each row,
    /// or if they are of a type that join keys have.
    pub(super) fn add(
        &mut self,
        array: &ArrayRef,
        pages: &[u64],
        keys: &mut KeyCounts,
    ) -> Result<()> {
        let mut no_keys = KeyCounts::none();
        let keys = match array.data_type() {
            _ if !pages.is_empty() => keys,
            DataType::Int16 | DataType::Int32 | DataType::Int64 | DataType::FixedSizeBinary(_) => {
                keys
            }
            _ => &mut no_keys,
        };
        match array.data_type() {
            DataType::Int16 => self.add_integers::<Int16Type>(array, pages, keys),
            DataType::Int32 => self.add_integers::<Int32Type>(array, pages, keys),
            DataType::Int64 => self.add_integers::<Int64Type>(array, pages, keys),
            DataType::Date32 => self.add_integers::<Date32Type>(array, pages, keys),
            DataType::Time64(TimeUnit::Microsecond) => {
                self.add_integers::<Time64MicrosecondType>(array, pages, keys);
            }
            DataType::Timestamp(TimeUnit::Microsecond, _) => {
                self.add_integers::<TimestampMicrosecondType>(array, pages, keys);
            }
            DataType::Decimal128(..) => {
                let values = array.as_primitive::<Decimal128Type>().iter();
                for (row, value) in values.enumerate() {
                    let Some(value) = value else { continue };
                    self.add_hash(hash(&value.to_le_bytes()), page(pages, row), keys);
                }
            }
            DataType::Utf8 => {
                for (row, value) in array.as_string::<i32>().iter().enumerate() {
                    let Some(value) = value else { continue };
                    self.add_hash(hash(value.as_bytes()), page(pages, row), keys);
                }
            }
            other => {
                let converter = RowConverter::new(vec![SortField::new(other.clone())])?;
                let rows = converter.convert_columns(std::slice::from_ref(array))?;
                let nulls = array.logical_nulls();
                for (place, row) in rows.iter().enumerate() {
                    if nulls.as_ref().is_none_or(|nulls| nulls.is_valid(place)) {
                        self.add_hash(hash(row.data()), page(pages, place), keys);
                    }
                }
            }
        }
        Ok(())
    }

    fn add_integers<T: ArrowPrimitiveType>(
        &mut self,
        array: &ArrayRef,
        pages: &[u64],
        keys: &mut KeyCounts,
    ) where
        T::Native: Into<i64>,
    {
        for (row, value) in array.as_primitive::<T>().iter().enumerate() {
            let Some(value) = value else { continue };
            let value: i64 = value.into();
            let hash = mixed(value.cast_unsigned().wrapping_add(SEED));
            self.add_hash(hash, page(pages, row), keys);
        }
    }

    fn add_hash(&mut self, hash: u64, page: u64, keys: &mut KeyCounts) {
        keys.add(hash, page);
        let rank = (hash << INDEX_BITS).leading_zeros().min(RANK_BITS) + 1;
        let index = usize::try_from(hash >> RANK_BITS).unwrap_or_default();
        if let (Some(register), Ok(rank)) = (self.0.get_mut(index), u8::try_from(rank)) {
            *register = (*register).max(rank);
        }
    }

    /// Approximate number of distinct values that were added.
    pub(super) fn estimate(&self) -> f64 {
        let mut counts = [0_u32; RANK_BITS as usize + 2];
        for rank in &self.0 {
            if let Some(count) = counts.get_mut(usize::from(*rank)) {
                *count += 1;
            }
        }
        let all = REGISTER_COUNT as f64;
        let [zeros, between @ .., full] = counts;
        let mut sum = all * tau(1.0 - f64::from(full) / all);
        for count in between.iter().rev() {
            sum = 0.5 * (sum + f64::from(*count));
        }
        sum += all * sigma(f64::from(zeros) / all);
        if sum.is_finite() { all * all / (2.0 * std::f64::consts::LN_2 * sum) } else { 0.0 }
    }
}

/// The page of `row`; where pages are not told, all rows are on one.
fn page(pages: &[u64], row: usize) -> u64 {
    pages.get(row).copied().unwrap_or_default()
}

/// The contribution of empty registers.
fn sigma(share: f64) -> f64 {
    if share >= 1.0 {
        return f64::INFINITY;
    }
    let (mut power, mut weight, mut sum) = (share, 1.0, share);
    loop {
        power *= power;
        let before = sum;
        sum += power * weight;
        weight += weight;
        if sum <= before {
            return sum;
        }
    }
}

/// The contribution of registers with the greatest rank.
fn tau(share: f64) -> f64 {
    if share <= 0.0 || share >= 1.0 {
        return 0.0;
    }
    let (mut root, mut weight, mut sum) = (share, 1.0, 1.0 - share);
    loop {
        root = root.sqrt();
        let before = sum;
        weight *= 0.5;
        sum -= (1.0 - root) * (1.0 - root) * weight;
        if sum >= before {
            return sum / 3.0;
        }
    }
}

const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// A hash of bytes, eight at a time.
fn hash(bytes: &[u8]) -> u64 {
    let mut hash = SEED ^ bytes.len() as u64;
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        hash = mixed(hash ^ u64::from_le_bytes(*word)).wrapping_add(SEED);
    }
    let mut last = [0; 8];
    for (byte, from) in last.iter_mut().zip(rest) {
        *byte = *from;
    }
    mixed(hash ^ u64::from_le_bytes(last))
}

/// Mixes every bit into all others.
fn mixed(mut value: u64) -> u64 {
    value = (value ^ (value >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    value = (value ^ (value >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    value ^ (value >> 32)
}
