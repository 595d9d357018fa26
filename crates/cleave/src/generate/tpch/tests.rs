//! Tests of the eight tables.

use super::*;

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
    for table in Tpch::new(0.001).unwrap().tables() {
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
