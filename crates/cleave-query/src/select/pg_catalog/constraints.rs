//! Constraints without an index, as both schemas show them.

use std::sync::Arc;

use cleave_catalog::catalog::TableState;
use cleave_catalog::catalog::rules::{Check, ForeignKey, KeyAction, Timing};
use cleave_sql::statement::catalog_tables::numbers::oid_of;
use cleave_sql::statement::catalog_tables::{Cell, Row};
use cleave_sql::statement::names::quoted;

use super::view::{View, column_number, number, table_oid};

/// A constraint of a table.
pub(super) struct Constraint<'a> {
    table: &'a TableState,
    kind: Kind<'a>,
}

enum Kind<'a> {
    Check(&'a Check),
    /// With the table that it refers to.
    ForeignKey(&'a ForeignKey, &'a Arc<TableState>),
}

impl View {
    /// All constraints that no index stands for.
    pub(super) fn rules(&self) -> impl Iterator<Item = Constraint<'_>> {
        self.tables().flat_map(|table| {
            let checks = table.rules.checks.iter().map(Kind::Check);
            let keys = table.rules.foreign_keys.iter().filter_map(|key| {
                Some(Kind::ForeignKey(key, self.state().table_by_id(key.target)?))
            });
            checks.chain(keys).map(move |kind| Constraint { table, kind })
        })
    }

    /// That of this number, as CREATE TABLE has it; `pretty`: without brackets that it does not need.
    pub(super) fn rule_text(&self, oid: i64, pretty: bool, with_schema: bool) -> Option<String> {
        self.rules().find(|rule| rule.oid() == oid).map(|rule| rule.text(pretty, with_schema))
    }
}

/// Names of the columns with these ids, as SQL writes them.
fn listed(table: &TableState, ids: &[u32]) -> String {
    let columns = ids.iter().filter_map(|id| table.schema.column_by_id(*id));
    columns.map(|column| quoted(&column.name)).collect::<Vec<_>>().join(", ")
}

/// The number of the index that a foreign key refers to.
fn index_oid(key: &ForeignKey) -> i64 {
    oid_of(key.target) + 1 + i64::from(key.index)
}

fn numbers(table: &TableState, ids: &[u32]) -> Vec<i64> {
    let columns = ids.iter().filter_map(|id| table.schema.column_by_id(*id));
    columns.map(|column| column_number(&table.schema, column)).collect()
}

impl Constraint<'_> {
    fn id(&self) -> u32 {
        match self.kind {
            Kind::Check(check) => check.id,
            Kind::ForeignKey(key, _) => key.id,
        }
    }

    /// Its name.
    pub(super) fn name(&self) -> &str {
        match self.kind {
            Kind::Check(check) => &check.name,
            Kind::ForeignKey(key, _) => &key.name,
        }
    }

    /// Ids of its columns.
    fn own_columns(&self) -> &[u32] {
        match self.kind {
            Kind::Check(check) => &check.columns,
            Kind::ForeignKey(key, _) => &key.columns,
        }
    }

    /// Whether it is one of the table `id`.
    pub(super) fn is_of(&self, id: u32) -> bool {
        self.table_id() == id
    }

    /// The id of its table.
    pub(super) fn table_id(&self) -> u32 {
        self.table.schema.table_id
    }

    /// The id of the table that it needs columns of: of a foreign key that to which it refers.
    pub(super) fn used_table_id(&self) -> u32 {
        match self.kind {
            Kind::Check(_) => self.table_id(),
            Kind::ForeignKey(_, target) => target.schema.table_id,
        }
    }

    /// Whether it is a foreign key.
    pub(super) fn is_foreign_key(&self) -> bool {
        matches!(self.kind, Kind::ForeignKey(..))
    }

    /// When it is asked.
    fn timing(&self) -> Timing {
        match self.kind {
            Kind::Check(_) => Timing::NotDeferrable,
            Kind::ForeignKey(key, _) => key.timing,
        }
    }

    /// Its number.
    pub(super) fn oid(&self) -> i64 {
        table_oid(&self.table.schema) + number::RULES + i64::from(self.id())
    }

    /// The number of its table, and its columns' numbers.
    pub(super) fn places(&self) -> (i64, Vec<i64>) {
        (table_oid(&self.table.schema), numbers(self.table, self.own_columns()))
    }

    /// What a foreign key refers to: the numbers of the table, of the index, and of the columns.
    pub(super) fn referred(&self) -> Option<(i64, i64, Vec<i64>)> {
        let Kind::ForeignKey(key, target) = self.kind else { return None };
        Some((oid_of(key.target), index_oid(key), numbers(target, &key.target_columns)))
    }

    fn text(&self, pretty: bool, with_schema: bool) -> String {
        match self.kind {
            Kind::Check(check) if pretty => format!("CHECK ({})", check.expression),
            Kind::Check(check) => format!("CHECK (({}))", check.expression),
            Kind::ForeignKey(key, target) => {
                let mut text = format!(
                    "FOREIGN KEY ({}) REFERENCES {}{}({})",
                    listed(self.table, &key.columns),
                    if with_schema { "public." } else { "" },
                    quoted(&target.schema.name),
                    listed(target, &key.target_columns)
                );
                if key.match_full {
                    text.push_str(" MATCH FULL");
                }
                for (word, action) in [("UPDATE", key.on_update), ("DELETE", key.on_delete)] {
                    if action != KeyAction::NoAction {
                        text.push_str(&format!(" ON {word} {}", action.sql_name()));
                    }
                }
                if !key.set_columns.is_empty() {
                    text.push_str(&format!(" ({})", listed(self.table, &key.set_columns)));
                }
                text.push_str(match key.timing {
                    Timing::NotDeferrable => "",
                    Timing::Immediate => " DEFERRABLE",
                    Timing::Deferred => " DEFERRABLE INITIALLY DEFERRED",
                });
                if key.not_valid {
                    text.push_str(" NOT VALID");
                }
                text
            }
        }
    }

    /// Its row of `pg_constraint`.
    pub(super) fn row(&self) -> Row {
        let schema = &self.table.schema;
        let not_valid = matches!(self.kind, Kind::ForeignKey(key, _) if key.not_valid);
        let mut row: Row = vec![
            ("oid", self.oid().into()),
            ("conname", self.name().into()),
            ("connamespace", number::PUBLIC.into()),
            ("contype", if self.is_foreign_key() { "f" } else { "c" }.into()),
            ("condeferrable", self.timing().is_deferrable().into()),
            ("condeferred", (self.timing() == Timing::Deferred).into()),
            ("convalidated", (!not_valid).into()),
            ("conrelid", table_oid(schema).into()),
            ("contypid", 0.into()),
            ("conparentid", 0.into()),
            ("conislocal", true.into()),
            ("coninhcount", 0.into()),
            ("connoinherit", self.is_foreign_key().into()),
            ("conkey", Cell::Numbers(numbers(self.table, self.own_columns()))),
        ];
        match self.kind {
            Kind::Check(check) => row.extend([
                ("conindid", 0.into()),
                ("confrelid", 0.into()),
                ("confupdtype", " ".into()),
                ("confdeltype", " ".into()),
                ("confmatchtype", " ".into()),
                ("conbin", check.expression.as_str().into()),
            ]),
            Kind::ForeignKey(key, target) => row.extend([
                ("conindid", index_oid(key).into()),
                ("confrelid", oid_of(key.target).into()),
                ("confupdtype", key.on_update.letter().into()),
                ("confdeltype", key.on_delete.letter().into()),
                ("confmatchtype", if key.match_full { "f" } else { "s" }.into()),
                ("confkey", Cell::Numbers(numbers(target, &key.target_columns))),
            ]),
        }
        row
    }

    /// Its name and its table's, as `information_schema` has them.
    fn names(&self, catalog: &str) -> Row {
        vec![
            ("constraint_catalog", catalog.into()),
            ("constraint_schema", "public".into()),
            ("constraint_name", self.name().into()),
            ("table_catalog", catalog.into()),
            ("table_schema", "public".into()),
            ("table_name", self.table.schema.name.as_str().into()),
        ]
    }

    /// Its row of `table_constraints`.
    pub(super) fn of_table(&self, catalog: &str) -> Row {
        let mut row = self.names(catalog);
        let kind = if self.is_foreign_key() { "FOREIGN KEY" } else { "CHECK" };
        row.extend([
            ("constraint_type", kind.into()),
            ("is_deferrable", yes_or_no(self.timing().is_deferrable()).into()),
            ("initially_deferred", yes_or_no(self.timing() == Timing::Deferred).into()),
            ("enforced", "YES".into()),
        ]);
        row
    }

    /// Its row of `check_constraints`.
    pub(super) fn check(&self, catalog: &str) -> Option<Row> {
        let Kind::Check(check) = self.kind else { return None };
        let mut row = self.names(catalog);
        row.push(("check_clause", format!("(({}))", check.expression).into()));
        Some(row)
    }

    /// Its row of `referential_constraints`.
    pub(super) fn reference(&self, catalog: &str) -> Option<Row> {
        let Kind::ForeignKey(key, target) = self.kind else { return None };
        let mut row = self.names(catalog);
        let index = target.indexes.iter().find(|index| index.id == key.index);
        row.extend([
            ("unique_constraint_catalog", catalog.into()),
            ("unique_constraint_schema", "public".into()),
            ("unique_constraint_name", index.map(|index| index.name.as_str()).into()),
            ("match_option", if key.match_full { "FULL" } else { "NONE" }.into()),
            ("update_rule", key.on_update.sql_name().into()),
            ("delete_rule", key.on_delete.sql_name().into()),
        ]);
        Some(row)
    }

    /// Its rows of `constraint_column_usage`: of a foreign key the columns that it refers to.
    pub(super) fn columns(&self, catalog: &str) -> Vec<Row> {
        let (table, ids): (&TableState, &[u32]) = match self.kind {
            Kind::Check(check) => (self.table, &check.columns),
            Kind::ForeignKey(key, target) => (target, &key.target_columns),
        };
        let columns = ids.iter().filter_map(|id| table.schema.column_by_id(*id));
        columns
            .map(|column| {
                let mut row = self.names(catalog);
                row.retain(|(name, _)| *name != "table_name");
                row.push(("table_name", table.schema.name.as_str().into()));
                row.push(("column_name", column.name.as_str().into()));
                row
            })
            .collect()
    }

    /// Its rows of `key_column_usage`, of the columns that the asker may see.
    pub(super) fn key_columns(
        &self,
        catalog: &str,
        is_seen: impl Fn(u32, u32) -> bool,
    ) -> Vec<Row> {
        let Kind::ForeignKey(key, target) = self.kind else { return Vec::new() };
        let index = target.indexes.iter().find(|index| index.id == key.index);
        let mut rows = Vec::new();
        for ((own, other), place) in key.columns.iter().zip(&key.target_columns).zip(1_i64..) {
            let Some(column) = self.table.schema.column_by_id(*own) else { continue };
            if !is_seen(self.table_id(), column.id) {
                continue;
            }
            let within = index
                .and_then(|index| index.columns.iter().position(|known| known.column == *other));
            let within = within.and_then(|place| i64::try_from(place + 1).ok());
            let mut row = self.names(catalog);
            row.push(("column_name", column.name.as_str().into()));
            row.push(("ordinal_position", place.into()));
            row.push(("position_in_unique_constraint", within.into()));
            rows.push(row);
        }
        rows
    }
}

fn yes_or_no(is: bool) -> &'static str {
    if is { "YES" } else { "NO" }
}
