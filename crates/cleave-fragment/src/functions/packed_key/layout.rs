//! The layout of a packed key: which bits hold which value.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, Int64Array, PrimitiveArray,
    StringBuilder,
};
use arrow::datatypes::{DataType, Date32Type, Int16Type, Int32Type, Int64Type};
use datafusion_common::{DataFusionError, Result};

use super::misfit;

/// Bits of a character, or of its absence.
const CHARACTER_BITS: u32 = 21;
const KEY_BITS: u32 = 64;

/// The parts of a key, first to last; the last lies in the lowest bits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyLayout {
    parts: Vec<KeyPart>,
}

/// One value in a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyPart {
    /// What it is.
    pub kind: PartKind,
    /// Whether there is a bit for NULL.
    pub may_be_null: bool,
}

/// The type of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartKind {
    /// One bit.
    Boolean,
    /// 16 bits.
    SmallInt,
    /// 32 bits.
    Int,
    /// 32 bits.
    Date,
    /// Text of at most so many characters.
    Text(u32),
}

impl KeyLayout {
    /// A layout of these parts; `None` if they do not fit one key.
    #[must_use]
    pub fn new(parts: Vec<KeyPart>) -> Option<Self> {
        let bits = parts.iter().try_fold(0_u32, |bits, part| bits.checked_add(part.bits()?))?;
        (bits <= KEY_BITS).then_some(Self { parts })
    }

    /// The part `number`.
    ///
    /// # Errors
    /// If there is none.
    pub(super) fn part(&self, number: usize) -> Result<KeyPart> {
        let part = self.parts.get(number).copied();
        part.ok_or_else(|| misfit(format_args!("it has no part {number}")))
    }

    /// Packs `columns`, one for each part, into keys.
    ///
    /// # Errors
    /// If they differ from the layout's, a value is NULL that may not be, or a text is too long.
    pub(super) fn pack(&self, columns: &[ArrayRef], rows: usize) -> Result<Int64Array> {
        if columns.len() != self.parts.len() {
            return Err(misfit(format_args!("{} columns", columns.len())));
        }
        let mut keys = vec![0_i64; rows];
        for (part, column) in self.parts.iter().zip(columns) {
            if column.data_type() != &part.data_type() || column.len() != rows {
                return Err(misfit(format_args!("a column of type {}", column.data_type())));
            }
            if column.null_count() > 0 && !part.may_be_null {
                return Err(misfit("a NULL"));
            }
            part.append(&mut keys, column)?;
        }
        Ok(keys.into())
    }

    /// Unpacks part `number` of `keys`.
    ///
    /// # Errors
    /// If there is no such part, or a key was not made by [`KeyLayout::pack`].
    pub(super) fn unpack(&self, number: usize, keys: &ArrayRef) -> Result<ArrayRef> {
        let part = self.part(number)?;
        let keys = keys.as_primitive_opt::<Int64Type>().ok_or_else(|| misfit("no bigint"))?;
        let later = self.parts.iter().skip(number.saturating_add(1));
        let shift: u32 = later.filter_map(|part| part.bits()).sum();
        // A part of no bits may lie above all others.
        let above = |key: &i64| key.checked_shr(shift).unwrap_or(0);
        let codes = keys.values().iter().map(|key| above(key) & mask(part.width()));
        let nulls = (keys.values().iter())
            .map(|key| part.may_be_null && (key >> (shift + part.width())) & 1 == 1);
        part.values(codes, nulls)
    }
}

impl KeyPart {
    /// The type of its values.
    pub(super) fn data_type(self) -> DataType {
        match self.kind {
            PartKind::Boolean => DataType::Boolean,
            PartKind::SmallInt => DataType::Int16,
            PartKind::Int => DataType::Int32,
            PartKind::Date => DataType::Date32,
            PartKind::Text(_) => DataType::Utf8,
        }
    }

    /// Bits of a value, without the one for NULL; more than a key has if the text is that long.
    fn width(self) -> u32 {
        match self.kind {
            PartKind::Boolean => 1,
            PartKind::SmallInt => 16,
            PartKind::Int | PartKind::Date => 32,
            PartKind::Text(characters) => characters.saturating_mul(CHARACTER_BITS),
        }
    }

    fn bits(self) -> Option<u32> {
        self.width().checked_add(u32::from(self.may_be_null))
    }

    fn append(self, keys: &mut [i64], column: &ArrayRef) -> Result<()> {
        let nulls = self.may_be_null.then(|| column.nulls());
        let width = self.width();
        let place = |row: usize, key: &mut i64, code: i64| {
            *key = match &nulls {
                None => shifted(*key, width) | code,
                Some(Some(nulls)) if nulls.is_null(row) => ((*key << 1) | 1) << width,
                Some(_) => shifted(*key, width + 1) | code,
            };
        };
        match self.kind {
            PartKind::Boolean => {
                let values = column.as_boolean().values();
                for (row, (key, value)) in keys.iter_mut().zip(values).enumerate() {
                    place(row, key, i64::from(value));
                }
            }
            PartKind::SmallInt => append_values::<Int16Type>(keys, column, width, place),
            PartKind::Int => append_values::<Int32Type>(keys, column, width, place),
            PartKind::Date => append_values::<Date32Type>(keys, column, width, place),
            PartKind::Text(characters) => {
                let texts = column.as_string::<i32>();
                for (row, key) in keys.iter_mut().enumerate() {
                    let text = if texts.is_null(row) { "" } else { texts.value(row) };
                    place(row, key, code_of(text, characters)?);
                }
            }
        }
        Ok(())
    }

    fn values(
        self,
        codes: impl Iterator<Item = i64>,
        nulls: impl Iterator<Item = bool>,
    ) -> Result<ArrayRef> {
        let values = codes.zip(nulls).map(|(code, is_null)| (!is_null).then_some(code));
        Ok(match self.kind {
            PartKind::Boolean => {
                Arc::new(values.map(|code| Some(code? == 1)).collect::<BooleanArray>())
            }
            PartKind::SmallInt => unpacked::<Int16Type>(values, low_16),
            PartKind::Int => unpacked::<Int32Type>(values, low_32),
            PartKind::Date => unpacked::<Date32Type>(values, low_32),
            PartKind::Text(_) => {
                let mut texts = StringBuilder::new();
                for code in values {
                    texts.append_option(code.map(text_of).transpose()?);
                }
                Arc::new(texts.finish())
            }
        })
    }
}

fn append_values<T>(
    keys: &mut [i64],
    column: &ArrayRef,
    width: u32,
    place: impl Fn(usize, &mut i64, i64),
) where
    T: ArrowPrimitiveType,
    i64: From<T::Native>,
{
    let values = column.as_primitive::<T>().values();
    for (row, (key, value)) in keys.iter_mut().zip(values.iter()).enumerate() {
        place(row, key, i64::from(*value) & mask(width));
    }
}

fn unpacked<T: ArrowPrimitiveType>(
    values: impl Iterator<Item = Option<i64>>,
    native: impl Fn(i64) -> T::Native,
) -> ArrayRef {
    Arc::new(values.map(|code| code.map(&native)).collect::<PrimitiveArray<T>>())
}

#[expect(clippy::cast_possible_truncation, reason = "the lower half, sign included, is the value")]
fn low_16(code: i64) -> i16 {
    code as i16
}

#[expect(clippy::cast_possible_truncation, reason = "the lower half, sign included, is the value")]
fn low_32(code: i64) -> i32 {
    code as i32
}

/// If one part takes all bits, there is none before it.
#[inline]
fn shifted(key: i64, width: u32) -> i64 {
    key.checked_shl(width).unwrap_or(0)
}

fn mask(width: u32) -> i64 {
    1_i64.checked_shl(width).map_or(-1, |bit| bit.wrapping_sub(1))
}

/// The code points of the characters plus one, the first in the highest bits.
fn code_of(text: &str, characters_max: u32) -> Result<i64> {
    if let ([byte @ 0..=0x7f], 1) = (text.as_bytes(), characters_max) {
        return Ok(i64::from(*byte) + 1);
    }
    let mut left = characters_max;
    let mut code = 0_i64;
    for character in text.chars() {
        left = left.checked_sub(1).ok_or_else(|| {
            misfit(format_args!("a text of more than {characters_max} characters"))
        })?;
        code = (code << CHARACTER_BITS) | (i64::from(u32::from(character)) + 1);
    }
    Ok(code << (left * CHARACTER_BITS))
}

fn text_of(code: i64) -> Result<String> {
    let shifts = (0..KEY_BITS / CHARACTER_BITS).rev().map(|place| place * CHARACTER_BITS);
    let codes = shifts.map(|shift| (code >> shift) & mask(CHARACTER_BITS)).filter(|code| *code > 0);
    let characters = codes.map(|code| u32::try_from(code - 1).ok().and_then(char::from_u32));
    characters.collect::<Option<String>>().ok_or_else(|| misfit("a code that is no character"))
}

impl fmt::Display for KeyLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, part) in self.parts.iter().enumerate() {
            let space = if number == 0 { "" } else { " " };
            let null = if part.may_be_null { "?" } else { "" };
            match part.kind {
                PartKind::Boolean => write!(f, "{space}b{null}")?,
                PartKind::SmallInt => write!(f, "{space}h{null}")?,
                PartKind::Int => write!(f, "{space}i{null}")?,
                PartKind::Date => write!(f, "{space}d{null}")?,
                PartKind::Text(characters) => write!(f, "{space}c{characters}{null}")?,
            }
        }
        Ok(())
    }
}

impl FromStr for KeyLayout {
    type Err = DataFusionError;

    fn from_str(text: &str) -> Result<Self> {
        let part = |text: &str| {
            let (kind, may_be_null) = match text.strip_suffix('?') {
                Some(kind) => (kind, true),
                None => (text, false),
            };
            let kind = match kind {
                "b" => PartKind::Boolean,
                "h" => PartKind::SmallInt,
                "i" => PartKind::Int,
                "d" => PartKind::Date,
                text => PartKind::Text(text.strip_prefix('c')?.parse().ok()?),
            };
            Some(KeyPart { kind, may_be_null })
        };
        let parts: Option<Vec<KeyPart>> = text.split(' ').map(part).collect();
        parts.and_then(Self::new).ok_or_else(|| misfit(format_args!("there is no layout {text:?}")))
    }
}
