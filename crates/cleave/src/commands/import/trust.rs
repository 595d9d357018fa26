//! Which statements of a stranger an import runs: the text of a statement and what it has to be in, a refusal out.
//!
//! A dump, and the definitions of a server, are what somebody else wrote. So a text must be one statement, and of a
//! kind that defines objects of a database or gives them rows; nothing that reads or writes files, or that changes the
//! database around them or what was there before.

use cleave_host::error::{Fault, RoleFault};
use cleave_host::statement::alter::Action;
use cleave_host::statement::copy::{Copy, CopyEnd};
use cleave_host::statement::parse::{Define, Statement, parse_script, parse_script_in};
use cleave_host::statement::sequence::SequenceStatement;
use cleave_host::{Error, Result};
use datafusion::sql::sqlparser::ast;

/// What a statement has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// What `pg_dump` writes.
    OfDump,
    /// CREATE TABLE.
    Table,
    /// CREATE SEQUENCE.
    Sequence,
    /// ALTER SEQUENCE.
    Owner,
    /// CREATE INDEX.
    Index,
    /// ALTER TABLE … ADD CONSTRAINT.
    Constraint,
    /// CREATE VIEW.
    View,
    /// COMMENT ON.
    Comment,
    /// COPY … FROM STDIN.
    Rows,
    /// SELECT setval(…).
    Value,
}

impl Kind {
    /// What it is called.
    fn name(self) -> &'static str {
        match self {
            Self::OfDump => "a definition, rows or a comment",
            Self::Table => "one CREATE TABLE",
            Self::Sequence => "one CREATE SEQUENCE",
            Self::Owner => "one ALTER SEQUENCE",
            Self::Index => "one CREATE INDEX",
            Self::Constraint => "one ALTER TABLE … ADD CONSTRAINT",
            Self::View => "one CREATE VIEW",
            Self::Comment => "one COMMENT",
            Self::Rows => "one COPY … FROM STDIN",
            Self::Value => "one SELECT setval(…)",
        }
    }

    fn is_of(self, statement: &Statement) -> bool {
        let is_in = |kinds: &[Self]| self == Self::OfDump || kinds.contains(&self);
        match statement {
            Statement::CreateTable(_) => is_in(&[Self::Table]),
            Statement::CreateIndex(_) => is_in(&[Self::Index]),
            Statement::Comment(_) => is_in(&[Self::Comment]),
            Statement::Sequence(sequence) => match &**sequence {
                SequenceStatement::Create { .. } => is_in(&[Self::Sequence]),
                SequenceStatement::Alter { .. } => is_in(&[Self::Owner]),
                SequenceStatement::Rename { .. } | SequenceStatement::Drop { .. } => false,
            },
            Statement::Define(define) => match &**define {
                Define::CreateView(_) => is_in(&[Self::View]),
                Define::CreateMaterialized(_) | Define::Refresh(_) => is_in(&[]),
                Define::AlterTable(alter) => {
                    is_in(&[Self::Constraint])
                        && alter.actions.iter().all(|action| self.adds(action))
                }
                _ => false,
            },
            Statement::Copy(copy) => {
                matches!(&**copy, Copy::From { end: CopyEnd::Client, .. }) && is_in(&[Self::Rows])
            }
            Statement::Insert(insert) => {
                let source = insert.source.as_ref();
                is_in(&[]) && source.is_none_or(|source| is_values(source))
            }
            Statement::Query(query) => is_in(&[Self::Value]) && is_setval(query),
            Statement::Begin(_) | Statement::Commit { .. } => is_in(&[]),
            _ => false,
        }
    }

    /// Whether an action adds to a table.
    fn adds(self, action: &Action) -> bool {
        match action {
            Action::AddKey { .. } | Action::AddCheck(_) | Action::AddForeignKey(_) => true,
            Action::AddColumn { .. }
            | Action::AddIdentity { .. }
            | Action::SetDefault { .. }
            | Action::SetNotNull { .. }
            | Action::Validate { .. } => self == Self::OfDump,
            _ => false,
        }
    }
}

/// Refuses `text` if it is anything but one statement of this kind, as a session of `database` reads it.
///
/// # Errors
/// [`RoleFault::Rights`]; those of reading it.
pub(super) fn check(text: &str, database: &str, kind: Kind) -> Result<()> {
    let read = parse_script_in(text, Some(database))?;
    match read.as_slice() {
        [one] if one.hints.is_empty() && kind.is_of(&one.statement) => Ok(()),
        _ => Err(denied(&format!("{} was to be imported", kind.name()))),
    }
}

/// Refuses `text`, the default of a column on a server, if it is anything but one expression.
///
/// # Errors
/// [`RoleFault::Rights`]; those of reading it.
pub(super) fn check_default(text: &str) -> Result<()> {
    let read = parse_script(&format!("SELECT {text}"))?;
    let query = match read.as_slice() {
        [one] if one.hints.is_empty() => match &one.statement {
            Statement::Query(query) => Some(query),
            _ => None,
        },
        _ => None,
    };
    let select = query.and_then(|query| plain_select(query));
    match select.is_some_and(|select| select.projection.len() == 1) {
        true => Ok(()),
        false => Err(denied("the default of a column has to be one expression")),
    }
}

/// Refuses `text`, the query of a view on a server, if it is anything but one query.
///
/// # Errors
/// [`RoleFault::Rights`]; those of reading it.
pub(super) fn check_query(text: &str) -> Result<()> {
    let read = parse_script(text)?;
    match read.as_slice() {
        [one] if one.hints.is_empty() && matches!(one.statement, Statement::Query(_)) => Ok(()),
        _ => Err(denied("the definition of a view has to be one query")),
    }
}

fn denied(why: &str) -> Error {
    Error::Invalid {
        message: format!("not run: {why}; --trust-statements runs whatever is written there"),
        fault: Fault::Role(RoleFault::Rights),
        position: None,
    }
}

/// The SELECT of a query that is nothing but a list of expressions.
fn plain_select(query: &ast::Query) -> Option<&ast::Select> {
    let ast::SetExpr::Select(select) = &*query.body else { return None };
    let is_plain = query.with.is_none()
        && query.order_by.is_none()
        && query.limit_clause.is_none()
        && query.locks.is_empty()
        && select.from.is_empty()
        && select.into.is_none()
        && select.selection.is_none();
    is_plain.then_some(select)
}

/// Whether a query is VALUES.
fn is_values(query: &ast::Query) -> bool {
    query.with.is_none() && matches!(&*query.body, ast::SetExpr::Values(_))
}

/// Whether a query is `SELECT setval(…)`, of constants and of `pg_get_serial_sequence` of some.
fn is_setval(query: &ast::Query) -> bool {
    let select = plain_select(query);
    let Some([ast::SelectItem::UnnamedExpr(call)]) = select.map(|select| &*select.projection)
    else {
        return false;
    };
    let arguments = called(call, "setval");
    arguments.is_some_and(|arguments| {
        arguments.iter().all(|argument| {
            let inner = called(argument, "pg_get_serial_sequence");
            is_constant(argument) || inner.is_some_and(|inner| inner.into_iter().all(is_constant))
        })
    })
}

/// The arguments of a call of the function `name`.
fn called<'a>(expression: &'a ast::Expr, name: &str) -> Option<Vec<&'a ast::Expr>> {
    let ast::Expr::Function(function) = expression else { return None };
    let last = function.name.0.last()?.as_ident()?;
    let ast::FunctionArguments::List(list) = &function.args else { return None };
    let arguments = list.args.iter().map(|argument| match argument {
        ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(argument)) => Some(argument),
        _ => None,
    });
    let is_it = last.value.eq_ignore_ascii_case(name);
    arguments.collect::<Option<Vec<_>>>().filter(|_| is_it)
}

fn is_constant(expression: &ast::Expr) -> bool {
    match expression {
        ast::Expr::Value(_) => true,
        ast::Expr::Cast { expr, .. } | ast::Expr::Nested(expr) => is_constant(expr),
        ast::Expr::UnaryOp { expr, .. } => is_constant(expr),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_holds_definitions_and_rows() {
        for text in [
            "CREATE TABLE public.t (a int DEFAULT 1)",
            "COPY public.t (a) FROM stdin",
            "INSERT INTO public.t VALUES (1)",
            "SELECT pg_catalog.setval('public.s', 3, true)",
            "SELECT setval(pg_get_serial_sequence('t', 'a'), -3)",
            "ALTER TABLE ONLY public.t ADD CONSTRAINT c CHECK (a > 0)",
            "ALTER SEQUENCE public.s OWNED BY public.t.a",
            "CREATE VIEW v AS SELECT a FROM t",
            "COMMENT ON TABLE t IS 'x'",
            "REFRESH MATERIALIZED VIEW m",
        ] {
            check(text, "db", Kind::OfDump).unwrap();
        }
        for text in [
            "COPY t TO '/tmp/x'",
            "COPY t FROM '/etc/passwd'",
            "SELECT * FROM '/etc/passwd.csv'",
            "SELECT setval('s', (SELECT count(*) FROM t))",
            "INSERT INTO t SELECT * FROM u",
            "BACKUP TO '/tmp/x'",
            "ALTER SYSTEM SET autoanalyze = off",
            "CREATE ROLE eve SUPERUSER",
            "CREATE TABLE t (a int); COPY t TO '/tmp/x'",
            "CREATE TABLE t AS SELECT 1",
            "DROP TABLE t",
            "TRUNCATE t",
            "DELETE FROM t",
            "ALTER TABLE t DROP COLUMN a",
            "CHECKPOINT",
        ] {
            let error = check(text, "db", Kind::OfDump).expect_err(text).to_string();
            assert!(error.contains("--trust-statements"), "{error}");
        }
    }

    #[test]
    fn a_definition_of_a_server_is_one_of_its_kind() {
        check("CREATE INDEX i ON t (a)", "db", Kind::Index).unwrap();
        assert!(check("CREATE TABLE t (a int)", "db", Kind::Index).is_err());
        assert!(check("CREATE INDEX i ON t (a); COPY t TO '/tmp/x'", "db", Kind::Index).is_err());
        assert!(check("ALTER TABLE t ADD COLUMN a int", "db", Kind::Constraint).is_err());
        check_default("nextval('s'::regclass)").unwrap();
        assert!(check_default("1, b int DEFAULT 2").is_err());
        assert!(check_default("1; COPY t TO '/tmp/x'").is_err());
        check_query("SELECT 1").unwrap();
        assert!(check_query("SELECT 1; COPY t TO '/tmp/x'").is_err());
    }
}
