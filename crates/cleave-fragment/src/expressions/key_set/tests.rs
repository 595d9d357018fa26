//! Sets hold their keys and no others, near and far apart, locally and after crossing.

use crate::walk::Walk;
use arrow::array::{ArrayRef, Int32Array, Int64Array, StringArray, StructArray};
use arrow::datatypes::Field;
use datafusion_common::tree_node::Transformed;
use datafusion_expr::Operator;
use datafusion_physical_expr::ScalarFunctionExpr;
use datafusion_physical_expr::expressions::{BinaryExpr, Column, InListExpr, NotExpr, lit};
use proptest::prelude::*;

use super::*;
use crate::expressions::absent_key::AbsentKeyExpr;

fn batch(name: &str, values: ArrayRef) -> RecordBatch {
    let field = Field::new(name, values.data_type().clone(), true);
    RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![values]).unwrap()
}

fn kept(filter: &Arc<dyn PhysicalExpr>, batch: &RecordBatch) -> Vec<Option<bool>> {
    let value = filter.evaluate(batch).unwrap().into_array(batch.num_rows()).unwrap();
    value.as_boolean().iter().collect()
}

fn list(expr: Arc<dyn PhysicalExpr>, values: ArrayRef, schema: &Schema) -> Arc<dyn PhysicalExpr> {
    Arc::new(InListExpr::try_new_from_array(expr, values, false, schema).unwrap())
}

proptest! {
    #[test]
    fn a_set_holds_its_keys_and_crosses(
        near in proptest::collection::vec(-1000_i64..1000, 17..200),
        far in proptest::collection::vec(any::<i64>(), 0..3),
        probes in proptest::collection::vec(-1100_i64..1100, 1..50),
    ) {
        let keys: Vec<i64> = near.iter().chain(&far).copied().collect();
        let values: Vec<Option<i64>> =
            probes.iter().chain(&keys).copied().map(Some).chain([None]).collect();
        let batch = batch("k", Arc::new(Int64Array::from(values.clone())));
        let schema = batch.schema();
        let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new("k", 0));
        let plain = list(Arc::clone(&column), Arc::new(Int64Array::from(keys.clone())), &schema);
        let compact = compact_keys(Arc::clone(&plain)).unwrap();
        let set = compact.downcast_ref::<KeySetExpr>().unwrap();
        let back = KeySetExpr::decode(&set.encode(), &[column], None).unwrap();
        let expected: Vec<Option<bool>> =
            values.iter().map(|value| value.map(|value| keys.contains(&value))).collect();
        prop_assert_eq!(kept(&compact, &batch), expected.clone());
        prop_assert_eq!(kept(&back, &batch), expected);
    }

    #[test]
    fn damaged_sets_are_errors_and_no_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new("k", 0));
        drop(KeySetExpr::decode(&bytes, &[column], None));
    }
}

#[test]
fn too_many_keys_are_refused_before_they_are_decoded() {
    let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new("k", 0));
    let node = KeySetNode { first: 3, gaps: vec![1; KEY_COUNT_MAX + 1] };
    let error = KeySetExpr::decode(&node.encode_to_vec(), &[column], None).unwrap_err();
    assert!(error.to_string().contains("more than 1048576"), "{error}");
}

#[test]
fn keys_of_two_columns_become_a_set_for_each() {
    let ids: ArrayRef = Arc::new(Int32Array::from_iter_values(0..100));
    let names: ArrayRef =
        Arc::new(StringArray::from_iter_values((0..100).map(|id| format!("n{id}"))));
    let fields =
        vec![Field::new("a", DataType::Int32, true), Field::new("b", DataType::Utf8, true)];
    let keys: ArrayRef = Arc::new(StructArray::new(fields.clone().into(), vec![ids, names], None));
    let schema = Schema::new(fields.clone());
    let columns: Vec<Arc<dyn PhysicalExpr>> =
        vec![Arc::new(Column::new("a", 0)), Arc::new(Column::new("b", 1))];
    let struct_field = Field::new("struct", DataType::Struct(fields.into()), true);
    let function: Arc<dyn PhysicalExpr> = Arc::new(ScalarFunctionExpr::new(
        "struct",
        datafusion_functions::core::r#struct(),
        columns,
        Arc::new(struct_field),
        Arc::default(),
    ));
    let of_both = list(function, keys, &schema);
    assert_eq!(compact_keys(Arc::clone(&of_both)).unwrap().to_string(), "a@0 IN (100 keys)");
    // Where the rows have no such text, and where they have no such number.
    let absent = |place: usize| {
        let data_type = [DataType::Int32, DataType::Utf8][place].clone();
        let of_both = Arc::clone(&of_both);
        let replaced = of_both.transform_down(|expr| {
            let is_it = expr.downcast_ref::<Column>().is_some_and(|column| column.index() == place);
            let absent = AbsentKeyExpr::of(data_type.clone());
            Ok(if is_it { Transformed::yes(absent) } else { Transformed::no(expr) })
        });
        compact_keys(replaced.unwrap().data).unwrap().to_string()
    };
    assert_eq!(absent(1), "a@0 IN (100 keys)");
    assert_eq!(absent(0), "true");
}

#[test]
fn conditions_on_absent_keys_are_left_out() {
    let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new("a", 0));
    let absent = AbsentKeyExpr::of(DataType::Int64);
    let binary = |left: &Arc<dyn PhysicalExpr>, operator, right: Arc<dyn PhysicalExpr>| {
        Arc::new(BinaryExpr::new(Arc::clone(left), operator, right)) as Arc<dyn PhysicalExpr>
    };
    let here = binary(&column, Operator::Gt, lit(3_i64));
    let lost = binary(&absent, Operator::Gt, lit(3_i64));
    let either = binary(&here, Operator::Or, Arc::clone(&lost));
    let few: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let few =
        list(Arc::clone(&absent), few, &Schema::new(vec![Field::new("a", DataType::Int64, true)]));
    for (filter, expected) in [
        (binary(&here, Operator::And, Arc::clone(&lost)), "a@0 > 3"),
        // As a top-k's bound on two columns: what is left is weaker, and never stronger.
        (binary(&either, Operator::And, Arc::clone(&here)), "(a@0 > 3 OR true) AND a@0 > 3"),
        (Arc::new(NotExpr::new(lost)), "true"),
        (KeySetExpr::over(Arc::clone(&absent), vec![1, 2]), "true"),
        (few, "true"),
    ] {
        assert_eq!(compact_keys(filter).unwrap().to_string(), expected);
    }
}

#[test]
fn long_lists_of_text_are_let_go_and_short_ones_stay() {
    let schema = Schema::new(vec![Field::new("t", DataType::Utf8, true)]);
    let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new("t", 0));
    for (count, expected) in [(1000, "true"), (20, "t@0 IN")] {
        let texts = StringArray::from_iter_values((0..count).map(|n| format!("{n}")));
        let filter = list(Arc::clone(&column), Arc::new(texts), &schema);
        let shown = compact_keys(filter).unwrap().to_string();
        assert!(shown.starts_with(expected), "{shown}");
    }
}
