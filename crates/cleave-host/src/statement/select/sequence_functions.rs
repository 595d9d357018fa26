//! `nextval`, `currval`, `lastval` and `setval`, for one statement.
//!
//! [`register`] gives the engine those that a query calls. They are volatile, each row has its own value, and no device knows
//! them: what calls one stays on the host. A sequence is named by text, or by its number as `'name'::regclass` gives it.

use std::hash::{Hash, Hasher};
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::execution::FunctionRegistry;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility,
};
use datafusion::sql::sqlparser::ast::{self, Visit, Visitor};

use super::pg_catalog::sequence_of_number;
use super::statement_context::StatementContext;
use crate::catalog::sequence::Sequence;
use crate::error::Error;
use crate::sequences::named;
use crate::statement::names::fold;

const NAMES: [&str; 4] = ["nextval", "currval", "lastval", "setval"];

/// Gives `state` the functions of this module that `query` calls.
pub(super) fn register(
    state: &mut SessionState,
    query: &ast::Query,
    context: &Arc<StatementContext>,
) -> Result<()> {
    for name in called(query, &NAMES) {
        let signature = Signature::one_of(
            vec![TypeSignature::Nullary, TypeSignature::VariadicAny],
            Volatility::Volatile,
        );
        let function = SequenceFunction { name, signature, context: Arc::clone(context) };
        state.register_udf(Arc::new(ScalarUDF::new_from_impl(function)))?;
    }
    Ok(())
}

/// The functions among `names` that a query calls.
pub(super) fn called(query: &ast::Query, names: &[&'static str]) -> Vec<&'static str> {
    let mut called = Called { names, found: Vec::new() };
    let flow = Visit::visit(query, &mut called);
    debug_assert!(flow.is_continue(), "nothing stops the visit");
    called.found
}

/// Finds calls.
struct Called<'a> {
    names: &'a [&'static str],
    found: Vec<&'static str>,
}

impl Visitor for Called<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expression: &ast::Expr) -> ControlFlow<()> {
        if let ast::Expr::Function(function) = expression
            && let [ast::ObjectNamePart::Identifier(name)] = function.name.0.as_slice()
        {
            let name = fold(name);
            let known = self.names.iter().find(|known| **known == name);
            self.found.extend(known.filter(|known| !self.found.contains(known)));
        }
        ControlFlow::Continue(())
    }
}

#[derive(Debug)]
struct SequenceFunction {
    name: &'static str,
    signature: Signature,
    context: Arc<StatementContext>,
}

impl PartialEq for SequenceFunction {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && Arc::ptr_eq(&self.context, &other.context)
    }
}

impl Eq for SequenceFunction {}

impl Hash for SequenceFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for SequenceFunction {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let ScalarFunctionArgs { args, number_rows, .. } = arguments;
        let database = self.context.database();
        let values = &self.context.settings().client.sequences;
        // One sequence for all rows: its numbers are taken at once.
        if let ("nextval", [ColumnarValue::Scalar(name)]) = (self.name, args.as_slice()) {
            let numbers = match self.sequence(name)? {
                None => vec![None; number_rows],
                Some(sequence) => {
                    let numbers = database.sequences().take(database, sequence, number_rows)?;
                    if let Some(last) = numbers.last() {
                        values.note(sequence, *last, true);
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
        let database = self.context.database();
        let values = &self.context.settings().client.sequences;
        let strange = || Error::unsupported(format!("{} with these arguments", self.name));
        match (self.name, given) {
            ("lastval", []) => Ok(Some(values.last()?)),
            ("currval", [name]) => {
                let sequence = self.sequence(name)?;
                Ok(sequence.map(|sequence| values.current(sequence)).transpose()?)
            }
            ("nextval", [name]) => {
                let Some(sequence) = self.sequence(name)? else { return Ok(None) };
                let number = database.sequences().take(database, sequence, 1)?;
                let number = number.first().copied();
                number.into_iter().for_each(|number| values.note(sequence, number, true));
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
                    values.note(sequence, value, false);
                }
                Ok(Some(value))
            }
            _ => Err(strange().into()),
        }
    }

    /// The sequence that an argument names; None: NULL does.
    fn sequence(&self, name: &ScalarValue) -> Result<Option<&Arc<Sequence>>> {
        let state = self.context.state();
        if let Ok(ScalarValue::Int64(Some(number))) = name.cast_to(&DataType::Int64) {
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
