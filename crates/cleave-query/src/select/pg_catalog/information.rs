//! Rows of `information_schema`.

use std::sync::Arc;

use cleave_sql::statement::catalog_tables::Row;
use cleave_sql::statement::defaults::shown_default;
use cleave_store::{Column, ColumnType, TableSchema};

use super::roles;
use super::sequences::{identity as identity_of, identity_letter, information};
use super::view::{Index, TYPES, View, column_number, table_oid, type_of, type_text};

/// The rows of a table; none of one that is always empty.
pub(super) fn rows(view: &View, table: &str) -> Vec<Row> {
    let catalog = view.client.database.as_str();
    match table {
        "columns" => {
            let columns = view.base_tables().flat_map(|table| {
                let schema = &table.schema;
                schema.columns.iter().map(move |column| column_row(view, schema, column))
            });
            let of_views = view.views().flat_map(|known| {
                let schema = &known.schema;
                schema.columns.iter().map(move |column| column_row(view, schema, column))
            });
            columns.chain(of_views).collect()
        }
        "applicable_roles" => roles::applicable(view),
        "enabled_roles" => roles::enabled(view),
        "role_table_grants" => roles::table_privileges(view, false),
        "table_privileges" => roles::table_privileges(view, true),
        "check_constraints" => view.rules().filter_map(|rule| rule.check(catalog)).collect(),
        "constraint_column_usage" => {
            let rules = view.rules().flat_map(|rule| rule.columns(catalog));
            keys(view, catalog).chain(rules).collect()
        }
        "key_column_usage" => {
            let rules = view.rules().flat_map(|rule| rule.key_columns(catalog));
            keys(view, catalog).chain(rules).collect()
        }
        "referential_constraints" => {
            view.rules().filter_map(|rule| rule.reference(catalog)).collect()
        }
        "information_schema_catalog_name" => vec![vec![("catalog_name", catalog.into())]],
        "schemata" => ["cleave", "information_schema", "pg_catalog", "public"]
            .into_iter()
            .map(|name| {
                vec![
                    ("catalog_name", catalog.into()),
                    ("schema_name", name.into()),
                    ("schema_owner", view.client.first_name().into()),
                ]
            })
            .collect(),
        "sequences" => {
            let own = view
                .sequences()
                .filter(|sequence| !sequence.owner.is_some_and(|owner| owner.is_identity));
            own.map(|sequence| information(catalog, sequence)).collect()
        }
        "table_constraints" => {
            let constraints = view.indexes().filter(|index| index.definition.constraint);
            let keys = constraints.map(|index| table_constraint(catalog, &index));
            keys.chain(view.rules().map(|rule| rule.of_table(catalog))).collect()
        }
        "tables" => {
            let tables = view.base_tables();
            let tables = tables.map(|table| (&table.schema, "BASE TABLE", "YES"));
            let views = view.views().map(|view| (&view.schema, "VIEW", "NO"));
            let row = |(schema, kind, is_insertable): (&Arc<TableSchema>, &str, &str)| {
                vec![
                    ("table_catalog", catalog.into()),
                    ("table_schema", "public".into()),
                    ("table_name", schema.name.as_str().into()),
                    ("table_type", kind.into()),
                    ("is_insertable_into", is_insertable.into()),
                    ("is_typed", "NO".into()),
                ]
            };
            tables.chain(views).map(row).collect()
        }
        "views" => view
            .views()
            .map(|view| {
                vec![
                    ("table_catalog", catalog.into()),
                    ("table_schema", "public".into()),
                    ("table_name", view.schema.name.as_str().into()),
                    ("view_definition", view.query.as_str().into()),
                    ("check_option", "NONE".into()),
                    ("is_updatable", "NO".into()),
                    ("is_insertable_into", "NO".into()),
                    ("is_trigger_updatable", "NO".into()),
                    ("is_trigger_deletable", "NO".into()),
                    ("is_trigger_insertable_into", "NO".into()),
                ]
            })
            .collect(),
        _ => Vec::new(),
    }
}

fn column_row(view: &View, schema: &TableSchema, column: &Column) -> Row {
    let catalog = view.client.database.as_str();
    let identity = match identity_letter(view, schema, column) {
        "a" => Some("ALWAYS"),
        "d" => Some("BY DEFAULT"),
        _ => None,
    };
    let default = shown_default(column, true).filter(|_| identity.is_none());
    let (oid, _) = type_of(column.column_type);
    let known = TYPES.iter().find(|known| known.oid == oid).map(|known| known.name);
    let (precision, radix, scale) = match column.column_type {
        ColumnType::SmallInt => (Some(16), Some(2), Some(0)),
        ColumnType::Int => (Some(32), Some(2), Some(0)),
        ColumnType::BigInt => (Some(64), Some(2), Some(0)),
        ColumnType::Real => (Some(24), Some(2), None),
        ColumnType::Double => (Some(53), Some(2), None),
        ColumnType::Numeric { precision, scale } => {
            (Some(i64::from(precision)), Some(10), Some(i64::from(scale)))
        }
        _ => (None, None, None),
    };
    let length = match column.column_type {
        ColumnType::Varchar(length) => length.map(i64::from),
        ColumnType::Char(length) => Some(i64::from(length)),
        _ => None,
    };
    let fraction = match column.column_type {
        ColumnType::Date => Some(0),
        ColumnType::Time
        | ColumnType::Timestamp
        | ColumnType::TimestampTz
        | ColumnType::Interval => Some(6),
        _ => None,
    };
    let octets = match column.column_type {
        ColumnType::Text | ColumnType::Varchar(_) | ColumnType::Char(_) => {
            Some(length.map_or(1 << 30, |length| length * 4))
        }
        _ => None,
    };
    let mut row = vec![
        ("table_catalog", catalog.into()),
        ("table_schema", "public".into()),
        ("table_name", schema.name.as_str().into()),
        ("column_name", column.name.as_str().into()),
        ("ordinal_position", column_number(schema, column).into()),
        ("column_default", default.into()),
        ("is_nullable", if column.not_null { "NO" } else { "YES" }.into()),
        ("data_type", type_text(oid, -1).into()),
        ("character_maximum_length", length.into()),
        ("numeric_precision", precision.into()),
        ("numeric_precision_radix", radix.into()),
        ("numeric_scale", scale.into()),
        ("datetime_precision", fraction.into()),
        ("udt_catalog", catalog.into()),
        ("udt_schema", "pg_catalog".into()),
        ("udt_name", known.into()),
        ("is_identity", if identity.is_some() { "YES" } else { "NO" }.into()),
        ("identity_generation", identity.into()),
        ("is_generated", "NEVER".into()),
        ("is_updatable", if view.table(table_oid(schema)).is_some() { "YES" } else { "NO" }.into()),
        ("character_octet_length", octets.into()),
        ("dtd_identifier", column_number(schema, column).to_string().into()),
        ("is_self_referencing", "NO".into()),
        ("identity_cycle", "NO".into()),
    ];
    if identity.is_some()
        && let Some(sequence) = view.sequence_of(schema, column)
    {
        row.retain(|(column, _)| *column != "identity_cycle");
        row.extend(identity_of(sequence));
    }
    row
}

/// The columns of all keys.
fn keys<'a>(view: &'a View, catalog: &'a str) -> impl Iterator<Item = Row> + 'a {
    let constraints = view.indexes().filter(|index| index.definition.constraint);
    constraints.flat_map(move |index| key_columns(catalog, &index))
}

/// A constraint's name, and its table's.
fn names_of(catalog: &str, index: &Index<'_>) -> Row {
    vec![
        ("constraint_catalog", catalog.into()),
        ("constraint_schema", "public".into()),
        ("constraint_name", index.definition.name.as_str().into()),
        ("table_catalog", catalog.into()),
        ("table_schema", "public".into()),
        ("table_name", index.table.schema.name.as_str().into()),
    ]
}

fn key_columns(catalog: &str, index: &Index<'_>) -> Vec<Row> {
    let columns = index.columns().zip(1..);
    columns
        .map(|(column, place): (_, i64)| {
            let mut row = names_of(catalog, index);
            row.push(("column_name", column.name.as_str().into()));
            row.push(("ordinal_position", place.into()));
            row
        })
        .collect()
}

fn table_constraint(catalog: &str, index: &Index<'_>) -> Row {
    let mut row = names_of(catalog, index);
    row.extend([
        ("constraint_type", if index.is_primary() { "PRIMARY KEY" } else { "UNIQUE" }.into()),
        ("is_deferrable", "NO".into()),
        ("initially_deferred", "NO".into()),
        ("enforced", "YES".into()),
    ]);
    row
}
