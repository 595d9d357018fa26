//! How much of the catalog may belong to a role: definitions and comments in, whether there is room for them out.
//!
//! The whole catalog is in memory, in each version of it, and is written with each change of a definition. So a comment
//! has at most [`COMMENT_BYTES_MAX`], and what belongs to a role that is no superuser at most [`ROLE_BYTES_MAX`].

use std::collections::{BTreeMap, BTreeSet};

use cleave_catalog::catalog::rights::FIRST;
use cleave_catalog::catalog::{CatalogState, TableState};
use cleave_catalog::error::{Error, Fault, Result};
use cleave_sql::statement::catalog_tables::numbers::{PER_TABLE, oid_of};
use cleave_store::TableSchema;

/// Most bytes of a comment.
const COMMENT_BYTES_MAX: usize = 1 << 20;
/// Most bytes of names, texts and other parts of definitions that belong to a role.
const ROLE_BYTES_MAX: usize = 32 << 20;
/// What a column, an index, a rule or an object takes beside its texts.
const ITEM_BYTES: usize = 128;

/// Refuses a comment that is too long.
///
/// # Errors
/// [`Fault::TooLong`].
pub(super) fn check_comment(text: Option<&str>) -> Result<()> {
    match text.map_or(0, str::len) {
        0..=COMMENT_BYTES_MAX => Ok(()),
        count => {
            let message = format!(
                "a comment has at most {COMMENT_BYTES_MAX} bytes, and this one has {count}"
            );
            Err(too_long(message))
        }
    }
}

/// Refuses the definitions in `next` that make more of the catalog the property of `role` than it may have. It may
/// always make it less.
///
/// # Errors
/// [`Fault::TooLong`].
pub(super) fn check_role(role: u32, before: &CatalogState, next: &CatalogState) -> Result<()> {
    if role == FIRST || next.rights.is_superuser(role) {
        return Ok(());
    }
    let bytes = bytes_of(role, next);
    if bytes <= ROLE_BYTES_MAX || bytes <= bytes_of(role, before) {
        return Ok(());
    }
    let message = format!(
        "the tables, views, sequences and comments of a role take at most {ROLE_BYTES_MAX} bytes of the catalog; drop \
         some, or have a superuser own them"
    );
    Err(too_long(message))
}

fn too_long(message: String) -> Error {
    Error::Invalid { message, fault: Fault::TooLong, position: None }
}

/// What belongs to `role` in `state`.
fn bytes_of(role: u32, state: &CatalogState) -> usize {
    let owned: BTreeSet<u32> = state.rights.owned(role).collect();
    let is_own = |id: u32| owned.contains(&id);
    let tables = state.tables().filter(|table| is_own(table.schema.table_id));
    let views = state.views().filter(|view| is_own(view.schema.table_id));
    let sequences = state.sequences.values().filter(|sequence| is_own(sequence.id));
    let oids: BTreeMap<i64, ()> = owned.iter().map(|id| (oid_of(*id), ())).collect();
    let is_about = |object: i64| {
        let below = oids.range(..=object).next_back();
        below.is_some_and(|(oid, ())| object - oid < PER_TABLE)
    };
    let comments = state.comments.all().filter(|(subject, _)| is_about(subject.object));
    let of_view = |query: &str, sources: &[String]| {
        query.len() + sources.iter().map(String::len).sum::<usize>()
    };
    let of_table = |table: &TableState| {
        let query = table.materialized.as_ref();
        let query = query.map_or(0, |query| of_view(&query.query, &query.sources));
        let checks = table.rules.checks.iter();
        let rules = checks.map(|check| ITEM_BYTES + check.name.len() + check.expression.len());
        let indexes = table.indexes.iter().map(|index| ITEM_BYTES + index.name.len());
        let keys = table.rules.foreign_keys.iter().map(|key| ITEM_BYTES + key.name.len());
        query + rules.chain(indexes).chain(keys).sum::<usize>()
    };
    tables.map(|table| schema_bytes(&table.schema) + of_table(table)).sum::<usize>()
        + views
            .map(|view| schema_bytes(&view.schema) + of_view(&view.query, &view.sources))
            .sum::<usize>()
        + sequences.map(|sequence| ITEM_BYTES + sequence.name.len()).sum::<usize>()
        + comments.map(|(_, text)| ITEM_BYTES + text.len()).sum::<usize>()
}

fn schema_bytes(schema: &TableSchema) -> usize {
    let columns = schema.columns.iter().map(|column| {
        ITEM_BYTES + column.name.len() + column.default.as_ref().map_or(0, String::len)
    });
    ITEM_BYTES + schema.name.len() + columns.sum::<usize>()
}
