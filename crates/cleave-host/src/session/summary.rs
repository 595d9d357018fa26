//! DESCRIBE and SUMMARIZE: the columns of a query with their types, and figures of their values.
//!
//! ```text
//!  SUMMARIZE q ─▶ describe q ─▶ SELECT count(*), min(c1), max(c1), …, min(c2), … FROM (q) AS summarized (c1, c2, …)
//!                                                          one row ─▶ a row for each column
//! ```
//!
//! Numbers of different values and quantiles are estimates of bounded size. Averages, deviations and quantiles are of
//! numbers alone; quantiles leave out what is not finite.

use std::fmt::Write;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Float64Type, Int64Type, Schema, SchemaRef};
use cleave_catalog::error::{Error, NameKind, Result};
use cleave_query::select::{self, ColumnOrigin, QueryRequest};
use cleave_sql::dialect::{sql_type, whole_type_name};
use cleave_sql::statement::parameters::{self, Parameters};
use cleave_sql::statement::parse::{Summary, parse_query};
use cleave_store::ColumnType;
use datafusion::sql::sqlparser::ast::{self, SetExpr, TableFactor};

use super::{Outcome, Session, locking};

/// Shares of values below the quantiles.
const QUANTILES: [(&str, &str); 3] = [("q25", "0.25"), ("q50", "0.5"), ("q75", "0.75")];
/// Figures of one column.
const FIGURE_COUNT: usize = 6 + QUANTILES.len();

/// The columns of the result.
pub(super) fn columns(with_figures: bool) -> SchemaRef {
    let field = |name: &str, own: DataType| Field::new(name, own, true);
    let mut fields =
        vec![field("column_name", DataType::Utf8), field("column_type", DataType::Utf8)];
    if with_figures {
        fields.extend(["min", "max"].map(|name| field(name, DataType::Utf8)));
        fields.push(field("approx_unique", DataType::Int64));
        fields.extend(["avg", "std"].map(|name| field(name, DataType::Float64)));
        fields.extend(QUANTILES.map(|(name, _)| field(name, DataType::Float64)));
        fields.push(field("count", DataType::Int64));
        fields.push(field("null_percentage", DataType::Float64));
    } else {
        fields.push(field("nullable", DataType::Utf8));
    }
    Arc::new(Schema::new(fields))
}

/// Runs one.
pub(super) async fn run(session: &mut Session, summary: &Summary) -> Result<Outcome> {
    if parameters::count(&summary.query)? > 0 {
        return Err(Error::unknown(NameKind::Parameter, "$1", []));
    }
    locking::wait_for_tables(session, &summary.query).await?;
    let view = session.view().await?;
    let described = select::describe(
        &session.database,
        session.in_force(),
        Some(&view),
        &summary.query,
        Vec::new(),
    );
    let described = Box::pin(described).await?;
    let fields = described.schema.fields();
    let types: Vec<Option<ColumnType>> = fields.iter().map(type_of).collect();
    let names: StringArray = fields.iter().map(|field| Some(field.name().as_str())).collect();
    let shown = fields.iter().zip(&types).map(|(field, own)| {
        Some(own.map_or_else(|| whole_type_name(field.data_type()), |own| own.sql_name()))
    });
    let mut rows: Vec<ArrayRef> = vec![Arc::new(names), Arc::new(shown.collect::<StringArray>())];
    if summary.with_figures {
        let query = figures_of(&summary.query, &types)?;
        let parameters = Parameters::default();
        let asked = QueryRequest { query: &query, parameters: &parameters, view: Some(&view) };
        let running = select::run_query(&session.database, session.in_force(), asked);
        let mut running = Box::pin(running).await?;
        let mut figures = None;
        while let Some(batch) = running.next().await? {
            figures = figures.or((batch.num_rows() > 0).then_some(batch));
        }
        rows.extend(by_column(figures.as_ref(), types.len()));
    } else {
        let tables = if is_whole_table(&summary.query) { &described.tables[..] } else { &[] };
        let is_null_free = |field: &Arc<Field>| {
            let of_table = tables.iter().flat_map(|table| &table.columns);
            let mut of_table = of_table.filter(|column| column.name == *field.name());
            !field.is_nullable() || of_table.any(|column| column.not_null)
        };
        let nullable = fields.iter().map(|own| Some(if is_null_free(own) { "NO" } else { "YES" }));
        rows.push(Arc::new(nullable.collect::<StringArray>()));
    }
    let schema = columns(summary.with_figures);
    let batch = RecordBatch::try_new(Arc::clone(&schema), rows)?;
    Ok(Outcome::Rows { schema, batches: vec![batch] })
}

/// Whether `query` is all of one table, whose columns may tell that they have no NULLs.
fn is_whole_table(query: &ast::Query) -> bool {
    let SetExpr::Select(select) = query.body.as_ref() else { return false };
    let is_all = matches!(select.projection[..], [ast::SelectItem::Wildcard(_)]);
    is_all && matches!(&select.from[..], [table] if table.joins.is_empty())
}

/// The SQL type of a column; None: it has none, as lists.
fn type_of(field: &Arc<Field>) -> Option<ColumnType> {
    let told = ColumnOrigin::of(field).and_then(ColumnOrigin::text_type);
    told.or_else(|| sql_type(field.data_type()))
}

/// The query of the figures of `query`, whose columns have these types: the number of rows, and [`FIGURE_COUNT`] of
/// each column.
fn figures_of(query: &ast::Query, types: &[Option<ColumnType>]) -> Result<Box<ast::Query>> {
    let mut list = "count(*)".to_owned();
    for (place, own) in types.iter().enumerate() {
        // Writing to a String does not fail.
        let _written = write!(list, ", {}", figures(&format!("c{place}"), own.as_ref()));
    }
    let names: Vec<String> = (0..types.len()).map(|place| format!("c{place}")).collect();
    let named = match names.as_slice() {
        [] => String::new(),
        names => format!(" ({})", names.join(", ")),
    };
    let mut made = parse_query(format!("SELECT {list} FROM (SELECT 1) AS summarized{named}"))?;
    if let SetExpr::Select(select) = made.body.as_mut()
        && let Some(from) = select.from.first_mut()
        && let TableFactor::Derived { subquery, .. } = &mut from.relation
    {
        **subquery = query.clone();
    }
    Ok(made)
}

/// The figures of the column `name`, with the types of their columns in the result.
fn figures(name: &str, own: Option<&ColumnType>) -> String {
    use ColumnType as Type;
    let is_float = matches!(own, Some(Type::Real | Type::Double));
    let is_number = is_float
        || matches!(own, Some(Type::SmallInt | Type::Int | Type::BigInt | Type::Numeric { .. }));
    let value = match own {
        // Such values have an order as text alone.
        Some(Type::Uuid) => format!("CAST({name} AS text)"),
        _ => name.to_owned(),
    };
    let ends = |function: &str, of_boolean: &str| match own {
        None | Some(Type::Bytea | Type::Interval) => "CAST(NULL AS text)".to_owned(),
        Some(Type::Boolean) => format!("CAST({of_boolean}({name}) AS text)"),
        Some(_) => format!("CAST({function}({value}) AS text)"),
    };
    let unique = match own {
        None => "CAST(NULL AS bigint)".to_owned(),
        Some(Type::Real | Type::Double | Type::Bytea | Type::Interval) => {
            format!("CAST(approx_distinct(CAST({name} AS text)) AS bigint)")
        }
        Some(_) => format!("CAST(approx_distinct({value}) AS bigint)"),
    };
    let double = format!("CAST({name} AS double precision)");
    let of_number = |figure: String| match is_number {
        true => format!("CAST({figure} AS double precision)"),
        false => "CAST(NULL AS double precision)".to_owned(),
    };
    let finite = match is_float {
        // NaN is the greatest value.
        true => format!(
            "CASE WHEN {double} > CAST('-Infinity' AS double precision) AND {double} < CAST('Infinity' AS double \
             precision) THEN {double} END"
        ),
        false => double.clone(),
    };
    let mut figures = vec![
        format!("count({name})"),
        ends("min", "bool_and"),
        ends("max", "bool_or"),
        unique,
        of_number(format!("avg({name})")),
        of_number(format!("stddev({double})")),
    ];
    figures.extend(QUANTILES.map(|(_, share)| {
        of_number(format!("approx_percentile_cont({finite}, CAST({share} AS double precision))"))
    }));
    figures.join(", ")
}

/// The figures in the only row of `batch`, by column: the arrays of the result behind names and types.
fn by_column(batch: Option<&RecordBatch>, column_count: usize) -> Vec<ArrayRef> {
    let cell = |place: usize| batch.and_then(|batch| batch.columns().get(place));
    let of = |place: usize, figure: usize| cell(1 + place * FIGURE_COUNT + figure);
    let text = |figure: usize| -> ArrayRef {
        let values = (0..column_count).map(|place| {
            let array = of(place, figure)?.as_string_opt::<i32>()?;
            array.is_valid(0).then(|| array.value(0).to_owned())
        });
        Arc::new(values.collect::<StringArray>())
    };
    let whole = |cell: Option<&ArrayRef>| {
        let array = cell?.as_primitive_opt::<Int64Type>()?;
        array.is_valid(0).then(|| array.value(0))
    };
    let double = |figure: usize| -> ArrayRef {
        let values = (0..column_count).map(|place| {
            let array = of(place, figure)?.as_primitive_opt::<Float64Type>()?;
            array.is_valid(0).then(|| array.value(0))
        });
        Arc::new(values.collect::<Float64Array>())
    };
    let row_count = whole(cell(0)).unwrap_or(0);
    let unique: Int64Array = (0..column_count).map(|place| whole(of(place, 3))).collect();
    // As DuckDB's SUMMARIZE has it: rows, those with NULL included.
    let counts: Int64Array = (0..column_count).map(|_| Some(row_count)).collect();
    let nulls: Float64Array = (0..column_count)
        .map(|place| {
            let valid = whole(of(place, 0))?;
            let share = (row_count - valid) as f64 / row_count as f64;
            (row_count > 0).then(|| (share * 10_000.0).round() / 100.0)
        })
        .collect();
    let mut arrays = vec![text(1), text(2), Arc::new(unique) as ArrayRef, double(4), double(5)];
    arrays.extend((0..QUANTILES.len()).map(|quantile| double(6 + quantile)));
    arrays.extend([Arc::new(counts) as ArrayRef, Arc::new(nulls)]);
    arrays
}
