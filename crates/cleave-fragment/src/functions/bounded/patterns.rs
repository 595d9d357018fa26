//! Estimates the size of a text after its matches of a pattern are replaced.
//!
//! The first estimate assumes a match at every position. Only where that is too large, and the arguments alone are not,
//! are matches counted, which costs about as much as replacing them.

use std::collections::HashMap;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion_common::Result;
use datafusion_expr::ColumnarValue;
use regex::Regex;

use super::{RESULT_BYTES_MAX, lengths, numbers, product, total};

/// `replace(text, from, to)`.
pub(super) fn replaced(args: &[ColumnarValue], rows: usize) -> Result<u64> {
    let texts = numbers(args, 0, lengths)?;
    let (from, to) = (numbers(args, 1, lengths)?, numbers(args, 2, lengths)?);
    let others = are_for_each_row(args);
    let given = |row: usize| {
        let others = if others { from.of(row).saturating_add(to.of(row)) } else { 0 };
        texts.of(row).saturating_add(others).unsigned_abs()
    };
    let least = total(rows, given);
    let most = total(rows, |row| {
        let matches = texts.of(row) / from.of(row).max(1) + 1;
        product(matches, to.of(row)).saturating_add(given(row))
    });
    if most <= RESULT_BYTES_MAX || least > RESULT_BYTES_MAX {
        return Ok(most);
    }
    let (values, patterns) = (Texts::of(args, 0)?, Texts::of(args, 1)?);
    Ok(total(rows, |row| {
        let both = values.at(row).zip(patterns.at(row));
        // A search begins with reading the whole pattern.
        let both = both.filter(|(value, pattern)| pattern.len() <= value.len());
        let matches = both.map_or(0, |(value, pattern)| value.matches(pattern).count());
        let matches = i64::try_from(matches).unwrap_or(i64::MAX);
        product(matches, to.of(row)).saturating_add(given(row))
    }))
}

/// `regexp_replace(text, pattern, replacement [, flags])`.
pub(super) fn replaced_by_pattern(args: &[ColumnarValue], rows: usize) -> Result<u64> {
    let (texts, patterns) = (numbers(args, 0, lengths)?, numbers(args, 1, lengths)?);
    let replacements = numbers(args, 2, lengths)?;
    let flags = Texts::of(args, 3)?;
    let is_global = |row: usize| flags.at(row).is_some_and(|flags| flags.contains('g'));
    let others_count = are_for_each_row(args);
    let given = |row: usize| {
        let others = patterns.of(row).saturating_add(replacements.of(row));
        texts.of(row).saturating_add(if others_count { others } else { 0 }).unsigned_abs()
    };
    let least = total(rows, given);
    let most = total(rows, |row| {
        let (text, replacement) = (texts.of(row), replacements.of(row));
        let matches = if is_global(row) { text.saturating_add(1) } else { 1 };
        // A reference to the match takes two characters, and matches do not overlap.
        let references = product(replacement / 2, text);
        product(matches, replacement).saturating_add(references).saturating_add(given(row))
    });
    if most <= RESULT_BYTES_MAX || least > RESULT_BYTES_MAX {
        return Ok(most);
    }
    let (values, patterns) = (Texts::of(args, 0)?, Texts::of(args, 1)?);
    let replacements = Texts::of(args, 2)?;
    // A long replacement is scanned once.
    let same_references =
        replacements.is_same.then(|| references_in(replacements.at(0).unwrap_or_default()));
    let mut compiled: HashMap<String, Option<Regex>> = HashMap::new();
    Ok(total(rows, |row| {
        let (value, pattern) = (values.at(row), patterns.at(row));
        let Some(((value, pattern), replacement)) = value.zip(pattern).zip(replacements.at(row))
        else {
            return given(row);
        };
        let pattern = as_the_engine_reads(pattern, flags.at(row));
        let regex = compiled.entry(pattern).or_insert_with_key(|pattern| Regex::new(pattern).ok());
        // The engine refuses an invalid pattern.
        let Some(regex) = regex else { return given(row) };
        let places = if is_global(row) { usize::MAX } else { 1 };
        let matches = regex.find_iter(value).take(places);
        let (count, bytes) = matches
            .fold((0_u64, 0_u64), |(count, bytes), found| (count + 1, bytes + found.len() as u64));
        let references = same_references.unwrap_or_else(|| references_in(replacement));
        count
            .saturating_mul(replacement.len() as u64)
            .saturating_add(references.saturating_mul(bytes))
            .saturating_add(given(row))
    }))
}

/// Whether the engine expands the arguments behind the text to one value a row, also constant ones.
fn are_for_each_row(args: &[ColumnarValue]) -> bool {
    args.iter().skip(1).any(|arg| matches!(arg, ColumnarValue::Array(_)))
}

/// An upper bound of the references to the match.
fn references_in(replacement: &str) -> u64 {
    replacement.bytes().filter(|byte| matches!(byte, b'$' | b'\\')).count() as u64
}

/// The pattern with its flags in front, without the flag for all matches.
fn as_the_engine_reads(pattern: &str, flags: Option<&str>) -> String {
    match flags {
        None | Some("g") => pattern.to_owned(),
        Some(flags) => format!("(?{}){pattern}", flags.replace('g', "")),
    }
}

/// One text for each row; they may all be the same.
struct Texts {
    values: Option<ArrayRef>,
    is_same: bool,
}

impl Texts {
    fn of(args: &[ColumnarValue], place: usize) -> Result<Self> {
        let text = |array: &ArrayRef| cast(array, &DataType::LargeUtf8);
        Ok(match args.get(place) {
            None => Self { values: None, is_same: true },
            Some(ColumnarValue::Array(array)) => {
                Self { values: Some(text(array)?), is_same: false }
            }
            Some(ColumnarValue::Scalar(value)) => {
                Self { values: Some(text(&value.to_array()?)?), is_same: true }
            }
        })
    }

    fn at(&self, row: usize) -> Option<&str> {
        let values = self.values.as_ref()?.as_string::<i64>();
        let row = if self.is_same { 0 } else { row };
        (row < values.len() && values.is_valid(row)).then(|| values.value(row))
    }
}
