//! Prints the catalog for `\d` and its like, and `\l`.

use std::io::{self, Write};

use cleave_host::Database;
use cleave_host::catalog::index_definition::{IndexDefinition, PRIMARY_KEY};
use cleave_host::catalog::{CatalogState, TableState, TabletState};
use cleave_host::planner;
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

/// `\d`: the tables; with their sizes if `has_detail`.
pub(crate) fn tables(
    out: &mut dyn Write,
    catalog: &CatalogState,
    has_detail: bool,
) -> io::Result<()> {
    if has_detail {
        return tables_with_sizes(out, catalog);
    }
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

/// `\dt+`: the tables with what they take.
fn tables_with_sizes(out: &mut dyn Write, catalog: &CatalogState) -> io::Result<()> {
    let rows: Vec<[String; 6]> = catalog
        .tables()
        .map(|table| {
            [
                table.schema.name.clone(),
                table.row_count().to_string(),
                table.tablets.len().to_string(),
                table.tablets.iter().map(|tablet| bytes(tablet)).sum::<usize>().to_string(),
                table.indexes.len().to_string(),
                table.placement(catalog),
            ]
        })
        .collect();
    write_columns(out, ["table", "rows", "tablets", "bytes", "indexes", "device"], &rows)
}

/// `\di`: the indexes.
pub(crate) fn indexes(out: &mut dyn Write, catalog: &CatalogState) -> io::Result<()> {
    let sound = catalog.indexes().map(|(table, index)| {
        [index.name.clone(), table.schema.name.clone(), index_kind(&table.schema, index)]
    });
    let damaged = catalog.damaged_indexes().map(|(table, index)| {
        let index = &index.definition;
        let kind = format!("{}: cannot be used", index_kind(&table.schema, index));
        [index.name.clone(), table.schema.name.clone(), kind]
    });
    let mut rows: Vec<[String; 3]> = sound.chain(damaged).collect();
    rows.sort_unstable();
    write_columns(out, ["index", "table", "kind"], &rows)
}

/// `\dv`: the views.
pub(crate) fn views(out: &mut dyn Write, catalog: &CatalogState) -> io::Result<()> {
    let rows: Vec<[String; 2]> = catalog
        .views()
        .map(|view| [view.schema.name.clone(), one_line(&view.query, QUERY_WIDTH)])
        .collect();
    write_columns(out, ["view", "query"], &rows)
}

/// `\df`: the functions whose names have a part.
pub(crate) fn functions(out: &mut dyn Write, part: &str) -> io::Result<()> {
    let rows: Vec<[String; 2]> = planner::functions()
        .into_iter()
        .filter(|(name, _)| name.contains(part))
        .map(|(name, kind)| [name, kind.to_owned()])
        .collect();
    write_columns(out, ["function", "kind"], &rows)
}

/// `\d NAME` of a view or an index; false: it is neither.
pub(crate) fn view_or_index(
    out: &mut dyn Write,
    catalog: &CatalogState,
    name: &str,
    has_detail: bool,
) -> io::Result<bool> {
    if let Some(view) = catalog.view(name) {
        writeln!(out, "View \"{name}\"")?;
        columns(out, &view.schema)?;
        if has_detail {
            writeln!(out, "Query:\n  {}", view.query)?;
        }
        return Ok(true);
    }
    let Some((table, index)) = catalog.index(name) else { return Ok(false) };
    let kind = index_kind(&table.schema, index);
    writeln!(out, "Index \"{name}\" of table \"{}\": {kind}", table.schema.name)?;
    Ok(true)
}

/// The columns of a table or view.
fn columns(out: &mut dyn Write, schema: &TableSchema) -> io::Result<()> {
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
    write_columns(out, ["column", "type", "nullable", "default"], &rows)
}

/// Bytes of a tablet on its device.
fn bytes(tablet: &TabletState) -> usize {
    tablet.extents().map(|extent| extent.bytes()).sum()
}

/// `\d TABLE`: columns, indexes, and the devices of its rows.
pub(crate) fn table(
    out: &mut dyn Write,
    catalog: &CatalogState,
    table: &TableState,
) -> io::Result<()> {
    let schema = &table.schema;
    writeln!(out, "Table \"{}\", {} rows", schema.name, table.row_count())?;
    columns(out, schema)?;
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
/// Characters of a view's query that a list of views shows.
const QUERY_WIDTH: usize = 80;

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
    one_line(&text.unwrap_or_default(), VALUE_WIDTH)
}

/// A text in one line of at most `width` characters.
fn one_line(text: &str, width: usize) -> String {
    let text = text.replace(['\n', '\r', '\t'], " ");
    if text.chars().count() <= width {
        return text;
    }
    let mut short: String = text.chars().take(width - 1).collect();
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
