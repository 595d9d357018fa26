//! Whether a session may do what a statement says: asked of every statement before it does anything, and of a prepared one
//! whenever roles or rights are others than when it was asked last.
//!
//! 1. [`Session::check_rights`] takes a statement. A session that acts as a superuser is not asked.
//! 2. [`Check`] finds the tables, views and sequences that it names ([`Named`]) and asks [`Rights`] for each.
//! 3. Of a view it asks further, what its query reads, as the view's owner.
//!
//! Where a role has privileges on some columns of a table alone, each column of a name that stands anywhere in the statement
//! counts as used, and all of them do where it says `*`. So a statement may be refused that PostgreSQL lets through; none is let
//! through that PostgreSQL refuses. For the same reason a name counts as a table's also where WITH gives it to a query.
//!
//! Source: PostgreSQL's manual, "Privileges" and "Rules and Privileges"; decision 0070.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use cleave_store::TableSchema;
use cleave_txn::LockMode;
use datafusion::sql::sqlparser::ast::{self, Visit, Visitor};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

use super::Session;
use super::grants::{Known, denied, not_owner, relation};
use super::roles::refused;
use crate::catalog::CatalogState;
use crate::catalog::rights::{Object, ObjectKind, Privilege, Rights};
use crate::error::{Error, Result};
use crate::sequences::unqualified;
use crate::statement::copy::{Copy, CopyEnd, CopySource};
use crate::statement::locking::Locking;
use crate::statement::modify::{Action, Assignment};
use crate::statement::names::{fold, table_name};
use crate::statement::parse::{Define, LockTable};
use crate::statement::sequence::SequenceStatement;
use crate::statement::upsert::ConflictAction;
use crate::statement::{Insert, Modify, Statement, Vacuum, parse_script};

/// That a session may do something, under these rights and as this role.
#[derive(Debug, Clone)]
pub(super) struct Allowed {
    rights: Arc<Rights>,
    role: u32,
}

impl Session {
    /// The role that is to be asked about; None: a superuser.
    fn asked_role(&self, rights: &Rights) -> Option<u32> {
        self.settings.client.acting.role.filter(|role| !rights.is_superuser(*role))
    }

    /// Refuses a statement that the session may not run.
    ///
    /// # Errors
    /// [`Error::Invalid`] of [`Fault::Rights`](crate::error::Fault::Role(RoleFault::Rights)).
    pub(super) fn check_rights(&self, statement: &Statement) -> Result<()> {
        if self.settings.client.acting.role.is_none() {
            return Ok(());
        }
        let state = self.names();
        match self.asked_role(&state.rights) {
            Some(role) => Check { session: self, state: &state, role }.statement(statement),
            None => Ok(()),
        }
    }

    /// The same of a query.
    ///
    /// # Errors
    /// As [`Session::check_rights`].
    pub(super) fn check_query_rights(&self, query: &ast::Query) -> Result<()> {
        if self.settings.client.acting.role.is_none() {
            return Ok(());
        }
        let state = self.names();
        match self.asked_role(&state.rights) {
            Some(role) => Check { session: self, state: &state, role }.query(query),
            None => Ok(()),
        }
    }

    /// The same of a statement that was `allowed` before; what is to be remembered of it.
    ///
    /// # Errors
    /// As [`Session::check_rights`].
    pub(super) fn check_again(
        &self,
        statement: &Statement,
        allowed: Option<&Allowed>,
    ) -> Result<Option<Allowed>> {
        let Some(role) = self.settings.client.acting.role else { return Ok(None) };
        let state = self.names();
        let is_same =
            |allowed: &Allowed| allowed.role == role && Arc::ptr_eq(&allowed.rights, &state.rights);
        if allowed.is_some_and(is_same) {
            return Ok(None);
        }
        self.check_rights(statement)?;
        Ok(Some(Allowed { rights: Arc::clone(&state.rights), role }))
    }

    /// Whether the session may read all of the table `id` of `state`.
    pub(super) fn may_read(&self, state: &CatalogState, id: u32) -> bool {
        self.settings.client.acting.role.is_none_or(|role| {
            state.rights.may(role, Object::Relation(id), Privilege::Select)
                || self.defined().is_temporary(id)
        })
    }

    /// Refuses what needs `privilege` on `table`, where the session has it not.
    ///
    /// # Errors
    /// As [`Session::check_rights`].
    pub(super) fn check_may(&self, privilege: Privilege, table: &str) -> Result<()> {
        let state = self.names();
        match self.asked_role(&state.rights) {
            Some(role) => {
                let check = Check { session: self, state: &state, role };
                check.relation(table, privilege, &Used::All)
            }
            None => Ok(()),
        }
    }
}

/// Who is asked about, on what.
struct Check<'a> {
    session: &'a Session,
    state: &'a CatalogState,
    role: u32,
}

/// Which columns of a table a statement uses.
enum Used<'a> {
    /// Every one.
    All,
    /// These, by name; none: as many as one likes.
    Listed(&'a [String]),
    /// Those whose names stand in here.
    Words(&'a Words),
    /// It does not matter which: one is enough.
    Any,
}

impl Check<'_> {
    fn statement(&self, statement: &Statement) -> Result<()> {
        use Privilege::{Create, Delete, Insert, Select, Temporary, Truncate, Update};
        match statement {
            Statement::Query(query) => self.query(query),
            Statement::Declare(declare) => self.query(&declare.query),
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
                Statement::Execute(execute) => match self.session.prepared.statement(&execute.name)
                {
                    Some(prepared) => self.statement(prepared),
                    None => Ok(()),
                },
                statement => self.statement(statement),
            },
            Statement::CreateTable(create) => match create.temporary {
                Some(_) => self.within(ObjectKind::Database, Temporary),
                None => self.within(ObjectKind::Schema, Create),
            },
            Statement::DropTable { names, .. } => {
                names.iter().try_for_each(|name| self.owner(name))
            }
            Statement::CreateIndex(create) => self.owner(&create.table),
            Statement::DropIndex { names, .. } => {
                names.iter().try_for_each(|name| self.index_owner(name))
            }
            Statement::Sequence(sequence) => match sequence.as_ref() {
                SequenceStatement::Create { .. } => self.within(ObjectKind::Schema, Create),
                SequenceStatement::Alter { name, .. } => self.owner(name),
                SequenceStatement::Drop { names, .. } => {
                    names.iter().try_for_each(|name| self.owner(name))
                }
            },
            Statement::Define(define) => match define.as_ref() {
                Define::Truncate(truncate) => {
                    let tables = match truncate.cascade {
                        true => self.session.all_referring(&truncate.tables),
                        false => truncate.tables.clone(),
                    };
                    tables.iter().try_for_each(|table| self.relation(table, Truncate, &Used::All))
                }
                Define::CreateTableAs(create) => {
                    self.query(&create.query)?;
                    match create.temporary {
                        Some(_) => self.within(ObjectKind::Database, Temporary),
                        None => self.within(ObjectKind::Schema, Create),
                    }
                }
                Define::CreateView(create) if create.is_temporary => {
                    self.within(ObjectKind::Database, Temporary)
                }
                Define::CreateView(create) => {
                    if create.or_replace && self.state.view(&create.name).is_some() {
                        self.owner(&create.name)?;
                    }
                    self.within(ObjectKind::Schema, Create)
                }
                Define::DropView { names, .. } => {
                    names.iter().try_for_each(|name| self.owner(name))
                }
                Define::AlterTable(alter) => self.owner(&alter.table),
                Define::RenameIndex { from, .. } => self.index_owner(from),
            },
            Statement::Analyze(analyze) | Statement::Vacuum(Vacuum { analyze, .. }) => {
                if analyze.tables.is_empty() {
                    let what = "VACUUM and ANALYZE of all tables";
                    return Err(superuser(what, Some("name those that are yours")));
                }
                analyze.tables.iter().try_for_each(|table| self.owner(&table.name))
            }
            Statement::ShowStatistics { table } => match table {
                Some(table) => self.relation(table, Select, &Used::All),
                None => Err(superuser("SHOW STATISTICS of all tables", Some("name one"))),
            },
            Statement::LockTable(LockTable { tables, mode, .. }) => {
                let enough: &[Privilege] = match mode {
                    LockMode::AccessShare => &[Select, Insert, Update, Delete, Truncate],
                    LockMode::RowExclusive | LockMode::RowShare => {
                        &[Insert, Update, Delete, Truncate]
                    }
                    _ => &[Update, Delete, Truncate],
                };
                for (table, _) in tables {
                    let may = |one: &&Privilege| self.relation(table, **one, &Used::All).is_ok();
                    if !enough.iter().any(|one| may(&one)) {
                        self.relation(table, Update, &Used::All)?;
                    }
                }
                Ok(())
            }
            Statement::Checkpoint => Err(superuser("CHECKPOINT", None)),
            Statement::System(_) => Err(superuser("ALTER SYSTEM and BACKUP", None)),
            // Asked about when it runs.
            Statement::Prepare(_) | Statement::Execute(_) | Statement::Deallocate { .. } => Ok(()),
            // They ask themselves, or touch nothing that has rights.
            Statement::Role(_)
            | Statement::Comment(_)
            | Statement::Show { .. }
            | Statement::ShowAll
            | Statement::ShowTables
            | Statement::Set { .. }
            | Statement::ResetAll
            | Statement::Discard(_)
            | Statement::Nothing { .. }
            | Statement::Begin(_)
            | Statement::SetConstraints(_)
            | Statement::SetTransaction(_)
            | Statement::SetCharacteristics(_)
            | Statement::Commit
            | Statement::Rollback
            | Statement::Fetch(_)
            | Statement::CloseCursor { .. }
            | Statement::Savepoint { .. }
            | Statement::RollbackTo { .. }
            | Statement::Release { .. } => Ok(()),
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
            .try_for_each(|(_, table)| self.relation(&table, Privilege::Update, &Used::Any))
    }

    /// A query: all that it reads.
    fn query(&self, query: &ast::Query) -> Result<()> {
        let mut named = Named::default();
        let _: ControlFlow<()> = query.visit(&mut named);
        self.named(&named, &|| query.to_string())
    }

    /// All that stands in a statement, whose text is `text`.
    fn named(&self, named: &Named, text: &dyn Fn() -> String) -> Result<()> {
        for call in &named.calls {
            self.call(call)?;
        }
        let mut words = None;
        for name in &named.relations {
            if let Some(what) = secret(name) {
                return Err(refused(&format!("permission denied for table {what}")));
            }
            let Ok(table) = table_name(name) else { continue };
            if self.relation(&table, Privilege::Select, &Used::All).is_err() {
                let words = words.get_or_insert_with(|| Words::of(&text(), named.renames));
                self.relation(&table, Privilege::Select, &Used::Words(words))?;
            }
            self.view(&table)?;
        }
        Ok(())
    }

    /// What the view `name` reads, which its owner must be allowed to. Nothing where it is no view.
    fn view(&self, name: &str) -> Result<()> {
        let Some(view) = self.state.view(name) else { return Ok(()) };
        let id = view.schema.table_id;
        let owner = match self.session.defined().is_temporary(id) {
            true => self.role,
            false => self.state.rights.owner(Object::Relation(id)),
        };
        if self.state.rights.is_superuser(owner) {
            return Ok(());
        }
        let parsed = parse_script(&view.query)?;
        let check = Check { role: owner, ..*self };
        parsed.iter().try_for_each(|parsed| check.statement(&parsed.statement))
    }

    fn insert(&self, insert: &Insert) -> Result<()> {
        self.relation(&insert.table, Privilege::Insert, &Used::Listed(&insert.columns))?;
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
            // What is there is read, to be updated.
            self.relation(&insert.table, Privilege::Select, &Used::Any)?;
        }
        self.parts(&insert.table, &named, &text)
    }

    fn modify(&self, modify: &Modify) -> Result<()> {
        let mut named = Named::default();
        let mut text = String::new();
        match &modify.action {
            Action::Delete => self.relation(&modify.table, Privilege::Delete, &Used::All)?,
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
        self.relation(table, Privilege::Update, &Used::Listed(&columns))?;
        for assignment in assignments {
            note(&assignment.value, named, text);
        }
        Ok(())
    }

    /// What a statement on rows of `table` has beside what it does: `text` is all of it.
    fn parts(&self, table: &str, named: &Named, text: &str) -> Result<()> {
        let words = Words::of(text, named.renames);
        let reads = relation(self.state, table)
            .and_then(|known| known.schema)
            .is_some_and(|schema| !words.used(schema).is_empty());
        if reads {
            self.relation(table, Privilege::Select, &Used::Words(&words))?;
        }
        self.named(named, &|| text.to_owned())
    }

    fn copy(&self, copy: &Copy) -> Result<()> {
        let (Copy::From { end, .. } | Copy::To { end, .. }) = copy;
        if matches!(end, CopyEnd::File(_)) {
            return Err(superuser("COPY of a file of the server", Some("use STDIN or STDOUT")));
        }
        match copy {
            Copy::From { table, columns, .. } => {
                self.relation(table, Privilege::Insert, &Used::Listed(columns))
            }
            Copy::To { source: CopySource::Table { name, columns }, .. } => {
                self.relation(name, Privilege::Select, &Used::Listed(columns))?;
                self.view(name)
            }
            Copy::To { source: CopySource::Query(query), .. } => self.query(query),
        }
    }

    /// The privilege on a table, view or sequence. What there is not is another one's matter.
    fn relation(&self, name: &str, privilege: Privilege, used: &Used<'_>) -> Result<()> {
        let Some(Known { object, mut kind, schema, .. }) = relation(self.state, name) else {
            return Ok(());
        };
        let Object::Relation(id) = object else { return Ok(()) };
        let rights = &self.state.rights;
        if self.session.defined().is_temporary(id) || rights.may(self.role, object, privilege) {
            return Ok(());
        }
        if kind == ObjectKind::Sequence && privilege != Privilege::Select {
            kind = ObjectKind::Table;
        }
        let Some(schema) = schema else { return Err(denied(kind, name)) };
        let may = |column: u32| rights.may_column(self.role, object, privilege, column);
        let is_allowed = rights.may_some(self.role, object, privilege)
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
        // What TRUNCATE and DELETE do is done to rows, and the like is granted on no column.
        match is_allowed && !matches!(privilege, Privilege::Delete | Privilege::Truncate) {
            true => Ok(()),
            false => Err(denied(kind, name)),
        }
    }

    /// That a table, view or sequence is the role's.
    fn owner(&self, name: &str) -> Result<()> {
        let Some(known) = relation(self.state, name) else { return Ok(()) };
        let is_own =
            matches!(known.object, Object::Relation(id) if self.session.defined().is_temporary(id));
        match is_own || self.state.rights.owns(self.role, known.object) {
            true => Ok(()),
            false => Err(not_owner(known.kind, name)),
        }
    }

    /// The same of the table of an index.
    fn index_owner(&self, name: &str) -> Result<()> {
        match self.state.index(name) {
            Some((table, _)) => {
                let owner = self.owner(&table.schema.name);
                owner.map_err(|_| refused(&format!("must be owner of index {name}")))
            }
            None => Ok(()),
        }
    }

    /// A privilege on the schema or the database.
    fn within(&self, kind: ObjectKind, privilege: Privilege) -> Result<()> {
        let (object, name) = match kind {
            ObjectKind::Database => {
                (Object::Database, self.session.settings.client.database.as_str())
            }
            _ => (Object::Schema, "public"),
        };
        match self.state.rights.may(self.role, object, privilege) {
            true => Ok(()),
            false => Err(denied(kind, name)),
        }
    }

    /// A call of a function of sequences: what it is on must be written in it.
    fn call(&self, call: &Call) -> Result<()> {
        let enough: &[Privilege] = match call.function {
            "nextval" => &[Privilege::Usage, Privilege::Update],
            "currval" => &[Privilege::Usage, Privilege::Select],
            _ => &[Privilege::Update],
        };
        let Some(name) = call.sequence.as_deref().and_then(unqualified) else {
            let message = format!(
                "permission denied: {} of a sequence that is no constant is a superuser's",
                call.function
            );
            return Err(refused(&message));
        };
        let Some(sequence) = self.state.sequences.get(&name) else { return Ok(()) };
        let may =
            |one: &Privilege| self.state.rights.may(self.role, Object::Relation(sequence.id), *one);
        match enough.iter().any(may) || self.session.defined().is_temporary(sequence.id) {
            true => Ok(()),
            false => Err(denied(ObjectKind::Sequence, &name)),
        }
    }
}

/// What a statement names.
#[derive(Default)]
struct Named {
    relations: Vec<ast::ObjectName>,
    calls: Vec<Call>,
    /// Columns are called otherwise than they are.
    renames: bool,
}

/// A call of a function of sequences.
struct Call {
    function: &'static str,
    /// The sequence, as written; None: it is no constant.
    sequence: Option<String>,
}

impl Visitor for Named {
    type Break = ();

    fn pre_visit_relation(&mut self, name: &ast::ObjectName) -> ControlFlow<()> {
        self.relations.push(name.clone());
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &ast::Query) -> ControlFlow<()> {
        self.note_tables(&query.body);
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &ast::TableFactor) -> ControlFlow<()> {
        if let ast::TableFactor::Table { alias: Some(alias), .. } = factor {
            self.renames |= !alias.columns.is_empty();
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &ast::Expr) -> ControlFlow<()> {
        if let ast::Expr::Function(function) = expression
            && let Some(ast::ObjectNamePart::Identifier(name)) = function.name.0.last()
        {
            let name = fold(name);
            let known = ["nextval", "currval", "setval"].into_iter().find(|known| *known == name);
            self.calls.extend(known.map(|known| Call {
                function: known,
                sequence: first_argument(function).and_then(constant),
            }));
        }
        ControlFlow::Continue(())
    }
}

impl Named {
    /// Notes what `TABLE t` names, which the visit passes by.
    fn note_tables(&mut self, body: &ast::SetExpr) {
        match body {
            ast::SetExpr::Table(table) => {
                // Whether it stood in quotes is not told.
                for quote in [None, Some('"')] {
                    let parts = [&table.schema_name, &table.table_name].into_iter().flatten();
                    let parts = parts.map(|part| match quote {
                        Some(quote) => ast::Ident::with_quote(quote, part.as_str()),
                        None => ast::Ident::new(part.as_str()),
                    });
                    self.relations.push(parts.collect::<Vec<_>>().into());
                }
                self.renames = true;
            }
            ast::SetExpr::SetOperation { left, right, .. } => {
                self.note_tables(left);
                self.note_tables(right);
            }
            _ => {}
        }
    }
}

fn first_argument(function: &ast::Function) -> Option<&ast::Expr> {
    let ast::FunctionArguments::List(list) = &function.args else { return None };
    match list.args.first()? {
        ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(argument)) => Some(argument),
        _ => None,
    }
}

/// The text of `'name'`, also as `'name'::regclass`, or what that becomes.
fn constant(expression: &ast::Expr) -> Option<String> {
    match expression {
        ast::Expr::Value(value) => match &value.value {
            ast::Value::SingleQuotedString(text) => Some(text.clone()),
            _ => None,
        },
        ast::Expr::Cast { expr, .. } => constant(expr),
        ast::Expr::Nested(inner) => constant(inner),
        ast::Expr::Function(function) => first_argument(function).and_then(constant),
        _ => None,
    }
}

/// Notes a part of a statement.
fn note<T: Visit + Shown>(part: &T, named: &mut Named, text: &mut String) {
    let _: ControlFlow<()> = part.visit(named);
    part.show(text);
}

/// What can be written as SQL again.
trait Shown {
    fn show(&self, text: &mut String);
}

impl Shown for Option<ast::Expr> {
    fn show(&self, text: &mut String) {
        if let Some(expression) = self {
            *text = format!("{text} ; {expression}");
        }
    }
}

impl Shown for Option<ast::With> {
    fn show(&self, text: &mut String) {
        if let Some(with) = self {
            *text = format!("{text} ; {with}");
        }
    }
}

impl Shown for Option<Box<ast::Expr>> {
    fn show(&self, text: &mut String) {
        if let Some(expression) = self {
            *text = format!("{text} ; {expression}");
        }
    }
}

impl Shown for Vec<ast::SelectItem> {
    fn show(&self, text: &mut String) {
        for item in self {
            *text = format!("{text} , {item}");
        }
    }
}

impl Shown for Vec<ast::TableWithJoins> {
    fn show(&self, text: &mut String) {
        for table in self {
            *text = format!("{text} ; {table}");
        }
    }
}

/// The words of a statement.
struct Words {
    words: BTreeSet<String>,
    /// It may use any column.
    all: bool,
}

impl Words {
    fn of(text: &str, renames: bool) -> Self {
        let mut found = Self { words: BTreeSet::new(), all: renames };
        let Ok(tokens) = Tokenizer::new(&PostgreSqlDialect {}, text).tokenize() else {
            return Self { all: true, ..found };
        };
        let tokens: Vec<&Token> =
            tokens.iter().filter(|token| !matches!(token, Token::Whitespace(_))).collect();
        for (place, token) in tokens.iter().enumerate() {
            let before = place.checked_sub(1).and_then(|place| tokens.get(place).copied());
            match token {
                Token::Word(word) => {
                    let is_bare = word.quote_style.is_none();
                    found.all |=
                        is_bare && [Keyword::NATURAL, Keyword::TABLE].contains(&word.keyword);
                    found.words.insert(match word.quote_style {
                        None => word.value.to_ascii_lowercase(),
                        Some(_) => word.value.clone(),
                    });
                }
                Token::Mul => {
                    found.all |= !is_product(before, tokens.get(place + 1).copied());
                }
                _ => {}
            }
        }
        found
    }

    /// The columns of a table that may be among them.
    fn used(&self, schema: &TableSchema) -> Vec<u32> {
        let used =
            schema.columns.iter().filter(|column| self.all || self.words.contains(&column.name));
        used.map(|column| column.id).collect()
    }
}

/// Whether a star stands for a product, or for the rows of `count(*)`, and for no columns.
fn is_product(before: Option<&Token>, after: Option<&Token>) -> bool {
    match (before, after) {
        (Some(Token::LParen), Some(Token::RParen)) => true,
        (Some(Token::Word(word)), Some(after)) if word.keyword == Keyword::NoKeyword => {
            is_operand(after)
        }
        (Some(Token::Number(..) | Token::Placeholder(_)), Some(after)) => is_operand(after),
        _ => false,
    }
}

fn is_operand(token: &Token) -> bool {
    match token {
        Token::Number(..) | Token::LParen | Token::Placeholder(_) => true,
        Token::Word(word) => word.keyword == Keyword::NoKeyword,
        _ => false,
    }
}

/// The tables of a query itself, as it calls them, with their names.
fn top_tables(query: &ast::Query) -> Vec<(String, String)> {
    let ast::SetExpr::Select(select) = query.body.as_ref() else { return Vec::new() };
    let factors = select.from.iter().flat_map(|from| {
        std::iter::once(&from.relation).chain(from.joins.iter().map(|join| &join.relation))
    });
    let tables = factors.filter_map(|factor| match factor {
        ast::TableFactor::Table { name, alias, .. } => {
            let table = table_name(name).ok()?;
            let called = alias.as_ref().map_or_else(|| table.clone(), |alias| fold(&alias.name));
            Some((called, table))
        }
        _ => None,
    });
    tables.collect()
}

/// The name of what only superusers read: passwords, and what others have asked.
fn secret(name: &ast::ObjectName) -> Option<String> {
    let parts: Vec<String> = name
        .0
        .iter()
        .filter_map(|part| match part {
            ast::ObjectNamePart::Identifier(part) => Some(fold(part)),
            ast::ObjectNamePart::Function(_) => None,
        })
        .collect();
    match parts.as_slice() {
        [.., schema, table] if schema == "cleave" => Some(format!("cleave.{table}")),
        [.., table] if table == "pg_authid" => Some(table.clone()),
        _ => None,
    }
}

fn superuser(what: &str, hint: Option<&str>) -> Error {
    let hint = hint.map_or_else(String::new, |hint| format!(": {hint}"));
    refused(&format!("must be superuser to run {what}{hint}"))
}
