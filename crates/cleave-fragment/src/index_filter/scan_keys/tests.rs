//! Which conditions list keys.

use arrow::array::{Date32Array, Int32Array, StringArray, StructArray};
use arrow::datatypes::{Field, Schema};
use datafusion_physical_expr::expressions::{DynamicFilterPhysicalExpr, lit};

use super::*;
use crate::expressions::key_set::compact_keys;

fn columns() -> Projection {
    let fields = vec![
        Field::new("t", DataType::Utf8, true),
        Field::new("k", DataType::Int32, true),
        Field::new("f", DataType::Float64, true),
        Field::new("d", DataType::Date32, true),
    ];
    let columns = [4, 7, 9, 11].map(ColumnRef::User).to_vec();
    Projection::new(Arc::new(Schema::new(fields)), columns)
}

fn column(name: &str) -> Arc<dyn PhysicalExpr> {
    Arc::new(Column::new(name, columns().schema.index_of(name).unwrap()))
}

fn is_in(expr: Arc<dyn PhysicalExpr>, values: ArrayRef, negated: bool) -> Arc<dyn PhysicalExpr> {
    let schema = columns().schema;
    Arc::new(InListExpr::try_new_from_array(expr, values, negated, &schema).unwrap())
}

fn both(
    left: Arc<dyn PhysicalExpr>,
    operator: Operator,
    right: Arc<dyn PhysicalExpr>,
) -> Arc<dyn PhysicalExpr> {
    Arc::new(BinaryExpr::new(left, operator, right))
}

/// Keys that are found in `filter` of a column.
fn count(column: u32, filter: &Arc<dyn PhysicalExpr>) -> Option<usize> {
    let keys = ScanKeys {
        index: "i".into(),
        column,
        descending: false,
        nulls_first: false,
        rows_per_key: 0,
        page_count: 0,
        thrift: Thrift::None,
    };
    let columns = columns();
    let ranges = keys.ranges_of(keys.listed(&[(Arc::clone(filter), &columns)]).unwrap()?)?;
    assert!(ranges.is_sorted_by(|one, other| one.below.as_ref() <= Some(&other.from)));
    Some(ranges.len())
}

#[test]
fn lists_sets_and_equalities_have_keys_and_other_conditions_none() {
    let numbers = |count: i32| -> ArrayRef { Arc::new(Int32Array::from_iter_values(0..count)) };
    let list = is_in(column("k"), numbers(30), false);
    let set = compact_keys(Arc::clone(&list)).unwrap();
    let equal = both(column("k"), Operator::Eq, lit(3));
    let dynamic = DynamicFilterPhysicalExpr::new(vec![column("k")], Arc::clone(&list));
    let dynamic: Arc<dyn PhysicalExpr> = Arc::new(dynamic);
    for (filter, expected) in [
        (&list, Some(30)),
        (&set, Some(30)),
        (&dynamic, Some(30)),
        (&equal, Some(1)),
        (&lit(false), Some(0)),
        (&lit(true), None),
        (&is_in(column("k"), numbers(30), true), None),
        (&both(column("k"), Operator::Gt, lit(3)), None),
        (&both(Arc::clone(&list), Operator::Or, Arc::clone(&equal)), None),
        // The shortest counts.
        (&both(Arc::clone(&list), Operator::And, Arc::clone(&equal)), Some(1)),
        // Out of the column's range.
        (&both(column("k"), Operator::Eq, lit(1_i64 << 40)), Some(0)),
        (&both(column("k"), Operator::Eq, lit("3")), None),
        (&is_in(column("t"), Arc::new(StringArray::from(vec!["a", "b"])), false), None),
    ] {
        assert_eq!(count(7, filter), expected, "{filter}");
    }
    let days: ArrayRef = Arc::new(Date32Array::from_iter_values(0..30));
    let days = is_in(column("d"), days, false);
    let compact = compact_keys(Arc::clone(&days)).unwrap();
    assert!(compact.is::<KeySetExpr>(), "{compact}");
    assert_eq!((count(11, &days), count(11, &compact)), (Some(30), Some(30)));
    assert_eq!(count(9, &both(column("f"), Operator::Eq, lit(0.0))), None);
    assert_eq!(count(5, &list), None);
}

#[test]
fn keys_of_two_columns_have_those_of_each() {
    let fields =
        vec![Field::new("a", DataType::Utf8, true), Field::new("b", DataType::Int32, true)];
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["x", "y", "x", "z"]));
    let numbers: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), Some(2), Some(3), None]));
    let rows = StructArray::new(fields.clone().into(), vec![texts, numbers], None);
    let function: Arc<dyn PhysicalExpr> = Arc::new(ScalarFunctionExpr::new(
        "struct",
        datafusion_functions::core::r#struct(),
        vec![column("t"), column("k")],
        Arc::new(Field::new("struct", DataType::Struct(fields.into()), true)),
        Arc::default(),
    ));
    let list = is_in(function, Arc::new(rows), false);
    assert_eq!((count(4, &list), count(7, &list), count(9, &list)), (Some(3), Some(3), None));
}
