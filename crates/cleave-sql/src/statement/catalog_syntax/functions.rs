//! Functions in FROM that give the rows of a table of the catalog, as `pg_show_all_settings()` and `pg_get_keywords()`;
//! and tables of the catalog that a list of columns names, as `columns.*`.

use datafusion::sql::sqlparser::ast::{
    Ident, ObjectName, Select, SelectItem, SelectItemQualifiedWildcardKind, TableAlias, TableFactor,
};

use crate::statement::catalog_tables::CATALOG_SCHEMA;
use crate::statement::names::fold;

const TABLES: [(&str, &str); 8] = [
    ("pg_available_extensions", "pg_available_extensions"),
    ("pg_cursor", "pg_cursors"),
    ("pg_get_keywords", "pg_get_keywords"),
    ("pg_lock_status", "pg_locks"),
    ("pg_prepared_statement", "pg_prepared_statements"),
    ("pg_prepared_xact", "pg_prepared_xacts"),
    ("pg_show_all_settings", "pg_settings"),
    ("pg_timezone_names", "pg_timezone_names"),
];

/// The table whose rows the function `name` gives.
pub(super) fn table_of(name: &ObjectName) -> Option<&'static str> {
    let last = fold(name.0.last()?.as_ident()?);
    let is_plain = name.0.len() == 1 || super::is_own(name);
    TABLES.iter().find(|(known, _)| is_plain && *known == last).map(|(_, table)| *table)
}

/// Replaces a call of such a function.
pub(super) fn read_table(factor: &mut TableFactor) {
    let TableFactor::Table { name, args, alias, .. } = factor else { return };
    if !args.as_ref().is_some_and(|args| args.args.is_empty()) {
        return;
    }
    let Some(table) = table_of(name) else { return };
    let called = name.0.last().and_then(|last| last.as_ident()).cloned();
    *name = ObjectName::from(vec![Ident::new(CATALOG_SCHEMA), Ident::new(table)]);
    *args = None;
    if let (None, Some(called)) = (&alias, called) {
        *alias = Some(TableAlias { explicit: true, name: called, columns: Vec::new(), at: None });
    }
}

/// Gives tables of the catalog their names as aliases where `name.*` stands: DataFusion knows them by schema and name.
pub(super) fn name_tables(select: &mut Select) {
    let named = |item: &SelectItem| match item {
        SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
            match name.0.as_slice() {
                [name] => name.as_ident().map(fold),
                _ => None,
            }
        }
        _ => None,
    };
    let wanted: Vec<String> = select.projection.iter().filter_map(named).collect();
    let factors = select.from.iter_mut().flat_map(|from| {
        let joined = from.joins.iter_mut().map(|join| &mut join.relation);
        std::iter::once(&mut from.relation).chain(joined)
    });
    for factor in factors {
        let TableFactor::Table { name, alias: alias @ None, args: None, .. } = factor else {
            continue;
        };
        let Some(last) = name.0.last().and_then(|last| last.as_ident()) else { continue };
        let is_wanted = wanted.contains(&fold(last));
        if is_wanted && (super::is_own(name) || super::catalog_table(name).is_some()) {
            let name = last.clone();
            *alias = Some(TableAlias { explicit: true, name, columns: Vec::new(), at: None });
        }
    }
}
