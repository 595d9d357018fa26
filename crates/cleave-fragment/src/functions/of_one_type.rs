//! `coalesce`, `greatest` and `least` of literals in quotes beside other types, which DataFusion refuses before the
//! literals have theirs.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion_common::Result;
use datafusion_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature,
};

/// The functions.
pub(super) fn of_one_type() -> [Arc<ScalarUDF>; 3] {
    use datafusion_functions::core::{coalesce, greatest, least};
    [coalesce(), greatest(), least()]
        .map(|inner| Arc::new(ScalarUDF::new_from_impl(OfOneType { inner })))
}

#[derive(Debug, PartialEq)]
struct OfOneType {
    inner: Arc<ScalarUDF>,
}

impl Eq for OfOneType {}

impl Hash for OfOneType {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}

impl ScalarUDFImpl for OfOneType {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arg_types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    /// What is text is taken for a literal of the others' type: what is none is refused when literals get their types.
    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let error = match self.inner.coerce_types(given) {
            Ok(types) => return Ok(types),
            Err(error) => error,
        };
        let is_open = |own: &&DataType| own.is_string() || own.is_null();
        let others: Vec<DataType> = given.iter().filter(|own| !is_open(own)).cloned().collect();
        if others.is_empty() || others.len() == given.len() {
            return Err(error);
        }
        let common = self.inner.coerce_types(&others)?;
        Ok(common.first().map_or_else(Vec::new, |common| vec![common.clone(); given.len()]))
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        self.inner.simplify(args, info)
    }

    fn conditional_arguments<'a>(
        &self,
        args: &'a [Expr],
    ) -> Option<(Vec<&'a Expr>, Vec<&'a Expr>)> {
        self.inner.conditional_arguments(args)
    }

    fn short_circuits(&self) -> bool {
        self.inner.short_circuits()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.inner.invoke_with_args(args)
    }
}
