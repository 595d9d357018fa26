//! The catalog with a number for each thing: the source of rows and functions.
//!
//! A table's number is made of its id, those of its indexes and constraints of both ids. Ids are never reused, nor are
//! numbers.

use std::sync::Arc;

use cleave_sql::statement::ddl::column_type;
use cleave_store::{Column, ColumnType, TableSchema};
use datafusion::sql::sqlparser::ast::DataType;
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;

use cleave_catalog::catalog::index_definition::{IndexDefinition, PRIMARY_KEY};
use cleave_catalog::catalog::rights::{Object, Privilege, Rights};
use cleave_catalog::catalog::view::ViewState;
use cleave_catalog::catalog::{CatalogState, TableState};
use cleave_catalog::identifiers::unqualified;
use cleave_catalog::settings::Client;
use cleave_sql::statement::catalog_tables::numbers::{
    FIRST, PER_TABLE, name_of_catalog, number_of_catalog, oid_of, sequence_of_number,
};
use cleave_sql::statement::names::quoted;

/// Numbers that PostgreSQL gives to what every database has.
pub(super) mod number {
    pub(in super::super) const PG_CATALOG: i64 = 11;
    pub(in super::super) const PUBLIC: i64 = 2200;
    pub(in super::super) const INFORMATION_SCHEMA: i64 = 13_000;
    pub(in super::super) const CLEAVE: i64 = 13_001;
    pub(in super::super) const OWNER: i64 = 10;
    pub(in super::super) const DATABASE: i64 = 5;
    pub(in super::super) const TABLESPACE: i64 = 1663;
    pub(in super::super) const HEAP: i64 = 2;
    pub(in super::super) const BTREE: i64 = 403;
    pub(in super::super) const COLLATION: i64 = 100;
    /// Where rows of `pg_default_acl` begin.
    pub(in super::super) const DEFAULT_ACL: i64 = 14_000;
    /// Where constraints begin among them.
    pub(super) const CONSTRAINTS: i64 = 500;
    /// Where those begin that no index stands for.
    pub(in super::super) const RULES: i64 = 800;
}

/// The catalog of one statement.
#[derive(Debug, Clone)]
pub(crate) struct View {
    state: Arc<CatalogState>,
    /// The newest committed version, even where the statement reads an older one.
    newest: Arc<CatalogState>,
    /// Whose session it is.
    pub(super) client: Client,
}

/// An index of a table.
pub(super) struct Index<'a> {
    /// The table.
    pub(super) table: &'a TableState,
    /// What it is.
    pub(super) definition: &'a IndexDefinition,
}

impl View {
    /// The catalog of `state`, where `newest` is the newest committed version.
    pub(crate) fn new(
        state: &Arc<CatalogState>,
        newest: &Arc<CatalogState>,
        client: &Client,
    ) -> Self {
        let (state, newest) = (Arc::clone(state), Arc::clone(newest));
        Self { state, newest, client: client.clone() }
    }

    /// The rights in force now.
    pub(super) fn newest_rights(&self) -> &Rights {
        &self.newest.rights
    }

    /// Whether the asker may do `privilege` with some of the table or sequence `id`.
    pub(in super::super) fn may(&self, id: u32, privilege: Privilege) -> bool {
        self.is_allowed(id, |rights, role| rights.may_some(role, Object::Relation(id), privilege))
    }

    /// Whether the asker may do any of `privileges` with a column of the table `id`.
    pub(super) fn may_with_column(&self, id: u32, column: u32, privileges: &[Privilege]) -> bool {
        let object = Object::Relation(id);
        self.is_allowed(id, |rights, role| {
            privileges.iter().any(|one| rights.may_column(role, object, *one, column))
        })
    }

    /// Whether the asker has the rights of the owner of the table, view or sequence `id`.
    pub(super) fn owns(&self, id: u32) -> bool {
        self.is_allowed(id, |rights, role| rights.owns(role, Object::Relation(id)))
    }

    /// Whether the asker is a superuser, has the object `id` alone, or is `allowed` to see it.
    fn is_allowed(&self, id: u32, allowed: impl Fn(&Rights, u32) -> bool) -> bool {
        let Some(role) = self.client.acting.role else { return true };
        let rights = &self.newest.rights;
        // Uncommitted objects belong to the session.
        let is_own = || !self.newest.has_relation(id) && !self.committed().has_relation(id);
        rights.is_superuser(role)
            || self.newest.has_relation(id) && allowed(rights, role)
            || is_own()
    }

    /// The committed version that this one is made from.
    fn committed(&self) -> &CatalogState {
        let mut state: &CatalogState = &self.state;
        while let Some(base) = state.base() {
            state = base;
        }
        state
    }

    /// Of a version that no other session sees yet.
    pub(super) fn of(state: &CatalogState, client: &Client) -> Self {
        let state = Arc::new(state.clone());
        Self::new(&state, &state, client)
    }

    /// The catalog.
    pub(super) fn state(&self) -> &CatalogState {
        &self.state
    }

    /// The tables that can be used.
    pub(super) fn tables(&self) -> impl Iterator<Item = &Arc<TableState>> {
        self.state.tables()
    }

    /// Those that are no materialized views.
    pub(super) fn base_tables(&self) -> impl Iterator<Item = &Arc<TableState>> {
        self.tables().filter(|table| table.materialized.is_none())
    }

    /// The views.
    pub(super) fn views(&self) -> impl Iterator<Item = &Arc<ViewState>> {
        self.state.views()
    }

    /// All indexes, those of primary keys too.
    pub(super) fn indexes(&self) -> impl Iterator<Item = Index<'_>> {
        self.state.indexes().map(|(table, definition)| Index { table, definition })
    }

    /// The table of this number.
    pub(super) fn table(&self, oid: i64) -> Option<&Arc<TableState>> {
        self.tables().find(|table| table_oid(&table.schema) == oid)
    }

    /// The index of this number.
    pub(super) fn index(&self, oid: i64) -> Option<Index<'_>> {
        self.indexes().find(|index| index.oid() == oid)
    }

    /// The index that stands for the constraint of this number.
    pub(super) fn constraint(&self, oid: i64) -> Option<Index<'_>> {
        self.indexes().find(|index| index.constraint_oid() == Some(oid))
    }

    /// The name of a table or index.
    pub(super) fn relation_name(&self, oid: i64) -> Option<String> {
        let table = self.table(oid).map(|table| table.schema.name.clone());
        let index = || self.index(oid).map(|index| index.definition.name.clone());
        let sequence = || sequence_of_number(&self.state, oid).map(|known| known.name.clone());
        let own = || name_of_catalog(oid).map(str::to_owned);
        let view = || self.views().find(|view| table_oid(&view.schema) == oid);
        let view = || view().map(|view| view.schema.name.clone());
        table.or_else(index).or_else(sequence).or_else(view).or_else(own).map(|name| quoted(&name))
    }

    /// The query of a view.
    pub(super) fn view_query(&self, oid: i64) -> Option<&str> {
        let view = self.views().find(|view| table_oid(&view.schema) == oid);
        let materialized = || Some(self.table(oid)?.materialized.as_ref()?.query.as_str());
        view.map(|view| view.query.as_str()).or_else(materialized)
    }

    /// The number of a table, index, sequence or view, as `name`, `public.name` or `"Name"`.
    pub(super) fn relation(&self, written: &str) -> Option<i64> {
        let name = unqualified(written)?;
        let own = number_of_catalog(&name);
        let table = || self.state.table(&name).map(|table| table_oid(&table.schema));
        let index =
            || self.indexes().find(|index| index.definition.name == name).map(|index| index.oid());
        let sequence = || self.state.sequences.get(&name).map(|known| oid_of(known.id));
        let view = || self.state.view(&name).map(|view| table_oid(&view.schema));
        own.or_else(table).or_else(index).or_else(sequence).or_else(view)
    }
}

/// Whether a number is of something that every database has.
pub(super) fn is_of_catalog(oid: i64) -> bool {
    oid < FIRST
}

/// The number of a table.
pub(in super::super) fn table_oid(schema: &TableSchema) -> i64 {
    oid_of(schema.table_id)
}

/// The number of the type of a table's rows: the last of the table's.
pub(super) fn row_type_oid(schema: &TableSchema) -> i64 {
    table_oid(schema) + PER_TABLE - 1
}

/// The number of the default of the column at `place`: they have a range of their own, wide enough for all columns.
pub(super) fn default_oid(schema: &TableSchema, place: i64) -> i64 {
    (1 << 31) + i64::from(schema.table_id) * 2000 + place
}

/// The number of a column within its table, from 1: its place.
pub(super) fn column_number(schema: &TableSchema, column: &Column) -> i64 {
    let place = schema.columns.iter().position(|known| known.id == column.id);
    place.and_then(|place| i64::try_from(place + 1).ok()).unwrap_or(0)
}

impl Index<'_> {
    /// Its number.
    pub(super) fn oid(&self) -> i64 {
        table_oid(&self.table.schema) + 1 + i64::from(self.definition.id)
    }

    /// The number of the constraint that it stands for.
    pub(super) fn constraint_oid(&self) -> Option<i64> {
        self.definition.constraint.then(|| self.oid() + number::CONSTRAINTS)
    }

    /// Whether it is that of the primary key.
    pub(super) fn is_primary(&self) -> bool {
        self.definition.id == PRIMARY_KEY && self.definition.constraint
    }

    /// Its columns.
    pub(super) fn columns(&self) -> impl Iterator<Item = &Column> {
        let columns = self.definition.columns.iter();
        columns.filter_map(|column| self.table.schema.column_by_id(column.column))
    }

    /// Its columns as SQL writes them.
    fn column_list(&self) -> String {
        let columns = self.definition.columns.iter().filter_map(|column| {
            let name = quoted(&self.table.schema.column_by_id(column.column)?.name);
            let order = if column.descending { " DESC" } else { "" };
            let nulls = match (column.descending, column.nulls_first) {
                (false, true) => " NULLS FIRST",
                (true, false) => " NULLS LAST",
                _ => "",
            };
            Some(format!("{name}{order}{nulls}"))
        });
        columns.collect::<Vec<_>>().join(", ")
    }

    /// The statement that would make it.
    pub(super) fn definition_text(&self) -> String {
        let unique = if self.definition.unique { "UNIQUE " } else { "" };
        let (name, table) = (quoted(&self.definition.name), quoted(&self.table.schema.name));
        format!(
            "CREATE {unique}INDEX {name} ON public.{table} USING btree ({})",
            self.column_list()
        )
    }

    /// The constraint that it stands for, as CREATE TABLE has it.
    pub(super) fn constraint_text(&self) -> String {
        let kind = if self.is_primary() { "PRIMARY KEY" } else { "UNIQUE" };
        format!("{kind} ({})", self.column_list())
    }
}

/// A type that every database has.
pub(super) struct Type {
    /// Its number.
    pub(super) oid: i64,
    /// The number of the type of lists of it; 0: there is none.
    pub(super) list: i64,
    /// Its name in the catalog.
    pub(super) name: &'static str,
    /// Its name in SQL.
    pub(super) sql: &'static str,
    /// Bytes of a value; -1: it varies.
    pub(super) size: i64,
    /// Its category, as in `pg_type`.
    pub(super) category: &'static str,
}

const fn base(
    (oid, list): (i64, i64),
    name: &'static str,
    sql: &'static str,
    size: i64,
    category: &'static str,
) -> Type {
    Type { oid, list, name, sql, size, category }
}

/// The types.
pub(super) const TYPES: &[Type] = &[
    base((16, 1000), "bool", "boolean", 1, "B"),
    base((17, 1001), "bytea", "bytea", -1, "U"),
    base((18, 1002), "char", "\"char\"", 1, "Z"),
    base((19, 1003), "name", "name", 64, "S"),
    base((20, 1016), "int8", "bigint", 8, "N"),
    base((21, 1005), "int2", "smallint", 2, "N"),
    base((22, 1006), "int2vector", "int2vector", -1, "A"),
    base((23, 1007), "int4", "integer", 4, "N"),
    base((24, 1008), "regproc", "regproc", 4, "N"),
    base((25, 1009), "text", "text", -1, "S"),
    base((26, 1028), "oid", "oid", 4, "N"),
    base((30, 1013), "oidvector", "oidvector", -1, "A"),
    base((114, 199), "json", "json", -1, "U"),
    base((700, 1021), "float4", "real", 4, "N"),
    base((701, 1022), "float8", "double precision", 8, "N"),
    base((705, 0), "unknown", "unknown", -2, "X"),
    base((1042, 1014), "bpchar", "character", -1, "S"),
    base((1043, 1015), "varchar", "character varying", -1, "S"),
    base((1082, 1182), "date", "date", 4, "D"),
    base((1083, 1183), "time", "time without time zone", 8, "D"),
    base((1114, 1115), "timestamp", "timestamp without time zone", 8, "D"),
    base((1184, 1185), "timestamptz", "timestamp with time zone", 8, "D"),
    base((1186, 1187), "interval", "interval", 16, "T"),
    base((1700, 1231), "numeric", "numeric", -1, "N"),
    base((2205, 2210), "regclass", "regclass", 4, "N"),
    base((2206, 2211), "regtype", "regtype", 4, "N"),
    base((2249, 2287), "record", "record", -1, "P"),
    base((2278, 0), "void", "void", 4, "P"),
    base((2950, 2951), "uuid", "uuid", 16, "U"),
];

/// Number and modifier of a column's type.
pub(in super::super) fn type_of(column_type: ColumnType) -> (i64, i64) {
    match column_type {
        ColumnType::Boolean => (16, -1),
        ColumnType::Bytea => (17, -1),
        ColumnType::BigInt => (20, -1),
        ColumnType::SmallInt => (21, -1),
        ColumnType::Int => (23, -1),
        ColumnType::Text => (25, -1),
        ColumnType::Real => (700, -1),
        ColumnType::Double => (701, -1),
        ColumnType::Char(length) => (1042, i64::from(length) + 4),
        ColumnType::Varchar(length) => (1043, length.map_or(-1, |length| i64::from(length) + 4)),
        ColumnType::Date => (1082, -1),
        ColumnType::Time => (1083, -1),
        ColumnType::Timestamp => (1114, -1),
        ColumnType::TimestampTz => (1184, -1),
        ColumnType::Interval => (1186, -1),
        ColumnType::NUMERIC => (1700, -1),
        ColumnType::Numeric { precision, scale } => {
            (1700, ((i64::from(precision) << 16) | (i64::from(scale) & 0x7ff)) + 4)
        }
        ColumnType::Uuid => (2950, -1),
    }
}

/// What a type is called in SQL, with its modifier.
pub(super) fn type_text(oid: i64, modifier: i64) -> String {
    if let Some(list) = TYPES.iter().find(|known| known.list == oid && oid != 0) {
        return format!("{}[]", list.sql);
    }
    let Some(known) = TYPES.iter().find(|known| known.oid == oid) else {
        return if oid == 0 { "-".to_owned() } else { "???".to_owned() };
    };
    match (oid, modifier - 4) {
        (1042, length @ 0..) | (1043, length @ 0..) => format!("{}({length})", known.sql),
        (1700, packed @ 0..) => {
            let scale = ((packed & 0x7ff) ^ 1024) - 1024;
            format!("numeric({},{scale})", packed >> 16)
        }
        _ => known.sql.to_owned(),
    }
}

/// The number of the type that `written` names.
pub(super) fn type_named(written: &str) -> Option<i64> {
    let name = written.trim().to_lowercase().replace("\"pg_catalog\".", "pg_catalog.");
    let name = name.strip_prefix("pg_catalog.").unwrap_or(&name);
    let (name, is_list) = match name.strip_suffix("[]") {
        Some(item) => (item.trim(), true),
        None => match name.strip_prefix('_') {
            Some(item) => (item, true),
            None => (name, false),
        },
    };
    let quoted = name.strip_prefix('"').and_then(|name| name.strip_suffix('"'));
    let own = quoted.unwrap_or(name);
    let known = TYPES.iter().find(|known| known.name == own || known.sql == name);
    let Some(known) = known else { return parsed_type(name, is_list) };
    Some(if is_list { known.list } else { known.oid }).filter(|oid| *oid != 0)
}

/// The number of a type that is written as columns are defined, with a modifier or by another name.
fn parsed_type(written: &str, is_list: bool) -> Option<i64> {
    let mut parser = Parser::new(&PostgreSqlDialect {}).try_with_sql(written).ok()?;
    let data_type = parser.parse_data_type().ok()?;
    let data_type = match data_type {
        DataType::Timestamp(Some(_), zone) => DataType::Timestamp(None, zone),
        DataType::Time(Some(_), zone) => DataType::Time(None, zone),
        other => other,
    };
    if parser.peek_token().token != Token::EOF {
        return None;
    }
    let (oid, _) = type_of(column_type(&data_type).ok()?);
    let known = TYPES.iter().find(|known| known.oid == oid)?;
    Some(if is_list { known.list } else { known.oid })
}
