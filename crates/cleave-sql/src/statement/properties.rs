//! Properties of each kind of statement: one table, which the session, the privilege check and the server read before
//! they run a statement, and when they report its outcome.
//!
//! | column | content | read by |
//! |---|---|---|
//! | [`name`](Properties::name) | its name in errors | the check of its place |
//! | [`tag`](Properties::tag) | its command tag | its handler, and servers |
//! | [`place`](Properties::place) | where it may stand in a transaction | sessions and servers |
//! | [`effect`](Properties::effect) | whether a session that only reads may run it | the check of its place |
//! | [`rights`](Properties::rights) | which rights it needs | `session::rights` |
//! | [`without_role`](Properties::without_role) | it also runs if its role was dropped | `session::rights` |
//! | [`writes`](Properties::writes) | the table that it locks in ROW EXCLUSIVE | `session::changing_with` |
//! | [`takes_parameters`](Properties::takes_parameters) | it may be prepared | PREPARE and servers |
//! | [`columns`](Properties::columns) | how its columns are found before it runs | `session::started` |
//! | [`returns_changes`](Properties::returns_changes) | it returns rows that it changed | `session::returning` |
//! | [`runs`](Properties::runs) | the prepared statement that it runs | `session::returning` |
//!
//! A new kind of statement needs one more row in [`Statement::properties`], which the compiler demands, and a handler
//! in the session. `row` makes a row from the tag, and the row states where its kind differs. Without a statement of
//! rights, the objects that it names are checked, and it is reserved for superusers until `session::rights::check`
//! handles it. Without a statement of its effect, it is refused in sessions that only read.
//!
//! Not here, because it depends on more than the statement: the refusals of a read-only transaction (checked when a
//! change of rows or definitions begins), and other locks (`session::held` lists them).
//!
//! Source: PostgreSQL's manual, "SQL Commands" and "Message Formats", CommandComplete.

use cleave_catalog::error::Position;
use datafusion::sql::sqlparser::ast;

use crate::statement::copy::{Copy, CopyEnd};
use crate::statement::parse::{
    Define, DeviceStatement, Discard, Execute, Fetch, Statement, SystemStatement,
};
use crate::statement::roles::RoleStatement;
use crate::statement::sequence::SequenceStatement;

/// A row of the table. See the module's description.
#[derive(Debug, Clone)]
pub struct Properties<'a> {
    /// Its name in errors.
    pub name: &'static str,
    /// Its command tag.
    pub tag: Tag,
    /// Where it may stand in a transaction.
    pub place: Place,
    /// What it changes.
    pub effect: Effect,
    /// Which rights it needs.
    pub rights: Rights<'a>,
    /// It also runs if the role that the session acts as was dropped: it ends a transaction, or changes the acting role
    /// or session settings.
    pub without_role: bool,
    /// The table that it changes rows of by itself, which it locks in ROW EXCLUSIVE.
    pub writes: Option<Target<'a>>,
    /// It may have parameters, and so be prepared.
    pub takes_parameters: bool,
    /// How the columns of its rows are found before it runs.
    pub columns: Columns<'a>,
    /// It returns rows that it has changed: outside of a block it gets one of its own, which is undone if it fails.
    pub returns_changes: bool,
    /// The prepared statement that it runs.
    pub runs: Option<&'a Execute>,
}

/// A command tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tag {
    /// A fixed tag, to which a row count may be added.
    Done(&'static str),
    /// The tag of a statement whose rows are counted: `SELECT 3`.
    Counted(&'static str),
    /// The tag of a statement whose rows are not counted: `SHOW`.
    Bare(&'static str),
}

/// Where a statement may stand in a transaction. The statements of one message count as a block unless stated
/// otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In a block that has not failed, or outside of one.
    Anywhere,
    /// It begins a block.
    Begins,
    /// It ends a block, also a failed one. No timeout applies: the outcome of a commit must not be left unknown.
    Ends,
    /// It rolls back to a savepoint, also in a failed block; only in a block begun by BEGIN.
    Restores,
    /// In a block.
    InBlock,
    /// In a block begun by BEGIN.
    InOpenBlock,
    /// It commits by itself: outside of a block, or first in a message, and not in a read-only transaction.
    Outside,
    /// The same for a statement that changes nothing.
    OutsideReading,
}

/// What a statement changes. What a query calls may change more: functions of sequences, and rows that it locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Nothing but the session and its transaction.
    Reads,
    /// Rows, definitions, settings of the database, devices, or files.
    Changes,
}

/// Which rights a statement needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rights<'a> {
    /// None: it touches no object with rights, or checks them itself.
    Itself,
    /// Those on the objects that it names, which are found in its text.
    Named,
    /// Ownership of these tables, views or sequences.
    OwnerOf(&'a [String]),
    /// Ownership of the tables of these indexes.
    OwnerOfIndexes(&'a [String]),
    /// CREATE in the schema.
    Create,
    /// TEMPORARY in the database.
    CreateTemporary,
    /// A superuser's: it shows or changes what roles may do.
    Superuser(&'static str, Option<&'static str>),
}

/// A table that a statement changes rows of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target<'a> {
    /// Its name.
    pub table: &'a str,
    /// Where that stands.
    pub position: Option<Position>,
}

/// How the columns of a statement's rows are found before it runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Columns<'a> {
    /// It has none, or they are unknown before.
    Untold,
    /// They are those of this query.
    OfQuery(&'a ast::Query),
    /// They are those of the prepared statement.
    OfPrepared(&'a Execute),
    /// They are those of the cursor.
    OfCursor(&'a Fetch),
    /// It runs to find them, without ANALYZE, which has no effect.
    AsItRuns,
}

impl Tag {
    /// The words of the tag, without a count.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Done(words) | Self::Counted(words) | Self::Bare(words) => words,
        }
    }

    /// The tag with that many rows.
    #[must_use]
    pub fn after_rows(self, row_count: usize) -> String {
        match self {
            Self::Counted(words) => format!("{words} {row_count}"),
            Self::Bare(words) => words.to_owned(),
            // Rows that report what it did, as those of VACUUM VERBOSE.
            Self::Done(_) => format!("SELECT {row_count}"),
        }
    }
}

impl Place {
    /// Whether it may stand in a block that has failed.
    #[must_use]
    pub fn is_in_failed_block(self) -> bool {
        matches!(self, Self::Ends | Self::Restores)
    }

    /// Whether it begins or ends a block.
    #[must_use]
    pub fn is_border(self) -> bool {
        matches!(self, Self::Begins | Self::Ends)
    }
}

/// A row with the command tag `tag`, and the most common values for the rest.
const fn row(tag: Tag) -> Properties<'static> {
    Properties {
        name: match tag {
            Tag::Done(words) | Tag::Counted(words) | Tag::Bare(words) => words,
        },
        tag,
        place: Place::Anywhere,
        effect: Effect::Changes,
        rights: Rights::Named,
        without_role: false,
        writes: None,
        takes_parameters: false,
        columns: Columns::Untold,
        returns_changes: false,
        runs: None,
    }
}

/// The same for one that changes nothing.
const fn reading(tag: Tag) -> Properties<'static> {
    Properties { effect: Effect::Reads, ..row(tag) }
}

/// A row of a statement that checks rights itself.
const fn checked(tag: &'static str) -> Properties<'static> {
    Properties { rights: Rights::Itself, ..row(Tag::Done(tag)) }
}

/// A row of a statement about the session or its transaction, which touches no object with rights.
const fn own(tag: &'static str) -> Properties<'static> {
    Properties { effect: Effect::Reads, ..checked(tag) }
}

/// The same for one that also runs if the role was dropped.
const fn about_session(tag: &'static str) -> Properties<'static> {
    Properties { without_role: true, ..own(tag) }
}

/// A row of SHOW.
const fn show() -> Properties<'static> {
    Properties { columns: Columns::AsItRuns, rights: Rights::Itself, ..reading(Tag::Bare("SHOW")) }
}

/// A row of a definition that needs these rights.
const fn definition<'a>(tag: &'static str, rights: Rights<'a>) -> Properties<'a> {
    Properties { rights, ..row(Tag::Done(tag)) }
}

/// A row of a statement for superusers, outside of a block.
const fn system(tag: &'static str, what: &'static str) -> Properties<'static> {
    let rights = Rights::Superuser(what, None);
    Properties { place: Place::Outside, rights, ..row(Tag::Done(tag)) }
}

impl Statement {
    /// Its row of the table.
    #[must_use]
    pub fn properties(&self) -> Properties<'_> {
        match self {
            Self::Query(query) => Properties {
                takes_parameters: true,
                columns: Columns::OfQuery(query),
                ..reading(Tag::Counted("SELECT"))
            },
            Self::Locking(locking) => Properties {
                takes_parameters: true,
                columns: Columns::OfQuery(&locking.query),
                // Its name there says that it locks rows.
                ..reading(Tag::Counted("SELECT"))
            },
            Self::LockedParts(parts) => {
                let plain = parts.plain.properties();
                let writes = parts.statement.properties().writes;
                Properties { takes_parameters: true, rights: Rights::Named, writes, ..plain }
            }
            Self::ChangingWith(with) => {
                let main = with.main.statement.properties();
                let (name, tag) = (main.name, main.tag);
                Properties { name, takes_parameters: true, returns_changes: true, ..row(tag) }
            }
            Self::Insert(insert) => Properties {
                name: "INSERT",
                takes_parameters: true,
                writes: Some(Target { table: &insert.table, position: insert.position }),
                returns_changes: !insert.returning.is_empty(),
                ..row(Tag::Counted("INSERT 0"))
            },
            Self::Modify(modify) => Properties {
                takes_parameters: true,
                writes: Some(Target { table: &modify.table, position: modify.position }),
                returns_changes: !modify.returning.is_empty(),
                ..row(Tag::Counted(modify.name()))
            },
            Self::Copy(copy) => Properties {
                writes: match copy.as_ref() {
                    Copy::From { table, .. } => Some(Target { table, position: None }),
                    Copy::To { .. } => None,
                },
                effect: match copy.as_ref() {
                    Copy::To { end: CopyEnd::Client, .. } => Effect::Reads,
                    Copy::From { .. } | Copy::To { .. } => Effect::Changes,
                },
                ..row(Tag::Done("COPY"))
            },
            Self::Explain { analyze, statement, .. } => {
                let explained = statement.properties();
                Properties {
                    columns: Columns::AsItRuns,
                    effect: if *analyze { explained.effect } else { Effect::Reads },
                    takes_parameters: explained.takes_parameters,
                    returns_changes: *analyze && explained.returns_changes,
                    runs: explained.runs.filter(|_| *analyze),
                    ..row(Tag::Bare("EXPLAIN"))
                }
            }

            Self::Prepare(_) => own("PREPARE"),
            Self::Execute(execute) => Properties {
                columns: Columns::OfPrepared(execute),
                runs: Some(execute),
                // The statement that it runs is checked by itself.
                ..reading(Tag::Counted("SELECT"))
            },
            Self::Deallocate { name: Some(_) } => own("DEALLOCATE"),
            Self::Deallocate { name: None } => own("DEALLOCATE ALL"),
            Self::Declare(declare) => Properties {
                place: if declare.is_held { Place::Anywhere } else { Place::InBlock },
                takes_parameters: true,
                ..reading(Tag::Done("DECLARE CURSOR"))
            },
            Self::Fetch(fetch) => Properties {
                columns: match fetch.is_move {
                    false => Columns::OfCursor(fetch),
                    true => Columns::Untold,
                },
                rights: Rights::Itself,
                ..reading(Tag::Counted("FETCH"))
            },
            Self::CloseCursor { name: Some(_) } => own("CLOSE CURSOR"),
            Self::CloseCursor { name: None } => own("CLOSE CURSOR ALL"),
            // The rights of each query are checked by themselves.
            Self::Batch(_) => own("BATCH BEGIN"),
            Self::Batched => {
                Properties { rights: Rights::Itself, ..reading(Tag::Counted("SELECT")) }
            }
            Self::BatchEnd => own("BATCH END"),

            Self::CreateTable(create) => {
                definition("CREATE TABLE", created(create.temporary.is_some()))
            }
            Self::DropTable { names, .. } => definition("DROP TABLE", Rights::OwnerOf(names)),
            Self::CreateIndex(create) => {
                definition("CREATE INDEX", Rights::OwnerOf(std::slice::from_ref(&create.table)))
            }
            Self::DropIndex { names, .. } => {
                definition("DROP INDEX", Rights::OwnerOfIndexes(names))
            }
            Self::Sequence(statement) => match statement.as_ref() {
                SequenceStatement::Create { .. } => definition("CREATE SEQUENCE", Rights::Named),
                SequenceStatement::Alter { .. } => definition("ALTER SEQUENCE", Rights::Named),
                SequenceStatement::Rename { name, .. } => {
                    definition("ALTER SEQUENCE", Rights::OwnerOf(std::slice::from_ref(name)))
                }
                SequenceStatement::Drop { names, .. } => {
                    definition("DROP SEQUENCE", Rights::OwnerOf(names))
                }
            },
            Self::Define(define) => match define.as_ref() {
                Define::Truncate(_) => definition("TRUNCATE TABLE", Rights::Named),
                Define::CreateTableAs(_) => Properties {
                    takes_parameters: true,
                    ..definition("CREATE TABLE AS", Rights::Named)
                },
                Define::CreateView(create) if create.is_temporary => {
                    definition("CREATE VIEW", created(true))
                }
                Define::CreateView(_) => definition("CREATE VIEW", Rights::Named),
                Define::DropView { names, .. } => definition("DROP VIEW", Rights::OwnerOf(names)),
                Define::CreateMaterialized(_) => {
                    definition("CREATE MATERIALIZED VIEW", Rights::Named)
                }
                Define::Refresh(_) => definition("REFRESH MATERIALIZED VIEW", Rights::Named),
                Define::DropMaterialized { names, .. } => {
                    definition("DROP MATERIALIZED VIEW", Rights::OwnerOf(names))
                }
                Define::AlterTable(alter) => {
                    definition("ALTER TABLE", Rights::OwnerOf(std::slice::from_ref(&alter.table)))
                }
                // A table that moves goes on to be used, so it is not moved within a transaction.
                Define::PlaceTablets(place) => Properties {
                    name: place.placing.name(),
                    place: Place::Outside,
                    ..definition("ALTER TABLE", Rights::OwnerOf(std::slice::from_ref(&place.table)))
                },
                Define::RenameIndex { from, .. } => {
                    definition("ALTER INDEX", Rights::OwnerOfIndexes(std::slice::from_ref(from)))
                }
            },
            Self::Comment(_) => definition("COMMENT", Rights::Itself),
            Self::Role(statement) => of_roles(statement),
            Self::LockTable(_) => {
                Properties { place: Place::InBlock, ..reading(Tag::Done("LOCK TABLE")) }
            }

            Self::Summary(summary) => Properties {
                columns: Columns::AsItRuns,
                ..reading(Tag::Bare(if summary.with_figures { "SUMMARIZE" } else { "DESCRIBE" }))
            },
            Self::Show { .. } | Self::ShowAll | Self::ShowTables => show(),
            Self::ShowStatistics { table } => Properties {
                rights: of_one("SHOW STATISTICS of all tables", "name one", table.is_some()),
                ..show()
            },
            Self::Analyze(analyze) => Properties {
                rights: of_one(UPKEEP, UPKEEP_HINT, !analyze.tables.is_empty()),
                ..row(Tag::Bare("ANALYZE"))
            },
            Self::Vacuum(vacuum) => Properties {
                place: Place::Outside,
                rights: of_one(UPKEEP, UPKEEP_HINT, !vacuum.analyze.tables.is_empty()),
                ..row(Tag::Done("VACUUM"))
            },
            Self::Checkpoint => system("CHECKPOINT", "CHECKPOINT"),
            Self::System(SystemStatement::Alter { .. }) => {
                system("ALTER SYSTEM", "ALTER SYSTEM and BACKUP")
            }
            Self::System(SystemStatement::Backup { .. }) => Properties {
                place: Place::OutsideReading,
                ..system("BACKUP", "ALTER SYSTEM and BACKUP")
            },

            Self::Device(statement) => {
                let tag = match **statement {
                    DeviceStatement::Create { .. } | DeviceStatement::CreateMirror { .. } => {
                        "CREATE DEVICE"
                    }
                    DeviceStatement::Drain { .. }
                    | DeviceStatement::Undrain { .. }
                    | DeviceStatement::Rebuild { .. }
                    | DeviceStatement::Resync { .. } => "ALTER DEVICE",
                    DeviceStatement::Drop { .. } => "DROP DEVICE",
                };
                system(tag, "CREATE, ALTER and DROP DEVICE")
            }

            Self::Set { value: Some(_), .. } => about_session("SET"),
            Self::Set { value: None, .. } | Self::ResetAll => about_session("RESET"),
            Self::Discard(what) => about_session(match what {
                Discard::All => "DISCARD ALL",
                Discard::Plans => "DISCARD PLANS",
                Discard::Sequences => "DISCARD SEQUENCES",
                Discard::Temporary => "DISCARD TEMP",
            }),
            Self::Nothing { tag } => own(tag),

            Self::Begin(_) => Properties { place: Place::Begins, ..own("BEGIN") },
            Self::SetTransaction(_) | Self::SetCharacteristics(_) => own("SET"),
            Self::SetConstraints(_) => own("SET CONSTRAINTS"),
            Self::Commit { .. } => Properties { place: Place::Ends, ..about_session("COMMIT") },
            Self::Rollback { .. } => Properties { place: Place::Ends, ..about_session("ROLLBACK") },
            Self::Savepoint { .. } => Properties { place: Place::InOpenBlock, ..own("SAVEPOINT") },
            Self::RollbackTo { .. } => Properties {
                name: "ROLLBACK TO SAVEPOINT",
                place: Place::Restores,
                ..about_session("ROLLBACK")
            },
            Self::Release { .. } => Properties {
                name: "RELEASE SAVEPOINT",
                place: Place::InOpenBlock,
                ..about_session("RELEASE")
            },
        }
    }
}

const UPKEEP: &str = "VACUUM and ANALYZE of all tables";
const UPKEEP_HINT: &str = "name those that are yours";

/// Ownership of the named tables, or else a statement about all of them.
const fn of_one(what: &'static str, hint: &'static str, names_some: bool) -> Rights<'static> {
    match names_some {
        true => Rights::Named,
        false => Rights::Superuser(what, Some(hint)),
    }
}

/// The right to create an object.
const fn created(is_temporary: bool) -> Rights<'static> {
    if is_temporary { Rights::CreateTemporary } else { Rights::Create }
}

/// The rows of statements about roles, rights and owners, which check rights themselves.
fn of_roles(statement: &RoleStatement) -> Properties<'static> {
    match statement {
        RoleStatement::SetRole { resets, .. } | RoleStatement::SetSession { resets, .. } => {
            about_session(if *resets { "RESET" } else { "SET" })
        }
        RoleStatement::Create { .. } => checked("CREATE ROLE"),
        RoleStatement::Alter { .. }
        | RoleStatement::Rename { .. }
        | RoleStatement::Settings { .. } => checked("ALTER ROLE"),
        RoleStatement::Drop { .. } => checked("DROP ROLE"),
        RoleStatement::Membership { revokes: false, .. } => checked("GRANT ROLE"),
        RoleStatement::Membership { revokes: true, .. } => checked("REVOKE ROLE"),
        RoleStatement::Grant(grant) => checked(if grant.revokes { "REVOKE" } else { "GRANT" }),
        RoleStatement::Later { .. } => checked("ALTER DEFAULT PRIVILEGES"),
        RoleStatement::Owner { kind: "TABLE", .. } => checked("ALTER TABLE"),
        RoleStatement::Owner { kind: "VIEW", .. } => checked("ALTER VIEW"),
        RoleStatement::Owner { kind: "MATERIALIZED VIEW", .. } => {
            checked("ALTER MATERIALIZED VIEW")
        }
        RoleStatement::Owner { kind: "SCHEMA", .. } => checked("ALTER SCHEMA"),
        RoleStatement::Owner { .. } => checked("ALTER SEQUENCE"),
        RoleStatement::Reassign { .. } => checked("REASSIGN OWNED"),
        RoleStatement::DropOwned { .. } => checked("DROP OWNED"),
    }
}

#[cfg(test)]
mod tests;
