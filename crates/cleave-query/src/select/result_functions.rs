//! `cleave.release_results`, for one statement: held results are let go of, and their memory and space are free.
//!
//! [`register`] gives it to DataFusion if a query calls it. It is volatile, and no device knows it.

use std::sync::Arc;

use cleave_catalog::error::Error;
use cleave_sql::dialect::RELEASE_RESULTS;
use datafusion::arrow::array::Int64Array;
use datafusion::arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::execution::FunctionRegistry;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::sql::sqlparser::ast;

use super::pg_catalog;
use super::statement_context::StatementContext;
use super::statement_function::{StatementFunction, called};

/// Its name, with its schema.
pub(super) const NAME: &str = RELEASE_RESULTS;

/// Gives `state` the function of this module if `query` calls it.
pub(super) fn register(
    state: &mut SessionState,
    query: &ast::Query,
    context: &Arc<StatementContext>,
) -> Result<()> {
    for name in called(query, |name| (name == NAME).then_some(NAME)) {
        let function = StatementFunction::new(name, Volatility::Volatile, context, ());
        state.register_udf(Arc::new(ScalarUDF::new_from_impl(ReleaseResults(function))))?;
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ReleaseResults(StatementFunction<StatementContext>);

impl ReleaseResults {
    /// Lets go of the results of those whose sessions the asker may end; returns how many there were.
    fn release(&self) -> i64 {
        let (database, view) = (self.0.context.database(), pg_catalog::view(&self.0.context));
        let is_meant = |role: Option<u32>| pg_catalog::may_stop(&view, role);
        let count = database.results.release(is_meant) + database.result_sets.release(is_meant);
        i64::try_from(count).unwrap_or(i64::MAX)
    }
}

impl ScalarUDFImpl for ReleaseResults {
    fn name(&self) -> &str {
        self.0.name
    }

    fn signature(&self) -> &Signature {
        &self.0.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [] => Ok(DataType::Int64),
            _ => Err(Error::unsupported(format!("{NAME} with arguments")).into()),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let counts = (0..arguments.number_rows).map(|_| self.release());
        Ok(ColumnarValue::Array(Arc::new(Int64Array::from_iter_values(counts))))
    }
}
