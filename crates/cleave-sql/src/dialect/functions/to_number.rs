//! `to_number`: reads a number by a template, which must be a constant: the digits behind its point are those of the
//! result's type.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use cleave_fragment::functions::ArgumentFault;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Field, FieldRef};
use datafusion::common::plan_err;
use datafusion::common::utils::take_function_args;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::number_template::NumberTemplate;
use super::template::check_length;

pub(super) fn to_number() -> Arc<ScalarUDF> {
    let signature = Signature::exact(vec![DataType::Utf8; 2], Volatility::Immutable);
    Arc::new(ScalarUDF::from(ToNumber { signature }))
}

#[derive(Debug)]
struct ToNumber {
    signature: Signature,
}

impl PartialEq for ToNumber {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for ToNumber {}

impl Hash for ToNumber {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

fn template_of(text: &str) -> Result<NumberTemplate> {
    check_length("to_number", text)?;
    Ok(NumberTemplate::new(text)?)
}

impl ScalarUDFImpl for ToNumber {
    fn name(&self) -> &'static str {
        "to_number"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        plan_err!("the type of to_number follows from its template")
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let [_, template] = take_function_args("to_number", args.scalar_arguments)?;
        let scale = match template.map(|template| template.try_as_str()) {
            Some(Some(Some(template))) => template_of(template)?.scale(),
            Some(_) => 0,
            None => {
                let reason = "to_number takes a constant as its template".to_owned();
                return Err(ArgumentFault::Unsupported { reason }.into());
            }
        };
        let scale = i8::try_from(scale.min(DECIMAL128_MAX_PRECISION.into())).unwrap_or_default();
        let numeric = DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale);
        Ok(Arc::new(Field::new(self.name(), numeric, true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let [texts, template] = take_function_args("to_number", args.args)?;
        let numeric = args.return_field.data_type();
        let template = match template {
            ColumnarValue::Scalar(template) => template.try_as_str().flatten().map(template_of),
            ColumnarValue::Array(_) => None,
        };
        let texts = texts.into_array(rows)?;
        // As PostgreSQL: an empty template gives NULL.
        let Some(template) = template.transpose()?.filter(|template| !template.is_empty()) else {
            return Ok(ColumnarValue::Array(Arc::new(Decimal128Array::new_null(rows))))
                .and_then(|nulls| nulls.cast_to(numeric, None));
        };
        let mut read = Vec::with_capacity(texts.len());
        for text in texts.as_string::<i32>() {
            read.push(text.map(|text| number_of(&template, text)).transpose()?);
        }
        let read: ArrayRef = Arc::new(StringArray::from(read));
        Ok(ColumnarValue::Array(cast(&read, numeric)?))
    }
}

/// The number's text, whose point has the place that `V` gives it.
fn number_of(template: &NumberTemplate, text: &str) -> Result<String> {
    let (number, shift) = template.read(text)?;
    let digits = number.trim_start_matches([' ', '-', '+']);
    let has_digits = digits.bytes().any(|byte| byte.is_ascii_digit());
    if !has_digits {
        let reason = format!("invalid input syntax for type numeric: \"{number}\"");
        return Err(DataFusionError::from(ArgumentFault::Malformed { reason }));
    }
    let sign = if number.starts_with('-') { "-" } else { "" };
    let padded = format!("{}{digits}", "0".repeat(if shift == 0 { 0 } else { shift + 1 }));
    let (whole, fraction) = padded.split_once('.').unwrap_or((&padded, ""));
    let (whole, shifted) = whole.split_at_checked(whole.len() - shift).unwrap_or((whole, ""));
    Ok(format!("{sign}{whole}.{shifted}{fraction}"))
}
