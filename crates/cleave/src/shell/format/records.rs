//! Rows with one line for each value: expanded tables as psql has them, and the layout `line`.

use std::io::{self, Write};

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use unicode_width::UnicodeWidthStr;

use super::cells::{Cell, dimmed, fitted};
use super::{Layout, for_each_row, write_row_count};

/// Writes the rows of a table, one line a value.
pub(super) fn write_records(
    out: &mut dyn Write,
    layout: &Layout,
    schema: &SchemaRef,
    batches: &[RecordBatch],
) -> io::Result<()> {
    let names = names(schema);
    let name_width = name_width(&names);
    let mut number = 0;
    for_each_row(batches, layout.row_count_max, |row| {
        number += 1;
        writeln!(out, "-[ RECORD {number} ]{}", "-".repeat(20))?;
        for (name, value) in names.iter().zip(row) {
            let cell = Cell::of(value.as_deref(), layout);
            let line_count = cell.lines.len();
            for (index, line) in cell.lines.iter().enumerate() {
                let name = fitted(if index == 0 { name.as_str() } else { "" }, name_width, false);
                let end = if index + 1 < line_count { "+" } else { "" };
                let line = dimmed(line, layout.has_colour && cell.is_null);
                writeln!(out, "{name} | {line}{end}")?;
            }
        }
        Ok(())
    })?;
    write_row_count(out, layout, batches)
}

/// Writes `name = value` lines, and a blank one between rows.
pub(super) fn write_lines(
    out: &mut dyn Write,
    layout: &Layout,
    schema: &SchemaRef,
    batches: &[RecordBatch],
) -> io::Result<()> {
    let names = names(schema);
    let name_width = name_width(&names);
    let mut is_first = true;
    for_each_row(batches, None, |row| {
        if !is_first {
            writeln!(out)?;
        }
        is_first = false;
        for (name, value) in names.iter().zip(row) {
            let cell = Cell::of(value.as_deref(), layout);
            for (index, line) in cell.lines.iter().enumerate() {
                let line = dimmed(line, layout.has_colour && cell.is_null);
                match index {
                    0 => writeln!(out, "{} = {line}", fitted(name, name_width, true))?,
                    _ => writeln!(out, "{}{line}", " ".repeat(name_width + 3))?,
                }
            }
        }
        Ok(())
    })
}

/// The names of the columns, each on one line.
fn names(schema: &SchemaRef) -> Vec<String> {
    schema.fields().iter().map(|field| Cell::title(field.name()).lines.join(" ")).collect()
}

fn name_width(names: &[String]) -> usize {
    names.iter().map(|name| name.width()).max().unwrap_or(0)
}
