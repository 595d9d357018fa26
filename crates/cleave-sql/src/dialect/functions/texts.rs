//! `format`, and texts in quotes.
//!
//! Source: PostgreSQL's documentation, "format".

use std::iter::Peekable;
use std::str::Chars;
use std::sync::Arc;

use cleave_catalog::value::ValueText;
use cleave_fragment::functions::bounded::{RESULT_BYTES_MAX, ResultTooLarge};
use cleave_fragment::functions::{ArgumentFault, row_function};
use cleave_fragment::result_memory::made;
use cleave_fragment::wanted;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::utils::take_function_args;
use datafusion::error::Result;
use datafusion::logical_expr::ScalarUDF;

use crate::statement::names::quoted;

pub(super) fn format() -> Arc<ScalarUDF> {
    let takes = |given: &[DataType]| {
        let (template, values) = given.split_first()?;
        if !matches!(template, DataType::Utf8 | DataType::Null) {
            return None;
        }
        Some(std::iter::once(DataType::Utf8).chain(values.iter().cloned()).collect())
    };
    row_function("format", takes, |_| DataType::Utf8, formatted)
}

pub(super) fn quote_literal() -> Arc<ScalarUDF> {
    row_function(
        "quote_literal",
        any_one,
        |_| DataType::Utf8,
        |args| {
            let [values] = take_function_args("quote_literal", args)?;
            each_text(values, |text| text.map(literal))
        },
    )
}

pub(super) fn quote_nullable() -> Arc<ScalarUDF> {
    row_function(
        "quote_nullable",
        any_one,
        |_| DataType::Utf8,
        |args| {
            let [values] = take_function_args("quote_nullable", args)?;
            each_text(values, |text| Some(text.map_or_else(|| "NULL".to_owned(), literal)))
        },
    )
}

fn any_one(given: &[DataType]) -> Option<Vec<DataType>> {
    (given.len() == 1).then(|| given.to_vec())
}

fn each_text(values: &ArrayRef, of: impl Fn(Option<&str>) -> Option<String>) -> Result<ArrayRef> {
    if let Some(values) = values.as_boolean_opt() {
        // As a cast to text writes them; on their own they are t and f.
        let words =
            values.iter().map(|value| value.map(|value| if value { "true" } else { "false" }));
        return Ok(Arc::new(words.map(of).collect::<StringArray>()));
    }
    let writer = ValueText::new(values)?;
    let mut text = String::new();
    let texts = (0..values.len()).map(|row| {
        text.clear();
        let is_there = writer.write(row, &mut text);
        // It is copied, and then written with its quotes.
        made(text.len())?;
        Ok(of(is_there.then_some(text.as_str())))
    });
    Ok(Arc::new(texts.collect::<Result<StringArray>>()?))
}

/// A text as a literal of SQL.
fn literal(text: &str) -> String {
    let doubled = text.replace('\'', "''");
    match text.contains('\\') {
        true => format!("E'{}'", doubled.replace('\\', "\\\\")),
        false => format!("'{doubled}'"),
    }
}

fn formatted(args: &[ArrayRef]) -> Result<ArrayRef> {
    let Some((templates, values)) = args.split_first() else {
        return Err(invalid("format() has no template").into());
    };
    let writers =
        values.iter().map(|value| ValueText::new(value)).collect::<Result<Vec<_>, _>>()?;
    let templates = templates.as_string::<i32>();
    let mut bytes = 0;
    let mut texts = Vec::with_capacity(templates.len());
    for row in 0..templates.len() {
        if templates.is_null(row) {
            texts.push(None);
            continue;
        }
        let value = |place: usize| -> Result<Option<String>, ArgumentFault> {
            let writer = place.checked_sub(1).and_then(|place| writers.get(place));
            let writer = writer.ok_or_else(|| invalid("too few arguments for format()"))?;
            let mut text = String::new();
            Ok(writer.write(row, &mut text).then_some(text))
        };
        let mut template = Template {
            letters: templates.value(row).chars().peekable(),
            place: 0,
            out: String::new(),
            rows: templates.len(),
            bytes,
        };
        template.fill(&value)?;
        bytes = template.bytes;
        texts.push(Some(template.out));
    }
    Ok(Arc::new(StringArray::from(texts)))
}

fn invalid(reason: &str) -> ArgumentFault {
    ArgumentFault::Invalid { reason: reason.to_owned() }
}

type Value<'a> = &'a dyn Fn(usize) -> Result<Option<String>, ArgumentFault>;

/// A template in progress.
struct Template<'a> {
    letters: Peekable<Chars<'a>>,
    /// The argument used last.
    place: u32,
    out: String,
    rows: usize,
    /// The size of all results so far.
    bytes: u64,
}

impl Template<'_> {
    fn fill(&mut self, value: Value<'_>) -> Result<()> {
        while let Some(letter) = self.letters.next() {
            if letter != '%' {
                self.put(letter.encode_utf8(&mut [0; 4]), 0, false)?;
            } else if self.letters.next_if_eq(&'%').is_some() {
                self.put("%", 0, false)?;
            } else {
                self.fill_one(value)?;
            }
        }
        Ok(())
    }

    /// `[place$][-][width]type`, behind the `%`.
    fn fill_one(&mut self, value: Value<'_>) -> Result<()> {
        let mut number = self.number()?;
        let mut place = None;
        if let Some(given) = number
            && self.letters.next_if_eq(&'$').is_some()
        {
            place = Some(self.at(given)?);
            number = None;
        }
        let mut is_left = false;
        if number.is_none() {
            while self.letters.next_if_eq(&'-').is_some() {
                is_left = true;
            }
            number = self.number()?;
        }
        let mut width = i64::from(number.unwrap_or(0));
        if number.is_none() && self.letters.next_if_eq(&'*').is_some() {
            let given = self.number()?;
            let at = match given {
                Some(given) if self.letters.next_if_eq(&'$').is_some() => self.at(given)?,
                Some(_) => {
                    let reason = "width argument position must be ended by \"$\"";
                    return Err(invalid(reason).into());
                }
                None => self.at(self.place.saturating_add(1))?,
            };
            let text = value(at)?.unwrap_or_default();
            width = match text.is_empty() {
                true => 0,
                // As an int4, so that its negative fits too.
                false => {
                    text.parse::<i32>().map_err(|_| invalid("the width is not an integer"))?.into()
                }
            };
            if width < 0 {
                is_left = true;
                width = -width;
            }
        }
        let unterminated = || invalid("unterminated format() type specifier");
        let kind = self.letters.next().ok_or_else(unterminated)?;
        if !matches!(kind, 's' | 'I' | 'L') {
            let reason = format!("unrecognized format() type specifier \"{kind}\"");
            return Err(ArgumentFault::Invalid { reason }.into());
        }
        let place = match place {
            Some(place) => place,
            None => self.at(self.place.saturating_add(1))?,
        };
        let text = match (kind, value(place)?) {
            ('s', text) => text.unwrap_or_default(),
            ('L', text) => text.map_or_else(|| "NULL".to_owned(), |text| literal(&text)),
            (_, Some(name)) => quoted(&name),
            (_, None) => {
                let reason = "null values cannot be formatted as an SQL identifier";
                return Err(ArgumentFault::Null { reason }.into());
            }
        };
        self.put(&text, usize::try_from(width).unwrap_or(usize::MAX), is_left)
    }

    fn at(&mut self, place: u32) -> Result<usize, ArgumentFault> {
        if place == 0 {
            return Err(invalid("format specifies argument 0, but arguments are numbered from 1"));
        }
        self.place = place;
        Ok(usize::try_from(place).unwrap_or(usize::MAX))
    }

    fn number(&mut self) -> Result<Option<u32>, ArgumentFault> {
        let mut number: Option<u32> = None;
        while let Some(digit) = self.letters.peek().and_then(|letter| letter.to_digit(10)) {
            self.letters.next();
            let next = number.unwrap_or(0).checked_mul(10).and_then(|ten| ten.checked_add(digit));
            number = Some(next.ok_or_else(|| invalid("number is out of range"))?);
        }
        Ok(number)
    }

    fn put(&mut self, text: &str, width: usize, is_left: bool) -> Result<()> {
        let blanks = width.saturating_sub(text.chars().count());
        let more = (text.len() as u64).saturating_add(blanks as u64);
        self.bytes = self.bytes.saturating_add(more);
        if self.bytes > RESULT_BYTES_MAX {
            let (function, bytes) = ("format".to_owned(), self.bytes);
            let error = ResultTooLarge { function, bytes, rows: self.rows };
            return Err(datafusion::error::DataFusionError::External(Box::new(error)));
        }
        made(usize::try_from(self.bytes).unwrap_or(usize::MAX))?;
        wanted::check()?;
        let padding = std::iter::repeat_n(' ', blanks);
        if is_left {
            self.out.push_str(text);
            self.out.extend(padding);
        } else {
            self.out.extend(padding);
            self.out.push_str(text);
        }
        Ok(())
    }
}
