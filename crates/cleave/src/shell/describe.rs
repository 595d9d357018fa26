//! The catalog as `\d` and `\l` show it.

use std::io::{self, Write};

use cleave_host::Database;
use cleave_host::catalog::index_definition::{IndexDefinition, PRIMARY_KEY};
use cleave_host::catalog::{CatalogState, TableState};
use cleave_store::TableSchema;

/// `\l`: where the database lies, and its devices.
pub(crate) fn database(out: &mut dyn Write, database: &Database) -> io::Result<()> {
    let catalog = database.catalog();
    writeln!(
        out,
        "database {}, {} tables, commit {}",
        database.directory().display(),
        catalog.tables().count(),
        catalog.commit
    )?;
    for device in catalog.devices() {
        writeln!(out, "  device {} ({})", device.name, device.address())?;
    }
    Ok(())
}

/// `\d`: the tables.
pub(crate) fn tables(out: &mut dyn Write, catalog: &CatalogState) -> io::Result<()> {
    let rows: Vec<[String; 3]> = catalog
        .tables()
        .map(|table| {
            let name = table.schema.name.clone();
            [name, table.row_count().to_string(), device_names(catalog, table)]
        })
        .collect();
    if rows.is_empty() {
        return writeln!(out, "no tables yet; CREATE TABLE makes one");
    }
    write_columns(out, ["table", "rows", "device"], &rows)
}

/// `\d TABLE`: columns, indexes, and where the rows lie.
pub(crate) fn table(
    out: &mut dyn Write,
    catalog: &CatalogState,
    table: &TableState,
) -> io::Result<()> {
    let schema = &table.schema;
    writeln!(out, "Table \"{}\", {} rows", schema.name, table.row_count())?;
    let rows: Vec<[String; 4]> = schema
        .columns
        .iter()
        .map(|column| {
            [
                column.name.clone(),
                column.column_type.sql_name(),
                if column.not_null { "not null".to_owned() } else { String::new() },
                column.default.clone().unwrap_or_default(),
            ]
        })
        .collect();
    write_columns(out, ["column", "type", "nullable", "default"], &rows)?;
    if !table.indexes.is_empty() {
        writeln!(out, "Indexes:")?;
    }
    for index in &table.indexes {
        writeln!(out, "  {} {}", index.name, index_kind(schema, index))?;
    }
    let bytes: usize =
        table.tablets.iter().flat_map(|tablet| tablet.extents()).map(|extent| extent.bytes()).sum();
    let segment_count: usize = table.tablets.iter().map(|tablet| tablet.heap.len()).sum();
    writeln!(
        out,
        "On device {}: {segment_count} segments, {bytes} bytes with indexes",
        device_names(catalog, table)
    )
}

/// What an index is, as CREATE TABLE or CREATE INDEX writes it.
fn index_kind(schema: &TableSchema, index: &IndexDefinition) -> String {
    let columns = index.columns.iter().zip(index.column_names(schema)).map(|(column, name)| {
        let direction = if column.descending { " DESC" } else { "" };
        let nulls = match (column.descending, column.nulls_first) {
            (false, true) => " NULLS FIRST",
            (true, false) => " NULLS LAST",
            _ => "",
        };
        format!("{name}{direction}{nulls}")
    });
    let columns = columns.collect::<Vec<_>>().join(", ");
    let kind = match index {
        _ if index.id == PRIMARY_KEY => "PRIMARY KEY ",
        IndexDefinition { constraint: true, .. } => "UNIQUE CONSTRAINT ",
        IndexDefinition { unique: true, .. } => "UNIQUE ",
        _ => "",
    };
    format!("{kind}({columns})")
}

fn device_names(catalog: &CatalogState, table: &TableState) -> String {
    let mut names: Vec<&str> = table
        .tablets
        .iter()
        .filter_map(|tablet| catalog.devices().find(|device| device.id == tablet.device))
        .map(|device| device.name.as_str())
        .collect();
    names.dedup();
    names.join(", ")
}

fn write_columns<const N: usize>(
    out: &mut dyn Write,
    titles: [&str; N],
    rows: &[[String; N]],
) -> io::Result<()> {
    let mut widths = titles.map(|title| title.chars().count());
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: [&str; N]| {
        let padded: Vec<String> =
            cells.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        format!(" {}", padded.join(" | ")).trim_end().to_owned()
    };
    writeln!(out, "{}", line(titles))?;
    writeln!(out, "-{}-", widths.map(|width| "-".repeat(width)).join("-+-"))?;
    for row in rows {
        writeln!(out, "{}", line(row.each_ref().map(String::as_str)))?;
    }
    Ok(())
}
