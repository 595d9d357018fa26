//! Functions of regular expressions, whose matches have PostgreSQL's extent ([`pattern`]).
//!
//! The patterns and replacements are PostgreSQL's own: a [`Pattern`] translates them. Only `~` and `regexp_like`, which
//! ask whether there is a match, are DataFusion's.
//!
//! Source: PostgreSQL's documentation, "POSIX Regular Expressions".

mod pattern;

use std::ops::Range;
use std::sync::Arc;

use cleave_fragment::functions::{ArgumentFault, row_function};
use cleave_fragment::result_memory::Kept;
use cleave_fragment::wanted;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Int32Array, ListBuilder, StringArray, StringBuilder,
};
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::error::Result;
use datafusion::logical_expr::ScalarUDF;

use self::pattern::{Groups, Pattern};
use super::check_size;

/// `regexp_split_to_array(text, pattern [, flags])`.
pub(super) fn regexp_split_to_array() -> Arc<ScalarUDF> {
    let gives = |_: &[DataType]| DataType::new_list(DataType::Utf8, true);
    row_function("regexp_split_to_array", with_flags, gives, |args| {
        let mut call = Call::new("regexp_split_to_array", args, 2);
        let mut lists = ListBuilder::new(StringBuilder::new());
        for row in 0..call.rows() {
            let Some((text, pattern)) = call.at(row)? else {
                lists.append(false);
                continue;
            };
            let (mut start, mut from) = (0, 0);
            while let Some(found) = pattern.find_at(text, from) {
                from = behind(text, &found)?;
                // An empty match divides between characters, but not at the end or behind another match.
                if found.start < text.len() && found.end > start {
                    lists.values().append_value(&text[start..found.start]);
                    start = found.end;
                }
                if from > text.len() {
                    break;
                }
            }
            lists.values().append_value(&text[start..]);
            lists.append(true);
        }
        Ok(Arc::new(lists.finish()))
    })
}

/// `regexp_match(text, pattern [, flags])`: the groups of the first match, those that take no part NULL, or all of the
/// match if the pattern has no group.
pub(super) fn regexp_match() -> Arc<ScalarUDF> {
    let gives = |_: &[DataType]| DataType::new_list(DataType::Utf8, true);
    row_function("regexp_match", with_flags, gives, |args| {
        let mut call = Call::new("regexp_match", args, 2);
        let mut bytes = 0;
        let mut lists = ListBuilder::new(StringBuilder::new());
        for row in 0..call.rows() {
            let found = call
                .at(row)?
                .and_then(|(text, pattern)| pattern.groups_at(text, 0).map(|found| (text, found)));
            if let Some((text, found)) = &found {
                bytes += append_groups(lists.values(), text, found);
                check_size("regexp_match", bytes)?;
            }
            lists.append(found.is_some());
        }
        Ok(Arc::new(lists.finish()))
    })
}

/// The list of what `regexp_matches(text, pattern [, flags])` returns: for the first match, or with the flag `g` for
/// each one, what [`regexp_match`] returns.
pub(in crate::dialect) const MATCHES: &str = "list_of_regexp_matches";

pub(super) fn regexp_matches() -> Arc<ScalarUDF> {
    let gives = |_: &[DataType]| DataType::new_list(DataType::new_list(DataType::Utf8, true), true);
    row_function(MATCHES, with_flags, gives, |args| {
        let mut call = Call::new("regexp_matches", args, 2);
        let mut bytes = 0;
        let mut lists = ListBuilder::new(ListBuilder::new(StringBuilder::new()));
        for row in 0..call.rows() {
            let is_global = call.flags(row).contains('g');
            if let Some((text, pattern)) = call.at(row)? {
                let mut from = 0;
                while let Some(found) = pattern.groups_at(text, from) {
                    bytes += append_groups(lists.values().values(), text, &found);
                    check_size("regexp_matches", bytes)?;
                    lists.values().append(true);
                    from = found
                        .first()
                        .cloned()
                        .flatten()
                        .map_or(Ok(text.len() + 1), |whole| behind(text, &whole))?;
                    if !is_global || from > text.len() {
                        break;
                    }
                }
            }
            // No rows are what NULL gives, too.
            lists.append(true);
        }
        Ok(Arc::new(lists.finish()))
    })
}

/// `substring(text FROM pattern)`.
pub(in crate::dialect) const SUBSTRING: &str = "substring_by_pattern";

/// The first group of the first match, or all of the match if the pattern has no group.
pub(super) fn substring_by_pattern() -> Arc<ScalarUDF> {
    row_function(
        SUBSTRING,
        |given| typed(given, "tt", 2),
        |_| DataType::Utf8,
        |args| {
            let mut call = Call::new("substring", args, 2);
            each::<StringArray, _>(&mut call, |call, row| {
                let Some((text, pattern)) = call.at(row)? else { return Ok(None) };
                let group = usize::from(pattern.groups() > 0);
                let found = pattern.groups_at(text, 0);
                Ok(found
                    .and_then(|found| found.get(group)?.clone())
                    .map(|part| text[part].to_owned()))
            })
        },
    )
}

/// `regexp_substr(text, pattern [, start [, n [, flags [, group]]]])`.
pub(super) fn regexp_substr() -> Arc<ScalarUDF> {
    row_function(
        "regexp_substr",
        |given| typed(given, "ttiiti", 2),
        |_| DataType::Utf8,
        |args| {
            let mut call = Call::new("regexp_substr", args, 4);
            each::<StringArray, _>(&mut call, |call, row| {
                let (start, nth) = (call.number(row, 2, "start", 1)?, call.number(row, 3, "n", 1)?);
                let group = call.number(row, 5, "subexpr", 0)?;
                let Some((text, pattern)) = call.at(row)? else { return Ok(None) };
                let group = pattern.group(group);
                let found = nth_match(pattern, text, start, nth)?;
                Ok(found
                    .and_then(|found| found.get(group)?.clone())
                    .map(|part| text[part].to_owned()))
            })
        },
    )
}

/// `regexp_count(text, pattern [, start [, flags]])`.
pub(super) fn regexp_count() -> Arc<ScalarUDF> {
    row_function(
        "regexp_count",
        |given| typed(given, "ttit", 2),
        |_| DataType::Int32,
        |args| {
            let mut call = Call::new("regexp_count", args, 3);
            each::<Int32Array, _>(&mut call, |call, row| {
                let start = call.number(row, 2, "start", 1)?;
                let Some((text, pattern)) = call.at(row)? else { return Ok(None) };
                let mut count = 0;
                let mut from = place_of(text, start);
                while let Some(found) = from.and_then(|from| pattern.find_at(text, from)) {
                    count += 1;
                    from = Some(behind(text, &found)?).filter(|from| *from <= text.len());
                }
                Ok(Some(count))
            })
        },
    )
}

/// `regexp_instr(text, pattern [, start [, n [, endoption [, flags [, group]]]]])`.
pub(super) fn regexp_instr() -> Arc<ScalarUDF> {
    row_function(
        "regexp_instr",
        |given| typed(given, "ttiiiti", 2),
        |_| DataType::Int32,
        |args| {
            let mut call = Call::new("regexp_instr", args, 5);
            each::<Int32Array, _>(&mut call, |call, row| {
                let (start, nth) = (call.number(row, 2, "start", 1)?, call.number(row, 3, "n", 1)?);
                let end = call.number(row, 4, "endoption", 0)?;
                if end > 1 {
                    return Err(invalid("endoption", &end).into());
                }
                let group = call.number(row, 6, "subexpr", 0)?;
                let Some((text, pattern)) = call.at(row)? else { return Ok(None) };
                let group = pattern.group(group);
                let found = nth_match(pattern, text, start, nth)?;
                let part = found.and_then(|found| found.get(group)?.clone());
                let at = part.map(|part| if end == 1 { part.end } else { part.start });
                let characters = at.map_or(0, |at| text[..at].chars().count() + 1);
                Ok(Some(i32::try_from(characters).unwrap_or(i32::MAX)))
            })
        },
    )
}

/// `regexp_replace(text, pattern, replacement [, flags])`, or with `start [, n [, flags]]` in place of the flags.
pub(super) fn regexp_replace() -> Arc<ScalarUDF> {
    row_function(
        "regexp_replace",
        |given| match given.get(3) {
            Some(fourth) if fourth.is_integer() => typed(given, "tttiit", 4),
            _ => typed(given, "tttt", 3),
        },
        |_| DataType::Utf8,
        |args| {
            let by_place = args.get(3).is_some_and(|fourth| fourth.data_type().is_integer());
            let mut call = Call::new("regexp_replace", args, if by_place { 5 } else { 3 });
            let mut bytes = 0;
            let mut out = String::new();
            each::<StringArray, _>(&mut call, |call, row| {
                let mut nth = usize::from(!call.flags(row).contains('g'));
                let mut start = 1;
                if by_place {
                    start = call.number(row, 3, "start", 1)?;
                    if args.len() > 4 {
                        nth = call.number(row, 4, "n", 0)?;
                    }
                }
                let by = call.text(row, 2).unwrap_or_default();
                let Some((text, pattern)) = call.at(row)? else { return Ok(None) };
                out.clear();
                replace(pattern, text, by, (start, nth), &mut out, bytes)?;
                bytes += out.len();
                Ok(Some(out.clone()))
            })
        },
    )
}

/// Writes `text` with its matches replaced: the `nth` from the character `start` on, or with 0 all of them.
fn replace(
    pattern: &Pattern,
    text: &str,
    by: &str,
    (start, nth): (usize, usize),
    out: &mut String,
    before: usize,
) -> Result<()> {
    let refers = by.contains('\\');
    let mut copied = 0;
    let mut count = 0;
    let mut from = place_of(text, start);
    while let Some(at) = from {
        let groups = match refers {
            true => pattern.groups_at(text, at),
            false => pattern.find_at(text, at).map(|found| vec![Some(found)]),
        };
        let Some(groups) = groups else { break };
        let Some(whole) = groups.first().cloned().flatten() else { break };
        count += 1;
        from = Some(behind(text, &whole)?).filter(|from| *from <= text.len());
        if nth > 0 && count != nth {
            continue;
        }
        out.push_str(&text[copied..whole.start]);
        copied = whole.end;
        for part in replacement_parts(by) {
            match part {
                Part::Text(part) => out.push_str(part),
                Part::Group(group) => {
                    if let Some(Some(part)) = groups.get(group) {
                        out.push_str(&text[part.clone()]);
                    }
                }
            }
            check_size("regexp_replace", before + out.len())?;
        }
        if nth > 0 {
            break;
        }
    }
    out.push_str(&text[copied..]);
    Ok(())
}

/// A part of a replacement: a text, or a group of the match, 0 for all of it.
enum Part<'a> {
    Text(&'a str),
    Group(usize),
}

/// The parts of a replacement: `\1` to `\9` are groups, `\&` is the match, `\\` a backslash; before others a backslash
/// is itself. One by one, as a replacement may be long.
fn replacement_parts(by: &str) -> impl Iterator<Item = Part<'_>> {
    let mut rest = by;
    std::iter::from_fn(move || {
        let text = rest.find('\\').unwrap_or(rest.len());
        let (part, taken) = match (text, rest.as_bytes()) {
            (0, []) => return None,
            (0, [_, digit @ b'1'..=b'9', ..]) => (Part::Group(usize::from(digit - b'0')), 2),
            (0, [_, b'&', ..]) => (Part::Group(0), 2),
            (0, [_, b'\\', ..]) => (Part::Text(&rest[..1]), 2),
            (0, _) => (Part::Text(&rest[..1]), 1),
            _ => (Part::Text(&rest[..text]), text),
        };
        rest = &rest[taken..];
        Some(part)
    })
}

/// The `nth` match from the character `start` on.
fn nth_match(pattern: &Pattern, text: &str, start: usize, nth: usize) -> Result<Option<Groups>> {
    let Some(mut from) = place_of(text, start) else { return Ok(None) };
    for _ in 1..nth {
        let Some(found) = pattern.find_at(text, from) else { return Ok(None) };
        from = behind(text, &found)?;
        if from > text.len() {
            return Ok(None);
        }
    }
    Ok(pattern.groups_at(text, from))
}

/// Bytes that take some microseconds to search.
const LONG_TEXT: usize = 16 << 10;

/// The byte of the character `start`, counted from 1; None behind the end.
fn place_of(text: &str, start: usize) -> Option<usize> {
    let places = text.char_indices().map(|(place, _)| place);
    places.chain(std::iter::once(text.len())).nth(start - 1)
}

/// Where the search goes on behind a match: behind an empty one, one character on.
fn behind(text: &str, found: &Range<usize>) -> Result<usize> {
    // Each match may have read all that is left.
    match text.len() - found.start > LONG_TEXT {
        true => wanted::look()?,
        false => wanted::check()?,
    }
    Ok(match found.is_empty() {
        true => found.end + text[found.end..].chars().next().map_or(1, char::len_utf8),
        false => found.end,
    })
}

/// Appends the groups, or all of the match if the pattern has none; returns the bytes.
fn append_groups(list: &mut StringBuilder, text: &str, found: &Groups) -> usize {
    let first = usize::from(found.len() > 1);
    let mut bytes = 0;
    for group in found.iter().skip(first) {
        list.append_option(group.clone().map(|part| &text[part]));
        bytes += group.as_ref().map_or(1, |part| part.len() + 1);
    }
    bytes
}

fn invalid(parameter: &str, value: &dyn std::fmt::Display) -> ArgumentFault {
    ArgumentFault::Invalid {
        reason: format!("invalid value for parameter \"{parameter}\": {value}"),
    }
}

/// Compiled patterns of one call that are kept; each may take some megabytes.
const KNOWN_MAX: usize = 8;

/// The arguments of one call.
struct Call<'a> {
    name: &'static str,
    args: &'a [ArrayRef],
    flags_at: usize,
    /// The patterns and flags used last, the newest at the end.
    known: Vec<(&'a str, &'a str, Pattern)>,
}

impl<'a> Call<'a> {
    fn new(name: &'static str, args: &'a [ArrayRef], flags_at: usize) -> Self {
        Self { name, args, flags_at, known: Vec::new() }
    }

    fn rows(&self) -> usize {
        self.args.first().map_or(0, |arg| arg.len())
    }

    fn text(&self, row: usize, place: usize) -> Option<&'a str> {
        let array = self.args.get(place)?;
        array.is_valid(row).then(|| array.as_string::<i32>().value(row))
    }

    fn flags(&self, row: usize) -> &'a str {
        self.text(row, self.flags_at).unwrap_or_default()
    }

    /// A number from `least` on, which is what a missing one is.
    fn number(&self, row: usize, place: usize, what: &str, least: usize) -> Result<usize> {
        let Some(array) = self.args.get(place) else { return Ok(least) };
        let number = array.as_primitive::<Int64Type>().value(row);
        let given = usize::try_from(number).ok().filter(|given| *given >= least);
        given.ok_or_else(|| invalid(what, &number).into())
    }

    /// Whether any argument is NULL.
    fn has_null(&self, row: usize) -> bool {
        self.args.iter().any(|arg| arg.is_null(row))
    }

    /// The text and the pattern; None if any argument is NULL.
    fn at(&mut self, row: usize) -> Result<Option<(&'a str, &Pattern)>> {
        if self.has_null(row) {
            return Ok(None);
        }
        let (Some(text), Some(pattern)) = (self.text(row, 0), self.text(row, 1)) else {
            return Ok(None);
        };
        let flags = self.flags(row);
        let is_it = |(known, with, _): &(&str, &str, Pattern)| *known == pattern && *with == flags;
        let place = match self.known.iter().rposition(is_it) {
            Some(place) => place,
            None => {
                if flags.contains('g') && !matches!(self.name, "regexp_replace" | "regexp_matches")
                {
                    let reason = format!("{}() does not support the \"global\" option", self.name);
                    return Err(ArgumentFault::Invalid { reason }.into());
                }
                wanted::look()?;
                let compiled = match Kept::take(&name_of(pattern, flags)) {
                    Some(compiled) => compiled,
                    None => Pattern::new(pattern, flags)?,
                };
                if self.known.len() >= KNOWN_MAX {
                    self.known.remove(0);
                }
                self.known.push((pattern, flags, compiled));
                self.known.len() - 1
            }
        };
        Ok(self.known.get(place).map(|(_, _, pattern)| (text, pattern)))
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        for (pattern, flags, compiled) in self.known.drain(..) {
            Kept::put(name_of(pattern, flags), compiled);
        }
    }
}

/// What a statement keeps a pattern under.
fn name_of(pattern: &str, flags: &str) -> String {
    format!("{flags}/{pattern}")
}

/// One value for each row, or NULL where an argument is.
fn each<'a, A: Array + FromIterator<Option<T>> + 'static, T>(
    call: &mut Call<'a>,
    mut of: impl FnMut(&mut Call<'a>, usize) -> Result<Option<T>>,
) -> Result<ArrayRef> {
    let found = (0..call.rows()).map(|row| match call.has_null(row) {
        true => Ok(None),
        false => wanted::check().and_then(|()| of(call, row)),
    });
    Ok(Arc::new(found.collect::<Result<A>>()?))
}

/// A text, a pattern, and perhaps flags.
fn with_flags(given: &[DataType]) -> Option<Vec<DataType>> {
    typed(given, "ttt", 2)
}

/// At least `least` arguments, texts where `kinds` has a `t`, whole numbers where it has an `i`.
pub(super) fn typed(given: &[DataType], kinds: &str, least: usize) -> Option<Vec<DataType>> {
    if given.len() < least || given.len() > kinds.len() {
        return None;
    }
    let mut typed = Vec::with_capacity(given.len());
    for (given, kind) in given.iter().zip(kinds.bytes()) {
        typed.push(match kind {
            b'i' if given.is_integer() || given.is_null() => DataType::Int64,
            b't' if given.is_string() || given.is_null() => DataType::Utf8,
            _ => return None,
        });
    }
    Some(typed)
}
