//! `pg_depend` and `pg_rewrite`: dependencies of objects, and the queries of views as PostgreSQL's rules for them.
//!
//! A view depends on all tables and views that it is made of, also by way of other views, each as a whole.
//!
//! Source: PostgreSQL's manual, "pg_depend", "pg_rewrite".

use std::sync::Arc;

use cleave_catalog::catalog::sequence::named;
use cleave_catalog::catalog::view::ViewState;
use cleave_sql::statement::catalog_tables::Row;
use cleave_sql::statement::catalog_tables::numbers::oid_of;
use cleave_sql::statement::catalog_tables::numbers::sequence_oid;
use cleave_sql::statement::catalog_tables::numbers::{
    ATTRDEF, CLASS, CONSTRAINT, NAMESPACE, PER_TABLE, REWRITE,
};
use cleave_sql::statement::defaults::next_default;
use cleave_store::TableSchema;

use super::constraints::Constraint;
use super::rows::own_default;
use super::view::{Index, View, column_number, default_oid, number, table_oid};

/// A thing, or a column of one: its class, its number, and the column's, which is 0 of the whole.
type Part = (i64, i64, i64);

/// The rows of `pg_depend`.
pub(super) fn rows(view: &View) -> Vec<Row> {
    let mut found = Vec::new();
    let relations = view.owned().filter_map(|known| match known.object {
        cleave_catalog::catalog::rights::Object::Relation(id) => Some(oid_of(id)),
        _ => None,
    });
    let in_schema = |oid| row((CLASS, oid, 0), (NAMESPACE, number::PUBLIC, 0), "n");
    found.extend(relations.map(in_schema));
    defaults(view, &mut found);
    for sequence in view.sequences() {
        let Some(owner) = sequence.owner else { continue };
        let Some(table) = view.state().table_by_id(owner.table) else { continue };
        let Some(column) = table.schema.column_by_id(owner.column) else { continue };
        let place = column_number(&table.schema, column);
        let kind = if owner.is_identity { "i" } else { "a" };
        let column = (CLASS, table_oid(&table.schema), place);
        found.push(row((CLASS, sequence_oid(sequence), 0), column, kind));
    }
    view.indexes().for_each(|index| of_index(&index, &mut found));
    view.rules().for_each(|rule| of_constraint(&rule, &mut found));
    for (shown, oid) in ruled(view) {
        let (own, rule) = ((CLASS, table_oid(&shown.schema), 0), (REWRITE, oid, 0));
        found.extend([row(rule, own, "i"), row(rule, own, "n")]);
        let depends = shown.depends.iter().filter(|id| view.state().has_relation(**id));
        found.extend(depends.map(|id| row(rule, (CLASS, oid_of(*id), 0), "n")));
    }
    found
}

/// The rows of `pg_rewrite`.
pub(super) fn rules(view: &View) -> Vec<Row> {
    let rule = |(shown, oid): (Arc<ViewState>, i64)| -> Row {
        vec![
            ("oid", oid.into()),
            ("rulename", "_RETURN".into()),
            ("ev_class", table_oid(&shown.schema).into()),
            ("ev_type", "1".into()),
            ("ev_enabled", "O".into()),
            ("is_instead", true.into()),
        ]
    };
    ruled(view).map(rule).collect()
}

/// All views, also materialized ones, each with the number of its rule.
fn ruled(view: &View) -> impl Iterator<Item = (Arc<ViewState>, i64)> {
    // A view has neither indexes nor constraints, whose numbers stand behind its own.
    let views = view.views().map(|shown| (Arc::clone(shown), table_oid(&shown.schema) + 1));
    let materialized = view.state().materialized_views().map(|(table, query)| {
        let shown = query.as_view(TableSchema::clone(&table.schema));
        (Arc::new(shown), table_oid(&table.schema) + PER_TABLE - 1)
    });
    views.chain(materialized)
}

fn defaults(view: &View, found: &mut Vec<Row>) {
    for table in view.tables() {
        let schema = &table.schema;
        for column in &schema.columns {
            if own_default(view, schema, column).is_none() {
                continue;
            }
            let place = column_number(schema, column);
            let default = (ATTRDEF, default_oid(schema, place), 0);
            found.push(row(default, (CLASS, table_oid(schema), place), "a"));
            let sequence = next_default(column);
            let sequence = sequence.and_then(|name| named(view.state(), &name).ok());
            let sequence = sequence.map(|sequence| (CLASS, sequence_oid(sequence), 0));
            found.extend(sequence.map(|sequence| row(default, sequence, "n")));
        }
    }
}

fn of_index(index: &Index<'_>, found: &mut Vec<Row>) {
    let schema = &index.table.schema;
    let own = (CLASS, index.oid(), 0);
    // A constraint has its index, and the columns are the constraint's.
    let of_columns = match index.constraint_oid() {
        Some(oid) => {
            found.push(row(own, (CONSTRAINT, oid, 0), "i"));
            (CONSTRAINT, oid, 0)
        }
        None => own,
    };
    let columns = index.columns().map(|column| column_number(schema, column));
    found.extend(columns.map(|place| row(of_columns, (CLASS, table_oid(schema), place), "a")));
}

fn of_constraint(rule: &Constraint<'_>, found: &mut Vec<Row>) {
    let own = (CONSTRAINT, rule.oid(), 0);
    let (table, places) = rule.places();
    found.extend(places.into_iter().map(|place| row(own, (CLASS, table, place), "a")));
    if let Some((table, index, places)) = rule.referred() {
        found.extend(places.into_iter().map(|place| row(own, (CLASS, table, place), "n")));
        found.push(row(own, (CLASS, index, 0), "n"));
    }
}

fn row(of: Part, on: Part, kind: &'static str) -> Row {
    vec![
        ("classid", of.0.into()),
        ("objid", of.1.into()),
        ("objsubid", of.2.into()),
        ("refclassid", on.0.into()),
        ("refobjid", on.1.into()),
        ("refobjsubid", on.2.into()),
        ("deptype", kind.into()),
    ]
}
