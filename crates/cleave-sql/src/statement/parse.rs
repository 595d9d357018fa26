//! A script in, its [`Statement`]s out, in PostgreSQL's dialect.
//!
//! 1. The tokenizer cuts the whole script; an unclosed string is reported here.
//! 2. [`parse_script`] reads statement after statement. Where PostgreSQL's syntax and the parser crate differ (COPY,
//!    SET, RESET, SHOW, EXPLAIN, [PREPARE and EXECUTE](prepared)), it reads tokens itself; all other statements are
//!    read by the crate.
//! 3. What the crate reads and this version does not support becomes [`Error::Unsupported`], naming statement or clause
//!    ([`refuse`]). No clause is ignored silently.
//!
//! No statement runs before the whole script has been read, so a syntax error in its last line leaves nothing half
//! done.

use crate::visiting::Visited;
use cleave_catalog::error::{Error, Fault, Position, Result};
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan};

use crate::statement::catalog_syntax;
use crate::statement::changing_with::{self, ChangingWith};
use crate::statement::copy::{Copy, parse_copy};
use crate::statement::ddl::{CreateIndex, CreateTable, create_index, create_table};
use crate::statement::hint::{Hint, hints};
use crate::statement::locked_parts::{self, LockedParts};
use crate::statement::locking::{Locking, locking};
use crate::statement::modify::{self, Modify};
use crate::statement::names::{fold, position_of, table_name};
use crate::statement::roles::RoleStatement;
use crate::statement::sequence::SequenceStatement;
use crate::statement::upsert::OnConflict;

mod analyze;
mod batch;
mod comment;
mod cursors;
mod definitions;
mod devices;
mod dialect;
mod discard;
mod exact_names;
mod exclude;
mod explain;
mod expression;
mod file_names;
mod foreign_keys;
mod identity;
mod insert;
mod joined_subqueries;
mod limit;
mod locks;
mod materialized;
mod modes;
mod nesting;
mod only;
mod operators;
mod ordinality;
mod prepared;
mod recursive;
mod refuse;
mod roles;
mod sequence;
mod settings;
mod summary;
mod symmetric;
mod system;
mod tablets;
mod tokens;
mod trim;
mod vacuum;
mod windows;
mod without_schema;
mod words;

pub use analyze::{Analyze, AnalyzeTable};
pub use comment::{CommentOn, CommentSubject};
pub use cursors::{Declare, Fetch};
pub use definitions::{CreateTableAs, CreateView, Define, Truncate};
pub use devices::DeviceStatement;
use dialect::BoundedPostgres;
pub use dialect::read_text;
pub use discard::Discard;
pub use exact_names::{ExactNames, exact_names, may_need_exact_names};
pub use expression::{parse_expression, parse_query};
pub use foreign_keys::SetConstraints;
pub use insert::is_default;
use insert::typed_insert;
pub use locks::LockTable;
use locks::lower_locking_clauses;
pub use materialized::{CreateMaterialized, Refresh};
pub use modes::Modes;
use nesting::PARSED_LEVELS_MAX;
pub use nesting::flatten;
pub use prepared::{Execute, Prepare};
pub use refuse::{refuse_in_query, refuse_in_returning};
pub use sequence::Overriding;
pub use settings::Scope;
pub use summary::Summary;
pub use system::SystemStatement;
pub use tablets::{PlaceTablets, Placing};
pub use tokens::tokenize;
pub use vacuum::Vacuum;
pub use without_schema::{names_without_schema, with_schema};

/// Most operators and keywords between two commas.
const CHAIN_TOKENS_MAX: usize = 20_000;

/// One statement of a script.
#[derive(Debug, Clone, PartialEq)]
pub struct ParsedStatement {
    /// The typed statement.
    pub statement: Statement,
    /// Its text, without the semicolon.
    pub text: String,
    /// Where it starts in the script.
    pub position: Position,
    /// Settings that hold for it alone.
    pub hints: Vec<Hint>,
}

/// A statement of this version. [Its row](Statement::properties) gives the requirements of each kind.
#[derive(Debug, Clone, PartialEq)]
pub enum Statement {
    /// CREATE TABLE.
    CreateTable(CreateTable),
    /// DROP TABLE.
    DropTable {
        /// A table that does not exist is no error.
        if_exists: bool,
        /// The tables.
        names: Vec<String>,
        /// CASCADE: dependent objects are dropped too.
        cascade: bool,
    },
    /// CREATE INDEX.
    CreateIndex(CreateIndex),
    /// DROP INDEX.
    DropIndex {
        /// An index that does not exist is no error.
        if_exists: bool,
        /// The indexes.
        names: Vec<String>,
        /// CASCADE: foreign keys that refer to them are dropped too.
        cascade: bool,
    },
    /// CREATE, ALTER, DROP SEQUENCE.
    Sequence(Box<SequenceStatement>),
    /// TRUNCATE and its like.
    Define(Box<Define>),
    /// COMMENT ON.
    Comment(Box<CommentOn>),
    /// INSERT.
    Insert(Insert),
    /// UPDATE, DELETE.
    Modify(Box<Modify>),
    /// COPY.
    Copy(Box<Copy>),
    /// SELECT, VALUES, TABLE, WITH.
    Query(Box<ast::Query>),
    /// A query with a locking clause, as FOR UPDATE.
    Locking(Box<Locking>),
    /// A query with locking clauses in subqueries.
    LockedParts(Box<LockedParts>),
    /// A statement with data-modifying queries in WITH.
    ChangingWith(Box<ChangingWith>),
    /// LOCK TABLE.
    LockTable(LockTable),
    /// PREPARE.
    Prepare(Prepare),
    /// EXECUTE.
    Execute(Execute),
    /// DEALLOCATE.
    Deallocate {
        /// The prepared statement; None: all.
        name: Option<String>,
    },
    /// EXPLAIN.
    Explain {
        /// Run it, and show what was measured.
        analyze: bool,
        /// The output format; VERBOSE is one.
        format: ExplainFormat,
        /// A statement that can be prepared, or a [`Statement::Execute`].
        statement: Box<Statement>,
    },
    /// DESCRIBE, SUMMARIZE.
    Summary(Box<Summary>),
    /// SHOW name.
    Show {
        /// The setting, as written.
        name: String,
    },
    /// SHOW ALL.
    ShowAll,
    /// SHOW TABLES.
    ShowTables,
    /// SHOW STATISTICS [FOR table].
    ShowStatistics {
        /// The table; None: all.
        table: Option<String>,
    },
    /// ANALYZE.
    Analyze(Analyze),
    /// SET name = value, RESET name.
    Set {
        /// The setting, as written.
        name: String,
        /// The value, None: the default.
        value: Option<String>,
        /// SET or SET LOCAL.
        scope: Scope,
    },
    /// RESET ALL.
    ResetAll,
    /// DISCARD.
    Discard(Discard),
    /// A statement without effect here, such as UNLISTEN, since there is no LISTEN.
    Nothing {
        /// Its command tag.
        tag: &'static str,
    },
    /// BEGIN, START TRANSACTION.
    Begin(Modes),
    /// SET CONSTRAINTS.
    SetConstraints(SetConstraints),
    /// SET TRANSACTION.
    SetTransaction(Modes),
    /// SET SESSION CHARACTERISTICS AS TRANSACTION.
    SetCharacteristics(Modes),
    /// COMMIT, END.
    Commit {
        /// AND CHAIN: a block with the same modes follows.
        chain: bool,
    },
    /// ROLLBACK.
    Rollback {
        /// AND CHAIN.
        chain: bool,
    },
    /// DECLARE … CURSOR.
    Declare(Box<Declare>),
    /// FETCH, MOVE.
    Fetch(Fetch),
    /// CLOSE.
    CloseCursor {
        /// The cursor; None: all.
        name: Option<String>,
    },
    /// BATCH BEGIN, with the queries up to BATCH END.
    Batch(Vec<ParsedStatement>),
    /// Gives the rows of the next query of a batch, in whose place it stands.
    Batched,
    /// BATCH END.
    BatchEnd,
    /// VACUUM.
    Vacuum(Vacuum),
    /// CHECKPOINT.
    Checkpoint,
    /// BACKUP, ALTER SYSTEM.
    System(SystemStatement),
    /// CREATE, ALTER and DROP DEVICE.
    Device(Box<DeviceStatement>),
    /// Roles, rights and owners.
    Role(Box<RoleStatement>),
    /// SAVEPOINT.
    Savepoint {
        /// Its name.
        name: String,
    },
    /// ROLLBACK TO SAVEPOINT.
    RollbackTo {
        /// The savepoint.
        name: String,
    },
    /// RELEASE SAVEPOINT.
    Release {
        /// The savepoint.
        name: String,
    },
}

/// INSERT INTO table (columns) source.
#[derive(Debug, Clone, PartialEq)]
pub struct Insert {
    /// The table.
    pub table: String,
    /// The alias of the table.
    pub alias: Option<ast::Ident>,
    /// The columns as listed; empty: all of the table's, in order.
    pub columns: Vec<String>,
    /// Where each of them stands.
    pub column_places: Vec<Option<Position>>,
    /// VALUES or SELECT; None: DEFAULT VALUES. In VALUES, [`is_default`] tells a bare DEFAULT.
    pub source: Option<Box<ast::Query>>,
    /// ON CONFLICT.
    pub on_conflict: Option<OnConflict>,
    /// RETURNING; empty: none.
    pub returning: Vec<ast::SelectItem>,
    /// OVERRIDING.
    pub overriding: Option<Overriding>,
    /// Where the table's name stands.
    pub position: Option<Position>,
}

impl Insert {
    /// The table's name in the statement.
    #[must_use]
    pub fn target_name(&self) -> ast::Ident {
        let own = || ast::Ident::with_quote('"', self.table.as_str());
        self.alias.clone().unwrap_or_else(own)
    }
}

/// How EXPLAIN shows a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ExplainFormat {
    /// An indented tree of plain words.
    #[default]
    Text,
    /// The same with VERBOSE: every operator, as it names itself.
    Verbose,
    /// JSON in PostgreSQL's shape, with VERBOSE or without.
    Json,
    /// The fragments as they would be sent, one row each, in hexadecimal digits.
    Fragment,
}

/// Reads a whole script: statements separated by semicolons, empty ones left out.
///
/// # Errors
/// [`Error::Syntax`] with position and token, [`Error::Unsupported`] for what this version cannot do,
/// [`Fault::Encoding`] for a zero byte, and what CREATE TABLE and COPY say of their own contradictions.
pub fn parse_script(script: &str) -> Result<Vec<ParsedStatement>> {
    parse_script_in(script, None)
}

/// The same in a session of `database`, which names may begin with.
///
/// # Errors
/// Those of [`parse_script`], and [`Error::Unsupported`] for names of another database.
pub fn parse_script_in(script: &str, database: Option<&str>) -> Result<Vec<ParsedStatement>> {
    if let Some((before, _)) = script.split_once('\0') {
        return Err(Error::Invalid {
            message: "invalid byte sequence for encoding \"UTF8\": 0x00".to_owned(),
            fault: Fault::Encoding,
            position: Some(end_of(before)),
        });
    }
    let dialect = BoundedPostgres::of(script);
    let mut tokens = tokenize(&dialect, script).map_err(|error| Error::Syntax {
        message: error.message,
        near: roles::not_a_password(script, text_at(script, error.location)),
        position: position_of(error.location),
    })?;
    tokens::refuse_hidden(&tokens)?;
    tokens::join_literals(&mut tokens).map_err(|place| Error::Syntax {
        message: "a literal behind another one, without an operator".to_owned(),
        near: roles::not_a_password(script, text_at(script, place.start)),
        position: position_of(place.start),
    })?;
    tokens::take_database(&mut tokens, database)?;
    check_chains(&tokens)?;
    let mut overriding = sequence::take_overriding(&mut tokens);
    exclude::take_exclude(&mut tokens);
    identity::order_options(&mut tokens);
    let mut set_columns = foreign_keys::take_set_columns(&mut tokens);
    let mut hints = hints(&tokens)?;
    let has_windows = tokens.iter().any(windows::is_concerned);
    let has_files = file_names::are_named(&tokens);
    let tokens = words::lower_words(lower_locking_clauses(only::drop_words(tokens)));
    let has_ordinality = tokens.iter().any(ordinality::is_concerned);
    let tokens = trim::drop_from(operators::lower_before_any(tokens));
    let (tokens, has_symmetric) = symmetric::mark_symmetric(tokens);
    let (tokens, has_joined) = joined_subqueries::mark_joined(tokens);
    let parser = Parser::new(&dialect)
        .with_recursion_limit(PARSED_LEVELS_MAX)
        .with_tokens_with_locations(tokens);
    let mut reader = Reader {
        parser,
        script,
        has_symmetric,
        has_joined,
        has_windows,
        has_ordinality,
        has_files,
    };
    let mut cursor = Cursor::new(script);
    let mut statements = Vec::new();
    loop {
        while reader.parser.consume_token(&Token::SemiColon) {}
        let first = reader.parser.peek_token();
        if dialect.is_spent() {
            return Err(dialect::too_many_readings());
        }
        if first.token == Token::EOF {
            return batch::gathered(statements);
        }
        let start = cursor.offset_of(first.span.start);
        let position = position_of(first.span.start).unwrap_or(Position { line: 1, column: 1 });
        let mut statement = reader.statement().map_err(|error| match dialect.is_spent() {
            true => dialect::too_many_readings(),
            false => error.at(Some(position)),
        })?;
        let after = reader.parser.peek_token();
        let end = match after.token {
            Token::EOF => script.len(),
            Token::SemiColon => cursor.offset_of(after.span.start),
            _ => {
                let end = cursor.offset_of(after.span.start);
                let read = script.get(start..end).unwrap_or_default();
                return Err(reader.unread(&statement, read));
            }
        };
        let text = script.get(start..end).unwrap_or_default().trim().to_owned();
        let own_end = (after.token != Token::EOF).then_some(after.span.start);
        sequence::give_overriding(&mut overriding, own_end, &mut statement)?;
        foreign_keys::give_set_columns(&mut set_columns, own_end, &mut statement)?;
        if let Statement::Prepare(prepare) = &mut statement {
            prepare.cut_text(script, end);
        }
        // A comment before the first word belongs to the statement.
        let own = match after.token {
            Token::EOF => hints.len(),
            _ => hints.partition_point(|(place, _)| is_before(*place, after.span.start)),
        };
        let hints = hints.drain(..own).flat_map(|(_, hints)| hints).collect();
        statements.push(ParsedStatement { statement, text, position, hints });
    }
}

fn is_before(one: Location, other: Location) -> bool {
    (one.line, one.column) < (other.line, other.column)
}

/// Refuses chains of operators that are so long that their tree could not even be dropped, since dropping recurses once
/// per operator. A shorter chain that is still too long for DataFusion is refused by [`refuse_in_query`].
fn check_chains(tokens: &[TokenWithSpan]) -> Result<()> {
    let mut length = 0_usize;
    for token in tokens {
        match &token.token {
            Token::Comma | Token::SemiColon => length = 0,
            Token::Whitespace(_) | Token::LParen | Token::RParen | Token::Period => {}
            Token::Number(..) | Token::SingleQuotedString(_) => {}
            Token::Word(word) if word.keyword == Keyword::NoKeyword => {}
            _ => length += 1,
        }
        if length > CHAIN_TOKENS_MAX {
            return Err(Error::Invalid {
                message: format!(
                    "the statement has more than {CHAIN_TOKENS_MAX} operators in a row"
                ),
                fault: Fault::TooComplex,
                position: position_of(token.span.start),
            });
        }
    }
    Ok(())
}

/// The parser and the text that it reads.
pub struct Reader<'a> {
    /// The parser.
    pub parser: Parser<'a>,
    script: &'a str,
    /// BETWEEN SYMMETRIC occurs.
    has_symmetric: bool,
    /// A join in parentheses that begins with a subquery occurs.
    has_joined: bool,
    /// OVER or WINDOW occurs.
    has_windows: bool,
    /// WITH ORDINALITY occurs.
    has_ordinality: bool,
    /// A file in FROM may occur.
    has_files: bool,
}

impl Reader<'_> {
    fn statement(&mut self) -> Result<Statement> {
        let word = match self.parser.peek_token().token {
            Token::Word(word) if word.quote_style.is_none() => word.value.to_ascii_lowercase(),
            Token::LParen => String::new(),
            _ => return Err(self.expected("an SQL statement")),
        };
        if let Some(statement) = self.role_statement(&word)? {
            return Ok(statement);
        }
        match word.as_str() {
            "copy" => {
                self.parser.advance_token();
                parse_copy(self).map(|copy| Statement::Copy(Box::new(copy)))
            }
            "begin" | "start" => self.begin(),
            "batch" => self.batch(),
            "set" => self.set(),
            "reset" => self.reset(),
            "show" => self.show(),
            "explain" => self.explain(),
            "describe" | "desc" | "summarize" => self.summary(word == "summarize"),
            "prepare" => self.prepare().map(Statement::Prepare),
            "execute" => self.execute().map(Statement::Execute),
            "deallocate" => self.deallocate(),
            "alter" if self.is_alter_system() => self.alter_system(),
            "create" | "alter" | "drop" | "refresh" if self.is_of_materialized() => {
                self.materialized(&word)
            }
            "create" | "alter" | "drop" if self.is_of_device() => self.device_statement(&word),
            "backup" | "checkpoint" => self.backup_or_checkpoint(&word),
            "analyze" | "analyse" => self.analyze().map(Statement::Analyze),
            "lock" => self.lock(),
            "comment" => self.comment(),
            "discard" => self.discard(),
            "unlisten" => self.nothing("UNLISTEN"),
            "declare" => self.declare(),
            "fetch" | "move" => self.fetch(word == "move"),
            "close" => self.close(),
            "vacuum" => self.vacuum(),
            "create" if self.word_at(1) == "extension" => self.create_extension(),
            _ => {
                if let Some(statement) = self.sequence_statement()? {
                    return Ok(statement);
                }
                if let Some(statement) = self.alter_identity()? {
                    return Ok(statement);
                }
                if let Some(statement) = self.alter_tablets()? {
                    return Ok(statement);
                }
                let read = self.parser.parse_statement();
                let statement = read.map_err(|error| self.syntax(error))?;
                typed(self.lowered(statement)?)
            }
        }
    }

    /// The tree of the parser crate, with rewrites undone and applied.
    ///
    /// # Errors
    /// [`Fault::TooComplex`] for what nests too deep.
    pub fn lowered<T: Visited>(&self, mut read: T) -> Result<T> {
        flatten(&mut read)?;
        if self.has_symmetric {
            symmetric::lower_symmetric(&mut read);
        }
        if self.has_joined {
            joined_subqueries::lower_joined(&mut read);
        }
        if self.has_ordinality {
            ordinality::number_rows(&mut read);
        }
        if self.has_windows {
            windows::write_out(&mut read)?;
        }
        if self.has_files {
            file_names::name_files(&mut read)?;
        }
        Ok(read)
    }

    /// The name of a table, and where it stands.
    fn table(&mut self) -> Result<(String, Option<Position>)> {
        let position = position_of(self.parser.peek_token().span.start);
        let name = self.parser.parse_object_name(false).map_err(|error| self.syntax(error))?;
        Ok((table_name(&name)?, position))
    }

    /// An optional boolean after an option's name; its absence means yes.
    pub(crate) fn switch(&mut self) -> Result<bool> {
        let token = self.parser.peek_token().token;
        if matches!(token, Token::Comma | Token::RParen) {
            return Ok(true);
        }
        let text = self.option_value()?;
        match text.to_lowercase().as_str() {
            "true" | "on" | "1" => Ok(true),
            "false" | "off" | "0" => Ok(false),
            _ => {
                self.parser.prev_token();
                Err(self.expected("TRUE or FALSE"))
            }
        }
    }

    /// A word, string or number as text.
    pub(crate) fn option_value(&mut self) -> Result<String> {
        let text = match self.parser.peek_token().token {
            Token::Word(word) => word.value,
            Token::Number(number, _) => number,
            token => match string_of(token) {
                Some(text) => text,
                None => return Err(self.expected("a word, a string or a number")),
            },
        };
        self.parser.advance_token();
        Ok(text)
    }

    /// A string in single quotes, also as E'...'.
    pub fn string(&mut self, what: &str) -> Result<String> {
        match string_of(self.parser.peek_token().token) {
            Some(text) => {
                self.parser.advance_token();
                Ok(text)
            }
            None => Err(self.expected(what)),
        }
    }

    /// Takes the next token if it is this unquoted word.
    pub fn take(&mut self, word: &str) -> bool {
        let found = matches!(&self.parser.peek_token().token, Token::Word(next)
            if next.quote_style.is_none() && next.value.eq_ignore_ascii_case(word));
        if found {
            self.parser.advance_token();
        }
        found
    }

    /// A syntax error at the next token.
    pub fn expected(&self, what: &str) -> Error {
        let found = self.parser.peek_token();
        Error::Syntax {
            message: format!("expected {what}"),
            near: token_text(&found),
            position: position_of(found.span.start).or_else(|| self.end()),
        }
    }

    /// The error if the crate has read a statement up to `read` and more follows. The crate takes the FOR of `SELECT 1
    /// FOR UPDATE` for a name of the 1.
    fn unread(&self, statement: &Statement, read: &str) -> Error {
        let found = self.parser.peek_token();
        let lock = match &found.token {
            Token::Word(word) if word.quote_style.is_none() => match word.keyword {
                Keyword::UPDATE => Some("UPDATE"),
                Keyword::SHARE => Some("SHARE"),
                _ => None,
            },
            _ => None,
        };
        let is_query = matches!(
            statement,
            Statement::Query(_) | Statement::Insert(_) | Statement::Explain { .. }
        );
        let last_word = read.split_whitespace().next_back().unwrap_or_default();
        match lock.filter(|_| is_query && last_word.eq_ignore_ascii_case("for")) {
            Some(lock) => Error::unsupported(format!("SELECT ... FOR {lock}"))
                .at(position_of(found.span.start)),
            None => self.expected("the end of the statement"),
        }
    }

    /// The error of the crate; its message ends in the location, which it carries nowhere else.
    pub(crate) fn syntax(&self, error: ParserError) -> Error {
        let text = match error {
            ParserError::RecursionLimitExceeded => {
                let position = position_of(self.parser.peek_token().span.start);
                return nesting::too_deep(PARSED_LEVELS_MAX).at(position);
            }
            ParserError::TokenizerError(text) | ParserError::ParserError(text) => text,
        };
        let (text, location) = split_location(&text);
        let found = match location {
            Some(location) => text_at(self.script, location),
            None => token_text(self.parser.get_current_token()),
        };
        let at_end = text.ends_with("found: EOF");
        let position = match location {
            Some(location) => position_of(location),
            None if at_end => self.end(),
            None => position_of(self.parser.get_current_token().span.start).or_else(|| self.end()),
        };
        let message = match text.split_once(", found: ") {
            Some((expected, found)) => {
                let near = Some(found.to_owned()).filter(|_| !at_end);
                let expected = expected.strip_prefix("Expected: ").unwrap_or(expected);
                return Error::Syntax { message: format!("expected {expected}"), near, position };
            }
            None => text.to_owned(),
        };
        Error::Syntax { message, near: found, position }
    }

    /// The position after the last character of the script.
    fn end(&self) -> Option<Position> {
        Some(end_of(self.script))
    }
}

/// The position after the last character of `text`.
fn end_of(text: &str) -> Position {
    let line = text.matches('\n').count() + 1;
    let column = text.rsplit('\n').next().map_or(0, |last| last.chars().count()) + 1;
    Position {
        line: u32::try_from(line).unwrap_or(u32::MAX),
        column: u32::try_from(column).unwrap_or(u32::MAX),
    }
}

/// A statement of the crate as one of ours, or the error that names what is unsupported.
fn typed(mut statement: ast::Statement) -> Result<Statement> {
    use ast::Statement as Ast;
    limit::name_limits(&mut statement);
    if let Some(with) = changing_with::taken(&mut statement, typed)? {
        return Ok(Statement::ChangingWith(Box::new(with)));
    }
    if let Some((mut plain, parts)) = locked_parts::taken(&mut statement)? {
        locked_parts::strip(&mut plain);
        let tables = locked_parts::tables_of(&plain);
        let (statement, plain) = (Box::new(typed(statement)?), Box::new(typed(plain)?));
        let parts = LockedParts { parts, statement, plain, tables };
        return Ok(Statement::LockedParts(Box::new(parts)));
    }
    if let Some(define) = definitions::define(&statement)? {
        return Ok(Statement::Define(Box::new(define)));
    }
    let what = match statement {
        Ast::Query(query) if modify::has_changes(&query) => {
            return modify::with_changes(*query, typed);
        }
        Ast::Query(mut query) => {
            if !query.locks.is_empty() {
                return locking(query).map(|locking| Statement::Locking(Box::new(locking)));
            }
            catalog_syntax::lower(&mut query);
            refuse_in_query(&query)?;
            return Ok(Statement::Query(query));
        }
        Ast::CreateTable(statement) => return create_table(&statement).map(Statement::CreateTable),
        Ast::CreateIndex(statement) => return create_index(&statement).map(Statement::CreateIndex),
        Ast::Drop { object_type, if_exists, names, cascade, purge, temporary, table, .. } => {
            let is_index = object_type == ast::ObjectType::Index;
            let is_sequence = object_type == ast::ObjectType::Sequence;
            let is_known = is_index || is_sequence || object_type == ast::ObjectType::Table;
            if !is_known || table.is_some() || temporary || purge {
                return Err(Error::unsupported(format!("DROP {object_type}")));
            }
            let names = names.iter().map(table_name).collect::<Result<_>>()?;
            if is_sequence {
                let drop = SequenceStatement::Drop { if_exists, names };
                return Ok(Statement::Sequence(Box::new(drop)));
            }
            return Ok(match is_index {
                true => Statement::DropIndex { if_exists, names, cascade },
                false => Statement::DropTable { if_exists, names, cascade },
            });
        }
        Ast::Insert(insert) => return typed_insert(insert).map(Statement::Insert),
        Ast::Update(statement) => {
            return modify::update(statement).map(|update| Statement::Modify(Box::new(update)));
        }
        Ast::Delete(statement) => {
            return modify::delete(statement).map(|delete| Statement::Modify(Box::new(delete)));
        }
        Ast::Savepoint { name } => return Ok(Statement::Savepoint { name: fold(&name) }),
        Ast::ReleaseSavepoint { name } => return Ok(Statement::Release { name: fold(&name) }),
        Ast::Rollback { chain: false, savepoint: Some(name) } => {
            return Ok(Statement::RollbackTo { name: fold(&name) });
        }
        Ast::Commit { chain, modifier: None, .. } => return Ok(Statement::Commit { chain }),
        Ast::Rollback { chain, savepoint: None } => return Ok(Statement::Rollback { chain }),
        other => first_words(&other),
    };
    Err(Error::unsupported(what))
}

/// The words that name a statement: `UPDATE`, `CREATE INDEX`, `ALTER TABLE`.
fn first_words(statement: &ast::Statement) -> String {
    let text = statement.to_string();
    let mut words = text
        .split(|character: char| !character.is_ascii_alphabetic())
        .filter(|word| !word.is_empty())
        .map(str::to_uppercase);
    let first = words.next().unwrap_or_default();
    match first.as_str() {
        "CREATE" | "ALTER" | "DROP" | "START" | "ROLLBACK" | "COMMIT" | "RELEASE" | "COMMENT" => {
            let kind = words.find(|word| {
                !matches!(
                    word.as_str(),
                    "OR" | "REPLACE" | "UNIQUE" | "TEMPORARY" | "IF" | "NOT" | "EXISTS"
                )
            });
            kind.map_or(first.clone(), |kind| format!("{first} {kind}"))
        }
        _ => first,
    }
}

/// The text of a string token, None for any other.
fn string_of(token: Token) -> Option<String> {
    match token {
        Token::SingleQuotedString(text)
        | Token::EscapedStringLiteral(text)
        | Token::UnicodeStringLiteral(text) => Some(text),
        Token::DollarQuotedString(text) => Some(text.value),
        _ => None,
    }
}

fn token_text(token: &TokenWithSpan) -> Option<String> {
    (token.token != Token::EOF).then(|| token.token.to_string())
}

/// Cuts ` at Line: 3, Column: 7` off the end of the crate's message.
fn split_location(text: &str) -> (&str, Option<Location>) {
    let Some((message, place)) = text.rsplit_once(" at Line: ") else {
        return (text, None);
    };
    let location = place.split_once(", Column: ").and_then(|(line, column)| {
        Some(Location { line: line.trim().parse().ok()?, column: column.trim().parse().ok()? })
    });
    match location {
        Some(location) => (message, Some(location)),
        None => (text, None),
    }
}

/// The word of the script at a location, for a message; None at its end.
fn text_at(script: &str, location: Location) -> Option<String> {
    let rest = script.get(Cursor::new(script).offset_of(location)..)?;
    let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
    rest.get(..end).filter(|word| !word.is_empty()).map(str::to_owned)
}

/// Turns the parser's locations, in ascending order, into byte offsets in one pass over the text.
pub struct Cursor<'a> {
    rest: std::str::CharIndices<'a>,
    line: u64,
    column: u64,
}

impl<'a> Cursor<'a> {
    /// At the start of `script`.
    pub fn new(script: &'a str) -> Self {
        Self { rest: script.char_indices(), line: 1, column: 1 }
    }

    pub(crate) fn offset_of(&mut self, location: Location) -> usize {
        while (self.line, self.column) < (location.line, location.column) {
            match self.rest.next() {
                Some((_, '\n')) => (self.line, self.column) = (self.line + 1, 1),
                Some(_) => self.column += 1,
                None => break,
            }
        }
        self.rest.offset()
    }
}

#[cfg(test)]
mod tests;
