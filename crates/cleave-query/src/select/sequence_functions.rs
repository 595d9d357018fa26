//! `nextval`, `currval`, `lastval` and `setval`, for one statement.
//!
//! [`register`] gives DataFusion those that a query calls. They are volatile, each row has its own value, and no device
//! knows them: a plan that calls one stays on the host. A sequence is named by text, or by its number as
//! `'name'::regclass` gives it.
//!
//! Constant arguments become part of the function: DataFusion takes a call of constants for a constant, whatever its
//! volatility, and leaves out a sort by it. [`interact`] tells [`row_by_row`](super::row_by_row) which calls see what
//! others of the same row have done.

use std::collections::BTreeSet;
use std::sync::Arc;

use cleave_catalog::catalog::rights::{FIRST, Object, Privilege};
use cleave_catalog::catalog::sequence::Sequence;
use cleave_catalog::catalog::sequence::named;
use cleave_catalog::error::{Error, Fault, RoleFault};
use cleave_catalog::sequence_values::SequenceValues;
use cleave_sql::statement::catalog_tables::numbers::sequence_of_number;
use datafusion::arrow::array::{ArrayRef, Int64Array};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::execution::FunctionRegistry;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
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
    for name in called_by(query) {
        let function = StatementFunction::new(name, Volatility::Volatile, context, ());
        let function = SequenceFunction { function: Arc::new(function), bound: None };
        state.register_udf(Arc::new(ScalarUDF::new_from_impl(function)))?;
    }
    Ok(())
}

/// Whether `query` calls any of them.
pub(super) fn are_called(query: &ast::Query) -> bool {
    !called_by(query).is_empty()
}

fn called_by(query: &ast::Query) -> Vec<&'static str> {
    called(query, |name| NAMES.into_iter().find(|known| *known == name))
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

/// The calls of these functions, by what they bound: whether the result of one depends on when another of the same row
/// is evaluated.
pub(super) fn interact<'a>(calls: impl Iterator<Item = &'a ScalarUDF>) -> bool {
    let calls: Vec<_> = calls.filter_map(SequenceFunction::of).collect();
    let changing = calls.iter().filter(|call| matches!(call.function.name, "nextval" | "setval"));
    let names: Vec<Option<String>> = changing.map(|call| call.named()).collect();
    if names.is_empty() || calls.len() < 2 {
        return false;
    }
    // Numbers of different sequences do not depend on each other.
    let known: BTreeSet<_> = names.iter().collect();
    names.len() < calls.len() || known.len() < names.len() || names.contains(&None)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct SequenceFunction {
    function: Arc<StatementFunction<StatementContext>>,
    /// Its arguments, if they are constants.
    bound: Option<Vec<ScalarValue>>,
}

impl ScalarUDFImpl for SequenceFunction {
    fn name(&self) -> &str {
        self.function.name
    }

    fn signature(&self) -> &Signature {
        &self.function.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn simplify(&self, args: Vec<Expr>, _info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let constants = args.iter().map(|arg| arg.as_literal().cloned());
        match constants.collect::<Option<Vec<_>>>() {
            Some(constants) if !args.is_empty() => {
                let bound = Some(constants);
                let bound = Self { function: Arc::clone(&self.function), bound };
                let call = ScalarUDF::new_from_impl(bound).call(Vec::new());
                Ok(ExprSimplifyResult::Simplified(call))
            }
            _ => Ok(ExprSimplifyResult::Original(args)),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let ScalarFunctionArgs { mut args, number_rows, .. } = arguments;
        if let Some(bound) = &self.bound {
            args = bound.iter().cloned().map(ColumnarValue::Scalar).collect();
        }
        let database = self.function.context.database();
        let values = &self.function.context.settings().client.sequences;
        // One sequence for all rows: its numbers are taken at once.
        if let ("nextval", [ColumnarValue::Scalar(name)]) = (self.function.name, args.as_slice()) {
            let numbers = match self.sequence(name)? {
                None => vec![None; number_rows],
                Some(sequence) => {
                    self.check_may_change(sequence)?;
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
    fn of(function: &ScalarUDF) -> Option<&Self> {
        function.inner().downcast_ref()
    }

    /// How its constant argument names the sequence.
    fn named(&self) -> Option<String> {
        self.bound.as_deref()?.first().map(ScalarValue::to_string)
    }

    fn answer(&self, given: &[ScalarValue]) -> Result<Option<i64>> {
        let database = self.function.context.database();
        let values = &self.function.context.settings().client.sequences;
        let strange = || Error::unsupported(format!("{} with these arguments", self.function.name));
        match (self.function.name, given) {
            ("lastval", []) => {
                let (id, last) = values.last()?;
                let mut sequences = self.function.context.state().sequences.values();
                let sequence = sequences.find(|known| known.id == id);
                self.check_rights(sequence.ok_or_else(SequenceValues::no_last)?)?;
                Ok(Some(last))
            }
            ("currval", [name]) => {
                let sequence = self.sequence(name)?;
                Ok(sequence
                    .map(|sequence| values.current(sequence.id, &sequence.name))
                    .transpose()?)
            }
            ("nextval", [name]) => {
                let Some(sequence) = self.sequence(name)? else { return Ok(None) };
                self.check_may_change(sequence)?;
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
                self.check_may_change(sequence)?;
                database.sequences().set(database, sequence, (value, is_called))?;
                if is_called {
                    values.note(sequence.id, value, false);
                }
                Ok(Some(value))
            }
            _ => Err(strange().into()),
        }
    }

    /// Refuses to take or set a number of `sequence` where only reads are allowed. Numbers of temporary ones may change
    /// in a read-only transaction.
    fn check_may_change(&self, sequence: &Sequence) -> Result<()> {
        let settings = self.function.context.settings();
        let what = format!("{}()", self.function.name);
        settings.client.check_may_change(&what)?;
        let read_only = match &settings.transaction {
            Some(modes) => modes.read_only,
            None => settings.default_transaction_read_only,
        };
        match read_only && !self.is_of_session(sequence) {
            true => {
                let message = format!("cannot execute {what} in a read-only transaction");
                let fault = Fault::ReadOnlyTransaction;
                Err(Error::Invalid { message, fault, position: None }.into())
            }
            false => Ok(()),
        }
    }

    /// Whether `sequence` is a temporary one: nobody else has it, and it has no owner of its own.
    fn is_of_session(&self, sequence: &Sequence) -> bool {
        let newest = self.function.context.database().catalog();
        let is_of_others = newest.sequences.values().any(|known| known.id == sequence.id);
        let rights = &self.function.context.state().rights;
        !is_of_others && rights.owner(Object::Relation(sequence.id)) == FIRST
    }

    /// Refuses what the session's role may not do with `sequence`.
    fn check_rights(&self, sequence: &Sequence) -> Result<()> {
        let enough: &[Privilege] = match self.function.name {
            "nextval" => &[Privilege::Usage, Privilege::Update],
            "currval" | "lastval" => &[Privilege::Usage, Privilege::Select],
            _ => &[Privilege::Update],
        };
        let role = self.function.context.settings().client.acting.role;
        let rights = &self.function.context.state().rights;
        let object = Object::Relation(sequence.id);
        let may = |role: u32| enough.iter().any(|one| rights.may(role, object, *one));
        match role.is_none_or(may) || self.is_of_session(sequence) {
            true => Ok(()),
            false => {
                let message = format!("permission denied for sequence {}", sequence.name);
                let fault = Fault::Role(RoleFault::Rights);
                Err(Error::Invalid { message, fault, position: None }.into())
            }
        }
    }

    /// The sequence that an argument names; None: NULL does.
    fn sequence(&self, name: &ScalarValue) -> Result<Option<&Arc<Sequence>>> {
        let state = self.function.context.state();
        if let Some(number) = number_of(name) {
            let found = sequence_of_number(state, number);
            let unknown = || Error::unsupported(format!("a sequence of the number {number}"));
            let found = found.ok_or_else(unknown)?;
            self.check_rights(found)?;
            return Ok(Some(found));
        }
        match name.cast_to(&DataType::Utf8)? {
            ScalarValue::Utf8(Some(name)) => {
                let found = named(state, &name)?;
                self.check_rights(found)?;
                Ok(Some(found))
            }
            _ => Ok(None),
        }
    }
}
