//! `nextval`, `currval`, `lastval` and `setval`, for one statement.
//!
//! [`register`] gives the engine those that a query calls. They are volatile, each row has its own value, and no device
//! knows them: a plan that calls one stays on the host. A sequence is named by text, or by its number as
//! `'name'::regclass` gives it.

use std::sync::Arc;

use cleave_catalog::catalog::sequence::Sequence;
use cleave_catalog::catalog::sequence::named;
use cleave_catalog::error::Error;
use cleave_sql::statement::catalog_tables::numbers::sequence_of_number;
use datafusion::arrow::array::{ArrayRef, Int64Array};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::execution::FunctionRegistry;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::sql::sqlparser::ast;

use super::statement_context::StatementContext;
use super::statement_function::{StatementFunction, called};

/// Their names.
pub(super) const NAMES: [&str; 4] = ["nextval", "currval", "lastval", "setval"];

/// Gives `state` the functions of this module that `query` calls.
pub(super) fn register(
    state: &mut SessionState,
    query: &ast::Query,
    context: &Arc<StatementContext>,
) -> Result<()> {
    for name in called(query, |name| NAMES.into_iter().find(|known| *known == name)) {
        let function = StatementFunction::new(name, Volatility::Volatile, context, ());
        state.register_udf(Arc::new(ScalarUDF::new_from_impl(SequenceFunction(function))))?;
    }
    Ok(())
}

/// The number that `written` is, by which a sequence may be named.
pub fn sequence_number(written: &str) -> Option<i64> {
    number_of(&ScalarValue::Utf8(Some(written.to_owned())))
}

fn number_of(name: &ScalarValue) -> Option<i64> {
    match name.cast_to(&DataType::Int64).ok()? {
        ScalarValue::Int64(number) => number,
        _ => None,
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct SequenceFunction(StatementFunction<StatementContext>);

impl ScalarUDFImpl for SequenceFunction {
    fn name(&self) -> &str {
        self.0.name
    }

    fn signature(&self) -> &Signature {
        &self.0.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let ScalarFunctionArgs { args, number_rows, .. } = arguments;
        let database = self.0.context.database();
        let values = &self.0.context.settings().client.sequences;
        // One sequence for all rows: its numbers are taken at once.
        if let ("nextval", [ColumnarValue::Scalar(name)]) = (self.0.name, args.as_slice()) {
            let numbers = match self.sequence(name)? {
                None => vec![None; number_rows],
                Some(sequence) => {
                    let numbers = database.sequences().take(database, sequence, number_rows)?;
                    if let Some(last) = numbers.last() {
                        values.note(sequence.id, *last, true);
                    }
                    numbers.into_iter().map(Some).collect()
                }
            };
            let numbers: ArrayRef = Arc::new(Int64Array::from(numbers));
            return Ok(ColumnarValue::Array(numbers));
        }
        let answer = |row: usize| {
            let given = args.iter().map(|argument| match argument {
                ColumnarValue::Scalar(value) => Ok(value.clone()),
                ColumnarValue::Array(array) => ScalarValue::try_from_array(array, row),
            });
            self.answer(&given.collect::<Result<Vec<_>>>()?)
        };
        let numbers = (0..number_rows).map(answer).collect::<Result<Vec<_>>>()?;
        Ok(ColumnarValue::Array(Arc::new(Int64Array::from(numbers))))
    }
}

impl SequenceFunction {
    fn answer(&self, given: &[ScalarValue]) -> Result<Option<i64>> {
        let database = self.0.context.database();
        let values = &self.0.context.settings().client.sequences;
        let strange = || Error::unsupported(format!("{} with these arguments", self.0.name));
        match (self.0.name, given) {
            ("lastval", []) => Ok(Some(values.last()?)),
            ("currval", [name]) => {
                let sequence = self.sequence(name)?;
                Ok(sequence
                    .map(|sequence| values.current(sequence.id, &sequence.name))
                    .transpose()?)
            }
            ("nextval", [name]) => {
                let Some(sequence) = self.sequence(name)? else { return Ok(None) };
                let number = database.sequences().take(database, sequence, 1)?;
                let number = number.first().copied();
                number.into_iter().for_each(|number| values.note(sequence.id, number, true));
                Ok(number)
            }
            ("setval", [name, value, rest @ ..]) if rest.len() <= 1 => {
                let is_called = match rest.first() {
                    None => true,
                    Some(ScalarValue::Boolean(Some(is_called))) => *is_called,
                    Some(_) => return Ok(None),
                };
                let ScalarValue::Int64(Some(value)) = value.cast_to(&DataType::Int64)? else {
                    return Ok(None);
                };
                let Some(sequence) = self.sequence(name)? else { return Ok(None) };
                database.sequences().set(database, sequence, (value, is_called))?;
                if is_called {
                    values.note(sequence.id, value, false);
                }
                Ok(Some(value))
            }
            _ => Err(strange().into()),
        }
    }

    /// The sequence that an argument names; None: NULL does.
    fn sequence(&self, name: &ScalarValue) -> Result<Option<&Arc<Sequence>>> {
        let state = self.0.context.state();
        if let Some(number) = number_of(name) {
            let found = sequence_of_number(state, number);
            let unknown = || Error::unsupported(format!("a sequence of the number {number}"));
            return Ok(Some(found.ok_or_else(unknown)?));
        }
        match name.cast_to(&DataType::Utf8)? {
            ScalarValue::Utf8(Some(name)) => Ok(Some(named(state, &name)?)),
            _ => Ok(None),
        }
    }
}
