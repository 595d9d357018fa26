//! `cleave.release_results` and `cleave.reset_statements`, for one statement: held results are let go of, and their
//! memory and space are free; what statements have cost is forgotten.
//!
//! [`register`] gives DataFusion those that a query calls. They are volatile, and no device knows them.

use std::sync::Arc;

use cleave_catalog::error::Error;
use cleave_sql::dialect::{RELEASE_RESULTS, RESET_STATEMENTS};
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

/// Their names, with their schema.
pub(super) const NAMES: [&str; 2] = [RELEASE_RESULTS, RESET_STATEMENTS];

/// Gives `state` the functions of this module that `query` calls.
pub(super) fn register(
    state: &mut SessionState,
    query: &ast::Query,
    context: &Arc<StatementContext>,
) -> Result<()> {
    for name in called(query, |name| NAMES.into_iter().find(|known| *known == name)) {
        let function = StatementFunction::new(name, Volatility::Volatile, context, ());
        state.register_udf(Arc::new(ScalarUDF::new_from_impl(Forgets(function))))?;
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Forgets(StatementFunction<StatementContext>);

impl Forgets {
    /// Lets go of the results, or forgets the statements, of those whose sessions the asker may end; returns how many
    /// there were.
    fn forget(&self) -> i64 {
        let (database, view) = (self.0.context.database(), pg_catalog::view(&self.0.context));
        let is_meant = |role: Option<u32>| pg_catalog::may_stop(&view, role);
        let count = match self.0.name {
            RESET_STATEMENTS => database.statements().reset(is_meant),
            _ => database.results.release(is_meant) + database.result_sets.release(is_meant),
        };
        i64::try_from(count).unwrap_or(i64::MAX)
    }
}

impl ScalarUDFImpl for Forgets {
    fn name(&self) -> &str {
        self.0.name
    }

    fn signature(&self) -> &Signature {
        &self.0.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [] => Ok(DataType::Int64),
            _ => Err(Error::unsupported(format!("{} with arguments", self.0.name)).into()),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let counts = (0..arguments.number_rows).map(|_| self.forget());
        Ok(ColumnarValue::Array(Arc::new(Int64Array::from_iter_values(counts))))
    }
}
