//! `pg_advisory_lock` and its like, for one statement.
//!
//! [`register`] gives DataFusion those that a query calls. They are volatile, no device knows them, and they are
//! futures: waiting for a lock blocks no thread. A lock is a `bigint`, or two `integer`s: two different spaces, as in
//! PostgreSQL.

use std::sync::Arc;

use cleave_catalog::advisory_locks::{NewOwners, Span};
use cleave_catalog::error::{Error, Fault};
use cleave_txn::{LockKey, LockMode};
use datafusion::arrow::array::{ArrayRef, BooleanArray, StringArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::FunctionRegistry;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::async_udf::{AsyncScalarUDF, AsyncScalarUDFImpl};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::sql::sqlparser::ast;
use futures::future::BoxFuture;

use super::statement_context::StatementContext;
use super::statement_function::{StatementFunction, called};

/// Their names.
pub(super) const NAMES: [&str; 11] = [
    "pg_advisory_lock",
    "pg_advisory_lock_shared",
    "pg_advisory_unlock",
    "pg_advisory_unlock_all",
    "pg_advisory_unlock_shared",
    "pg_advisory_xact_lock",
    "pg_advisory_xact_lock_shared",
    "pg_try_advisory_lock",
    "pg_try_advisory_lock_shared",
    "pg_try_advisory_xact_lock",
    "pg_try_advisory_xact_lock_shared",
];

/// Keys of one number, and of two.
const ONE_NUMBER: u64 = 1;
const TWO_NUMBERS: u64 = 2;

/// Gives `state` the functions of this module that `query` calls.
pub(super) fn register(
    state: &mut SessionState,
    query: &ast::Query,
    context: &Arc<StatementContext>,
) -> Result<()> {
    for name in called(query, |name| NAMES.into_iter().find(|known| *known == name)) {
        let function = StatementFunction::new(name, Volatility::Volatile, context, ());
        let function = AsyncScalarUDF::new(Arc::new(AdvisoryFunction(function))).into_scalar_udf();
        state.register_udf(Arc::new(function))?;
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct AdvisoryFunction(StatementFunction<StatementContext>);

impl AdvisoryFunction {
    /// Whether it returns its success; the others return nothing, written as empty text.
    fn answers(&self) -> bool {
        self.0.name.starts_with("pg_try_")
            || (self.0.name.contains("unlock") && !self.0.name.ends_with("_all"))
    }

    /// Does it once; None where its argument is NULL.
    async fn run(&self, given: &[ScalarValue]) -> Result<Option<bool>> {
        let advisory = &self.0.context.settings().client.advisory;
        if self.0.name.ends_with("unlock_all") {
            advisory.unlock_all(self.0.context.stop())?;
            return Ok(Some(true));
        }
        let Some(key) = self.key(given)? else { return Ok(None) };
        let is_shared = self.0.name.ends_with("_shared");
        let mode = if is_shared { LockMode::Share } else { LockMode::Exclusive };
        if self.0.name.contains("unlock") {
            return Ok(Some(advisory.unlock(key, mode, self.0.context.stop())?));
        }
        let is_transaction = self.0.name.contains("_xact_");
        let span = if is_transaction { Span::Transaction } else { Span::Session };
        let waits = !self.0.name.starts_with("pg_try_");
        let settings = self.0.context.settings();
        let timeout_ms = waits.then_some(settings.lock_timeout_ms);
        let database = self.0.context.database();
        let draw_id = || database.transaction_id();
        let owners = NewOwners { locks: database.locks(), draw_id: &draw_id };
        let within = (owners, &settings.limits, self.0.context.stop());
        Ok(Some(advisory.lock(within, (key, mode, span), timeout_ms).await?))
    }

    fn key(&self, given: &[ScalarValue]) -> Result<Option<LockKey>> {
        let number = |value: &ScalarValue| match value.cast_to(&DataType::Int64)? {
            ScalarValue::Int64(number) => Ok::<_, DataFusionError>(number),
            _ => Ok(None),
        };
        match given {
            [one] => {
                let one = number(one)?.map(i64::cast_unsigned);
                Ok(one.map(|one| LockKey::advisory(ONE_NUMBER, one)))
            }
            [one, two] => {
                let (Some(one), Some(two)) = (number(one)?, number(two)?) else { return Ok(None) };
                let half = |number: i64| {
                    let half = i32::try_from(number).map_err(|_| Error::Invalid {
                        message: format!("{number} is out of range for integer"),
                        fault: Fault::Range,
                        position: None,
                    });
                    half.map(|half| u64::from(half.cast_unsigned()))
                };
                let both = half(one)? << u32::BITS | half(two)?;
                Ok(Some(LockKey::advisory(TWO_NUMBERS, both)))
            }
            _ => {
                Err(Error::unsupported(format!("{} of {} numbers", self.0.name, given.len()))
                    .into())
            }
        }
    }

    /// [`Self::answers_of`] as a future that is known to be [`Send`], as that of a table's scan.
    fn boxed_answers(&self, arguments: ScalarFunctionArgs) -> BoxFuture<'_, Result<ColumnarValue>> {
        Box::pin(self.answers_of(arguments))
    }

    /// What it gives for each row.
    async fn answers_of(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let ScalarFunctionArgs { args, number_rows, .. } = arguments;
        let mut answers = Vec::with_capacity(number_rows);
        for row in 0..number_rows {
            let given = args.iter().map(|argument| match argument {
                ColumnarValue::Scalar(value) => Ok(value.clone()),
                ColumnarValue::Array(array) => ScalarValue::try_from_array(array, row),
            });
            let given = given.collect::<Result<Vec<_>>>()?;
            answers.push(self.run(&given).await?);
        }
        let array: ArrayRef = match self.answers() {
            true => Arc::new(BooleanArray::from(answers)),
            false => {
                let nothing = answers.iter().map(|answer| answer.map(|_| ""));
                Arc::new(nothing.collect::<StringArray>())
            }
        };
        Ok(ColumnarValue::Array(array))
    }
}

impl ScalarUDFImpl for AdvisoryFunction {
    fn name(&self) -> &str {
        self.0.name
    }

    fn signature(&self) -> &Signature {
        &self.0.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(if self.answers() { DataType::Boolean } else { DataType::Utf8 })
    }

    fn invoke_with_args(&self, _arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Err(Error::unsupported(format!("{} in this place", self.0.name)).into())
    }
}

impl AsyncScalarUDFImpl for AdvisoryFunction {
    fn invoke_async_with_args<'a, 'f>(
        &'a self,
        arguments: ScalarFunctionArgs,
    ) -> BoxFuture<'f, Result<ColumnarValue>>
    where
        'a: 'f,
    {
        self.boxed_answers(arguments)
    }
}
