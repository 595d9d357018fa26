//! Tests of the text form.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, StringArray};

use super::*;

#[test]
fn nulls_quotes_and_empty_texts_differ() {
    let numbers: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None, Some(-3), Some(4)]));
    let texts: ArrayRef =
        Arc::new(StringArray::from(vec![Some("plain"), None, Some(""), Some("say \"a, b\"")]));
    let batch =
        RecordBatch::try_from_iter_with_nullable([("n", numbers, true), ("t", texts, true)])
            .unwrap();
    let mut out = Vec::new();
    write_csv(&batch, &mut out).unwrap();
    let expected = "1,plain\n,\n-3,\"\"\n4,\"say \"\"a, b\"\"\"\n";
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}
