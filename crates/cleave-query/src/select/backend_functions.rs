//! `pg_cancel_backend`, `pg_terminate_backend` and `pg_sleep`, for one statement.
//!
//! [`register`] gives DataFusion those that a query calls. They are volatile, no device knows them, and they are
//! futures, as [advisory locks](super::advisory_functions) are: sleeping blocks no thread.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use cleave_catalog::error::{Error, Fault, RoleFault};
use cleave_fragment::waiting;
use datafusion::arrow::array::{ArrayRef, BooleanArray, StringArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::execution::FunctionRegistry;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::async_udf::{AsyncScalarUDF, AsyncScalarUDFImpl};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use datafusion::sql::sqlparser::ast;
use futures::future::BoxFuture;

use super::pg_catalog;
use super::statement_context::StatementContext;
use super::statement_function::called;

const SLEEP: &str = "pg_sleep";
const TERMINATE: &str = "pg_terminate_backend";
/// Their names.
pub(super) const NAMES: [&str; 3] = ["pg_cancel_backend", SLEEP, TERMINATE];

/// Longest sleep: a year.
const SLEEP_SECONDS_MAX: f64 = 31_536_000.0;

/// Gives `state` the functions of this module that `query` calls.
pub(super) fn register(
    state: &mut SessionState,
    query: &ast::Query,
    context: &Arc<StatementContext>,
) -> Result<()> {
    for name in called(query, |name| NAMES.into_iter().find(|known| *known == name)) {
        let signature = Signature::one_of(vec![TypeSignature::VariadicAny], Volatility::Volatile);
        let function = BackendFunction { name, signature, context: Arc::clone(context) };
        let function = AsyncScalarUDF::new(Arc::new(function)).into_scalar_udf();
        state.register_udf(Arc::new(function))?;
    }
    Ok(())
}

#[derive(Debug)]
struct BackendFunction {
    name: &'static str,
    signature: Signature,
    context: Arc<StatementContext>,
}

impl PartialEq for BackendFunction {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && Arc::ptr_eq(&self.context, &other.context)
    }
}

impl Eq for BackendFunction {}

impl Hash for BackendFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl BackendFunction {
    /// Does it once; None where its argument is NULL.
    async fn run(&self, given: &ScalarValue) -> Result<Option<bool>> {
        if self.name == SLEEP {
            let ScalarValue::Float64(Some(seconds)) = given.cast_to(&DataType::Float64)? else {
                return Ok(None);
            };
            // NaN and negative values are no time.
            let seconds = if seconds > 0.0 { seconds.min(SLEEP_SECONDS_MAX) } else { 0.0 };
            waiting::sleep(Duration::from_secs_f64(seconds)).await;
            return Ok(Some(true));
        }
        let ScalarValue::Int64(Some(number)) = given.cast_to(&DataType::Int64)? else {
            return Ok(None);
        };
        let backends = self.context.database().backends();
        let found = i32::try_from(number).ok().and_then(|number| backends.find(number));
        // PostgreSQL warns where there is none, and goes on.
        let Some(found) = found else { return Ok(Some(false)) };
        if !pg_catalog::may_stop(&pg_catalog::view(&self.context), found.role) {
            let what = if self.name == TERMINATE { "terminate process" } else { "cancel query" };
            return Err(Error::Invalid {
                message: format!("permission denied to {what}"),
                fault: Fault::Role(RoleFault::Rights),
                position: None,
            }
            .into());
        }
        Ok(Some(backends.stop(found.number, self.name == TERMINATE)))
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
            // The second argument of pg_terminate_backend says how long to wait: it never does here.
            let given = match args.first() {
                Some(ColumnarValue::Scalar(value)) => value.clone(),
                Some(ColumnarValue::Array(array)) => ScalarValue::try_from_array(array, row)?,
                None => ScalarValue::Null,
            };
            answers.push(self.run(&given).await?);
        }
        let array: ArrayRef = match self.name {
            SLEEP => {
                let nothing = answers.iter().map(|answer| answer.map(|_| ""));
                Arc::new(nothing.collect::<StringArray>())
            }
            _ => Arc::new(BooleanArray::from(answers)),
        };
        Ok(ColumnarValue::Array(array))
    }
}

impl ScalarUDFImpl for BackendFunction {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(if self.name == SLEEP { DataType::Utf8 } else { DataType::Boolean })
    }

    fn invoke_with_args(&self, _arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Err(Error::unsupported(format!("{} in this place", self.name)).into())
    }
}

impl AsyncScalarUDFImpl for BackendFunction {
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
