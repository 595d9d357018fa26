//! Rows of `pg_catalog`.

use std::sync::Arc;

use arrow::array::ListArray;
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::Field;
use cleave_catalog::catalog::TableState;
use cleave_catalog::catalog::rights::{Object, ObjectKind, Privilege};
use cleave_catalog::catalog::sequence::Sequence;
use cleave_catalog::identifiers::unqualified;
use cleave_catalog::session_objects::{ShownCursor, ShownStatement};
use cleave_catalog::settings::{SettingRow, Settings};
use cleave_catalog::value::text::value_text;
use cleave_sql::statement::catalog_tables::numbers::{numbered_catalogs, sequence_oid};
use cleave_sql::statement::catalog_tables::{self, Cell, Row};
use cleave_sql::statement::defaults::shown_default;
use cleave_store::{Column, TableSchema};

use super::dependencies;
use super::index_statistics;
use super::io_functions;
use super::key_words;
use super::roles;
use super::sequences;
use super::view::{
    Index, TYPES, View, column_number, default_oid, number, row_type_oid, table_oid, type_of,
};

/// The rows of a table; none of one that is always empty. `last` tells what a sequence has given last.
pub(super) fn rows(
    view: &View,
    table: &str,
    settings: &Settings,
    last: impl Fn(&Sequence) -> Option<i64>,
) -> Vec<Row> {
    match table {
        "pg_am" => vec![
            access_method(number::HEAP, "heap", "t"),
            access_method(number::BTREE, "btree", "i"),
        ],
        "pg_attrdef" => defaults(view, settings.search_path.has_public()),
        "pg_attribute" => roles::with_column_access(view, attributes(view)),
        "pg_auth_members" => roles::members(view),
        "pg_db_role_setting" => roles::settings(view),
        "pg_default_acl" => roles::later(view),
        "pg_authid" => roles::roles(view, true),
        "pg_roles" => roles::roles(view, false),
        "pg_class" => roles::with_owners(view, classes(view)),
        "pg_constraint" => {
            let keys = view.indexes();
            let keys = keys.filter_map(|index| constraint(&index));
            keys.chain(view.rules().map(|rule| rule.row())).collect()
        }
        "pg_database" => vec![database(view)],
        "pg_depend" => dependencies::rows(view),
        "pg_rewrite" => dependencies::rules(view),
        "pg_index" => view.indexes().map(|index| index_row(&index)).collect(),
        "pg_indexes" => view.indexes().map(|index| listed_index(&index)).collect(),
        "pg_namespace" => namespaces(view),
        "pg_sequence" => view.sequences().map(|sequence| sequences::row(sequence)).collect(),
        "pg_sequences" => view
            .sequences()
            .map(|sequence| sequences::listed(view, sequence, last(sequence)))
            .collect(),
        "pg_settings" => settings_rows(settings),
        "pg_tables" => view.base_tables().map(|table| listed_table(view, &table.schema)).collect(),
        "pg_tablespace" => vec![vec![
            ("oid", number::TABLESPACE.into()),
            ("spcname", "pg_default".into()),
            ("spcowner", number::OWNER.into()),
        ]],
        "pg_get_keywords" => key_words::rows(),
        "pg_proc" => io_functions::rows(),
        "pg_stat_all_indexes"
        | "pg_stat_user_indexes"
        | "pg_statio_all_indexes"
        | "pg_statio_user_indexes" => index_statistics::indexes(view),
        "pg_statio_all_tables" | "pg_statio_user_tables" => index_statistics::table_pages(view),
        "pg_stat_gssapi" => vec![vec![
            ("pid", i64::from(view.client.backend).into()),
            ("gss_authenticated", false.into()),
            ("encrypted", false.into()),
        ]],
        "pg_stat_ssl" => {
            vec![vec![("pid", i64::from(view.client.backend).into()), ("ssl", false.into())]]
        }
        // There is one time zone.
        "pg_timezone_names" => ["Etc/UTC", "GMT", "UTC"].map(|name| time_zone(name, "name")).into(),
        "pg_timezone_abbrevs" => vec![time_zone("UTC", "abbrev")],
        "pg_type" => types().into_iter().chain(row_types(view)).collect(),
        "pg_matviews" => view.tables().filter_map(|table| materialized(view, table)).collect(),
        "pg_cursors" => cursors(view),
        "pg_prepared_statements" => prepared_statements(view),
        "pg_views" => view
            .views()
            .map(|shown| {
                vec![
                    ("schemaname", "public".into()),
                    ("viewname", shown.schema.name.as_str().into()),
                    ("viewowner", view.owner_name(shown.schema.table_id).into()),
                    ("definition", shown.query.as_str().into()),
                ]
            })
            .collect(),
        "pg_user" => roles::users(view),
        _ => Vec::new(),
    }
}

fn access_method(oid: i64, name: &str, kind: &str) -> Row {
    vec![
        ("oid", oid.into()),
        ("amname", name.into()),
        ("amhandler", format!("{name}_handler").into()),
        ("amtype", kind.into()),
    ]
}

fn defaults(view: &View, has_public: bool) -> Vec<Row> {
    let mut rows = Vec::new();
    for table in view.tables() {
        for column in &table.schema.columns {
            if own_default(view, &table.schema, column).is_none() {
                continue;
            }
            let place = column_number(&table.schema, column);
            let default = shown_default(column, has_public);
            rows.push(vec![
                ("oid", default_oid(&table.schema, place).into()),
                ("adrelid", table_oid(&table.schema).into()),
                ("adnum", place.into()),
                ("adbin", default.into()),
            ]);
        }
    }
    rows
}

fn attributes(view: &View) -> Vec<Row> {
    let mut rows = Vec::new();
    for table in view.tables() {
        let oid = table_oid(&table.schema);
        let schema = &table.schema;
        let columns = schema.columns.iter().zip(1..);
        rows.extend(columns.map(|(column, place)| {
            let identity = sequences::identity_letter(view, schema, column);
            let has_default = own_default(view, schema, column).is_some();
            attribute(oid, column, place, Some((identity, has_default)))
        }));
    }
    for view in view.views() {
        let oid = table_oid(&view.schema);
        let columns = view.schema.columns.iter().zip(1..);
        rows.extend(columns.map(|(column, place)| attribute(oid, column, place, None)));
    }
    for index in view.indexes() {
        let columns = index.columns().zip(1..);
        rows.extend(columns.map(|(column, place)| attribute(index.oid(), column, place, None)));
    }
    rows
}

/// The default of a column, but for one that is its identity.
pub(super) fn own_default<'a>(
    view: &View,
    schema: &TableSchema,
    column: &'a Column,
) -> Option<&'a str> {
    let default = column.default.as_deref()?;
    sequences::identity_letter(view, schema, column).is_empty().then_some(default)
}

/// A column of a table, with its identity and whether it has a default, or of an index.
fn attribute(
    relation: i64,
    column: &Column,
    place: i64,
    of_table: Option<(&'static str, bool)>,
) -> Row {
    let (identity, has_default) = of_table.unwrap_or_default();
    let (oid, modifier) = type_of(column.column_type);
    let known = TYPES.iter().find(|known| known.oid == oid);
    let size = known.map_or(-1, |known| known.size);
    let absent = of_table.and_then(|_| absent_value(column));
    let is_text = known.is_some_and(|known| known.category == "S");
    let storage = storage(oid, size);
    vec![
        ("attrelid", relation.into()),
        ("attname", column.name.as_str().into()),
        ("atttypid", oid.into()),
        ("attstattarget", (-1).into()),
        ("attlen", size.into()),
        ("attnum", place.into()),
        ("attndims", 0.into()),
        ("attcacheoff", (-1).into()),
        ("atttypmod", modifier.into()),
        ("attbyval", (1..=8).contains(&size).into()),
        ("attalign", "i".into()),
        ("attstorage", storage.into()),
        ("attcompression", "".into()),
        ("attnotnull", (column.not_null && of_table.is_some()).into()),
        ("atthasdef", has_default.into()),
        ("atthasmissing", absent.is_some().into()),
        ("attmissingval", absent.into()),
        ("attidentity", identity.into()),
        ("attgenerated", "".into()),
        ("attisdropped", false.into()),
        ("attislocal", true.into()),
        ("attinhcount", 0.into()),
        ("attcollation", if is_text { number::COLLATION } else { 0 }.into()),
    ]
}

/// How values of a type are stored, in PostgreSQL's words.
fn storage(type_oid: i64, size: i64) -> &'static str {
    match type_oid {
        1700 => "m",
        _ if size == -1 => "x",
        _ => "p",
    }
}

/// The value of rows whose page is older than the column, as an array of one.
fn absent_value(column: &Column) -> Option<String> {
    let value = column.absent.as_ref()?.array(&column.column_type.arrow(), 1)?;
    let field = Arc::new(Field::new_list_field(value.data_type().clone(), true));
    let list = ListArray::try_new(field, OffsetBuffer::from_lengths([1]), value, None).ok()?;
    value_text(&list, 0).ok().flatten()
}

fn classes(view: &View) -> Vec<Row> {
    let tables = view.tables().map(|table| {
        let schema = &table.schema;
        let oid = table_oid(schema);
        let has_index = view.indexes().any(|index| index.table.schema.table_id == schema.table_id);
        // As PostgreSQL shows a table that was never analysed.
        let rows = match view.may(schema.table_id, Privilege::Select) {
            true => i64::try_from(table.row_count()).unwrap_or(i64::MAX),
            false => -1,
        };
        let count = i64::try_from(schema.columns.len()).unwrap_or(0);
        let kind = if table.materialized.is_some() { "m" } else { "r" };
        let mut row = class((oid, &schema.name), kind, (count, rows), has_index);
        let checks = i64::try_from(table.rules.checks.len()).unwrap_or(0);
        let own = ["relchecks", "relhastriggers", "reltype", "relispopulated"];
        row.retain(|(column, _)| !own.contains(column));
        row.push(("reltype", row_type_oid(schema).into()));
        row.push(("relhastriggers", view.state().is_in_references(table).into()));
        row.push(("relchecks", checks.into()));
        row.push(("relispopulated", table.check_populated().is_ok().into()));
        row
    });
    let indexes = view.indexes().map(|index| {
        let count = i64::try_from(index.definition.columns.len()).unwrap_or(0);
        class((index.oid(), &index.definition.name), "i", (count, 0), false)
    });
    let sequences = view
        .sequences()
        .map(|sequence| class((sequence_oid(sequence), &sequence.name), "S", (3, 1), false));
    let views = view.views().map(|view| {
        let count = i64::try_from(view.schema.columns.len()).unwrap_or(0);
        let mut row = class((table_oid(&view.schema), &view.schema.name), "v", (count, 0), false);
        row.retain(|(column, _)| *column != "reltype");
        row.push(("reltype", row_type_oid(&view.schema).into()));
        row
    });
    let own = tables.chain(indexes).chain(sequences).chain(views);
    own.chain(numbered_catalogs().map(system_table)).collect()
}

/// The row of a table of PostgreSQL's own.
fn system_table((name, oid): (&str, i64)) -> Row {
    let columns = catalog_tables::columns(catalog_tables::CATALOG_SCHEMA, name);
    let count = columns.map_or(0, |columns| i64::try_from(columns.len()).unwrap_or(0));
    let kind = if name == "pg_roles" { "v" } else { "r" };
    let mut row = class((oid, name), kind, (count, -1), false);
    row.retain(|(column, _)| *column != "relnamespace");
    row.push(("relnamespace", number::PG_CATALOG.into()));
    row
}

fn cursors(view: &View) -> Vec<Row> {
    let row = |(name, cursor): (String, ShownCursor)| -> Row {
        vec![
            ("name", name.into()),
            ("statement", cursor.text.into()),
            ("is_holdable", cursor.is_held.into()),
            ("is_binary", false.into()),
            ("is_scrollable", false.into()),
            ("creation_time", cursor.made_us.into()),
        ]
    };
    view.client.objects.cursors().into_iter().map(row).collect()
}

fn prepared_statements(view: &View) -> Vec<Row> {
    let row = |(name, statement): (String, ShownStatement)| -> Row {
        vec![
            ("name", name.into()),
            ("statement", statement.text.into()),
            ("prepare_time", statement.made_us.into()),
            ("parameter_types", Cell::Texts(statement.types)),
            ("from_sql", statement.is_of_sql.into()),
        ]
    };
    view.client.objects.statements().into_iter().map(row).collect()
}

fn materialized(view: &View, table: &TableState) -> Option<Row> {
    let (schema, query) = (&table.schema, table.materialized.as_ref()?);
    Some(vec![
        ("schemaname", "public".into()),
        ("matviewname", schema.name.as_str().into()),
        ("matviewowner", view.owner_name(schema.table_id).into()),
        ("hasindexes", (!table.indexes.is_empty()).into()),
        ("ispopulated", query.is_populated.into()),
        ("definition", query.query.as_str().into()),
    ])
}

fn class(
    (oid, name): (i64, &str),
    kind: &'static str,
    (columns, rows): (i64, i64),
    has_index: bool,
) -> Row {
    let is_table = matches!(kind, "r" | "m");
    let access = match kind {
        "r" | "m" => number::HEAP,
        "i" => number::BTREE,
        _ => 0,
    };
    vec![
        ("oid", oid.into()),
        ("relname", name.into()),
        ("relnamespace", number::PUBLIC.into()),
        ("reltype", 0.into()),
        ("reloftype", 0.into()),
        ("relowner", number::OWNER.into()),
        ("relam", access.into()),
        ("relfilenode", oid.into()),
        ("reltablespace", 0.into()),
        ("relpages", 0.into()),
        ("reltuples", rows.into()),
        ("relallvisible", 0.into()),
        ("reltoastrelid", 0.into()),
        ("relhasindex", has_index.into()),
        ("relisshared", false.into()),
        ("relpersistence", "p".into()),
        ("relkind", kind.into()),
        ("relnatts", columns.into()),
        ("relchecks", 0.into()),
        ("relhasrules", false.into()),
        ("relhastriggers", false.into()),
        ("relhassubclass", false.into()),
        ("relrowsecurity", false.into()),
        ("relforcerowsecurity", false.into()),
        ("relispopulated", true.into()),
        ("relreplident", if is_table { "d" } else { "n" }.into()),
        ("relispartition", false.into()),
        ("relrewrite", 0.into()),
        ("relfrozenxid", 0.into()),
        ("relminmxid", 0.into()),
    ]
}

fn constraint(index: &Index<'_>) -> Option<Row> {
    let schema = &index.table.schema;
    let columns = index.columns().map(|column| column_number(schema, column)).collect();
    Some(vec![
        ("oid", index.constraint_oid()?.into()),
        ("conname", index.definition.name.as_str().into()),
        ("connamespace", number::PUBLIC.into()),
        ("contype", if index.is_primary() { "p" } else { "u" }.into()),
        ("condeferrable", false.into()),
        ("condeferred", false.into()),
        ("convalidated", true.into()),
        ("conrelid", table_oid(schema).into()),
        ("contypid", 0.into()),
        ("conindid", index.oid().into()),
        ("conparentid", 0.into()),
        ("confrelid", 0.into()),
        ("confupdtype", " ".into()),
        ("confdeltype", " ".into()),
        ("confmatchtype", " ".into()),
        ("conislocal", true.into()),
        ("coninhcount", 0.into()),
        ("connoinherit", true.into()),
        ("conkey", Cell::Numbers(columns)),
    ])
}

fn database(view: &View) -> Row {
    vec![
        ("oid", number::DATABASE.into()),
        ("datname", view.client.database.as_str().into()),
        ("datdba", number::OWNER.into()),
        ("encoding", 6.into()),
        ("datlocprovider", "c".into()),
        ("datistemplate", false.into()),
        ("datallowconn", true.into()),
        ("datconnlimit", (-1).into()),
        ("dattablespace", number::TABLESPACE.into()),
        ("datcollate", "C".into()),
        ("datctype", "C".into()),
        ("datacl", view.access(Object::Database, ObjectKind::Database)),
    ]
}

fn index_row(index: &Index<'_>) -> Row {
    let schema = &index.table.schema;
    let columns: Vec<i64> = index.columns().map(|column| column_number(schema, column)).collect();
    let count = i64::try_from(columns.len()).unwrap_or(0);
    let options = index
        .definition
        .columns
        .iter()
        .map(|column| i64::from(column.descending) + 2 * i64::from(column.nulls_first));
    let zeros = vec![0; columns.len()];
    vec![
        ("indexrelid", index.oid().into()),
        ("indrelid", table_oid(schema).into()),
        ("indnatts", count.into()),
        ("indnkeyatts", count.into()),
        ("indisunique", index.definition.unique.into()),
        ("indnullsnotdistinct", false.into()),
        ("indisprimary", index.is_primary().into()),
        ("indisexclusion", false.into()),
        ("indimmediate", true.into()),
        ("indisclustered", false.into()),
        ("indisvalid", true.into()),
        ("indcheckxmin", false.into()),
        ("indisready", true.into()),
        ("indislive", true.into()),
        ("indisreplident", false.into()),
        ("indkey", Cell::Numbers(columns)),
        ("indcollation", Cell::Numbers(zeros.clone())),
        ("indclass", Cell::Numbers(zeros)),
        ("indoption", Cell::Numbers(options.collect())),
    ]
}

fn listed_index(index: &Index<'_>) -> Row {
    vec![
        ("schemaname", "public".into()),
        ("tablename", index.table.schema.name.as_str().into()),
        ("indexname", index.definition.name.as_str().into()),
        ("indexdef", index.definition_text().into()),
    ]
}

fn listed_table(view: &View, schema: &TableSchema) -> Row {
    let name = schema.name.as_str();
    let has_indexes = view.indexes().any(|index| index.table.schema.name == name);
    let state = view.state();
    let has_triggers = state.table(name).is_some_and(|table| state.is_in_references(table));
    vec![
        ("schemaname", "public".into()),
        ("tablename", name.into()),
        ("tableowner", view.owner_name(schema.table_id).into()),
        ("hasindexes", has_indexes.into()),
        ("hasrules", false.into()),
        ("hastriggers", has_triggers.into()),
        ("rowsecurity", false.into()),
    ]
}

/// The schemas with their numbers.
pub(super) const SCHEMAS: [(i64, &str); 4] = [
    (number::PG_CATALOG, "pg_catalog"),
    (number::PUBLIC, "public"),
    (number::INFORMATION_SCHEMA, "information_schema"),
    (number::CLEAVE, "cleave"),
];

/// The number of a schema, by its name as SQL writes it.
pub(super) fn schema_number(written: &str) -> Option<i64> {
    let name = unqualified(written)?;
    SCHEMAS.iter().find(|(_, known)| *known == name).map(|(oid, _)| *oid)
}

fn namespaces(view: &View) -> Vec<Row> {
    let row = |(oid, name): (i64, &str)| {
        let access = match oid {
            number::PUBLIC => view.access(Object::Schema, ObjectKind::Schema),
            _ => Cell::Null,
        };
        vec![
            ("oid", oid.into()),
            ("nspname", name.into()),
            ("nspowner", number::OWNER.into()),
            ("nspacl", access),
        ]
    };
    // In `cleave` nothing can be made, and `pg_class` has none of it: clients that copy schemas would copy that one.
    SCHEMAS.into_iter().filter(|(oid, _)| *oid != number::CLEAVE).map(row).collect()
}

fn settings_rows(settings: &Settings) -> Vec<Row> {
    let defaults = Settings::default().show_all();
    let rows = settings.show_all().into_iter().zip(defaults).map(|(row, default)| {
        let source = if default.value == row.value { "default" } else { "session" };
        let value = |row: &SettingRow| match row.milliseconds {
            Some((number, _)) => number.to_string(),
            None => row.value.clone(),
        };
        let (value, boot) = (value(&row), value(&default));
        let vartype = if row.milliseconds.is_some() { "integer" } else { "string" };
        let mut shown: Row = vec![
            ("name", row.name.into()),
            ("setting", value.into()),
            ("category", "Cleave".into()),
            ("short_desc", row.description.into()),
            ("context", "user".into()),
            ("vartype", vartype.into()),
            ("source", source.into()),
            ("boot_val", boot.as_str().into()),
            ("reset_val", boot.into()),
            ("pending_restart", false.into()),
        ];
        if let Some((_, max)) = row.milliseconds {
            shown.push(("unit", "ms".into()));
            shown.push(("min_val", "0".into()));
            shown.push(("max_val", max.to_string().into()));
        }
        shown
    });
    let presets = settings.show_presets().into_iter().map(|row| -> Row {
        vec![
            ("name", row.name.into()),
            ("setting", row.value.as_str().into()),
            ("category", "PostgreSQL".into()),
            ("short_desc", row.description.into()),
            ("context", "user".into()),
            ("vartype", "string".into()),
            ("source", "default".into()),
            ("boot_val", row.value.as_str().into()),
            ("reset_val", row.value.as_str().into()),
            ("pending_restart", false.into()),
        ]
    });
    rows.chain(presets).collect()
}

fn time_zone(name: &str, column: &'static str) -> Row {
    let mut row =
        vec![(column, name.into()), ("utc_offset", "00:00:00".into()), ("is_dst", false.into())];
    if column == "name" {
        row.push(("abbrev", if name == "GMT" { "GMT" } else { "UTC" }.into()));
    }
    row
}

/// What the names of the functions of a type begin with.
fn io_prefix(name: &str) -> String {
    match name {
        "date" | "time" | "timestamp" | "timestamptz" | "interval" | "json" | "numeric"
        | "record" | "uuid" | "void" => format!("{name}_"),
        _ => name.to_owned(),
    }
}

/// The types of the rows of tables and views.
fn row_types(view: &View) -> Vec<Row> {
    let tables = view.tables().map(|table| &table.schema);
    let schemas = tables.chain(view.views().map(|view| &view.schema));
    let row = |schema: &Arc<TableSchema>| {
        let own = (row_type_oid(schema), schema.name.clone(), -1);
        let mut row = type_row(own, ("c", "C"), (0, 0), (0, "record_"));
        row.retain(|(column, _)| *column != "typrelid" && *column != "typnamespace");
        row.push(("typrelid", table_oid(schema).into()));
        row.push(("typnamespace", number::PUBLIC.into()));
        row
    };
    schemas.map(row).collect()
}

fn types() -> Vec<Row> {
    let mut rows = Vec::new();
    for known in TYPES {
        let kind = if known.category == "P" { "p" } else { "b" };
        let collation = if known.category == "S" { number::COLLATION } else { 0 };
        let input = io_prefix(known.name);
        let own = (known.oid, known.name.to_owned(), known.size);
        rows.push(type_row(own, (kind, known.category), (0, known.list), (collation, &input)));
        if known.list != 0 {
            let list = (known.list, format!("_{}", known.name), -1);
            rows.push(type_row(list, ("b", "A"), (known.oid, 0), (collation, "array_")));
        }
    }
    rows
}

fn type_row(
    (oid, name, size): (i64, String, i64),
    (kind, category): (&'static str, &'static str),
    (element, list): (i64, i64),
    (collation, prefix): (i64, &str),
) -> Row {
    vec![
        ("oid", oid.into()),
        ("typname", name.into()),
        ("typnamespace", number::PG_CATALOG.into()),
        ("typowner", number::OWNER.into()),
        ("typlen", size.into()),
        ("typbyval", (1..=8).contains(&size).into()),
        ("typtype", kind.into()),
        ("typcategory", category.into()),
        ("typispreferred", false.into()),
        ("typisdefined", true.into()),
        ("typdelim", ",".into()),
        ("typrelid", 0.into()),
        ("typsubscript", "-".into()),
        ("typelem", element.into()),
        ("typarray", list.into()),
        ("typinput", format!("{prefix}in").into()),
        ("typoutput", format!("{prefix}out").into()),
        ("typreceive", format!("{prefix}recv").into()),
        ("typsend", format!("{prefix}send").into()),
        ("typmodin", "-".into()),
        ("typmodout", "-".into()),
        ("typanalyze", "-".into()),
        ("typalign", "i".into()),
        ("typstorage", storage(oid, size).into()),
        ("typnotnull", false.into()),
        ("typbasetype", 0.into()),
        ("typtypmod", (-1).into()),
        ("typndims", 0.into()),
        ("typcollation", collation.into()),
    ]
}
