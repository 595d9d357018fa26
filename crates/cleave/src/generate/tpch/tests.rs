//! Tests of the eight tables.

use std::collections::HashSet;

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;

use super::*;

#[test]
fn scales_at_which_keys_repeat_are_refused() {
    for scale in [0.0001, 0.001, 0.005, 0.0099, 0.012, 0.015, 0.021, 0.0228] {
        let refused = Tpch::new(scale);
        assert!(matches!(refused, Err(GenerateError::RepeatedKeys { .. })), "{scale}");
    }
    for scale in [0.0, -1.0, f64::NAN, 101.0] {
        assert!(matches!(Tpch::new(scale), Err(GenerateError::Scale { .. })), "{scale}");
    }
    assert!((25..1_000_i32).all(|thousandths| !repeats_suppliers(f64::from(thousandths) / 1e3)));
    for scale in [0.01, 0.011, 0.02, 0.025] {
        let tpch = Tpch::new(scale).unwrap();
        let mut keys = HashSet::new();
        for part in 0..tpch.parts("partsupp") {
            for batch in tpch.part("partsupp", part) {
                let parts = batch.column(0).as_primitive::<Int64Type>().values();
                let suppliers = batch.column(1).as_primitive::<Int64Type>().values();
                for key in parts.iter().copied().zip(suppliers.iter().copied()) {
                    assert!(keys.insert(key), "{key:?} comes twice at {scale}");
                }
            }
        }
        assert!(!keys.is_empty());
    }
}

#[test]
fn parts_have_as_many_rows_as_their_table() {
    let tpch = Tpch::new(0.04).unwrap();
    for table in tpch.tables() {
        let mut rows = 0;
        for part in 0..tpch.parts(table.name) {
            for batch in tpch.part(table.name, part) {
                assert_eq!(batch.schema(), table.schema);
                rows += batch.num_rows() as u64;
            }
        }
        assert_eq!(rows, table.rows, "{}", table.name);
    }
    assert!(tpch.parts("lineitem") > 1);
    assert_eq!(tpch.parts("no_such_table"), 0);
}

#[test]
fn the_statements_create_the_columns_that_come() {
    for table in Tpch::new(0.01).unwrap().tables() {
        let head = format!("CREATE TABLE {} (\n", table.name);
        let body = Tpch::schema_sql().split_once(&head).unwrap().1.split_once("\n);").unwrap().0;
        let created: Vec<(&str, DataType)> = body
            .lines()
            .map(|line| line.trim())
            .filter(|line| !line.starts_with("PRIMARY"))
            .map(|line| {
                let (name, rest) = line.split_once(' ').unwrap();
                let data_type = match rest {
                    _ if rest.starts_with("bigint") => DataType::Int64,
                    _ if rest.starts_with("integer") => DataType::Int32,
                    _ if rest.starts_with("decimal(15, 2)") => DataType::Decimal128(15, 2),
                    _ if rest.starts_with("date") => DataType::Date32,
                    _ => DataType::Utf8,
                };
                (name, data_type)
            })
            .collect();
        let fields = table.schema.fields().iter();
        let coming: Vec<(&str, DataType)> =
            fields.map(|field| (field.name().as_str(), field.data_type().clone())).collect();
        assert_eq!(created, coming, "{}", table.name);
    }
}
