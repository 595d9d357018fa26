//! Formats rows as text: an aligned table, CSV or JSON.
//!
//! [`ValueText`] prints each value as PostgreSQL does (`t`, `\x6869`), whichever the layout; in JSON, numbers and
//! booleans are JSON's own, and values that JSON lacks (`NaN`) are strings.

use std::io::{self, Write};

use arrow::datatypes::{DataType, SchemaRef};
use arrow::record_batch::RecordBatch;
use cleave_host::value::ValueText;
use comfy_table::{CellAlignment, Table, TableComponent};

/// The layout of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// Aligned columns, NULL shown, and the number of rows.
    Table,
    /// A header and rows as in RFC 4180; NULL is empty, an empty string is `""`.
    Csv,
    /// One array of one object a row.
    Json,
}

/// The layout of one result.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    /// Table, CSV or JSON.
    pub(crate) format: Format,
    /// In a table: one line for each value instead of one for each row.
    pub(crate) expanded: bool,
}

/// The text of NULL in a table, so that it is not taken for an empty string.
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
            .map(|column| ValueText::new(column.as_ref()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(io::Error::other)?;
        for row in 0..batch.num_rows() {
            cells.clear();
            for column in &columns {
                let mut text = String::new();
                cells.push(column.write(row, &mut text).then_some(text));
            }
            visit(&cells)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
