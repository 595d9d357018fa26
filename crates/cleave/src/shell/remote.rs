//! A server in place of a database of this process: `cleave sql postgres://…`, and a database that a server or another
//! shell has open.
//!
//! 1. [`Remote::open`] finds the server: by a URL, or by the file that it leaves in the database's folder
//!    ([`address_file`]). It asks the user for a password if the server does. A shell gives sessions that only read
//!    ([`beside`](crate::serve::beside)).
//! 2. [`Remote::run`] runs a statement and gives the same outcomes as a session; COPY of this client's rows goes by
//!    streams. Ctrl-C cancels it on the server.
//! 3. [`queries`] are what `\d` and its like show, from `pg_catalog`; so is the [`Vocabulary`].
//!
//! Source: `docs/reference/shell.md`.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Read, Write};

use arrow::array::AsArray;
use arrow::record_batch::RecordBatch;
use cleave_client::{Address, Client, ClientError, TransactionStatus};
use cleave_host::Outcome;
use cleave_host::address_file::{self, Found, Listens};
use tokio::sync::Notify;

use super::complaint::{Complaint, Position};
use super::completion::Vocabulary;
use super::meta_command::MetaCommand;
use super::statements::{self, Statement};
use crate::arguments::Place;
use crate::commands::user;
use crate::failure::Failure;
use crate::open;

/// Columns of all tables and views. More than these are not completed.
const COLUMNS: &str = "SELECT c.relname, a.attname FROM pg_catalog.pg_attribute a \
                       JOIN pg_catalog.pg_class c ON c.oid = a.attrelid \
                       JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
                       WHERE a.attnum > 0 AND NOT a.attisdropped AND c.relkind IN ('r', 'v', 'm', 'p') \
                       AND n.nspname NOT IN ('pg_catalog', 'information_schema') \
                       ORDER BY c.relname, a.attnum LIMIT 20000";

/// What a server is told for a session that only reads.
const ONLY_READS: &str = "cleave.only_reads";

/// Where rows of a COPY of this client come from and go to.
pub(super) struct Streams {
    pub(super) input: Option<Box<dyn Read + Send>>,
    pub(super) output: Box<dyn Write + Send>,
}

/// A session of a server.
pub(crate) struct Remote {
    client: Client,
    address: Address,
    /// Settings that every session begins with.
    settings: Vec<(String, String)>,
    vocabulary: Vocabulary,
    /// Whether tables may have changed since the vocabulary was read.
    is_stale: bool,
    /// The shell that has the database open, if it is one.
    shell: Option<Found>,
}

impl Remote {
    /// A session of the server that `place` names, or of the server or shell that has its database open; None: there is
    /// none. With `read_only` it only reads.
    pub(crate) async fn open(place: &Place, read_only: bool) -> Result<Option<Self>, Failure> {
        let directory = open::directory(place)?;
        let asking = |address: Address| match read_only {
            true => address.with_setting(ONLY_READS, "on"),
            false => address,
        };
        if let Some(url) = directory.to_str().filter(|name| Address::is_url(name)) {
            let mut address = asking(Address::from_url(url).map_err(Failure::from)?);
            if read_only {
                // PostgreSQL does not know the other one.
                address = address.with_setting("default_transaction_read_only", "on");
            }
            return Self::connect(address, &place.settings).await.map(Some);
        }
        let Some(found) = address_file::find(directory) else { return Ok(None) };
        let address = asking(open::address_of(&found));
        let mut remote = match Self::connect(address, &place.settings).await {
            Err(Failure::Server(error)) if found.is_ending(error.sqlstate()) => return Ok(None),
            connected => connected?,
        };
        let mut out = io::stderr();
        if let Listens::Unix(_) = found.listens {
            let who = found.who();
            writeln!(out, "beside {who}, which has this database open: this session only reads")?;
            remote.shell = Some(found);
        } else {
            let (place, user) = (remote.address.place(), remote.address.user());
            let reads = if read_only { "; this session only reads" } else { "" };
            writeln!(
                out,
                "connected to the server that has this database open, at {place} as \"{user}\"{reads}"
            )?;
        }
        Ok(Some(remote))
    }

    async fn connect(address: Address, settings: &[(String, String)]) -> Result<Self, Failure> {
        let address = address.with_setting("application_name", "cleave sql");
        let (client, address) = match Client::connect_to(address.clone()).await {
            Err(ClientError::PasswordWanted { user, .. }) if io::stdin().is_terminal() => {
                let address = address.with_password(user::password(&user)?);
                (Client::connect_to(address.clone()).await?, address)
            }
            connected => (connected?, address),
        };
        let (settings, vocabulary) = (settings.to_vec(), Vocabulary::default());
        let mut remote =
            Self { client, address, settings, vocabulary, is_stale: true, shell: None };
        remote.begin().await?;
        Ok(remote)
    }

    /// Prepares a new session.
    async fn begin(&mut self) -> Result<(), Failure> {
        // Lists print the same, and some have no Arrow type of one kind.
        self.client.set_lists_as_text(true);
        for (name, value) in &self.settings {
            let statement = set_statement(name, value).ok_or_else(|| {
                Failure::Usage(format!("--set {name}={value}: \"{name}\" is no name of a setting"))
            })?;
            if let Err(error) = self.client.run(&statement, &[]).await {
                return Err(Failure::Usage(format!("--set {name}={value}: {error}")));
            }
        }
        Ok(())
    }

    /// Runs a statement; what it gave is added to `outcomes`. Ctrl-C, told by `interrupt`, cancels it.
    pub(super) async fn run(
        &mut self,
        text: &str,
        streams: Streams,
        outcomes: &mut Vec<Outcome>,
        interrupt: &Notify,
    ) -> Result<(), ClientError> {
        if self.client.is_closed() {
            if let Some(shell) = &self.shell {
                return Err(ended(shell));
            }
            self.client = Client::connect_to(self.address.clone()).await?;
            drop(writeln!(io::stderr(), "connected to the server again, with a new session"));
            if let Err(failure) = self.begin().await {
                return Err(ClientError::Usage(failure.to_string()));
            }
        }
        let handle = self.client.cancel_handle();
        let result = {
            let mut work = Box::pin(run_on(&mut self.client, text, streams, outcomes));
            loop {
                tokio::select! {
                    result = &mut work => break result,
                    () = interrupt.notified() => {
                        // The statement then fails, unless it has ended.
                        if let Err(error) = handle.cancel().await {
                            drop(writeln!(io::stderr(), "cannot cancel: {error}"));
                        }
                    }
                }
            }
        };
        for notice in self.client.take_notices() {
            drop(writeln!(io::stderr(), "{}:  {}", notice.severity, notice.message));
            for (name, text) in [("DETAIL", &notice.detail), ("HINT", &notice.hint)] {
                if let Some(text) = text {
                    drop(writeln!(io::stderr(), "{name}:  {text}"));
                }
            }
        }
        let result = match (result, &self.shell) {
            (Err(error), Some(shell)) if shell.is_ending(error.sqlstate()) => Err(ended(shell)),
            (result, _) => result,
        };
        self.is_stale |= result.is_err() || outcomes.iter().any(changes_names);
        result
    }

    /// Completions, read anew if tables may have changed.
    pub(super) async fn vocabulary(&mut self) -> Vocabulary {
        let is_idle = self.client.transaction_status() == TransactionStatus::Idle;
        if self.is_stale && is_idle && !self.client.is_closed() {
            self.is_stale = false;
            let (columns, settings) = match self.read_names().await {
                Ok(read) => read,
                // A server without such a catalog has no completions.
                Err(_) => return self.vocabulary.clone(),
            };
            let mut tables: BTreeMap<String, Vec<String>> = BTreeMap::new();
            for (table, column) in columns {
                tables.entry(table).or_default().push(column);
            }
            self.vocabulary.tables = tables;
            self.vocabulary.settings = settings.into_iter().map(|(name, _)| name).collect();
        }
        self.vocabulary.clone()
    }

    async fn read_names(&mut self) -> Result<(Pairs, Pairs), ClientError> {
        let columns = pairs(&mut self.client, COLUMNS).await?;
        let settings = "SELECT name, name FROM pg_catalog.pg_settings";
        Ok((columns, pairs(&mut self.client, settings).await?))
    }
}

/// The error once the shell has ended that had the database open.
fn ended(shell: &Found) -> ClientError {
    let who = shell.who();
    ClientError::Lost(format!("{who}, which had the database open, has ended; start this again"))
}

/// Rows of two names.
type Pairs = Vec<(String, String)>;

async fn pairs(client: &mut Client, sql: &str) -> Result<Pairs, ClientError> {
    let batches = client.run(sql, &[]).await?.collect().await?;
    let pairs_of = |batch: &RecordBatch| -> Option<Pairs> {
        let mut columns = batch.columns().iter().map(|column| column.as_string_opt::<i32>());
        let (first, second) = (columns.next()??, columns.next()??);
        let pairs = first.iter().flatten().zip(second.iter().flatten());
        Some(pairs.map(|(first, second)| (first.to_owned(), second.to_owned())).collect())
    };
    Ok(batches.iter().filter_map(pairs_of).flatten().collect())
}

async fn run_on(
    client: &mut Client,
    text: &str,
    mut streams: Streams,
    outcomes: &mut Vec<Outcome>,
) -> Result<(), ClientError> {
    if statements::copies_from_client(text) {
        let Some(mut input) = streams.input else {
            let message = "the rows of COPY FROM STDIN come from a script or from standard input; \\copy reads a file";
            return Err(ClientError::Usage(message.to_owned()));
        };
        let count = client.copy_in(text, &mut *input).await?;
        outcomes.push(Outcome::Done { tag: format!("COPY {count}") });
    } else if statements::copies_to_client(text) {
        let count = client.copy_out(text, &mut *streams.output).await?;
        streams.output.flush().map_err(ClientError::Stream)?;
        outcomes.push(Outcome::Done { tag: format!("COPY {count}") });
    } else if text.get(..5).is_some_and(|word| word.eq_ignore_ascii_case("batch")) {
        let mut given = Vec::new();
        let result = client.run_script(text, &mut given).await;
        outcomes.extend(given.into_iter().map(|outcome| match outcome.rows {
            Some((schema, batches)) => Outcome::Rows { schema, batches },
            None => Outcome::Done { tag: outcome.tag },
        }));
        result?;
    } else {
        let mut answer = client.run(text, &[]).await?;
        let batches = answer.collect().await?;
        match (answer.schema(), answer.tag()) {
            (Some(schema), _) => {
                outcomes.push(Outcome::Rows { schema: std::sync::Arc::clone(schema), batches });
            }
            (None, Some(tag)) => outcomes.push(Outcome::Done { tag: tag.to_owned() }),
            (None, None) => {}
        }
    }
    Ok(())
}

/// Whether a statement may have changed which tables and columns there are.
fn changes_names(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Done { tag } => {
            let words = ["CREATE", "ALTER", "DROP", "COMMIT", "ROLLBACK"];
            words.iter().any(|word| tag.starts_with(word))
        }
        Outcome::Rows { .. } => false,
    }
}

/// The error of a statement, as it is shown.
pub(super) fn complaint(
    error: &ClientError,
    statement: Statement<'_>,
    origin: Option<&str>,
) -> String {
    let Some(told) = error.server() else {
        let (message, sqlstate) = (error.to_string(), error.sqlstate());
        return Complaint { sqlstate, message: &message, position: None }.text(statement, origin);
    };
    let position = told.position.and_then(|position| place_of(statement.text, position));
    let shown = Complaint { sqlstate: &told.sqlstate, message: &told.message, position };
    let mut text = shown.text(statement, origin);
    let parts = [("DETAIL", &told.detail), ("HINT", &told.hint), ("CONTEXT", &told.context)];
    for (name, part) in parts {
        if let Some(part) = part {
            text.push_str(&format!("{name}:  {part}\n"));
        }
    }
    text
}

/// Line and column, from 0, of the character that a server counts from 1.
fn place_of(text: &str, position: u32) -> Option<Position> {
    let before = usize::try_from(position).ok()?.checked_sub(1)?;
    let before: String = text.chars().take(before).collect();
    let line = before.rsplit('\n').next().unwrap_or_default();
    let column_index = line.chars().count();
    Some(Position { line_index: before.matches('\n').count(), column_index })
}

/// The statement that sets a setting; None if the name is none.
pub(super) fn set_statement(name: &str, value: &str) -> Option<String> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '.');
    let is_name = !name.is_empty() && name.chars().all(is_part);
    is_name.then(|| format!("SET {name} = '{}'", value.replace('\'', "''")))
}

/// The queries whose rows a command shows; an error is the user's.
pub(super) fn queries(command: &MetaCommand) -> Result<Vec<String>, String> {
    let own = "n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname !~ '^pg_toast'";
    let query = match command {
        MetaCommand::Tables { has_detail } => {
            let size = ", pg_catalog.pg_total_relation_size(c.oid) AS bytes";
            format!(
                "SELECT c.relname AS \"table\", c.reltuples::bigint AS rows{} FROM pg_catalog.pg_class c \
                 JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
                 WHERE c.relkind IN ('r', 'p') AND {own} ORDER BY 1",
                if *has_detail { size } else { "" }
            )
        }
        MetaCommand::Describe { name, .. } => return Ok(table_queries(name)),
        MetaCommand::Indexes => "SELECT indexname AS index, tablename AS \"table\", indexdef AS definition \
             FROM pg_catalog.pg_indexes WHERE schemaname NOT IN ('pg_catalog', 'information_schema') ORDER BY 1"
            .to_owned(),
        MetaCommand::Views => "SELECT viewname AS view, definition AS query FROM pg_catalog.pg_views \
             WHERE schemaname NOT IN ('pg_catalog', 'information_schema') ORDER BY 1"
            .to_owned(),
        MetaCommand::Functions(part) => format!(
            "SELECT DISTINCT proname AS function FROM pg_catalog.pg_proc \
             WHERE strpos(proname::text, {}) > 0 ORDER BY 1",
            quoted(part)
        ),
        MetaCommand::Statistics(Some(name)) => {
            format!("SHOW STATISTICS FOR {}", identifier(name))
        }
        MetaCommand::Statistics(None) => {
            return Err("\\stats of a server takes a table: \\stats TABLE".to_owned());
        }
        _ => "SELECT current_database() AS database, current_user AS user_name, version() AS server".to_owned(),
    };
    Ok(vec![query])
}

/// Columns and indexes of a table or view.
fn table_queries(name: &str) -> Vec<String> {
    // An error shows the name as it is written here.
    let is_part = |letter: char| matches!(letter, 'a'..='z' | '0'..='9' | '_');
    let is_plain = name.chars().all(is_part) && !name.starts_with(|first: char| first.is_numeric());
    let written = if is_plain { name.to_owned() } else { identifier(name) };
    let table = format!("{}::regclass", quoted(&written));
    let columns = format!(
        "SELECT a.attname AS \"column\", pg_catalog.format_type(a.atttypid, a.atttypmod) AS type, \
         CASE WHEN a.attnotnull THEN 'not null' ELSE '' END AS nullable, \
         (SELECT pg_catalog.pg_get_expr(d.adbin, d.adrelid, true) FROM pg_catalog.pg_attrdef d \
          WHERE d.adrelid = a.attrelid AND d.adnum = a.attnum AND a.atthasdef) AS \"default\" \
         FROM pg_catalog.pg_attribute a \
         WHERE a.attrelid = {table} AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"
    );
    let indexes = format!(
        "SELECT c2.relname AS index, pg_catalog.pg_get_indexdef(i.indexrelid, 0, true) AS definition \
         FROM pg_catalog.pg_class c, pg_catalog.pg_class c2, pg_catalog.pg_index i \
         WHERE c.oid = {table} AND c.oid = i.indrelid AND i.indexrelid = c2.oid ORDER BY 1"
    );
    vec![columns, indexes]
}

/// A name in double quotes.
fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text in single quotes.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_shown_in_the_line_that_they_are_about() {
        let place = place_of("SELECT 1,\n  \u{e9}x", 14);
        assert_eq!(place, Some(Position { line_index: 1, column_index: 3 }));
        assert_eq!(place_of("x", 0), None);
    }

    #[test]
    fn names_and_values_are_quoted() {
        assert_eq!(set_statement("a.b", "it's"), Some("SET a.b = 'it''s'".to_owned()));
        assert_eq!(set_statement("a = 1; --", "x"), None);
        let queries = table_queries("o'\"x");
        assert!(
            queries.iter().all(|query| query.contains("'\"o''\"\"x\"'::regclass")),
            "{queries:?}"
        );
        assert!(table_queries("plain_1").iter().all(|query| query.contains("'plain_1'::regclass")));
        // A number would be that of a table.
        assert!(table_queries("16384").iter().all(|query| query.contains("'\"16384\"'::regclass")));
    }
}
