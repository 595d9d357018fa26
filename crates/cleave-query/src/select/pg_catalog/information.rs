//! Rows of `information_schema`.

use std::sync::Arc;

use cleave_catalog::catalog::rights::Privilege;
use cleave_sql::statement::catalog_tables::Row;
use cleave_sql::statement::defaults::shown_default;
use cleave_store::{Column, ColumnType, TableSchema};

use super::roles;
use super::sequences::{identity as identity_of, identity_letter, information};
use super::view::{Index, TYPES, View, column_number, table_oid, type_of, type_text};

/// Privileges on a column, of which one is enough to see it.
const OF_COLUMNS: [Privilege; 4] =
    [Privilege::Select, Privilege::Insert, Privilege::Update, Privilege::References];
/// The same of a table, of which one on a column is enough, too.
const OF_TABLES: [Privilege; 7] = [
    Privilege::Select,
    Privilege::Insert,
    Privilege::Update,
    Privilege::Delete,
    Privilege::Truncate,
    Privilege::References,
    Privilege::Trigger,
];
/// The same of a sequence.
const OF_SEQUENCES: [Privilege; 3] = [Privilege::Select, Privilege::Update, Privilege::Usage];

/// The rows of a table that the asker may see; none of one that is always empty.
pub(super) fn rows(view: &View, table: &str) -> Vec<Row> {
    let catalog = view.client.database.as_str();
    let is_seen = |id: u32| OF_TABLES.iter().any(|one| view.may(id, *one));
    // To be allowed to read a table is not enough for its constraints.
    let is_changed = |id: u32| OF_TABLES.iter().skip(1).any(|one| view.may(id, *one));
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
            columns.chain(of_views).flatten().collect()
        }
        "applicable_roles" => roles::applicable(view),
        "enabled_roles" => roles::enabled(view),
        "role_table_grants" => roles::table_privileges(view, false),
        "table_privileges" => roles::table_privileges(view, true),
        "check_constraints" => {
            let own = view.rules().filter(|rule| view.owns(rule.table_id()));
            own.filter_map(|rule| rule.check(catalog)).collect()
        }
        "constraint_column_usage" => {
            let rules = view.rules().filter(|rule| view.owns(rule.used_table_id()));
            let rules = rules.flat_map(|rule| rule.columns(catalog));
            keys(view, catalog, |id, _| view.owns(id)).chain(rules).collect()
        }
        "key_column_usage" => {
            let is_seen = |id, column| view.may_with_column(id, column, &OF_COLUMNS);
            let rules = view.rules().flat_map(|rule| rule.key_columns(catalog, is_seen));
            keys(view, catalog, is_seen).chain(rules).collect()
        }
        "referential_constraints" => {
            let rules = view.rules().filter(|rule| is_changed(rule.table_id()));
            rules.filter_map(|rule| rule.reference(catalog)).collect()
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
                .filter(|sequence| !sequence.owner.is_some_and(|owner| owner.is_identity))
                .filter(|sequence| OF_SEQUENCES.iter().any(|one| view.may(sequence.id, *one)));
            own.map(|sequence| information(catalog, sequence)).collect()
        }
        "table_constraints" => {
            let constraints = view.indexes().filter(|index| index.definition.constraint);
            let constraints = constraints.filter(|index| is_changed(index.table.schema.table_id));
            let keys = constraints.map(|index| table_constraint(catalog, &index));
            let rules = view.rules().filter(|rule| is_changed(rule.table_id()));
            keys.chain(rules.map(|rule| rule.of_table(catalog))).collect()
        }
        "tables" => {
            let tables = view.base_tables().filter(|table| is_seen(table.schema.table_id));
            let tables = tables.map(|table| (&table.schema, "BASE TABLE", "YES"));
            let views = view.views().filter(|known| is_seen(known.schema.table_id));
            let views = views.map(|view| (&view.schema, "VIEW", "NO"));
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
            .filter(|known| is_seen(known.schema.table_id))
            .map(|known| {
                let is_own = view.owns(known.schema.table_id);
                let definition = Some(known.query.as_str()).filter(|_| is_own);
                vec![
                    ("table_catalog", catalog.into()),
                    ("table_schema", "public".into()),
                    ("table_name", known.schema.name.as_str().into()),
                    ("view_definition", definition.into()),
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

/// The row of a column that the asker may use.
fn column_row(view: &View, schema: &TableSchema, column: &Column) -> Option<Row> {
    if !view.may_with_column(schema.table_id, column.id, &OF_COLUMNS) {
        return None;
    }
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
        ColumnType::NUMERIC => (None, Some(10), None),
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
    Some(row)
}

/// The columns of all keys, of which the asker may see those that `is_seen` tells, by table and column.
fn keys<'a>(
    view: &'a View,
    catalog: &'a str,
    is_seen: impl Fn(u32, u32) -> bool + 'a,
) -> impl Iterator<Item = Row> + 'a {
    let constraints = view.indexes().filter(|index| index.definition.constraint);
    constraints.flat_map(move |index| key_columns(catalog, &index, &is_seen))
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

fn key_columns(catalog: &str, index: &Index<'_>, is_seen: &impl Fn(u32, u32) -> bool) -> Vec<Row> {
    let columns = index.columns().zip(1..);
    columns
        .filter(|(column, _)| is_seen(index.table.schema.table_id, column.id))
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
