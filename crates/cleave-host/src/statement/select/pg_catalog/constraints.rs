//! Constraints that no index stands for, as both schemas show them.

use super::shapes::{Cell, Row};
use super::view::{View, column_number, number, table_oid};
use crate::catalog::TableState;
use crate::catalog::rules::Check;

/// A constraint of a table.
pub(super) struct Constraint<'a> {
    /// The table.
    pub(super) table: &'a TableState,
    /// What it is.
    pub(super) check: &'a Check,
}

impl View {
    /// All constraints that no index stands for.
    pub(super) fn rules(&self) -> impl Iterator<Item = Constraint<'_>> {
        self.tables().flat_map(|table| {
            table.rules.checks.iter().map(move |check| Constraint { table, check })
        })
    }

    /// That of this number, as CREATE TABLE has it; `pretty`: without brackets that it does not need.
    pub(super) fn rule_text(&self, oid: i64, pretty: bool) -> Option<String> {
        self.rules().find(|rule| rule.oid() == oid).map(|rule| rule.text(pretty))
    }
}

impl Constraint<'_> {
    fn oid(&self) -> i64 {
        table_oid(&self.table.schema) + number::RULES + i64::from(self.check.id)
    }

    fn text(&self, pretty: bool) -> String {
        match pretty {
            true => format!("CHECK ({})", self.check.expression),
            false => format!("CHECK (({}))", self.check.expression),
        }
    }

    /// Its row of `pg_constraint`.
    pub(super) fn row(&self) -> Row {
        let schema = &self.table.schema;
        let columns = self.check.columns.iter().filter_map(|id| schema.column_by_id(*id));
        let columns = columns.map(|column| column_number(schema, column)).collect();
        vec![
            ("oid", self.oid().into()),
            ("conname", self.check.name.as_str().into()),
            ("connamespace", number::PUBLIC.into()),
            ("contype", "c".into()),
            ("condeferrable", false.into()),
            ("condeferred", false.into()),
            ("convalidated", true.into()),
            ("conrelid", table_oid(schema).into()),
            ("contypid", 0.into()),
            ("conindid", 0.into()),
            ("conparentid", 0.into()),
            ("confrelid", 0.into()),
            ("confupdtype", " ".into()),
            ("confdeltype", " ".into()),
            ("confmatchtype", " ".into()),
            ("conislocal", true.into()),
            ("coninhcount", 0.into()),
            ("connoinherit", false.into()),
            ("conkey", Cell::Numbers(columns)),
            ("conbin", self.check.expression.as_str().into()),
        ]
    }

    /// Its name and its table's, as `information_schema` has them.
    fn names(&self, catalog: &str) -> Row {
        vec![
            ("constraint_catalog", catalog.into()),
            ("constraint_schema", "public".into()),
            ("constraint_name", self.check.name.as_str().into()),
            ("table_catalog", catalog.into()),
            ("table_schema", "public".into()),
            ("table_name", self.table.schema.name.as_str().into()),
        ]
    }

    /// Its row of `table_constraints`.
    pub(super) fn of_table(&self, catalog: &str) -> Row {
        let mut row = self.names(catalog);
        row.extend([
            ("constraint_type", "CHECK".into()),
            ("is_deferrable", "NO".into()),
            ("initially_deferred", "NO".into()),
            ("enforced", "YES".into()),
        ]);
        row
    }

    /// Its row of `check_constraints`.
    pub(super) fn check(&self, catalog: &str) -> Row {
        let mut row = self.names(catalog);
        row.push(("check_clause", format!("(({}))", self.check.expression).into()));
        row
    }

    /// Its rows of `constraint_column_usage`.
    pub(super) fn columns(&self, catalog: &str) -> Vec<Row> {
        let schema = &self.table.schema;
        let columns = self.check.columns.iter().filter_map(|id| schema.column_by_id(*id));
        columns
            .map(|column| {
                let mut row = self.names(catalog);
                row.push(("column_name", column.name.as_str().into()));
                row
            })
            .collect()
    }
}
