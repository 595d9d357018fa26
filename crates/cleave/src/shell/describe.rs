//! Prints the catalog for `\d` and `\l`.

use std::io::{self, Write};

use cleave_host::Database;
use cleave_host::catalog::index_definition::{IndexDefinition, PRIMARY_KEY};
use cleave_host::catalog::{CatalogState, TableState, TabletState};
use cleave_host::value::value_text;
use cleave_store::TableSchema;
use datafusion::common::ScalarValue;

/// `\l`: the database's folder, and its devices.
pub(crate) fn database(out: &mut dyn Write, database: &Database) -> io::Result<()> {
    let catalog = database.catalog();
    writeln!(
        out,
        "database {}, {} tables, commit {}",
        database.directory().display(),
        catalog.tables().count() + catalog.damaged_tables().count(),
        catalog.commit
    )?;
    for device in catalog.devices() {
        writeln!(out, "  device {} ({})", device.name, device.address())?;
    }
    Ok(())
}

/// `\d`: the tables.
pub(crate) fn tables(out: &mut dyn Write, catalog: &CatalogState) -> io::Result<()> {
    let sound = catalog.tables().map(|table| {
        let name = table.schema.name.clone();
        [name, table.row_count().to_string(), table.placement(catalog)]
    });
    let damaged = catalog.damaged_tables().map(|table| {
        [table.schema.name.clone(), "damaged".to_owned(), "SELECT says what is wrong".to_owned()]
    });
    let mut rows: Vec<[String; 3]> = sound.chain(damaged).collect();
    rows.sort_unstable();
    if rows.is_empty() {
        return writeln!(out, "no tables yet; CREATE TABLE makes one");
    }
    write_columns(out, ["table", "rows", "device"], &rows)
}

/// `\d TABLE`: columns, indexes, and the devices of its rows.
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
    if !table.indexes.is_empty() || !table.damaged.is_empty() {
        writeln!(out, "Indexes:")?;
    }
    for index in &table.indexes {
        writeln!(out, "  {} {}", index.name, index_kind(schema, index))?;
    }
    for index in &table.damaged {
        let definition = &index.definition;
        let kind = index_kind(schema, definition);
        writeln!(out, "  {} {kind}: cannot be used", definition.name)?;
        for fault in &index.faults {
            writeln!(out, "    {fault}")?;
        }
    }
    let bytes =
        |tablet: &TabletState| -> usize { tablet.extents().map(|extent| extent.bytes()).sum() };
    let segment_count: usize = table.tablets.iter().map(|tablet| tablet.heap.len()).sum();
    writeln!(
        out,
        "On device {}: {segment_count} segments, {} bytes with indexes",
        table.placement(catalog),
        table.tablets.iter().map(|tablet| bytes(tablet)).sum::<usize>()
    )?;
    if table.tablets.len() == 1 {
        return Ok(());
    }
    let rows: Vec<[String; 4]> = table
        .tablets
        .iter()
        .map(|tablet| {
            let device = catalog.devices().find(|device| device.id == tablet.device);
            [
                tablet.id.0.to_string(),
                device.map_or_else(|| tablet.device.to_string(), |device| device.name.clone()),
                tablet.row_count().to_string(),
                bytes(tablet).to_string(),
            ]
        })
        .collect();
    write_columns(out, ["tablet", "device", "rows", "bytes"], &rows)
}

/// Most common values that are shown.
const COMMON_SHOWN: usize = 3;
/// Characters of a value that are shown.
const VALUE_WIDTH: usize = 24;

/// `\stats [TABLE]`: the statistics of each column, from ANALYZE.
pub(crate) fn statistics(
    out: &mut dyn Write,
    database: &Database,
    catalog: &CatalogState,
    name: Option<&str>,
) -> io::Result<()> {
    for table in catalog.tables() {
        let schema = &table.schema;
        if name.is_some_and(|name| name != schema.name) {
            continue;
        }
        let Some(known) = database.table_statistics(schema.table_id) else {
            writeln!(out, "Table \"{0}\": no statistics; ANALYZE {0} gathers them", schema.name)?;
            continue;
        };
        writeln!(
            out,
            "Table \"{}\": analyzed at {} rows in {} pages; {} rows by now",
            schema.name,
            known.row_count,
            known.page_count,
            table.row_count()
        )?;
        let rows: Vec<[String; 7]> = schema
            .columns
            .iter()
            .filter_map(|column| Some((column, known.columns.get(&column.id)?)))
            .map(|(column, known)| {
                let common = known.common.iter().take(COMMON_SHOWN);
                let common = common
                    .map(|(value, share)| format!("{} {:.1} %", shown(Some(value)), share * 100.0));
                [
                    column.name.clone(),
                    format!("{:.1} %", known.null_fraction * 100.0),
                    format!("{:.0}", known.distinct_count_at(table.row_count() as f64)),
                    format!("{:.1}", known.average_width),
                    shown(known.min.as_ref()),
                    shown(known.max.as_ref()),
                    common.collect::<Vec<_>>().join(", "),
                ]
            })
            .collect();
        let titles = ["column", "NULL", "distinct", "bytes", "min", "max", "most common"];
        write_columns(out, titles, &rows)?;
    }
    Ok(())
}

/// A value, shortened for a table.
fn shown(value: Option<&ScalarValue>) -> String {
    let text = value.and_then(|value| value_text(&value.to_array().ok()?, 0).ok()?);
    let text = text.unwrap_or_default().replace(['\n', '\r', '\t'], " ");
    if text.chars().count() <= VALUE_WIDTH {
        return text;
    }
    let mut short: String = text.chars().take(VALUE_WIDTH - 1).collect();
    short.push('…');
    short
}

/// The kind of an index, as in CREATE TABLE or CREATE INDEX.
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
