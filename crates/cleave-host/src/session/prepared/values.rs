//! The values that EXECUTE lists, read as its prepared statement takes them.

use std::sync::Arc;

use arrow::array::RecordBatch;
use cleave_catalog::error::{Error, Fault, NameKind, Result};
use cleave_catalog::value::{ColumnBuilder, value_text};
use cleave_query::select;
use cleave_query::select::{QueryRequest, ReadView};
use cleave_sql::statement::conform::converted;
use cleave_sql::statement::parameters::type_name;
use cleave_sql::statement::parse::refuse_in_query;
use cleave_sql::statement::{Execute, Parameter, Parameters};
use cleave_store::{Column, ColumnType};
use datafusion::sql::sqlparser::ast;

use super::PreparedStatement;
use crate::session::insert::{Constant, constant};
use crate::session::{Session, rights};

/// The values that EXECUTE lists, as its prepared statement takes them.
pub(in crate::session) async fn values_of(
    session: &Session,
    prepared: &PreparedStatement,
    Execute { name, values }: &Execute,
) -> Result<Parameters> {
    let types = &prepared.described.parameters;
    check_count(name, types.len(), values.len())?;
    let mut read = Vec::with_capacity(types.len());
    for (place, (column_type, value)) in types.iter().zip(values).enumerate() {
        let is_list = prepared.described.lists.contains(&place);
        let value = match constant(value).filter(|value| *value != Constant::Now) {
            Some(Constant::Literal(_, text)) if is_list => {
                let list = Parameter::read_list(*column_type, Some(&text));
                let number = place + 1;
                list.map_err(|source| Error::Parameter { number, source: Box::new(source) })?
            }
            Some(constant) => constant_value(place + 1, *column_type, &constant)?,
            None => computed_value(session, place + 1, *column_type, value).await?,
        };
        read.push(value);
    }
    Ok(Parameters::new(read))
}

/// A value that is no plain constant, such as `now()` or `1 + 1`: DataFusion computes it.
async fn computed_value(
    session: &Session,
    number: usize,
    column_type: ColumnType,
    value: &ast::Expr,
) -> Result<Parameter> {
    let query = select::value_query(value)?;
    refuse_in_query(&query)?;
    let view = ReadView::of_state(session.names());
    rights::check_value(session, value, &view.state)?;
    let asked = QueryRequest { view: Some(&view), ..QueryRequest::from(&*query) };
    let running = select::run_query(&session.database, session.in_force(), asked);
    let (_, batches, _) = Box::pin(Box::pin(running).await?.collect()).await?;
    let array = batches.iter().find_map(|batch: &RecordBatch| batch.columns().first());
    let Some(array) = array.filter(|array| array.len() == 1) else {
        return Err(Error::unsupported("a row or list as a value of EXECUTE"));
    };
    let array = match (column_type, array.data_type()) {
        // The value decides its number of digits.
        (ColumnType::Numeric { .. }, own) if own.is_decimal() => Arc::clone(array),
        _ => converted(&column_of(number, column_type), array)
            .map_err(|error| of_parameter(number, error))?,
    };
    let text = value_text(&array, 0)?;
    let value = Parameter::read(column_type, text.as_deref());
    value.map_err(|source| Error::Parameter { number, source: Box::new(source) })
}

/// A parameter as the column that its values are assigned to.
fn column_of(number: usize, column_type: ColumnType) -> Column {
    Column {
        id: 1,
        name: format!("${number}"),
        column_type,
        not_null: false,
        default: None,
        absent: None,
    }
}

/// The error of a parameter's column, reported for the parameter.
fn of_parameter(number: usize, error: Error) -> Error {
    match error {
        Error::Value { source, .. } => Error::Parameter { number, source },
        Error::Invalid { message, fault, position } => {
            let column = format!("column \"${number}\"");
            let message = message.replacen(&column, &format!("parameter ${number}"), 1);
            Error::Invalid { message, fault, position }
        }
        other => other,
    }
}

/// Fails unless as many values were `found` as are `expected`.
pub(super) fn check_count(name: &str, expected: usize, found: usize) -> Result<()> {
    if expected == found {
        return Ok(());
    }
    let of = if name.is_empty() { String::new() } else { format!(" \"{name}\"") };
    Err(Error::Invalid {
        message: format!(
            "wrong number of parameters for prepared statement{of}: expected {expected}, found {found}"
        ),
        fault: Fault::Statement,
        position: None,
    })
}

fn constant_value(
    number: usize,
    column_type: ColumnType,
    value: &Constant<'_>,
) -> Result<Parameter> {
    let bad = |source| Error::Parameter { number, source: Box::new(source) };
    match value {
        Constant::Null => Ok(Parameter::null(column_type)),
        Constant::Default | Constant::Now => Err(Error::Invalid {
            message: "DEFAULT is not allowed in this context".to_owned(),
            fault: Fault::Statement,
            position: None,
        }),
        Constant::Parameter(place) => {
            Err(Error::unknown(NameKind::Parameter, &format!("${}", place + 1), []))
        }
        Constant::Literal(kind, text) if !kind.fits(&column_type) => Err(Error::Invalid {
            message: format!(
                "parameter ${number} of type {} cannot be coerced to the expected type {}",
                kind.type_name(text),
                type_name(column_type)
            ),
            fault: Fault::Type,
            position: None,
        }),
        Constant::Literal(_, text) if matches!(column_type, ColumnType::Numeric { .. }) => {
            Parameter::read(column_type, Some(text)).map_err(bad)
        }
        // A number is rounded where a whole one is wanted.
        Constant::Literal(kind, text) => {
            let mut builder = ColumnBuilder::new(&column_type, 1);
            kind.append(&mut builder, text).map_err(bad)?;
            let text = value_text(&builder.finish(), 0)?;
            Parameter::read(column_type, text.as_deref()).map_err(bad)
        }
    }
}
