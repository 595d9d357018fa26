//! Time functions: `now()` is fixed for a transaction, `statement_timestamp()` for a statement, `clock_timestamp()` is
//! read at each call. All have microseconds, as in PostgreSQL; DataFusion's `now()` has nanoseconds and is fixed for a
//! statement.

use std::sync::Arc;

use cleave_media::{Clock, SystemClock};
use cleave_store::ColumnType;
use datafusion::arrow::array::{ArrayRef, TimestampMicrosecondArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{ScalarValue, internal_err};
use datafusion::error::Result;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

const ZONE: &str = "UTC";

/// `now()`: the time at which the transaction began, which the session sets as the statement's start time.
pub(super) fn now() -> Arc<ScalarUDF> {
    moment("now", vec!["current_timestamp".to_owned()], Which::Transaction)
}

/// `clock_timestamp()`.
pub(super) fn clock_timestamp() -> Arc<ScalarUDF> {
    moment("clock_timestamp", Vec::new(), Which::Clock)
}

/// `statement_timestamp()` of a statement that began then, in microseconds since 1970.
pub fn statement_timestamp(began_us: i64) -> Arc<ScalarUDF> {
    moment("statement_timestamp", Vec::new(), Which::Statement(began_us))
}

fn moment(name: &'static str, aliases: Vec<String>, which: Which) -> Arc<ScalarUDF> {
    let volatility = match which {
        Which::Clock => Volatility::Volatile,
        Which::Transaction | Which::Statement(_) => Volatility::Stable,
    };
    let signature = Signature::nullary(volatility);
    Arc::new(ScalarUDF::new_from_impl(Moment { name, aliases, which, signature }))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Which {
    Transaction,
    Statement(i64),
    Clock,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Moment {
    name: &'static str,
    aliases: Vec<String>,
    which: Which,
    signature: Signature,
}

impl ScalarUDFImpl for Moment {
    fn name(&self) -> &str {
        self.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(ColumnType::TimestampTz.arrow())
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let began_us = match self.which {
            Which::Clock => None,
            Which::Statement(began_us) => Some(began_us),
            Which::Transaction => {
                info.query_execution_start_time().map(|began| began.timestamp_micros())
            }
        };
        Ok(match began_us {
            None => ExprSimplifyResult::Original(args),
            Some(began_us) => {
                let value = ScalarValue::TimestampMicrosecond(Some(began_us), Some(ZONE.into()));
                ExprSimplifyResult::Simplified(Expr::Literal(value, None))
            }
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if self.which != Which::Clock {
            return internal_err!("{} is put in its place while planning", self.name);
        }
        let moments: TimestampMicrosecondArray =
            (0..args.number_rows).map(|_| Some(SystemClock.wall())).collect();
        let moments: ArrayRef = Arc::new(moments.with_timezone(ZONE));
        Ok(ColumnarValue::Array(moments))
    }
}
