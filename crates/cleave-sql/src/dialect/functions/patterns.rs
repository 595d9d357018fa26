//! Functions of regular expressions that the engine lacks.

use std::sync::Arc;

use cleave_fragment::functions::{ArgumentFault, row_function};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, ListBuilder, StringArray, StringBuilder};
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::error::Result;
use datafusion::logical_expr::ScalarUDF;
use regex::{Regex, RegexBuilder};

/// `regexp_split_to_array(text, pattern [, flags])`.
pub(super) fn regexp_split_to_array() -> Arc<ScalarUDF> {
    let takes = |given: &[DataType]| texts(given, 2..=3);
    let gives = |_: &[DataType]| DataType::new_list(DataType::Utf8, true);
    row_function("regexp_split_to_array", takes, gives, |args| {
        let mut patterns = Patterns::default();
        let mut lists = ListBuilder::new(StringBuilder::new());
        for row in 0..rows_of(args) {
            let given: Option<Vec<&str>> = args.iter().map(|arg| text_at(arg, row)).collect();
            let Some(given) = given else {
                lists.append(false);
                continue;
            };
            let [text, pattern, flags @ ..] = given.as_slice() else { continue };
            let pattern = patterns.get(pattern, flags.first().copied().unwrap_or_default())?;
            let mut start = 0;
            for found in pattern.find_iter(text) {
                // An empty match divides between characters, but not at an end or behind another match.
                if found.is_empty() && (found.start() == start || found.start() == text.len()) {
                    continue;
                }
                lists.values().append_value(text.get(start..found.start()).unwrap_or_default());
                start = found.end();
            }
            lists.values().append_value(text.get(start..).unwrap_or_default());
            lists.append(true);
        }
        Ok(Arc::new(lists.finish()))
    })
}

/// `regexp_substr(text, pattern [, start [, number [, flags]]])`.
pub(super) fn regexp_substr() -> Arc<ScalarUDF> {
    let takes = |given: &[DataType]| {
        let (given, rest) = given.split_at_checked(2)?;
        let mut types = texts(given, 2..=2)?;
        for (place, given) in rest.iter().enumerate() {
            types.push(match place {
                0 | 1 if given.is_integer() || given.is_null() => DataType::Int64,
                2 => texts(std::slice::from_ref(given), 1..=1)?.pop()?,
                _ => return None,
            });
        }
        Some(types)
    };
    row_function(
        "regexp_substr",
        takes,
        |_| DataType::Utf8,
        |args| {
            let mut patterns = Patterns::default();
            let found = (0..rows_of(args)).map(|row| found_at(args, row, &mut patterns));
            Ok(Arc::new(found.collect::<Result<StringArray>>()?))
        },
    )
}

/// `substring(text FROM pattern)`, whose pattern is the engine's already.
pub(in crate::dialect) const SUBSTRING: &str = "substring_by_pattern";

/// The first group of the first match, or all of the match if the pattern has no group.
pub(super) fn substring_by_pattern() -> Arc<ScalarUDF> {
    let takes = |given: &[DataType]| texts(given, 2..=2);
    row_function(
        SUBSTRING,
        takes,
        |_| DataType::Utf8,
        |args| {
            let mut patterns = Patterns::default();
            let found = (0..rows_of(args)).map(|row| {
                let given: Option<Vec<&str>> = args.iter().map(|arg| text_at(arg, row)).collect();
                let Some([text, pattern]) = given.as_deref() else { return Ok(None) };
                let pattern = patterns.get(pattern, "")?;
                let group = usize::from(pattern.captures_len() > 1);
                let found = pattern.captures(text).and_then(|found| found.get(group));
                Ok(found.map(|found| found.as_str().to_owned()))
            });
            Ok(Arc::new(found.collect::<Result<StringArray>>()?))
        },
    )
}

/// `regexp_match(text, pattern [, flags])`: the groups of the first match, those that take no part NULL, or all of the
/// match if the pattern has no group.
pub(super) fn regexp_match() -> Arc<ScalarUDF> {
    let takes = |given: &[DataType]| texts(given, 2..=3);
    let gives = |_: &[DataType]| DataType::new_list(DataType::Utf8, true);
    row_function("regexp_match", takes, gives, |args| {
        let mut patterns = Patterns::default();
        let mut lists = ListBuilder::new(StringBuilder::new());
        for row in 0..rows_of(args) {
            let given: Option<Vec<&str>> = args.iter().map(|arg| text_at(arg, row)).collect();
            let Some([text, pattern, flags @ ..]) = given.as_deref() else {
                lists.append(false);
                continue;
            };
            let pattern = patterns.get(pattern, flags.first().copied().unwrap_or_default())?;
            let Some(found) = pattern.captures(text) else {
                lists.append(false);
                continue;
            };
            let first = usize::from(found.len() > 1);
            for group in found.iter().skip(first) {
                lists.values().append_option(group.map(|group| group.as_str()));
            }
            lists.append(true);
        }
        Ok(Arc::new(lists.finish()))
    })
}

fn found_at(args: &[ArrayRef], row: usize, patterns: &mut Patterns) -> Result<Option<String>> {
    let [texts, expressions, rest @ ..] = args else { return Ok(None) };
    if args.iter().any(|arg| arg.is_null(row)) {
        return Ok(None);
    }
    let (Some(text), Some(expression)) = (text_at(texts, row), text_at(expressions, row)) else {
        return Ok(None);
    };
    let number = |place: usize, what: &str| -> Result<usize, ArgumentFault> {
        let number = rest.get(place).map_or(1, |arg| arg.as_primitive::<Int64Type>().value(row));
        usize::try_from(number).ok().filter(|number| *number > 0).ok_or_else(|| {
            let reason = format!("invalid value for parameter \"{what}\": {number}");
            ArgumentFault::Invalid { reason }
        })
    };
    let (start, nth) = (number(0, "start")?, number(1, "n")?);
    let flags = rest.get(2).and_then(|arg| text_at(arg, row)).unwrap_or_default();
    let pattern = patterns.get(expression, flags)?;
    let Some((from, _)) = text.char_indices().nth(start - 1) else { return Ok(None) };
    let mut found = pattern.find_iter(text.get(from..).unwrap_or_default());
    Ok(found.nth(nth - 1).map(|found| found.as_str().to_owned()))
}

fn texts(given: &[DataType], counts: std::ops::RangeInclusive<usize>) -> Option<Vec<DataType>> {
    let is_text = |given: &DataType| matches!(given, DataType::Utf8 | DataType::Null);
    let is_it = counts.contains(&given.len()) && given.iter().all(is_text);
    is_it.then(|| vec![DataType::Utf8; given.len()])
}

fn rows_of(args: &[ArrayRef]) -> usize {
    args.first().map_or(0, |arg| arg.len())
}

fn text_at(array: &ArrayRef, row: usize) -> Option<&str> {
    array.is_valid(row).then(|| array.as_string::<i32>().value(row))
}

/// The pattern used last.
#[derive(Default)]
struct Patterns {
    last: Option<(String, String, Regex)>,
}

impl Patterns {
    fn get(&mut self, pattern: &str, flags: &str) -> Result<Regex> {
        if let Some((known, with, regex)) = &self.last
            && known == pattern
            && with == flags
        {
            return Ok(regex.clone());
        }
        let mut builder = RegexBuilder::new(pattern);
        // In PostgreSQL a point matches any character, also a newline.
        builder.dot_matches_new_line(true);
        for flag in flags.chars() {
            match flag {
                'i' => builder.case_insensitive(true),
                'c' => builder.case_insensitive(false),
                'n' | 'm' => builder.dot_matches_new_line(false).multi_line(true),
                's' => builder.dot_matches_new_line(true).multi_line(false),
                'x' => builder.ignore_whitespace(true),
                't' | 'e' => &mut builder,
                _ => {
                    let reason = format!("invalid regular expression option: \"{flag}\"");
                    return Err(ArgumentFault::Invalid { reason }.into());
                }
            };
        }
        let regex = builder.build().map_err(|error| {
            let reason = error.to_string().lines().last().unwrap_or_default().to_owned();
            ArgumentFault::Pattern { reason }
        })?;
        self.last = Some((pattern.to_owned(), flags.to_owned(), regex.clone()));
        Ok(regex)
    }
}
