//! Formats rows as text: tables, one line a value, CSV, JSON or Markdown.
//!
//! [`ValueText`] prints each value as PostgreSQL does (`t`, `\x6869`), whichever the layout; in JSON, numbers and
//! booleans are JSON's own, and values that JSON lacks (`NaN`) are strings. [`cells`] makes text fit for a table,
//! [`grid`] draws tables, [`records`] writes one line a value.
//!
//! Invariant: nothing is left out and no cell is cut, unless the layout is for a screen.

mod cells;
mod grid;
mod records;

use std::io::{self, Write};

use arrow::datatypes::{DataType, SchemaRef};
use arrow::record_batch::RecordBatch;
use cleave_host::value::ValueText;

pub(crate) use cells::printable;
use grid::{Grid, Style};

/// The layout of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// Aligned columns and the number of rows.
    #[value(alias = "aligned")]
    Table,
    /// The same in a frame.
    Box,
    /// One line for each value, and a blank line between rows.
    Line,
    /// A header and rows as in RFC 4180; NULL is empty, an empty string is `""`.
    Csv,
    /// One array of one object a row.
    Json,
    /// A table for a page in Markdown.
    Markdown,
}

impl Format {
    /// Whether it holds nothing but rows, for programs that read it.
    pub(crate) fn is_for_programs(self) -> bool {
        match self {
            Format::Csv | Format::Json | Format::Markdown => true,
            Format::Table | Format::Box | Format::Line => false,
        }
    }
}

/// Whether a table has one line for each value instead of one for each row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expanded {
    Off,
    On,
    /// If the rows are wider than the screen.
    Auto,
}

/// The text of NULL, unless `\pset null` says otherwise.
pub(crate) const NULL: &str = "NULL";

/// The layout of one result.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    pub(crate) format: Format,
    pub(crate) expanded: Expanded,
    /// The text of NULL; equal text is put in quotes, so that the two look different.
    pub(crate) null: String,
    /// Whether NULL is dimmed.
    pub(crate) has_colour: bool,
    /// Columns of the screen into which tables are fitted; None: they are as wide as their values.
    pub(crate) width: Option<usize>,
    /// Most rows of a table; None: all are shown.
    pub(crate) row_count_max: Option<usize>,
}

impl Layout {
    /// A layout for a file or a pipe.
    pub(crate) fn plain(format: Format) -> Layout {
        Layout {
            format,
            expanded: Expanded::Off,
            null: NULL.to_owned(),
            has_colour: false,
            width: None,
            row_count_max: None,
        }
    }
}

/// Writes one result.
pub(crate) fn write_rows(
    out: &mut dyn Write,
    layout: &Layout,
    schema: &SchemaRef,
    batches: &[RecordBatch],
) -> io::Result<()> {
    let style = match layout.format {
        Format::Table => Style::Plain,
        Format::Box => Style::Box,
        Format::Markdown => Style::Markdown,
        Format::Line => return records::write_lines(out, layout, schema, batches),
        Format::Csv => return write_csv(out, schema, batches),
        Format::Json => return write_json(out, schema, batches),
    };
    let is_table = style != Style::Markdown;
    if is_table && layout.expanded == Expanded::On {
        return records::write_records(out, layout, schema, batches);
    }
    let grid = Grid::new(layout, style, schema, batches)?;
    let is_wide = layout.width.is_some_and(|width| grid.width() > width);
    if is_table && is_wide && layout.expanded == Expanded::Auto {
        return records::write_records(out, layout, schema, batches);
    }
    grid.write(out)?;
    if is_table { write_row_count(out, layout, batches) } else { Ok(()) }
}

/// `(3 rows)`.
fn write_row_count(
    out: &mut dyn Write,
    layout: &Layout,
    batches: &[RecordBatch],
) -> io::Result<()> {
    let row_count = row_count(batches);
    match layout.row_count_max {
        Some(shown) if shown < row_count => {
            writeln!(out, "(the first {shown} of {row_count} rows; \\pset rows 0 shows all)")
        }
        _ => writeln!(out, "({row_count} {})", if row_count == 1 { "row" } else { "rows" }),
    }
}

fn row_count(batches: &[RecordBatch]) -> usize {
    batches.iter().map(RecordBatch::num_rows).sum()
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
    for_each_row(batches, None, |row| line(out, &mut row.iter().map(Option::as_deref)))
}

fn write_json(out: &mut dyn Write, schema: &SchemaRef, batches: &[RecordBatch]) -> io::Result<()> {
    let names: Vec<String> =
        schema.fields().iter().map(|field| json_string(field.name())).collect();
    let mut is_first = true;
    out.write_all(b"[")?;
    for_each_row(batches, None, |row| {
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

/// Calls `visit` with the cells of each row, NULL as `None`, up to `row_count_max` rows.
fn for_each_row(
    batches: &[RecordBatch],
    row_count_max: Option<usize>,
    mut visit: impl FnMut(&[Option<String>]) -> io::Result<()>,
) -> io::Result<()> {
    let mut left = row_count_max.unwrap_or(usize::MAX);
    let mut cells = Vec::new();
    for batch in batches {
        let columns = batch
            .columns()
            .iter()
            .map(|column| ValueText::new(column.as_ref()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(io::Error::other)?;
        for row in 0..batch.num_rows().min(left) {
            cells.clear();
            for column in &columns {
                let mut text = String::new();
                cells.push(column.write(row, &mut text).then_some(text));
            }
            visit(&cells)?;
        }
        left = left.saturating_sub(batch.num_rows());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
