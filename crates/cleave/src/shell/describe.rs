//! Shows the catalog for `\d` and its like, and `\l`: as rows, which have the layout of results, and in words between
//! them, which layouts for programs leave out. What only the words say is rows there too.

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, StringArray};
use arrow::datatypes::{Field, Schema};
use arrow::record_batch::RecordBatch;
use cleave_host::catalog::index_definition::{IndexDefinition, PRIMARY_KEY};
use cleave_host::catalog::{CatalogState, TableState, TabletState};
use cleave_host::planner;
use cleave_host::value::value_text;
use cleave_host::{Database, Outcome};
use cleave_store::TableSchema;
use datafusion::common::ScalarValue;

use super::format::{Expanded, Format, Layout, printable, write_rows};

/// Titles of columns that hold whole numbers, where no cell says something else.
const NUMBERS: [&str; 6] = ["bytes", "commit", "indexes", "rows", "tables", "tablets"];

/// What a command shows.
pub(crate) struct Shown<'a> {
    text: Vec<u8>,
    layout: &'a Layout,
}

impl<'a> Shown<'a> {
    /// Nothing yet.
    pub(crate) fn new(layout: &'a Layout) -> Self {
        Self { text: Vec::new(), layout }
    }

    /// All that is shown. Names and values may have control characters, which programs get as they are.
    pub(crate) fn into_text(self) -> String {
        let text = String::from_utf8_lossy(&self.text);
        if self.is_for_programs() { text.into_owned() } else { printable(&text) }
    }

    fn is_for_programs(&self) -> bool {
        self.layout.format.is_for_programs()
    }

    /// A line for people.
    fn say(&mut self, line: fmt::Arguments<'_>) -> io::Result<()> {
        if self.is_for_programs() { Ok(()) } else { writeln!(self.text, "{line}") }
    }

    fn rows<const N: usize>(&mut self, titles: [&str; N], rows: &[[String; N]]) -> io::Result<()> {
        if self.layout.format == Format::Table && self.layout.expanded != Expanded::On {
            return write_columns(&mut self.text, titles, rows);
        }
        let column = |index: usize, title: &str| -> ArrayRef {
            let cells = || rows.iter().filter_map(move |row| row.get(index)).map(String::as_str);
            let numbers = cells().map(|cell| cell.parse().ok()).collect::<Option<Vec<i64>>>();
            match numbers.filter(|_| NUMBERS.contains(&title)) {
                Some(numbers) => Arc::new(Int64Array::from(numbers)),
                None => Arc::new(StringArray::from_iter_values(cells())),
            }
        };
        let columns: Vec<ArrayRef> =
            titles.into_iter().enumerate().map(|(index, title)| column(index, title)).collect();
        let fields = titles.into_iter().zip(&columns);
        let fields =
            fields.map(|(title, values)| Field::new(title, values.data_type().clone(), false));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let batch = RecordBatch::try_new(Arc::clone(&schema), columns).map_err(io::Error::other)?;
        write_rows(&mut self.text, self.layout, &schema, &[batch])
    }
}

/// `\l`: the database's folder, and its devices.
pub(crate) fn database(out: &mut Shown<'_>, database: &Database) -> io::Result<()> {
    let catalog = database.catalog();
    let directory = database.directory().display();
    let table_count = catalog.tables().count() + catalog.damaged_tables().count();
    if out.is_for_programs() {
        let row = [directory.to_string(), table_count.to_string(), catalog.commit.to_string()];
        out.rows(["database", "tables", "commit"], &[row])?;
        let devices: Vec<[String; 2]> =
            catalog.devices().map(|device| [device.name.clone(), device.address()]).collect();
        return out.rows(["device", "address"], &devices);
    }
    let commit = catalog.commit;
    out.say(format_args!("database {directory}, {table_count} tables, commit {commit}"))?;
    for device in catalog.devices() {
        out.say(format_args!("  device {} ({})", device.name, device.address()))?;
    }
    Ok(())
}

/// `\d`: the tables; with their sizes if `has_detail`.
pub(crate) fn tables(
    out: &mut Shown<'_>,
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
    if rows.is_empty() && !out.is_for_programs() {
        return out.say(format_args!("no tables yet; CREATE TABLE makes one"));
    }
    out.rows(["table", "rows", "device"], &rows)
}

/// `\dt+`: the tables with what they take.
fn tables_with_sizes(out: &mut Shown<'_>, catalog: &CatalogState) -> io::Result<()> {
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
    out.rows(["table", "rows", "tablets", "bytes", "indexes", "device"], &rows)
}

/// `\di`: the indexes.
pub(crate) fn indexes(out: &mut Shown<'_>, catalog: &CatalogState) -> io::Result<()> {
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
    out.rows(["index", "table", "kind"], &rows)
}

/// `\dv`: the views.
pub(crate) fn views(out: &mut Shown<'_>, catalog: &CatalogState) -> io::Result<()> {
    let width = if out.is_for_programs() { usize::MAX } else { QUERY_WIDTH };
    let rows: Vec<[String; 2]> = catalog
        .views()
        .map(|view| [view.schema.name.clone(), one_line(&view.query, width)])
        .collect();
    out.rows(["view", "query"], &rows)
}

/// `\df`: the functions whose names have a part.
pub(crate) fn functions(out: &mut Shown<'_>, part: &str) -> io::Result<()> {
    let rows: Vec<[String; 2]> = planner::functions()
        .into_iter()
        .filter(|(name, _)| name.contains(part))
        .map(|(name, kind)| [name, kind.to_owned()])
        .collect();
    out.rows(["function", "kind"], &rows)
}

/// `\d NAME` of a view or an index; false: it is neither.
pub(crate) fn view_or_index(
    out: &mut Shown<'_>,
    catalog: &CatalogState,
    name: &str,
    has_detail: bool,
) -> io::Result<bool> {
    if let Some(view) = catalog.view(name) {
        out.say(format_args!("View \"{name}\""))?;
        columns(out, &view.schema)?;
        if has_detail && out.is_for_programs() {
            out.rows(["query"], &[[view.query.clone()]])?;
        } else if has_detail {
            out.say(format_args!("Query:\n  {}", view.query))?;
        }
        return Ok(true);
    }
    let Some((table, index)) = catalog.index(name) else { return Ok(false) };
    let kind = index_kind(&table.schema, index);
    if out.is_for_programs() {
        let row = [name.to_owned(), table.schema.name.clone(), kind];
        out.rows(["index", "table", "kind"], &[row])?;
    } else {
        out.say(format_args!("Index \"{name}\" of table \"{}\": {kind}", table.schema.name))?;
    }
    Ok(true)
}

/// The columns of a table or view.
fn columns(out: &mut Shown<'_>, schema: &TableSchema) -> io::Result<()> {
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
    out.rows(["column", "type", "nullable", "default"], &rows)
}

/// Bytes of a tablet on its device.
fn bytes(tablet: &TabletState) -> usize {
    tablet.extents().map(|extent| extent.bytes()).sum()
}

/// `\d TABLE`: columns, indexes, and the devices of its rows.
pub(crate) fn table(
    out: &mut Shown<'_>,
    catalog: &CatalogState,
    table: &TableState,
) -> io::Result<()> {
    let schema = &table.schema;
    out.say(format_args!("Table \"{}\", {} rows", schema.name, table.row_count()))?;
    columns(out, schema)?;
    if !table.indexes.is_empty() || !table.damaged.is_empty() {
        out.say(format_args!("Indexes:"))?;
    }
    let mut kinds = Vec::new();
    for index in &table.indexes {
        let kind = index_kind(schema, index);
        out.say(format_args!("  {} {kind}", index.name))?;
        kinds.push([index.name.clone(), kind]);
    }
    for index in &table.damaged {
        let name = &index.definition.name;
        let kind = format!("{}: cannot be used", index_kind(schema, &index.definition));
        out.say(format_args!("  {name} {kind}"))?;
        kinds.push([name.clone(), kind]);
        for fault in &index.faults {
            out.say(format_args!("    {fault}"))?;
        }
    }
    if out.is_for_programs() {
        out.rows(["index", "kind"], &kinds)?;
    }
    let segment_count: usize = table.tablets.iter().map(|tablet| tablet.heap.len()).sum();
    out.say(format_args!(
        "On device {}: {segment_count} segments, {} bytes with indexes",
        table.placement(catalog),
        table.tablets.iter().map(|tablet| bytes(tablet)).sum::<usize>()
    ))?;
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
    out.rows(["tablet", "device", "rows", "bytes"], &rows)
}

/// Most common values that are shown.
const COMMON_SHOWN: usize = 3;
/// Characters of a value that are shown.
const VALUE_WIDTH: usize = 24;
/// Characters of a view's query that a list of views shows.
const QUERY_WIDTH: usize = 80;

/// Characters of a text in the statistics that a server gives, which are shown.
pub(crate) const STATISTICS_WIDTH: usize = 40;

/// The outcome with texts of at most `width` characters.
pub(crate) fn shortened(outcome: Outcome, width: usize) -> io::Result<Outcome> {
    let (schema, batches) = match outcome {
        Outcome::Rows { schema, batches } => (schema, batches),
        done @ Outcome::Done { .. } => return Ok(done),
    };
    let short = |column: &ArrayRef| -> ArrayRef {
        let Some(texts) = column.as_string_opt::<i32>() else { return Arc::clone(column) };
        let texts = texts.iter().map(|text| text.map(|text| one_line(text, width)));
        Arc::new(texts.collect::<StringArray>())
    };
    let batches = batches.into_iter().map(|batch| {
        let columns: Vec<ArrayRef> = batch.columns().iter().map(&short).collect();
        RecordBatch::try_new(batch.schema(), columns).map_err(io::Error::other)
    });
    let batches = batches.collect::<io::Result<Vec<_>>>()?;
    Ok(Outcome::Rows { schema, batches })
}

/// `\stats [TABLE]`: the statistics of each column, from ANALYZE.
pub(crate) fn statistics(
    out: &mut Shown<'_>,
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
            let name = &schema.name;
            out.say(format_args!("Table \"{name}\": no statistics; ANALYZE {name} gathers them"))?;
            continue;
        };
        out.say(format_args!(
            "Table \"{}\": analyzed at {} rows in {} pages; {} rows by now",
            schema.name,
            known.row_count,
            known.page_count,
            table.row_count()
        ))?;
        if out.is_for_programs() && name.is_none() {
            let row = [schema.name.clone(), known.row_count.to_string()];
            out.rows(["table", "rows"], &[row])?;
        }
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
        out.rows(titles, &rows)?;
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

/// A table without frames and without the number of its rows: words stand around it.
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
