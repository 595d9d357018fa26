//! Rows in, text out: an aligned table, CSV or JSON.
//!
//! Values read as PostgreSQL prints them (`t`, `\x6869`, `1 mon 2 days 03:04:05`), whichever the layout; in
//! JSON numbers and booleans are JSON's own, and what JSON cannot say (`NaN`) is a string.

use std::io::{self, Write};

use arrow::array::{Array, AsArray};
use arrow::datatypes::{
    DataType, Float32Type, Float64Type, IntervalMonthDayNanoType, IntervalUnit, SchemaRef,
};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use comfy_table::{CellAlignment, Table, TableComponent};

/// How rows are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// Aligned columns, NULL shown, and the number of rows.
    Table,
    /// A header and rows as RFC 4180 has them; NULL is empty, an empty string is `""`.
    Csv,
    /// One array of one object a row.
    Json,
}

/// How one result is shown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    /// Table, CSV or JSON.
    pub(crate) format: Format,
    /// In a table: one line a value instead of one line a row.
    pub(crate) expanded: bool,
}

/// What a table shows for NULL, so that it is not taken for an empty string.
const NULL: &str = "NULL";

/// Writes one result.
pub(crate) fn write_rows(
    out: &mut dyn Write,
    layout: Layout,
    schema: &SchemaRef,
    batches: &[RecordBatch],
) -> io::Result<()> {
    match layout.format {
        Format::Table if layout.expanded => write_expanded(out, schema, batches),
        Format::Table => write_table(out, schema, batches),
        Format::Csv => write_csv(out, schema, batches),
        Format::Json => write_json(out, schema, batches),
    }
}

fn write_table(out: &mut dyn Write, schema: &SchemaRef, batches: &[RecordBatch]) -> io::Result<()> {
    let mut table = Table::new();
    table
        .load_preset(comfy_table::presets::NOTHING)
        .set_style(TableComponent::VerticalLines, '|')
        .set_style(TableComponent::HeaderLines, '-')
        .set_style(TableComponent::MiddleHeaderIntersections, '+')
        .set_header(schema.fields().iter().map(|field| field.name()));
    let mut row_count = 0;
    for_each_row(batches, |row| {
        row_count += 1;
        table.add_row(row.iter().map(|cell| cell.as_deref().unwrap_or(NULL)));
        Ok(())
    })?;
    for (index, field) in schema.fields().iter().enumerate() {
        if is_number(field.data_type())
            && let Some(column) = table.column_mut(index)
        {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    if !schema.fields().is_empty() {
        for line in table.lines() {
            writeln!(out, "{}", line.trim_end())?;
        }
    }
    writeln!(out, "({row_count} {})", if row_count == 1 { "row" } else { "rows" })
}

fn write_expanded(
    out: &mut dyn Write,
    schema: &SchemaRef,
    batches: &[RecordBatch],
) -> io::Result<()> {
    let name_width =
        schema.fields().iter().map(|field| field.name().chars().count()).max().unwrap_or(0);
    let mut row_count = 0;
    for_each_row(batches, |row| {
        row_count += 1;
        writeln!(out, "-[ RECORD {row_count} ]{}", "-".repeat(20))?;
        for (field, cell) in schema.fields().iter().zip(row) {
            let value = cell.as_deref().unwrap_or(NULL);
            writeln!(out, "{:name_width$} | {value}", field.name())?;
        }
        Ok(())
    })?;
    writeln!(out, "({row_count} {})", if row_count == 1 { "row" } else { "rows" })
}

fn write_csv(out: &mut dyn Write, schema: &SchemaRef, batches: &[RecordBatch]) -> io::Result<()> {
    let line = |out: &mut dyn Write, cells: &mut dyn Iterator<Item = Option<&str>>| {
        for (index, cell) in cells.enumerate() {
            if index > 0 {
                out.write_all(b",")?;
            }
            match cell {
                None => {}
                Some(text) if text.is_empty() || text.contains([',', '"', '\n', '\r']) => {
                    write!(out, "\"{}\"", text.replace('"', "\"\""))?;
                }
                Some(text) => out.write_all(text.as_bytes())?,
            }
        }
        out.write_all(b"\n")
    };
    line(out, &mut schema.fields().iter().map(|field| Some(field.name().as_str())))?;
    for_each_row(batches, |row| line(out, &mut row.iter().map(Option::as_deref)))
}

fn write_json(out: &mut dyn Write, schema: &SchemaRef, batches: &[RecordBatch]) -> io::Result<()> {
    let names: Vec<String> =
        schema.fields().iter().map(|field| json_string(field.name())).collect();
    let mut is_first = true;
    out.write_all(b"[")?;
    for_each_row(batches, |row| {
        out.write_all(if is_first { b"\n{" } else { b",\n{" })?;
        is_first = false;
        for (index, ((name, field), cell)) in names.iter().zip(schema.fields()).zip(row).enumerate()
        {
            let separator = if index > 0 { "," } else { "" };
            let value = match cell.as_deref() {
                None => "null".to_owned(),
                Some(text) => match field.data_type() {
                    DataType::Boolean => (text == "t").to_string(),
                    number if is_number(number) && is_json_number(text) => text.to_owned(),
                    _ => json_string(text),
                },
            };
            write!(out, "{separator}{name}:{value}")?;
        }
        out.write_all(b"}")
    })?;
    out.write_all(if is_first { b"]\n" } else { b"\n]\n" })
}

fn json_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn is_json_number(text: &str) -> bool {
    text.bytes().last().is_some_and(|byte| byte.is_ascii_digit())
}

fn is_number(data_type: &DataType) -> bool {
    data_type.is_numeric()
}

/// Calls `visit` with the cells of each row, NULL as `None`.
fn for_each_row(
    batches: &[RecordBatch],
    mut visit: impl FnMut(&[Option<String>]) -> io::Result<()>,
) -> io::Result<()> {
    let mut cells = Vec::new();
    for batch in batches {
        let columns = batch
            .columns()
            .iter()
            .map(|column| Column::new(column.as_ref()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(io::Error::other)?;
        for row in 0..batch.num_rows() {
            cells.clear();
            for column in &columns {
                cells.push(column.cell(row).map_err(io::Error::other)?);
            }
            visit(&cells)?;
        }
    }
    Ok(())
}

/// One column, with what it takes to print its values.
struct Column<'a> {
    array: &'a dyn Array,
    formatter: ArrayFormatter<'a>,
}

impl<'a> Column<'a> {
    fn new(array: &'a dyn Array) -> Result<Column<'a>, ArrowError> {
        const OPTIONS: FormatOptions<'static> = FormatOptions::new()
            .with_null(NULL)
            .with_timestamp_format(Some("%Y-%m-%d %H:%M:%S%.f"))
            .with_timestamp_tz_format(Some("%Y-%m-%d %H:%M:%S%.f%#z"))
            .with_time_format(Some("%H:%M:%S%.f"));
        Ok(Column { array, formatter: ArrayFormatter::try_new(array, &OPTIONS)? })
    }

    fn cell(&self, row: usize) -> Result<Option<String>, ArrowError> {
        if self.array.is_null(row) {
            return Ok(None);
        }
        let array = self.array;
        Ok(Some(match array.data_type() {
            DataType::Boolean => {
                if array.as_boolean().value(row) {
                    "t".to_owned()
                } else {
                    "f".to_owned()
                }
            }
            DataType::Float32 => {
                float_text(array.as_primitive::<Float32Type>().value(row), |value| {
                    value.to_string()
                })
            }
            DataType::Float64 => {
                float_text(array.as_primitive::<Float64Type>().value(row), |value| {
                    value.to_string()
                })
            }
            DataType::Interval(IntervalUnit::MonthDayNano) => {
                let value = array.as_primitive::<IntervalMonthDayNanoType>().value(row);
                interval_text(value.months, value.days, value.nanoseconds)
            }
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView => {
                format!("\\x{}", self.formatter.value(row).try_to_string()?)
            }
            DataType::FixedSizeBinary(16) => uuid_text(array.as_fixed_size_binary().value(row)),
            _ => self.formatter.value(row).try_to_string()?,
        }))
    }
}

/// Without the `.0` that Rust appends, and with PostgreSQL's words for what is no number; exponents for the very large and small.
fn float_text<F: Into<f64> + Copy>(value: F, shortest: impl Fn(F) -> String) -> String {
    let wide: f64 = value.into();
    if wide.is_nan() {
        "NaN".to_owned()
    } else if wide.is_infinite() {
        if wide > 0.0 { "Infinity".to_owned() } else { "-Infinity".to_owned() }
    } else if wide != 0.0 && !(1e-4..1e15).contains(&wide.abs()) {
        let text = shortest_exponent(&shortest(value), wide);
        text.unwrap_or_else(|| shortest(value))
    } else {
        shortest(value)
    }
}

/// `1.5e+20` from the digits of Rust's plain notation, which are the shortest that read back as the same number.
fn shortest_exponent(plain: &str, value: f64) -> Option<String> {
    let digits: String = plain.chars().filter(char::is_ascii_digit).collect();
    let digits = digits.trim_start_matches('0').trim_end_matches('0');
    let exponent = {
        let integer = plain.trim_start_matches('-').split('.').next()?;
        let fraction = plain.split('.').nth(1).unwrap_or("");
        if integer == "0" {
            -1 - i64::try_from(fraction.len() - fraction.trim_start_matches('0').len()).ok()?
        } else {
            i64::try_from(integer.len()).ok()? - 1
        }
    };
    let (first, rest) = digits.split_at_checked(1)?;
    let point = if rest.is_empty() { "" } else { "." };
    let sign = if value < 0.0 { "-" } else { "" };
    let exponent_sign = if exponent < 0 { '-' } else { '+' };
    Some(format!("{sign}{first}{point}{rest}e{exponent_sign}{:02}", exponent.abs()))
}

fn interval_text(months: i32, days: i32, nanoseconds: i64) -> String {
    let mut parts = Vec::new();
    let mut part = |count: i32, one: &str, many: &str| {
        if count != 0 {
            parts.push(format!("{count} {}", if count == 1 { one } else { many }));
        }
    };
    part(months / 12, "year", "years");
    part(months % 12, "mon", "mons");
    part(days, "day", "days");
    if nanoseconds != 0 || parts.is_empty() {
        let sign = if nanoseconds < 0 { "-" } else { "" };
        let micros = nanoseconds.unsigned_abs() / 1_000;
        let seconds = micros / 1_000_000;
        let mut time =
            format!("{sign}{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
        if micros % 1_000_000 != 0 {
            let fraction = format!(".{:06}", micros % 1_000_000);
            time.push_str(fraction.trim_end_matches('0'));
        }
        parts.push(time);
    }
    parts.join(" ")
}

fn uuid_text(bytes: &[u8]) -> String {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    [hex.get(..8), hex.get(8..12), hex.get(12..16), hex.get(16..20), hex.get(20..)]
        .map(Option::unwrap_or_default)
        .join("-")
}

#[cfg(test)]
mod tests;
