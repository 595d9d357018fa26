//! A session of a server.
//!
//! ```text
//!  run:         Parse, Describe, Sync ─▶ types ─▶ Bind, Execute, Sync ─▶ rows in binary
//!  run_many:    the same, with a Bind and an Execute for each row of values
//!  run_script:  Query ─▶ rows as text, of each statement
//! ```
//! The first round trip declares the types that values have themselves, as `psycopg` does, and tells those of
//! parameters and columns; values in binary are asked for where Arrow has the type. It declares them at once: within a
//! transaction a second try, after a refusal, would find a transaction that has failed. Where a value has no type
//! itself, as a text, the server may refuse to tell one: it is asked behind a savepoint then. Of a statement whose
//! parameters name files it tells the parameters and refuses the columns: a second one (Bind, Describe, Sync) asks
//! for them with the values. A COPY goes by the simple protocol ([`Client::copy_in`], [`Client::copy_out`]).

use std::collections::BTreeSet;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex as StdMutex, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use bytes::{BufMut, BytesMut};
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::address::Address;
use crate::answer::{Answer, row_count, tag};
use crate::cancel::CancelHandle;
use crate::columns::{Described, NO_COLUMNS, Rows, described};
use crate::error::{ClientError, ServerError};
use crate::greeting::{self, Key};
use crate::kind::Kind;
use crate::transport;
use crate::value::{TEXT, Value};
use crate::wire::{Connection, Reader, Shared, TransactionStatus, put_text};

/// The SQLSTATE with which a server refuses a parameter whose type nothing tells.
const UNDECIDED: &str = "42P18";
/// The SQLSTATE with which a server refuses columns that the values of parameters tell.
const UNTOLD: &str = "0A000";
/// The savepoint before a statement of which it is not known whether the server can tell its types.
const APART: &str = "cleave_types";
/// Statements that are known to be no such ones.
const DECIDED_MAX: usize = 1000;
/// Statements of [`Client::run_many`] that are sent before their answers are read.
const STATEMENTS_AT_A_TIME: usize = 256;

/// A session of a server.
pub struct Client {
    connection: Arc<Mutex<Connection>>,
    shared: Arc<Shared>,
    canceller: CancelHandle,
    address: Arc<Address>,
    lists_as_text: bool,
    /// Statements, with the types that were declared, of which the server could tell the others.
    decided: StdMutex<BTreeSet<u64>>,
}

/// What one statement of a script gave.
#[derive(Debug, Clone, Default)]
pub struct ScriptOutcome {
    /// Its rows, all of them text, if it returns rows.
    pub rows: Option<(SchemaRef, Vec<RecordBatch>)>,
    /// Its command tag; empty if it had none.
    pub tag: String,
}

/// What the server says of a statement.
struct Prepared {
    /// Types of the parameters.
    parameters: Vec<u32>,
    /// Columns, if it returns rows.
    columns: Option<Vec<Described>>,
    /// Only the values of parameters tell the columns.
    is_told_late: bool,
}

impl Client {
    /// Connects to the server of a URL, as [`Address::from_url`] reads it.
    ///
    /// # Errors
    /// [`ClientError::PasswordWanted`] if the server asks for a password that is not known, and others.
    pub async fn connect(url: &str) -> Result<Self, ClientError> {
        Self::connect_to(Address::from_url(url)?).await
    }

    /// Connects to the server at `address`.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub async fn connect_to(address: Address) -> Result<Self, ClientError> {
        let address = Arc::new(address.with_setting("application_name", "cleave"));
        let shared = Arc::new(Shared::default());
        let begun = Box::pin(async {
            let stream = transport::open(&address).await?;
            greeting::begin(stream, &address, Arc::clone(&shared)).await
        });
        let Ok(begun) = tokio::time::timeout(address.patience(), begun).await else {
            let source = std::io::ErrorKind::TimedOut.into();
            return Err(ClientError::Unreachable { place: address.place(), source });
        };
        let (connection, key) = begun?;
        Ok(Self::of_session(address, shared, connection, key))
    }

    pub(crate) fn of_session(
        address: Arc<Address>,
        shared: Arc<Shared>,
        connection: Connection,
        key: Key,
    ) -> Self {
        let connection = Arc::new(Mutex::new(connection));
        let canceller = CancelHandle::new(Arc::clone(&address), key);
        let decided = StdMutex::default();
        Self { connection, shared, canceller, address, lists_as_text: false, decided }
    }

    /// Whether lists are asked for as text, as `{1,2}`, instead of as lists.
    pub fn set_lists_as_text(&mut self, lists_as_text: bool) {
        self.lists_as_text = lists_as_text;
    }

    /// Runs one statement with the values of its parameters; all of its rows come in the answer.
    ///
    /// The statement has ended, or its first rows are there, when this returns.
    ///
    /// # Errors
    /// [`ClientError::CopyWithoutStream`] for a COPY from or to this client, [`ClientError::ParameterCount`],
    /// [`ClientError::Busy`] while an earlier answer is held, and errors of the statement.
    pub async fn run(&mut self, sql: &str, parameters: &[Value]) -> Result<Answer, ClientError> {
        let mut connection = self.free()?;
        connection.settle().await?;
        if begins_copy(sql) {
            connection.put_query(without_zero(sql)?)?;
            connection.flush().await?;
            return Answer::begin(connection, None).await;
        }
        let own = own_types(&[parameters]);
        let prepared = self.prepare_for(&mut connection, sql, (parameters, own)).await?;
        let Prepared { parameters: types, mut columns, is_told_late } = prepared;
        if is_told_late {
            columns = self.describe_bound(&mut connection, parameters, &types).await?;
        }
        put_bind(&mut connection, parameters, &types, columns.as_deref().unwrap_or_default())?;
        if columns.is_none() {
            // Columns of some statements, as EXECUTE, are known only when they run; they come as text.
            connection.put(b'D', |body| body.put_slice(b"P\0"))?;
        }
        put_execute(&mut connection)?;
        connection.put_sync();
        connection.flush().await?;
        Answer::begin(connection, columns.map(Rows::new)).await
    }

    /// Runs one statement for each of `rows`, which are the values of its parameters; returns how many rows the
    /// statements changed. Outside a transaction block they are one transaction. Where the values of a place have
    /// different types, the statement decides which one its parameter has.
    ///
    /// # Errors
    /// [`ClientError::ParameterCount`] for a row with another number of values; the first error of a statement.
    pub async fn run_many(&mut self, sql: &str, rows: &[Vec<Value>]) -> Result<u64, ClientError> {
        let Some(first) = rows.first() else { return Ok(0) };
        let mut connection = self.free()?;
        connection.settle().await?;
        let own = own_types(rows);
        let prepared = self.prepare_for(&mut connection, sql, (first, own)).await?;
        let columns = prepared.columns.unwrap_or_default();
        for row in rows {
            check_count(row, &prepared.parameters)?;
        }
        let mut changed = 0;
        connection.begin_series();
        // Nothing is read while a blocking stream sends, so a server with a long answer would wait for ever.
        let at_a_time = if connection.is_blocking() { 1 } else { STATEMENTS_AT_A_TIME };
        for piece in rows.chunks(at_a_time) {
            for row in piece {
                put_bind(&mut connection, row, &prepared.parameters, &columns)?;
                put_execute(&mut connection)?;
            }
            connection.put_flush();
            connection.flush().await?;
            for _ in piece {
                changed += executed(&mut connection).await?;
            }
        }
        connection.put_sync();
        connection.flush().await?;
        match connection.next().await? {
            (b'Z', _) => Ok(changed),
            (b'E', body) => Err(connection.refusal(&body).await),
            (kind, _) => Err(connection.unexpected(kind)),
        }
    }

    /// Runs the statements of `sql`, which take no parameters; what each gave is added to `outcomes`, with all its
    /// rows as text. Statements that come together are one transaction.
    ///
    /// # Errors
    /// The first error of a statement, after which those that follow do not run; a COPY from or to this client is one.
    pub async fn run_script(
        &mut self,
        sql: &str,
        outcomes: &mut Vec<ScriptOutcome>,
    ) -> Result<(), ClientError> {
        let mut connection = self.free()?;
        connection.settle().await?;
        connection.put_query(without_zero(sql)?)?;
        connection.flush().await?;
        let mut outcome = ScriptOutcome::default();
        let mut rows: Option<Rows> = None;
        loop {
            match connection.next().await? {
                (b'T', body) => {
                    let Some(columns) = described(&body, |_, _| Kind::Shown) else {
                        return Err(connection.broken(NO_COLUMNS));
                    };
                    let mut begun = Rows::new(columns);
                    outcome.rows = Some((begun.schema()?, Vec::new()));
                    rows = Some(begun);
                }
                (b'D', body) => {
                    let taken = rows.as_mut().and_then(|rows| rows.append(&body));
                    taken.ok_or_else(|| connection.broken("a row that is none"))??;
                    if let Some(rows) = rows.as_mut().filter(|rows| rows.is_full()) {
                        keep(&mut outcome, rows)?;
                    }
                }
                (b'C', body) => {
                    if let Some(mut rows) = rows.take() {
                        keep(&mut outcome, &mut rows)?;
                    }
                    outcome.tag = tag(&body);
                    outcomes.push(std::mem::take(&mut outcome));
                }
                (b'I', _) => {}
                (b'E', body) => return Err(connection.refusal(&body).await),
                (b'Z', _) => return Ok(()),
                (kind @ (b'G' | b'H'), _) => return Err(connection.refuse_copy(kind).await),
                (kind, _) => return Err(connection.unexpected(kind)),
            }
        }
    }

    /// Stops a statement from another task or thread.
    #[must_use]
    pub fn cancel_handle(&self) -> CancelHandle {
        self.canceller.clone()
    }

    /// Stops the statement whose future or answer was dropped, and skips the rest of what the server sends of it. One
    /// whose [`Answer`] is held is asked to stop.
    pub async fn stop(&self) {
        match self.free() {
            Ok(mut connection) => self.canceller.stop(&mut connection).await,
            // A server that cannot be reached has lost the statement.
            Err(_) => self.canceller.cancel().await.unwrap_or_default(),
        }
    }

    /// The state of the transaction, as it was after the last answer that was read.
    #[must_use]
    pub fn transaction_status(&self) -> TransactionStatus {
        self.shared.status()
    }

    /// Whether a transaction block is open, also one that has failed.
    #[must_use]
    pub fn in_transaction(&self) -> bool {
        self.transaction_status() != TransactionStatus::Idle
    }

    /// Whether a transaction block has failed, and takes nothing but its end.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.transaction_status() == TransactionStatus::Failed
    }

    /// The notices since the last call.
    pub fn take_notices(&mut self) -> Vec<ServerError> {
        self.shared.take_notices()
    }

    /// A setting that the server reports, as `server_version` or `TimeZone`.
    #[must_use]
    pub fn setting(&self, name: &str) -> Option<String> {
        self.shared.setting(name)
    }

    /// The server, and as whom it was asked.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Whether the connection is closed: it takes no more statements.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.connection.try_lock().is_ok_and(|connection| connection.is_broken())
    }

    /// Waits until no answer holds the connection.
    pub async fn freed(&self) {
        drop(self.connection.lock().await);
    }

    /// The connection, if no answer holds it.
    pub(crate) fn free(&self) -> Result<OwnedMutexGuard<Connection>, ClientError> {
        Arc::clone(&self.connection).try_lock_owned().map_err(|_| ClientError::Busy)
    }

    /// Prepares a statement for these values, whose types are declared; 0: the statement decides.
    async fn prepare_for(
        &self,
        connection: &mut Connection,
        sql: &str,
        (values, mut declared): (&[Value], Vec<u32>),
    ) -> Result<Prepared, ClientError> {
        // A server would take the others for parameters that nothing reads.
        declared.truncate(highest_parameter(sql));
        let described = match declared.contains(&0) {
            true => self.describe_undeclared(connection, sql, &declared).await,
            false => self.describe(connection, (sql, false), &declared).await,
        };
        let may_go_on = self.transaction_status() != TransactionStatus::Failed;
        let prepared = match described {
            Err(error) if error.sqlstate() == UNDECIDED && may_go_on && declared.contains(&0) => {
                // Nothing tells the type of a text: it is one.
                for oid in &mut declared {
                    *oid = if *oid == 0 { TEXT } else { *oid };
                }
                self.describe(connection, (sql, false), &declared).await?
            }
            described => described?,
        };
        check_count(values, &prepared.parameters)?;
        Ok(prepared)
    }

    /// As [`Self::describe`], of parameters whose types the server may not be able to tell. Within a transaction its
    /// refusal would fail all that was done before: it is asked behind a savepoint, once for each statement.
    async fn describe_undeclared(
        &self,
        connection: &mut Connection,
        sql: &str,
        declared: &[u32],
    ) -> Result<Prepared, ClientError> {
        let mut hasher = DefaultHasher::new();
        (sql, declared).hash(&mut hasher);
        let key = hasher.finish();
        let is_known =
            || self.decided.lock().unwrap_or_else(PoisonError::into_inner).contains(&key);
        if self.transaction_status() != TransactionStatus::Active || is_known() {
            return self.describe(connection, (sql, false), declared).await;
        }
        let described = self.describe(connection, (sql, true), declared).await;
        let is_refused = match &described {
            Ok(prepared) => prepared.is_told_late,
            Err(error) => error.sqlstate() == UNDECIDED,
        };
        if is_refused {
            connection
                .put_query(&format!("ROLLBACK TO SAVEPOINT {APART}; RELEASE SAVEPOINT {APART}"))?;
            connection.flush().await?;
            loop {
                match connection.next().await? {
                    (b'C', _) => {}
                    (b'Z', _) => break,
                    (b'E', body) => return Err(connection.refusal(&body).await),
                    (kind, _) => return Err(connection.unexpected(kind)),
                }
            }
            if described.is_ok() {
                return self.describe(connection, (sql, false), declared).await;
            }
        } else if described.is_ok() {
            let mut decided = self.decided.lock().unwrap_or_else(PoisonError::into_inner);
            if decided.len() >= DECIDED_MAX {
                decided.clear();
            }
            decided.insert(key);
        }
        described
    }

    /// Parses a statement whose parameters are declared so, and asks for its types; with `is_apart` between a savepoint
    /// and its release.
    async fn describe(
        &self,
        connection: &mut Connection,
        (sql, is_apart): (&str, bool),
        declared: &[u32],
    ) -> Result<Prepared, ClientError> {
        let sql = without_zero(sql)?;
        let declared: &[u32] = if declared.iter().all(|oid| *oid == 0) { &[] } else { declared };
        let count = u16::try_from(declared.len()).map_err(|_| ClientError::TooMany)?;
        if is_apart {
            put_named(connection, &format!("SAVEPOINT {APART}"))?;
        }
        connection.put(b'P', |body| {
            put_text(body, "");
            put_text(body, sql);
            body.put_u16(count);
            for oid in declared {
                body.put_u32(*oid);
            }
        })?;
        connection.put(b'D', |body| body.put_slice(b"S\0"))?;
        if is_apart {
            put_named(connection, &format!("RELEASE SAVEPOINT {APART}"))?;
        }
        connection.put_sync();
        connection.flush().await?;
        let mut prepared = Prepared { parameters: Vec::new(), columns: None, is_told_late: false };
        let (mut is_parsed, mut has_types) = (false, false);
        loop {
            match connection.next().await? {
                (b'1', _) => is_parsed = true,
                (b'n', _) => {}
                (b'2' | b'C' | b'3', _) if is_apart => {}
                (b't', body) => match parameter_types(&body) {
                    Some(types) => (prepared.parameters, has_types) = (types, true),
                    None => return Err(connection.broken("types of parameters that are none")),
                },
                (b'T', body) => prepared.columns = Some(self.columns(connection, &body)?),
                (b'E', body) => {
                    let error = connection.refusal(&body).await;
                    return match has_types && error.sqlstate() == UNTOLD {
                        true => Ok(Prepared { is_told_late: true, ..prepared }),
                        false => Err(error),
                    };
                }
                (b'Z', _) if is_parsed => return Ok(prepared),
                (kind, _) => return Err(connection.unexpected(kind)),
            }
        }
    }

    /// Asks for the columns of the prepared statement with these values; None: it returns no rows.
    async fn describe_bound(
        &self,
        connection: &mut Connection,
        values: &[Value],
        types: &[u32],
    ) -> Result<Option<Vec<Described>>, ClientError> {
        put_bind(connection, values, types, &[])?;
        connection.put(b'D', |body| body.put_slice(b"P\0"))?;
        connection.put_sync();
        connection.flush().await?;
        let mut columns = None;
        loop {
            match connection.next().await? {
                (b'2' | b'n', _) => {}
                (b'T', body) => columns = Some(self.columns(connection, &body)?),
                (b'E', body) => return Err(connection.refusal(&body).await),
                (b'Z', _) => return Ok(columns),
                (kind, _) => return Err(connection.unexpected(kind)),
            }
        }
    }

    /// The columns in a RowDescription.
    fn columns(
        &self,
        connection: &mut Connection,
        body: &[u8],
    ) -> Result<Vec<Described>, ClientError> {
        let kind = |oid, modifier| Kind::of(oid, modifier, self.lists_as_text);
        described(body, kind).ok_or_else(|| connection.broken(NO_COLUMNS))
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Client({:?}, {:?})", self.address, self.transaction_status())
    }
}

/// The type that all values of a place have themselves, for each place; 0: they have none, or different ones.
fn own_types<R: AsRef<[Value]>>(rows: &[R]) -> Vec<u32> {
    let count = rows.first().map_or(0, |row| row.as_ref().len());
    let common = |place: usize| {
        let mut found = None;
        let values = rows.iter().filter_map(|row| row.as_ref().get(place));
        // NULL is of any type.
        for value in values.filter(|value| !matches!(value, Value::Null)) {
            let own = value.own_type().unwrap_or(0);
            if *found.get_or_insert(own) != own {
                return 0;
            }
        }
        found.unwrap_or(0)
    };
    (0..count).map(common).collect()
}

/// The highest number of a parameter in the text, or of what looks like one in it.
fn highest_parameter(sql: &str) -> usize {
    let digits = |rest: &str| {
        let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
        rest.get(..end).and_then(|digits| digits.parse().ok()).unwrap_or(0)
    };
    sql.split('$').skip(1).map(digits).max().unwrap_or(0)
}

fn check_count(values: &[Value], types: &[u32]) -> Result<(), ClientError> {
    let (given, wanted) = (values.len(), types.len());
    match given == wanted {
        true => Ok(()),
        false => Err(ClientError::ParameterCount { wanted, given }),
    }
}

/// Appends an Execute of the unnamed portal, with all its rows.
pub(crate) fn put_execute(connection: &mut Connection) -> Result<(), ClientError> {
    connection.put(b'E', |body| body.put_slice(&[0; 5]))
}

/// Reads the answer to a Bind and an Execute within a series; returns how many rows were changed.
async fn executed(connection: &mut Connection) -> Result<u64, ClientError> {
    loop {
        match connection.next().await? {
            (b'2' | b'D', _) => {}
            (b'C', body) => return Ok(row_count(&tag(&body)).unwrap_or(0)),
            (b'I', _) => return Ok(0),
            (b'E', body) => return Err(connection.refusal(&body).await),
            (kind @ (b'G' | b'H'), _) => return Err(connection.refuse_copy(kind).await),
            (kind, _) => return Err(connection.unexpected(kind)),
        }
    }
}

/// Appends a Bind of `values` to the unnamed statement.
fn put_bind(
    connection: &mut Connection,
    values: &[Value],
    types: &[u32],
    columns: &[Described],
) -> Result<(), ClientError> {
    let encoded: Vec<_> =
        values.iter().zip(types).map(|(value, oid)| value.encoded(*oid)).collect();
    let count = u16::try_from(encoded.len()).map_err(|_| ClientError::TooMany)?;
    let column_count = u16::try_from(columns.len()).map_err(|_| ClientError::TooMany)?;
    let lengths = encoded.iter().map(|(value, _)| match value {
        Some(value) => i32::try_from(value.len()).map_err(|_| too_long()),
        None => Ok(-1),
    });
    let lengths = lengths.collect::<Result<Vec<i32>, ClientError>>()?;
    connection.put(b'B', |body: &mut BytesMut| {
        put_text(body, "");
        put_text(body, "");
        body.put_u16(count);
        for (_, is_binary) in &encoded {
            body.put_u16(u16::from(*is_binary));
        }
        body.put_u16(count);
        for ((value, _), length) in encoded.iter().zip(lengths) {
            body.put_i32(length);
            body.put_slice(value.as_deref().unwrap_or_default());
        }
        body.put_u16(column_count);
        for column in columns {
            body.put_u16(u16::from(column.kind.is_binary()));
        }
    })
}

/// Moves rows of a script's statement to its outcome.
fn keep(outcome: &mut ScriptOutcome, rows: &mut Rows) -> Result<(), ClientError> {
    if let Some((_, batches)) = &mut outcome.rows
        && !rows.is_empty()
    {
        batches.push(rows.batch()?);
    }
    Ok(())
}

/// The types in a ParameterDescription.
fn parameter_types(body: &[u8]) -> Option<Vec<u32>> {
    let mut reader = Reader::new(body);
    let count = reader.u16()?;
    let types = (0..count).map(|_| reader.u32()).collect::<Option<Vec<u32>>>()?;
    reader.is_empty().then_some(types)
}

pub(crate) fn without_zero(sql: &str) -> Result<&str, ClientError> {
    match sql.contains('\0') {
        true => Err(ClientError::Usage("a statement holds no zero byte".to_owned())),
        false => Ok(sql),
    }
}

/// Runs a statement without rows and parameters, and leaves the unnamed statement as it is.
fn put_named(connection: &mut Connection, sql: &str) -> Result<(), ClientError> {
    connection.put(b'P', |body| {
        put_text(body, APART);
        put_text(body, sql);
        body.put_u16(0);
    })?;
    connection.put(b'B', |body| {
        put_text(body, "");
        put_text(body, APART);
        // No formats of values, no values, and no formats of columns.
        body.put_slice(&[0; 6]);
    })?;
    put_execute(connection)?;
    connection.put(b'C', |body| {
        body.put_u8(b'S');
        put_text(body, APART);
    })
}

fn too_long() -> ClientError {
    ClientError::Usage("a value of a parameter takes more than 2 GB".to_owned())
}

/// Whether a statement begins with COPY.
fn begins_copy(sql: &str) -> bool {
    let mut rest = sql.trim_start();
    loop {
        if let Some(comment) = rest.strip_prefix("--") {
            rest = comment.split_once('\n').map_or("", |(_, after)| after).trim_start();
        } else if let Some(comment) = rest.strip_prefix("/*") {
            rest = comment.split_once("*/").map_or("", |(_, after)| after).trim_start();
        } else {
            break;
        }
    }
    let word = rest.split(|letter: char| !letter.is_ascii_alphabetic()).next().unwrap_or_default();
    word.eq_ignore_ascii_case("copy")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_declared_that_all_values_have() {
        let rows = [
            vec![Value::Null, Value::Int(1), Value::Int(1), "x".into()],
            vec![Value::Bool(true), Value::Int(2), Value::Float(0.5), Value::Null],
        ];
        assert_eq!(own_types(&rows), [16, 23, 0, 0]);
        assert!(own_types::<Vec<Value>>(&[]).is_empty());
        for (sql, highest) in [("", 0), ("SELECT $2, $1", 2), ("SELECT $1 + $10, '$'", 10)] {
            assert_eq!(highest_parameter(sql), highest, "{sql}");
        }
    }

    #[test]
    fn a_copy_is_known_by_its_first_word() {
        for sql in
            ["COPY t FROM STDIN", " -- rows\n copy t to stdout", "/* x */copy(select 1) to stdout"]
        {
            assert!(begins_copy(sql), "{sql}");
        }
        for sql in ["", "SELECT 'copy'", "-- copy", "copyright()", "/* copy"] {
            assert!(!begins_copy(sql), "{sql}");
        }
    }
}
