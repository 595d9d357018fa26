//! Within the bound the results are DataFusion's; beyond it there is an error before any memory is taken.

use arrow::array::{Int64Array, ListBuilder, StringArray, StringBuilder};
use arrow::datatypes::{Field, IntervalMonthDayNano};
use datafusion_common::ScalarValue;
use datafusion_common::config::ConfigOptions;

use super::*;

const ROWS: usize = 8192;

fn engine() -> Vec<Arc<ScalarUDF>> {
    let nested = datafusion_functions_nested::all_default_nested_functions();
    datafusion_functions::all_default_functions().into_iter().chain(nested).collect()
}

fn named(functions: &[Arc<ScalarUDF>], name: &str) -> Arc<ScalarUDF> {
    Arc::clone(functions.iter().find(|function| function.name() == name).unwrap())
}

fn call(function: &ScalarUDF, args: &[ColumnarValue]) -> Result<ColumnarValue> {
    let field = |arg: &ColumnarValue| Arc::new(Field::new("a", arg.data_type(), true));
    let arg_fields: Vec<FieldRef> = args.iter().map(field).collect();
    let scalars: Vec<Option<&ScalarValue>> = args
        .iter()
        .map(|arg| match arg {
            ColumnarValue::Scalar(value) => Some(value),
            ColumnarValue::Array(_) => None,
        })
        .collect();
    let fields = ReturnFieldArgs { arg_fields: &arg_fields, scalar_arguments: &scalars };
    let return_field = function.return_field_from_args(fields)?;
    function.invoke_with_args(ScalarFunctionArgs {
        args: args.to_vec(),
        arg_fields,
        number_rows: ROWS,
        return_field,
        config_options: Arc::new(ConfigOptions::new()),
    })
}

fn texts(text: &str) -> ColumnarValue {
    let values = (0..ROWS).map(|row| (row % 5 > 0).then_some(text));
    ColumnarValue::Array(Arc::new(values.collect::<StringArray>()))
}

/// Lists of so many items, each list with a NULL.
fn lists(item: &str, count: usize) -> ColumnarValue {
    let mut lists = ListBuilder::new(StringBuilder::new());
    for row in 0..ROWS {
        for _ in 1..count {
            lists.values().append_value(item);
        }
        lists.values().append_null();
        lists.append(row % 3 > 0);
    }
    ColumnarValue::Array(Arc::new(lists.finish()))
}

fn one_list(item: &str, count: usize) -> ColumnarValue {
    let items = vec![ScalarValue::from(item); count];
    let list = ScalarValue::new_list(&items, &DataType::Utf8, true);
    ColumnarValue::Scalar(ScalarValue::List(list))
}

fn counts(count: i64) -> ColumnarValue {
    let values = (0..ROWS).map(|row| (row % 7 > 0).then_some(count));
    ColumnarValue::Array(Arc::new(values.collect::<Int64Array>()))
}

fn text(text: &str) -> ColumnarValue {
    ColumnarValue::Scalar(text.into())
}

fn number(number: i64) -> ColumnarValue {
    ColumnarValue::Scalar(number.into())
}

fn days(days: i32) -> ColumnarValue {
    ColumnarValue::Scalar(ScalarValue::Date32(Some(days)))
}

fn nanos(nanos: i64) -> ColumnarValue {
    ColumnarValue::Scalar(ScalarValue::TimestampNanosecond(Some(nanos), None))
}

fn step(days: i32, nanoseconds: i64) -> ColumnarValue {
    let step = IntervalMonthDayNano { months: 0, days, nanoseconds };
    ColumnarValue::Scalar(ScalarValue::IntervalMonthDayNano(Some(step)))
}

#[test]
fn what_fits_is_the_engines() {
    let (engine, ours) = (engine(), bounded(engine().into_iter()));
    let long = "x".repeat(1 << 20);
    assert!(HOST_ONLY.iter().all(|name| ours.iter().any(|function| function.name() == *name)));
    for (name, args) in [
        ("repeat", vec![texts("abc"), counts(3)]),
        ("repeat", vec![texts("abc"), number(-3)]),
        ("repeat", vec![text("x"), number(10_000)]),
        ("lpad", vec![texts("abc"), number(10), text("xy")]),
        ("rpad", vec![texts("abc"), counts(2)]),
        ("replace", vec![texts("abcabc"), text("b"), text("--")]),
        // As many matches as characters would be too many.
        ("replace", vec![texts(&"abc".repeat(100)), text("c"), text(&"y".repeat(200))]),
        ("replace", vec![text("abcabc"), texts("b"), text("--")]),
        // Long, and for no row.
        ("replace", vec![texts("abcabc"), text("d"), text(&long)]),
        ("replace", vec![texts("abcabc"), text(&long), text("d")]),
        ("array_to_string", vec![lists("abc", 3), text(", ")]),
        ("array_to_string", vec![lists("abc", 3), texts("; "), text("null")]),
        ("array_concat", vec![lists("abc", 3), lists("d", 2)]),
        ("array_append", vec![lists("abc", 3), texts("d")]),
        ("array_prepend", vec![text("d"), lists("abc", 3)]),
        ("concat", vec![texts("abc"), text("-"), texts("def")]),
        ("concat_ws", vec![text(", "), texts("abc"), texts("def")]),
        ("array_repeat", vec![texts("abc"), number(3)]),
        ("range", vec![number(1), counts(9), number(2)]),
        ("range", vec![counts(9), number(1)]),
        ("generate_series", vec![days(0), days(100), step(7, 0)]),
        ("generate_series", vec![nanos(0), nanos(1 << 50), step(0, 1 << 40)]),
    ] {
        let plain = call(&named(&engine, name), &args).unwrap().into_array(ROWS).unwrap();
        let found = call(&named(&ours, name), &args).unwrap().into_array(ROWS).unwrap();
        assert_eq!(&plain, &found, "{name}");
    }
}

#[test]
fn what_does_not_fit_is_an_error() {
    let ours = bounded(engine().into_iter());
    let long = "x".repeat(5 << 20);
    let letters = "x".repeat(500);
    for (name, args) in [
        ("repeat", vec![texts("abc"), number(1_000_000)]),
        ("repeat", vec![texts("abc"), counts(i64::MAX)]),
        ("repeat", vec![text("x"), number(300 << 20)]),
        ("lpad", vec![texts("abc"), number(1_000_000)]),
        ("rpad", vec![texts("abc"), counts(i64::from(i32::MAX)), text("xy")]),
        ("replace", vec![texts("abcabc"), text("b"), text(&long)]),
        ("replace", vec![text("abcabc"), texts("b"), text(&long)]),
        ("array_to_string", vec![lists("abc", 3), text(&long)]),
        ("array_to_string", vec![lists("abc", 1000), text(&letters)]),
        ("array_concat", vec![lists("abc", 3), one_list(&letters, 100)]),
        ("array_append", vec![lists("abc", 3), text(&long)]),
        ("array_prepend", vec![text(&long), lists("abc", 3)]),
        ("concat", vec![texts("abc"), text(&long)]),
        ("concat_ws", vec![text(&long), texts("abc"), texts("def")]),
        ("array_repeat", vec![texts("abc"), number(1_000_000)]),
        ("array_repeat", vec![text(&long), number(1000)]),
        ("range", vec![number(1_000_000_000)]),
        ("range", vec![number(i64::MAX), number(i64::MIN), number(-1)]),
        ("generate_series", vec![number(1), counts(100_000)]),
        ("generate_series", vec![days(i32::MIN + 1), days(i32::MAX - 1), step(1, 0)]),
        ("generate_series", vec![nanos(0), nanos(i64::MAX), step(0, 1000)]),
    ] {
        let error = call(&named(&ours, name), &args).unwrap_err();
        let DataFusionError::External(inner) = error.find_root() else { panic!("{error}") };
        let error = inner.downcast_ref::<ResultTooLarge>().unwrap();
        assert_eq!(error.function, name);
        assert!(error.bytes > RESULT_BYTES_MAX);
    }
}
