//! The check of one statement: a statement in, whether a role may run it out, from its text. See [`super`].

use std::cell::RefCell;
use std::ops::ControlFlow;

use cleave_catalog::catalog::CatalogState;
use cleave_catalog::catalog::rights::{Object, ObjectKind, Privilege};
use cleave_catalog::catalog::view::{MadeOf, ViewState};
use cleave_catalog::error::Error;
use cleave_catalog::error::Result;
use cleave_catalog::identifiers::unqualified;
use cleave_query::file_tables;
use cleave_query::select::sequence_number;
use cleave_sql::statement::alter;
use cleave_sql::statement::catalog_tables::numbers::sequence_of_number;
use cleave_sql::statement::copy::{Copy, CopyEnd, CopySource};
use cleave_sql::statement::files::is_file;
use cleave_sql::statement::locking::Locking;
use cleave_sql::statement::modify::{Action, Assignment};
use cleave_sql::statement::parse::{Define, LockTable};
use cleave_sql::statement::properties::Rights;
use cleave_sql::statement::sequence::{SequenceOptions, SequenceStatement};
use cleave_sql::statement::upsert::ConflictAction;
use cleave_sql::statement::{Insert, Modify, Statement, Vacuum, parse_script};
use cleave_store::TableSchema;
use cleave_txn::LockMode;
use datafusion::sql::sqlparser::ast;

use super::Found;
use super::named::{Call, Named, Words, note, read_name, secret, top_tables};
use crate::session::grants::{Known, denied, not_owner, relation};
use crate::session::roles::refused;
use crate::session::sequences::owned_by;
use crate::session::{Session, foreign_key_rules};
use cleave_sql::visiting::visit;

/// The checked role and the catalog versions of the check.
pub(super) struct Check<'a> {
    pub(super) session: &'a Session,
    /// The catalog version that the statement reads: its tables are found there.
    pub(super) read: &'a CatalogState,
    /// The newest committed one with the block's definitions: its rights count, and changed objects are found there.
    pub(super) newest: &'a CatalogState,
    pub(super) role: u32,
    /// The role that runs the statement and so calls its functions, also those of views.
    pub(super) caller: u32,
    /// The view whose query is checked.
    pub(super) view: Option<&'a ViewState>,
    /// The objects that the names stand for.
    pub(super) found: &'a RefCell<Found>,
}

/// Which columns of a table a statement uses.
pub(super) enum Used<'a> {
    /// Every one.
    All,
    /// These, by name; none given: no column in particular.
    Listed(&'a [String]),
    /// Those whose names occur in here.
    Words(&'a Words),
    /// Any one: a privilege on one column is enough.
    Any,
}

impl Check<'_> {
    pub(super) fn statement(&self, statement: &Statement) -> Result<()> {
        let properties = statement.properties();
        match properties.rights {
            Rights::Itself => Ok(()),
            Rights::Named => self.named_in(statement, properties.name),
            Rights::OwnerOf(names) => {
                names.iter().try_for_each(|name| self.owner(name))?;
                match names_new(statement) {
                    true => names.iter().try_for_each(|name| self.beside(name)),
                    false => Ok(()),
                }
            }
            Rights::OwnerOfIndexes(names) => {
                names.iter().try_for_each(|name| self.index_owner(name))?;
                let tables = names.iter().filter_map(|name| self.newest.index(name));
                let mut tables = tables.filter(|_| names_new(statement));
                tables.try_for_each(|(table, _)| self.beside(&table.schema.name))
            }
            Rights::Create => self.within(ObjectKind::Schema, Privilege::Create),
            Rights::CreateTemporary => self.within(ObjectKind::Database, Privilege::Temporary),
            Rights::Superuser(what, hint) => self.superuser(what, hint),
        }
    }

    /// Refuses what only superusers may run.
    fn superuser(&self, what: &str, hint: Option<&str>) -> Result<()> {
        match self.is_superuser() {
            true => Ok(()),
            false => Err(superuser(what, hint)),
        }
    }

    /// A statement that needs rights on what it names.
    fn named_in(&self, statement: &Statement, name: &str) -> Result<()> {
        use Privilege::{Create, Delete, Insert, Select, Temporary, Truncate, Update};
        match statement {
            Statement::Query(query) => self.query(query),
            Statement::Declare(declare) => self.query(&declare.query),
            Statement::Summary(summary) => self.query(&summary.query),
            Statement::Locking(locking) => self.locking(locking),
            Statement::LockedParts(parts) => {
                self.statement(&parts.plain)?;
                parts.parts.iter().try_for_each(|part| self.locking(part))
            }
            Statement::ChangingWith(with) => {
                let parts = with.parts.iter().chain([&with.main]);
                parts.map(|part| &part.statement).try_for_each(|part| self.statement(part))
            }
            Statement::Insert(insert) => self.insert(insert),
            Statement::Modify(modify) => self.modify(modify),
            Statement::Copy(copy) => self.copy(copy),
            Statement::Explain { statement, .. } => match statement.as_ref() {
                Statement::Execute(execute) => {
                    self.values(&execute.values)?;
                    match self.session.prepared.statement(&execute.name) {
                        Some(prepared) => self.statement(prepared),
                        None => Ok(()),
                    }
                }
                statement => self.statement(statement),
            },
            // The inner statement is checked when it runs.
            Statement::Execute(execute) => self.values(&execute.values),
            Statement::Sequence(sequence) => match sequence.as_ref() {
                SequenceStatement::Create { options, .. } => {
                    self.within(ObjectKind::Schema, Create)?;
                    self.owned_by(options)
                }
                SequenceStatement::Alter { name, options, .. } => {
                    self.owner(name)?;
                    self.owned_by(options)
                }
                SequenceStatement::Rename { .. } | SequenceStatement::Drop { .. } => {
                    self.superuser(name, None)
                }
            },
            Statement::Define(define) => match define.as_ref() {
                Define::Truncate(truncate) => {
                    let tables = match truncate.cascade {
                        true => foreign_key_rules::all_referring(
                            &self.session.names(),
                            &truncate.tables,
                        ),
                        false => truncate.tables.clone(),
                    };
                    for table in &tables {
                        self.target(table, Truncate, &Used::All)?;
                        if truncate.restart_identity {
                            self.owner_of_sequences(table)?;
                        }
                    }
                    Ok(())
                }
                Define::CreateTableAs(create) => {
                    self.query(&create.query)?;
                    match create.temporary {
                        Some(_) => self.within(ObjectKind::Database, Temporary),
                        None => self.within(ObjectKind::Schema, Create),
                    }
                }
                Define::CreateView(create) => {
                    if create.or_replace && self.newest.view(&create.name).is_some() {
                        self.owner(&create.name)?;
                    }
                    self.within(ObjectKind::Schema, Create)
                }
                Define::CreateMaterialized(create) => {
                    self.query(&create.query)?;
                    self.within(ObjectKind::Schema, Create)
                }
                Define::Refresh(refresh) => {
                    self.owner(&refresh.name)?;
                    self.refreshed(&refresh.name)
                }
                _ => self.superuser(name, None),
            },
            Statement::Analyze(analyze) | Statement::Vacuum(Vacuum { analyze, .. }) => {
                analyze.tables.iter().try_for_each(|table| self.owner(&table.name))
            }
            Statement::ShowStatistics { table: Some(table) } => {
                self.target(table, Select, &Used::All)
            }
            Statement::LockTable(LockTable { tables, mode, .. }) => {
                let enough: &[Privilege] = match mode {
                    LockMode::AccessShare => &[Select],
                    LockMode::RowExclusive => &[Insert, Update, Delete, Truncate],
                    _ => &[Update, Delete, Truncate],
                };
                for (table, _) in tables {
                    let may = |one: &Privilege| self.target(table, *one, &Used::All).is_ok();
                    if !enough.iter().any(may) {
                        let needed = enough.first().copied().unwrap_or(Update);
                        self.target(table, needed, &Used::All)?;
                    }
                }
                Ok(())
            }
            // A statement not known to need less.
            _ => self.superuser(name, None),
        }
    }

    /// A query that locks rows.
    fn locking(&self, locking: &Locking) -> Result<()> {
        self.query(&locking.query)?;
        let is_meant = |called: &String| {
            let mut lists = locking.clauses.iter().map(|clause| &clause.of);
            lists.any(|of| of.is_empty() || of.contains(called))
        };
        let tables = top_tables(&locking.query).into_iter();
        tables
            .filter(|(called, _)| is_meant(called))
            .try_for_each(|(_, table)| self.target(&table, Privilege::Update, &Used::Any))
    }

    /// A query: everything that it reads.
    pub(super) fn query(&self, query: &ast::Query) -> Result<()> {
        let mut named = Named::default();
        let _: ControlFlow<()> = visit(query, &mut named);
        self.named(&named, &|| query.to_string())
    }

    /// Values that name no table.
    pub(super) fn values(&self, values: &[ast::Expr]) -> Result<()> {
        let mut named = Named::default();
        let _: ControlFlow<()> = values.iter().try_for_each(|value| visit(value, &mut named));
        named.calls.iter().try_for_each(|call| self.call(call))
    }

    /// Everything in a statement, whose text is `text`.
    fn named(&self, named: &Named, text: &dyn Fn() -> String) -> Result<()> {
        for call in &named.calls {
            self.call(call)?;
        }
        let mut words = None;
        for name in &named.relations {
            if is_file(name) {
                self.files("a query of files of the server")?;
                continue;
            }
            if let Some(what) = secret(name).filter(|_| !self.is_superuser()) {
                return Err(refused(&format!("permission denied for table {what}")));
            }
            let Some(table) = read_name(name) else { continue };
            if self.relation(&table, Privilege::Select, &Used::All).is_err() {
                let words = words.get_or_insert_with(|| Words::of(&text(), named.renames));
                self.relation(&table, Privilege::Select, &Used::Words(words))?;
            }
            self.view(&table)?;
        }
        Ok(())
    }

    /// What the view `name` reads, which its owner must be allowed to read. Nothing if it is no view.
    fn view(&self, name: &str) -> Result<()> {
        match self.find(name) {
            Some(Known { view: Some(view), .. }) => self.rows_of(view),
            _ => Ok(()),
        }
    }

    /// What a refresh of the materialized view `name` reads, which its owner must be allowed to read.
    fn refreshed(&self, name: &str) -> Result<()> {
        let Some(table) = self.newest.table(name) else { return Ok(()) };
        let Some(query) = &table.materialized else { return Ok(()) };
        self.rows_of(&query.as_view(TableSchema::clone(&table.schema)))
    }

    /// What `view` reads.
    pub(super) fn rows_of(&self, view: &ViewState) -> Result<()> {
        let id = view.schema.table_id;
        self.found.borrow_mut().views.insert(id, view.schema.version);
        let owner = match self.session.defined().is_temporary(id) {
            true => self.caller,
            false => self.newest.rights.owner(Object::Relation(id)),
        };
        let has_views = || {
            let mut views = self.read.views();
            views.any(|below| view.depends.contains(&below.schema.table_id))
        };
        // Nothing else in it could be refused.
        if self.newest.rights.is_superuser(owner) && !calls_sequences(&view.query) && !has_views() {
            return Ok(());
        }
        let parsed = parse_script(&view.query)?;
        let check = Check { role: owner, view: Some(view), ..*self };
        parsed.iter().try_for_each(|parsed| check.statement(&parsed.statement))
    }

    fn insert(&self, insert: &Insert) -> Result<()> {
        self.target(&insert.table, Privilege::Insert, &Used::Listed(&insert.columns))?;
        if let Some(source) = &insert.source {
            self.query(source)?;
        }
        let mut named = Named::default();
        let mut text = String::new();
        note(&insert.returning, &mut named, &mut text);
        if let Some(on_conflict) = &insert.on_conflict
            && let ConflictAction::Update { assignments, selection } = &on_conflict.action
        {
            self.assignments(&insert.table, assignments, &mut named, &mut text)?;
            note(selection, &mut named, &mut text);
            // Existing rows are read, to be updated.
            self.target(&insert.table, Privilege::Select, &Used::Any)?;
        }
        self.parts(&insert.table, &named, &text)
    }

    fn modify(&self, modify: &Modify) -> Result<()> {
        let mut named = Named::default();
        let mut text = String::new();
        match &modify.action {
            Action::Delete => self.target(&modify.table, Privilege::Delete, &Used::All)?,
            Action::Update(assignments) => {
                self.assignments(&modify.table, assignments, &mut named, &mut text)?;
            }
        }
        note(&modify.with, &mut named, &mut text);
        note(&modify.from, &mut named, &mut text);
        note(&modify.selection, &mut named, &mut text);
        note(&modify.returning, &mut named, &mut text);
        self.parts(&modify.table, &named, &text)
    }

    fn assignments(
        &self,
        table: &str,
        assignments: &[Assignment],
        named: &mut Named,
        text: &mut String,
    ) -> Result<()> {
        let columns: Vec<String> =
            assignments.iter().map(|assignment| assignment.column.clone()).collect();
        self.target(table, Privilege::Update, &Used::Listed(&columns))?;
        for assignment in assignments {
            note(&assignment.value, named, text);
        }
        Ok(())
    }

    /// The other parts of a statement on rows of `table`: `text` is all of it.
    fn parts(&self, table: &str, named: &Named, text: &str) -> Result<()> {
        let words = Words::of(text, named.renames);
        let reads = |state| {
            let schema = relation(state, table).and_then(|known| known.schema);
            schema.is_some_and(|schema| !words.used(schema).is_empty())
        };
        if reads(self.read) || reads(self.newest) {
            self.target(table, Privilege::Select, &Used::Words(&words))?;
        }
        self.named(named, &|| text.to_owned())
    }

    fn copy(&self, copy: &Copy) -> Result<()> {
        let (Copy::From { end, .. } | Copy::To { end, .. }) = copy;
        if matches!(end, CopyEnd::File(_)) {
            self.files("COPY of a file of the server")?;
        }
        match copy {
            Copy::From { table, columns, .. } => {
                self.target(table, Privilege::Insert, &Used::Listed(columns))
            }
            Copy::To { source: CopySource::Table { name, columns }, .. } => {
                self.relation(name, Privilege::Select, &Used::Listed(columns))?;
                self.view(name)
            }
            Copy::To { source: CopySource::Query(query), .. } => self.query(query),
        }
    }

    /// Files of this machine that a statement names.
    fn files(&self, what: &str) -> Result<()> {
        file_tables::check_may(&self.session.settings.client, &self.newest.rights, what)
    }

    /// The object that the statement calls `name`, in what it reads.
    fn find(&self, name: &str) -> Option<Known<'_>> {
        if let Some(view) = self.view {
            return match self.read.made_of(view, name)? {
                MadeOf::Table(table) => Some(Known::of_table(&table.schema)),
                MadeOf::View(view) => Some(Known::of_view(view)),
            };
        }
        let known = relation(self.read, name);
        let mut found = self.found.borrow_mut();
        found.names.insert(name.to_owned(), known.as_ref().and_then(Known::version));
        known
    }

    /// The privilege on a table, view or sequence that is read. A missing object is reported elsewhere.
    fn relation(&self, name: &str, privilege: Privilege, used: &Used<'_>) -> Result<()> {
        self.find(name).map_or(Ok(()), |known| self.may(name, known, privilege, used))
    }

    /// The same for one that is changed or locked: it is found in the newest catalog version, and its rows in what the
    /// statement reads.
    pub(super) fn target(&self, name: &str, privilege: Privilege, used: &Used<'_>) -> Result<()> {
        self.relation(name, privilege, used)?;
        if std::ptr::eq(self.read, self.newest) {
            return Ok(());
        }
        let newest = relation(self.newest, name);
        newest.map_or(Ok(()), |known| self.may(name, known, privilege, used))
    }

    fn is_superuser(&self) -> bool {
        self.newest.rights.is_superuser(self.role)
    }

    /// Whether the object `id` still exists. The rights on a dropped one are unknown: only superusers read it.
    fn is_known(&self, id: u32) -> bool {
        std::ptr::eq(self.read, self.newest) || self.newest.has_relation(id)
    }

    fn may(
        &self,
        name: &str,
        Known { object, mut kind, schema, .. }: Known<'_>,
        privilege: Privilege,
        used: &Used<'_>,
    ) -> Result<()> {
        let Object::Relation(id) = object else { return Ok(()) };
        let rights = &self.newest.rights;
        if self.session.defined().is_temporary(id) || self.is_superuser() {
            return Ok(());
        }
        let is_known = self.is_known(id);
        if is_known && rights.may(self.role, object, privilege) {
            return Ok(());
        }
        if kind == ObjectKind::Sequence && privilege != Privilege::Select {
            kind = ObjectKind::Table;
        }
        let Some(schema) = schema else { return Err(denied(kind, name)) };
        let may = |column: u32| rights.may_column(self.role, object, privilege, column);
        let is_allowed = is_known
            && rights.may_some(self.role, object, privilege)
            && match used {
                Used::Any => true,
                Used::All | Used::Listed([]) => schema.columns.iter().all(|column| may(column.id)),
                Used::Listed(names) => {
                    let listed = schema.columns.iter();
                    let mut listed = listed.filter(|column| names.contains(&column.name));
                    listed.all(|column| may(column.id))
                }
                Used::Words(words) => words.used(schema).into_iter().all(may),
            };
        // TRUNCATE and DELETE work on rows; such privileges are granted on no column.
        match is_allowed && !matches!(privilege, Privilege::Delete | Privilege::Truncate) {
            true => Ok(()),
            false => Err(denied(kind, name)),
        }
    }

    /// Checks that a table, view or sequence is the role's.
    fn owner(&self, name: &str) -> Result<()> {
        let known = relation(self.newest, name);
        let version = known.as_ref().and_then(Known::version);
        self.found.borrow_mut().names.insert(name.to_owned(), version);
        let Some(known) = known else { return Ok(()) };
        let is_own =
            matches!(known.object, Object::Relation(id) if self.session.defined().is_temporary(id));
        match is_own || self.newest.rights.owns(self.role, known.object) {
            true => Ok(()),
            false => Err(not_owner(known.kind, name)),
        }
    }

    /// Checks that the role may give something a name beside the table, view or sequence `name`.
    fn beside(&self, name: &str) -> Result<()> {
        match relation(self.newest, name).map(|known| known.object) {
            Some(Object::Relation(id)) if self.session.defined().is_temporary(id) => Ok(()),
            _ => self.within(ObjectKind::Schema, Privilege::Create),
        }
    }

    /// The same of the table of an index.
    fn index_owner(&self, name: &str) -> Result<()> {
        match self.newest.index(name) {
            Some((table, _)) => {
                let owner = self.owner(&table.schema.name);
                owner.map_err(|_| refused(&format!("must be owner of index {name}")))
            }
            None => Ok(()),
        }
    }

    /// Checks that the role owns the table of the column in OWNED BY: whoever may write to that table gets the numbers
    /// from then on.
    fn owned_by(&self, options: &SequenceOptions) -> Result<()> {
        match &options.owner {
            Some(Some((table, _))) => self.owner(table),
            _ => Ok(()),
        }
    }

    /// Checks that the role owns the sequences that restart with the table `name`.
    fn owner_of_sequences(&self, name: &str) -> Result<()> {
        let Some(table) = self.newest.table(name) else { return Ok(()) };
        let mut own = owned_by(self.newest, table.schema.table_id);
        own.try_for_each(|sequence| self.owner(&sequence.name))
    }

    /// A privilege on the schema or the database.
    fn within(&self, kind: ObjectKind, privilege: Privilege) -> Result<()> {
        let (object, name) = match kind {
            ObjectKind::Database => {
                (Object::Database, self.session.settings.client.database.as_str())
            }
            _ => (Object::Schema, "public"),
        };
        match self.newest.rights.may(self.role, object, privilege) {
            true => Ok(()),
            false => Err(denied(kind, name)),
        }
    }

    /// A call of a sequence function with a constant. The function itself checks what a computed name stands for.
    fn call(&self, call: &Call) -> Result<()> {
        let enough: &[Privilege] = match call.function {
            "nextval" => &[Privilege::Usage, Privilege::Update],
            "currval" => &[Privilege::Usage, Privilege::Select],
            _ => &[Privilege::Update],
        };
        let rights = &self.newest.rights;
        if rights.is_superuser(self.caller) {
            return Ok(());
        }
        let written = call.sequence.as_deref();
        let number = written.and_then(sequence_number);
        let name = written.and_then(unqualified);
        // A text that looks like a number may be a name.
        let named = name.as_ref().and_then(|name| self.read.sequences.get(name));
        let numbered = number.and_then(|number| sequence_of_number(self.read, number));
        if let Some(name) = name {
            let id = named.map(|sequence| sequence.id);
            self.found.borrow_mut().sequences.insert(name, id);
        }
        for sequence in named.into_iter().chain(numbered) {
            let (id, object) = (sequence.id, Object::Relation(sequence.id));
            let may = |one: &Privilege| self.is_known(id) && rights.may(self.caller, object, *one);
            if !enough.iter().any(may) && !self.session.defined().is_temporary(id) {
                return Err(denied(ObjectKind::Sequence, &sequence.name));
            }
        }
        Ok(())
    }
}

/// Whether a statement on its role's own objects gives something in their schema a new name.
fn names_new(statement: &Statement) -> bool {
    match statement {
        Statement::CreateIndex(_) => true,
        Statement::Sequence(sequence) => {
            matches!(**sequence, SequenceStatement::Rename { .. })
        }
        Statement::Define(define) => match &**define {
            Define::RenameIndex { .. } => true,
            Define::AlterTable(alter) => alter.actions.iter().any(|action| {
                matches!(action, alter::Action::RenameTable { .. } | alter::Action::AddKey { .. })
            }),
            _ => false,
        },
        _ => false,
    }
}

/// Whether `text` may call a sequence function.
fn calls_sequences(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    ["nextval", "currval", "setval"].into_iter().any(|name| text.contains(name))
}

fn superuser(what: &str, hint: Option<&str>) -> Error {
    let hint = hint.map_or_else(String::new, |hint| format!(": {hint}"));
    refused(&format!("must be superuser to run {what}{hint}"))
}
