//! Comparisons with lists that have NULLs.

use arrow::array::Int64Array;
use arrow::datatypes::Int64Type;

use super::*;

fn computed(name: &str, operator: &str, value: Option<i64>, list: ArrayRef) -> Option<bool> {
    let functions = list_comparisons();
    let function = functions.iter().find(|function| function.name() == name).unwrap();
    let field = |own: DataType| Arc::new(Field::new("", own, true));
    let args = ScalarFunctionArgs {
        arg_fields: vec![
            field(DataType::Int64),
            field(DataType::Utf8),
            field(list.data_type().clone()),
        ],
        args: vec![
            ColumnarValue::Array(Arc::new(Int64Array::from(vec![value]))),
            ColumnarValue::Scalar(ScalarValue::from(operator)),
            ColumnarValue::Array(list),
        ],
        number_rows: 1,
        return_field: field(DataType::Boolean),
        config_options: Arc::default(),
    };
    let result = function.invoke_with_args(args).unwrap().into_array(1).unwrap();
    result.as_boolean().iter().next().flatten()
}

fn list(items: Option<Vec<Option<i64>>>) -> ArrayRef {
    Arc::new(arrow::array::ListArray::from_iter_primitive::<Int64Type, _, _>([items]))
}

#[test]
fn null_is_unknown_and_an_empty_list_decides() {
    let with_null = || list(Some(vec![Some(1), None]));
    let cases = [
        (ANY_ITEM, "=", Some(1), with_null(), Some(true)),
        (ANY_ITEM, "=", Some(9), with_null(), None),
        (ANY_ITEM, "=", None, with_null(), None),
        (ANY_ITEM, "<", Some(0), with_null(), Some(true)),
        (ANY_ITEM, "<", Some(9), with_null(), None),
        (ANY_ITEM, "<>", Some(1), list(Some(vec![Some(1)])), Some(false)),
        (ANY_ITEM, "=", None, list(Some(vec![])), Some(false)),
        (ANY_ITEM, "=", Some(1), list(None), None),
        (ALL_ITEMS, "<>", Some(1), with_null(), Some(false)),
        (ALL_ITEMS, "<>", Some(9), with_null(), None),
        (ALL_ITEMS, ">=", Some(0), with_null(), Some(false)),
        (ALL_ITEMS, ">=", Some(1), list(Some(vec![Some(1)])), Some(true)),
        (ALL_ITEMS, "=", None, list(Some(vec![])), Some(true)),
        (ALL_ITEMS, "=", None, list(None), None),
    ];
    for (name, operator, value, list, wanted) in cases {
        let found = computed(name, operator, value, Arc::clone(&list));
        assert_eq!(found, wanted, "{value:?} {operator} {name} {list:?}");
    }
}
