//! The tables that a statement concerns: a parsed statement in, ids of tables out.
//!
//! A statement waits for a slow device, and tries blocked tables again, only if it concerns a table there. A table is
//! concerned if
//!
//! - the statement names it; a name that WITH gives to a query is not a table's;
//! - it names a view over it;
//! - a foreign key leads to it from a table that the statement changes: a table that new rows refer to, or one whose
//!   rows may refer to those that end.
//!
//! It is found only where there is a second device: a database without pays nothing for it.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use cleave_catalog::catalog::rules::KeyAction;
use cleave_catalog::catalog::{CatalogState, TableState};
use cleave_engine::storage_engine::patience::with_patience;
use cleave_sql::statement::alter::Action as AlterAction;
use cleave_sql::statement::copy::{Copy, CopySource};
use cleave_sql::statement::modify::{Action, Assignment};
use cleave_sql::statement::names::fold;
use cleave_sql::statement::parse::{Define, LockTable};
use cleave_sql::statement::properties::Rights;
use cleave_sql::statement::upsert::ConflictAction;
use cleave_sql::statement::{Insert, Modify, Statement, Vacuum};
use cleave_sql::visiting::{Visited, visit};
use cleave_store::TableSchema;
use datafusion::sql::sqlparser::ast::{self, Visitor};

use super::rights::named::{Named, read_name};
use super::{Session, foreign_key_rules};
use crate::database::Database;

/// Runs `work`, which is of a statement that concerns these tables. Blocked ones are tried again first.
pub(super) async fn patiently<T>(
    database: &Arc<Database>,
    concerned: Option<BTreeSet<u32>>,
    work: impl Future<Output = T>,
) -> T {
    let Some(tables) = concerned else { return work.await };
    database.retry_blocked(&tables).await;
    with_patience(database.patience_for(&tables), work).await
}

impl Session {
    /// The tables that `statement` concerns; None: it does not matter.
    pub(super) fn concerned(&self, statement: &Statement) -> Option<BTreeSet<u32>> {
        self.found(|found| found.note(statement))
    }

    /// The same of a query.
    pub(super) fn concerned_by(&self, query: &ast::Query) -> Option<BTreeSet<u32>> {
        self.found(|found| found.part(query))
    }

    /// The same of a load of rows into `table`.
    pub(super) fn concerned_by_load(&self, table: &str) -> Option<BTreeSet<u32>> {
        self.found(|found| found.change(table, (true, false), &[]))
    }

    fn found(&self, note: impl FnOnce(&mut Concerned<'_>)) -> Option<BTreeSet<u32>> {
        if !self.database.has_other_devices() {
            return None;
        }
        let state = self.names();
        let (names, changed) = (BTreeSet::new(), Vec::new());
        let mut found = Concerned { session: self, state: &state, names, changed };
        note(&mut found);
        Some(found.tables())
    }
}

struct Concerned<'a> {
    session: &'a Session,
    state: &'a CatalogState,
    names: BTreeSet<String>,
    /// Tables whose rows change.
    changed: Vec<Changed>,
}

/// A change of rows of a table.
struct Changed {
    table: String,
    /// Rows are added.
    begins: bool,
    /// Rows end.
    ends: bool,
    /// The only columns that change in existing rows.
    assigned: Vec<String>,
}

impl Concerned<'_> {
    fn note(&mut self, statement: &Statement) {
        match statement.properties().rights {
            Rights::OwnerOf(names) => self.names.extend(names.iter().cloned()),
            Rights::OwnerOfIndexes(names) => {
                let tables = names.iter().filter_map(|name| self.state.index(name));
                self.names.extend(tables.map(|(table, _)| table.schema.name.clone()));
            }
            _ => {}
        }
        match statement {
            Statement::Query(query) => self.part(query),
            Statement::Declare(declare) => self.part(&declare.query),
            Statement::Summary(summary) => self.part(&summary.query),
            Statement::Locking(locking) => self.part(&locking.query),
            Statement::LockedParts(parts) => self.note(&parts.plain),
            Statement::ChangingWith(with) => {
                let parts = with.parts.iter().chain([&with.main]);
                parts.for_each(|part| self.note(&part.statement));
            }
            Statement::Insert(insert) => self.insert(insert),
            Statement::Modify(modify) => self.modify(modify),
            Statement::Copy(copy) => match copy.as_ref() {
                Copy::From { table, .. } => self.change(table, (true, false), &[]),
                Copy::To { source: CopySource::Table { name, .. }, .. } => {
                    self.names.insert(name.clone());
                }
                Copy::To { source: CopySource::Query(query), .. } => self.part(query),
            },
            Statement::Batch(queries) => {
                queries.iter().for_each(|query| self.note(&query.statement));
            }
            Statement::Explain { statement, .. } => self.note(statement),
            Statement::Prepare(prepare) => self.note(&prepare.statement),
            Statement::Execute(execute) => {
                let prepared = self.session.prepared.statement(&execute.name);
                prepared.into_iter().for_each(|prepared| self.note(prepared));
            }
            Statement::Define(define) => self.define(define),
            Statement::Analyze(analyze) | Statement::Vacuum(Vacuum { analyze, .. }) => {
                self.names.extend(analyze.tables.iter().map(|table| table.name.clone()));
            }
            Statement::ShowStatistics { table } => self.names.extend(table.clone()),
            Statement::LockTable(LockTable { tables, .. }) => {
                self.names.extend(tables.iter().map(|(table, _)| table.clone()));
            }
            _ => {}
        }
    }

    fn define(&mut self, define: &Define) {
        match define {
            Define::Truncate(truncate) => self.names.extend(match truncate.cascade {
                true => foreign_key_rules::all_referring(self.state, &truncate.tables),
                false => truncate.tables.clone(),
            }),
            Define::CreateTableAs(create) => self.part(&create.query),
            Define::CreateView(create) => self.part(&create.query),
            Define::CreateMaterialized(create) => self.part(&create.query),
            Define::Refresh(refresh) => {
                self.names.insert(refresh.name.clone());
                if let Some(table) = self.state.table(&refresh.name)
                    && let Some(query) = &table.materialized
                {
                    let view = query.as_view(TableSchema::clone(&table.schema));
                    let below = self.state.schemas_of(&view);
                    self.names.extend(below.iter().map(|schema| schema.name.clone()));
                }
            }
            Define::AlterTable(alter) => {
                for action in &alter.actions {
                    match action {
                        AlterAction::AddForeignKey(key) => {
                            self.names.insert(key.target.clone());
                        }
                        AlterAction::AddColumn { foreign_keys, .. } => {
                            self.names.extend(foreign_keys.iter().map(|key| key.target.clone()));
                        }
                        AlterAction::Validate { .. } => {
                            self.change(&alter.table, (true, false), &[]);
                        }
                        _ => {}
                    }
                }
            }
            Define::DropView { .. }
            | Define::DropMaterialized { .. }
            | Define::PlaceTablets(_)
            | Define::RenameIndex { .. } => {}
        }
    }

    fn insert(&mut self, insert: &Insert) {
        if let Some(source) = &insert.source {
            self.part(source);
        }
        self.part(&insert.returning);
        self.change(&insert.table, (true, false), &[]);
        if let Some(on_conflict) = &insert.on_conflict
            && let ConflictAction::Update { assignments, selection } = &on_conflict.action
        {
            self.part(selection);
            self.change(&insert.table, (false, false), assignments);
        }
    }

    fn modify(&mut self, modify: &Modify) {
        let mut read = Read::default();
        read.enter(modify.with.as_ref());
        let _: ControlFlow<()> = visit(&modify.with, &mut read);
        let _: ControlFlow<()> = visit(&modify.from, &mut read);
        let _: ControlFlow<()> = visit(&modify.selection, &mut read);
        let _: ControlFlow<()> = visit(&modify.returning, &mut read);
        match &modify.action {
            Action::Delete => self.change(&modify.table, (false, true), &[]),
            Action::Update(assignments) => {
                for assignment in assignments {
                    let _: ControlFlow<()> = visit(&assignment.value, &mut read);
                }
                self.change(&modify.table, (false, false), assignments);
            }
        }
        self.names.append(&mut read.names);
    }

    fn change(&mut self, table: &str, (begins, ends): (bool, bool), assignments: &[Assignment]) {
        for assignment in assignments {
            self.part(&assignment.value);
        }
        self.names.insert(table.to_owned());
        let assigned = assignments.iter().map(|assignment| assignment.column.clone()).collect();
        self.changed.push(Changed { table: table.to_owned(), begins, ends, assigned });
    }

    fn part(&mut self, part: &impl Visited) {
        let mut read = Read::default();
        let _: ControlFlow<()> = visit(part, &mut read);
        self.names.append(&mut read.names);
    }

    /// The tables behind the names, and those that foreign keys lead to.
    fn tables(self) -> BTreeSet<u32> {
        let Self { state, names, changed, .. } = self;
        let is_named = |table: &&Arc<TableState>| names.contains(&table.schema.name);
        let mut found: BTreeSet<u32> =
            state.tables().filter(is_named).map(|table| table.schema.table_id).collect();
        for view in names.iter().filter_map(|name| state.view(name)) {
            found.extend(&view.depends);
        }
        let mut followed = BTreeSet::new();
        for change in &changed {
            let mut tables = state.tables();
            let Some(table) = tables.find(|table| table.schema.name == change.table) else {
                continue;
            };
            let is_assigned = |id: &u32| {
                let mut columns = table.schema.columns.iter().filter(|column| column.id == *id);
                columns.any(|column| change.assigned.contains(&column.name))
            };
            let own = table.rules.foreign_keys.iter();
            let own = own.filter(|key| change.begins || key.columns.iter().any(is_assigned));
            found.extend(own.map(|key| key.target));
            for (child, key) in state.references_to(table.schema.table_id) {
                let is_moved = key.target_columns.iter().any(is_assigned);
                if change.ends || is_moved {
                    found.insert(child.schema.table_id);
                    let action = if change.ends { key.on_delete } else { key.on_update };
                    follow(state, child, action, (&mut followed, &mut found));
                }
            }
        }
        found
    }
}

/// Adds what is concerned by `action` on rows of `table`.
fn follow(
    state: &CatalogState,
    table: &Arc<TableState>,
    action: KeyAction,
    (followed, found): (&mut BTreeSet<u32>, &mut BTreeSet<u32>),
) {
    let mut open = vec![(table, action)];
    while let Some((table, action)) = open.pop() {
        let changes = !matches!(action, KeyAction::NoAction | KeyAction::Restrict);
        if !changes || !followed.insert(table.schema.table_id) {
            continue;
        }
        found.extend(table.rules.foreign_keys.iter().map(|key| key.target));
        for (child, key) in state.references_to(table.schema.table_id) {
            found.insert(child.schema.table_id);
            open.extend([(child, key.on_delete), (child, key.on_update)]);
        }
    }
}

/// The tables that a part of a statement reads.
#[derive(Default)]
struct Read {
    names: BTreeSet<String>,
    /// The queries around, each with what its WITH names.
    around: Vec<Around>,
}

struct Around {
    /// The names, each with the place in memory of its query.
    named: Vec<(String, *const ast::Query)>,
    /// How many of them can be named already.
    visible: usize,
}

impl Read {
    fn enter(&mut self, with: Option<&ast::With>) {
        let listed = with.into_iter().flat_map(|with| &with.cte_tables);
        let named: Vec<(String, *const ast::Query)> =
            listed.map(|cte| (fold(&cte.alias.name), &raw const *cte.query)).collect();
        // WITH RECURSIVE may name all of them everywhere.
        let is_recursive = with.is_some_and(|with| with.recursive);
        let visible = if is_recursive { named.len() } else { 0 };
        self.around.push(Around { named, visible });
    }

    /// Whether WITH gives this name to a query.
    fn is_given(&self, name: &ast::ObjectName) -> bool {
        let [part] = name.0.as_slice() else { return false };
        let Some(name) = part.as_ident().map(fold) else { return false };
        let mut visible =
            self.around.iter().flat_map(|around| around.named.iter().take(around.visible));
        visible.any(|(given, _)| *given == name)
    }

    fn note(&mut self, name: &ast::ObjectName) {
        if !self.is_given(name) {
            self.names.extend(read_name(name));
        }
    }
}

impl Visitor for Read {
    type Break = ();

    fn pre_visit_query(&mut self, query: &ast::Query) -> ControlFlow<()> {
        self.enter(query.with.as_ref());
        if query.with.is_none() {
            self.see_body(query);
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &ast::Query) -> ControlFlow<()> {
        if query.with.is_some() {
            self.see_body(query);
        }
        self.around.pop();
        if let Some(around) = self.around.last_mut() {
            let place = around.named.iter().position(|(_, known)| std::ptr::eq(*known, query));
            if let Some(place) = place {
                around.visible = around.visible.max(place + 1);
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, name: &ast::ObjectName) -> ControlFlow<()> {
        self.note(name);
        ControlFlow::Continue(())
    }
}

impl Read {
    /// Notes the tables of `TABLE t` in the body of a query, which the visitor passes by.
    fn see_body(&mut self, query: &ast::Query) {
        let mut named = Named::default();
        named.note_tables(&query.body);
        named.relations.iter().for_each(|name| self.note(name));
    }
}
