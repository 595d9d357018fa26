//! Schemas: invalid ones are refused, and stored ones come back.

use proptest::prelude::{Just, Strategy, any, proptest};
use proptest::{collection, option, prop_assert_eq, prop_oneof};

use super::{Column, ColumnType, SchemaError, TableSchema};

fn column(id: u32, name: &str) -> Column {
    Column {
        id,
        name: name.into(),
        column_type: ColumnType::Int,
        not_null: true,
        default: None,
        absent: None,
    }
}

fn schema(columns: Vec<Column>, primary_key: Vec<u32>) -> TableSchema {
    TableSchema { table_id: 7, version: 1, name: "t".into(), columns, primary_key }
}

pub(crate) fn any_type() -> impl Strategy<Value = ColumnType> {
    prop_oneof![
        Just(ColumnType::SmallInt),
        Just(ColumnType::Int),
        Just(ColumnType::BigInt),
        Just(ColumnType::Real),
        Just(ColumnType::Double),
        (1u8..=38).prop_flat_map(|precision| {
            (-38i8..=i8::try_from(precision).unwrap())
                .prop_map(move |scale| ColumnType::Numeric { precision, scale })
        }),
        Just(ColumnType::Boolean),
        Just(ColumnType::Text),
        option::of(1u32..100).prop_map(ColumnType::Varchar),
        (1u32..100).prop_map(ColumnType::Char),
        Just(ColumnType::Date),
        Just(ColumnType::Time),
        Just(ColumnType::Timestamp),
        Just(ColumnType::TimestampTz),
        Just(ColumnType::Interval),
        Just(ColumnType::Bytea),
        Just(ColumnType::Uuid),
    ]
}

fn any_schema() -> impl Strategy<Value = TableSchema> {
    let columns = collection::vec((any_type(), any::<bool>(), option::of("[a-z()]{0,6}")), 1..12);
    (any::<u32>(), any::<u32>(), columns).prop_map(|(table_id, version, columns)| {
        let columns: Vec<Column> = (1u32..)
            .zip(columns)
            .map(|(id, (column_type, not_null, default))| Column {
                id: id * 3,
                name: format!("column {id}"),
                column_type,
                not_null,
                default,
                absent: None,
            })
            .collect();
        let primary_key = columns.iter().rev().filter(|c| c.not_null).map(|c| c.id).collect();
        TableSchema { table_id, version, name: "täble".into(), columns, primary_key }
    })
}

proptest! {
    #[test]
    fn stored_schema_comes_back(schema in any_schema()) {
        schema.validate().unwrap();
        prop_assert_eq!(TableSchema::decode(&schema.encode()).unwrap(), schema);
    }

    #[test]
    fn damaged_schema_never_panics(schema in any_schema(), at in any::<usize>(), bit in 0u8..8) {
        let mut bytes = schema.encode();
        let at = at % bytes.len();
        drop(TableSchema::decode(&bytes[..at]));
        bytes[at] ^= 1 << bit;
        drop(TableSchema::decode(&bytes));
    }
}

#[test]
fn arrow_types_keep_order_and_nullability() {
    let mut nullable = column(2, "b");
    nullable.not_null = false;
    nullable.column_type = ColumnType::TimestampTz;
    let arrow = schema(vec![column(1, "a"), nullable], vec![1]).arrow();
    assert_eq!(arrow.field(0).name(), "a");
    assert!(!arrow.field(0).is_nullable());
    assert!(arrow.field(1).is_nullable());
    assert_eq!(arrow.field(1).data_type().to_string(), "Timestamp(µs, \"UTC\")");
}

#[test]
fn sql_names_are_postgresqls() {
    let names = [
        (ColumnType::Varchar(Some(12)), "character varying(12)"),
        (ColumnType::Varchar(None), "character varying"),
        (ColumnType::Char(3), "character(3)"),
        (ColumnType::NUMERIC, "numeric"),
        (ColumnType::TimestampTz, "timestamp with time zone"),
        (ColumnType::Double, "double precision"),
    ];
    for (column_type, name) in names {
        assert_eq!(column_type.sql_name(), name);
        assert_eq!(column_type.to_string(), name);
    }
}

#[test]
fn column_look_ups() {
    let schema = schema(vec![column(4, "a"), column(2, "b"), column(9, "c")], vec![9, 4]);
    assert_eq!(schema.column_index("b"), Some(1));
    assert_eq!(schema.column_index("B"), None);
    assert_eq!(schema.column("c").unwrap().id, 9);
    assert_eq!(schema.column_by_id(2).unwrap().name, "b");
    assert_eq!(schema.primary_key_indices(), vec![2, 0]);
    assert_eq!(schema.next_column_id(), 10);
}

#[test]
fn refused_schemas() {
    let refused = |schema: TableSchema| schema.validate().unwrap_err();
    assert!(matches!(refused(schema(vec![], vec![])), SchemaError::ColumnCount { count: 0, .. }));
    assert!(matches!(refused(schema(vec![column(1, "")], vec![])), SchemaError::NameEmpty { .. }));
    assert!(matches!(
        refused(schema(vec![column(1, "a"), column(2, "a")], vec![])),
        SchemaError::ColumnNameRepeated { .. }
    ));
    assert!(matches!(
        refused(schema(vec![column(1, "a"), column(1, "b")], vec![])),
        SchemaError::ColumnId { id: 1, .. }
    ));
    assert!(matches!(
        refused(schema(vec![column(0, "a")], vec![])),
        SchemaError::ColumnId { id: 0, .. }
    ));
    assert!(matches!(
        refused(schema(vec![column(1, "a")], vec![2])),
        SchemaError::PrimaryKeyUnknown { id: 2, .. }
    ));
    assert!(matches!(
        refused(schema(vec![column(1, "a")], vec![1, 1])),
        SchemaError::PrimaryKeyRepeated { .. }
    ));
    let mut nullable = column(1, "a");
    nullable.not_null = false;
    assert!(matches!(
        refused(schema(vec![nullable], vec![1])),
        SchemaError::PrimaryKeyNullable { .. }
    ));
}

#[test]
fn refused_types() {
    let types = [
        ColumnType::Numeric { precision: 0, scale: 0 },
        ColumnType::Numeric { precision: 39, scale: 0 },
        ColumnType::Numeric { precision: 5, scale: 6 },
        ColumnType::Varchar(Some(0)),
        ColumnType::Char(0),
        ColumnType::Char(10_485_761),
    ];
    for column_type in types {
        let mut one = column(1, "a");
        one.column_type = column_type;
        let error = schema(vec![one], vec![]).validate().unwrap_err();
        assert!(matches!(error, SchemaError::TypeOutOfRange { .. }), "{column_type}: {error}");
    }
}
