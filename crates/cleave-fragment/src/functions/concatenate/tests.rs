//! The results are those of DataFusion's `||`, NULLs included; too large ones fail before memory is taken.

use arrow::array::BinaryArray;
use arrow::datatypes::Field;
use datafusion_common::config::ConfigOptions;

use super::*;
use crate::functions::bounded::ResultTooLarge;

const ROWS: usize = 1000;

fn call(args: &[ColumnarValue]) -> Result<ColumnarValue> {
    let types: Vec<DataType> = args.iter().map(ColumnarValue::data_type).collect();
    let return_type = concatenate().return_type(&types)?;
    concatenate().invoke_with_args(ScalarFunctionArgs {
        args: args.to_vec(),
        arg_fields: types.iter().map(|kind| Field::new("a", kind.clone(), true).into()).collect(),
        number_rows: ROWS,
        return_field: Field::new("r", return_type, true).into(),
        config_options: Arc::new(ConfigOptions::new()),
    })
}

fn words(every: usize) -> ColumnarValue {
    let words = (0..ROWS).map(|row| (row % every > 0).then(|| format!("word {row}")));
    ColumnarValue::Array(Arc::new(words.collect::<StringArray>()))
}

fn word(word: &str) -> ColumnarValue {
    ColumnarValue::Scalar(word.into())
}

#[test]
fn it_is_the_engine_s_operator() {
    let bytes = |every: usize| {
        let values = (0..ROWS).map(|row| (row % every > 0).then_some([1, 2, 3]));
        ColumnarValue::Array(Arc::new(values.collect::<BinaryArray>()))
    };
    for args in [
        vec![words(3), words(5)],
        vec![words(3), word(""), words(7), word(" – "), words(5)],
        vec![word("a"), words(2)],
        vec![words(2), ColumnarValue::Scalar(ScalarValue::Utf8(None))],
        vec![words(2)],
        vec![bytes(3), bytes(5), bytes(7)],
    ] {
        let found = call(&args).unwrap().into_array(ROWS).unwrap();
        assert_eq!(&found, &pairwise(&args, ROWS).unwrap());
    }
    let ColumnarValue::Scalar(one) = call(&[word("a"), word("b"), word("")]).unwrap() else {
        panic!("constants give a constant");
    };
    assert_eq!(one, "ab".into());
}

#[test]
fn what_does_not_fit_is_an_error() {
    let long = "x".repeat(1 << 20);
    for args in [vec![words(2), word(&long)], vec![word(&long), words(2), words(3)]] {
        let error = call(&args).unwrap_err();
        let DataFusionError::External(inner) = error.find_root() else { panic!("{error}") };
        assert_eq!(inner.downcast_ref::<ResultTooLarge>().unwrap().function, "||");
    }
    assert!(call(&[word(&long), word(&long)]).is_ok());
    assert!(concatenate().return_type(&[DataType::Utf8, DataType::Binary]).is_err());
}
