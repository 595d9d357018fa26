//! Memory of uncommitted changes, of rows that a server encodes for its client, and of what a script is read into:
//! charged to the pool that the operators of all queries share.
//!
//! Invariant: what a statement or a transaction gathers is charged before more is gathered. A client with too many
//! changes gets an error (53200), and the process continues.

use std::sync::Arc;

use arrow::array::RecordBatch;
use cleave_catalog::error::{Error, Result};
use cleave_engine::write::begun::byte_count;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{
    MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};
use futures::StreamExt;
use futures::stream::BoxStream;

use crate::database::Database;
use crate::session::Session;

/// The share of query memory that the changes of one transaction may take before they are written: one part in this
/// many.
const SHARE: usize = 8;
/// Minimum of that share.
const SHARE_MIN: usize = 1 << 20;

/// Bytes that a word or a sign of a script takes as a token and as a part of a statement.
const TOKEN_BYTES: usize = 512;
/// The statements of shorter scripts are not charged.
const SCRIPT_BYTES_MIN: usize = 64 << 10;

/// The memory of a script's statements; given back when it is dropped.
#[derive(Debug)]
pub struct ScriptMemory {
    _charge: Charge,
}

impl Session {
    /// Charges what `script` is going to be read into, to be kept until its statements have run; None: it is short.
    ///
    /// # Errors
    /// 53200: the pool does not have the bytes.
    pub fn script_memory(&self, script: &str) -> Result<Option<ScriptMemory>> {
        if script.len() < SCRIPT_BYTES_MIN {
            return Ok(None);
        }
        let charge = Charge::named(&self.database, "the words of a statement");
        charge.grow(token_count(script).saturating_mul(TOKEN_BYTES))?;
        Ok(Some(ScriptMemory { _charge: charge }))
    }
}

/// About how many tokens `script` has; a text in quotes is one.
fn token_count(script: &str) -> usize {
    let (mut count, mut in_quotes, mut in_word) = (0, false, false);
    for byte in script.bytes() {
        let is_quote = byte == b'\'';
        let is_word = byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii();
        let begins = match in_quotes {
            true => false,
            false => is_quote || is_word && !in_word || !is_word && !byte.is_ascii_whitespace(),
        };
        count += usize::from(begins);
        in_quotes ^= is_quote;
        in_word = is_word;
    }
    count
}

/// A reservation in the pool, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Charge {
    what: &'static str,
    pool: Arc<dyn MemoryPool>,
    reservation: MemoryReservation,
}

impl Charge {
    /// An empty reservation.
    pub(super) fn new(database: &Database) -> Self {
        Self::named(database, "rows that a transaction changes")
    }

    /// An empty reservation for `what`.
    pub(super) fn named(database: &Database, what: &'static str) -> Self {
        let pool = Arc::clone(&database.query_runtime().memory_pool);
        let reservation = MemoryConsumer::new(what).register(&pool);
        Self { what, pool, reservation }
    }

    /// Charges what exists already and cannot be refused.
    pub(super) fn of(database: &Database, bytes: usize) -> Self {
        let charge = Self::new(database);
        charge.reservation.grow(bytes);
        charge
    }

    /// Charges `bytes` more.
    ///
    /// # Errors
    /// 53200: the pool does not have them.
    pub(super) fn grow(&self, bytes: usize) -> Result<()> {
        self.reservation.try_grow(bytes).map_err(|_| self.refused(bytes))
    }

    /// Charges `bytes` in total; if the pool does not have them, the charge stays as it was.
    ///
    /// # Errors
    /// As [`Charge::grow`].
    pub(super) fn set(&self, bytes: usize) -> Result<()> {
        let more = bytes.saturating_sub(self.reservation.size());
        self.reservation.try_resize(bytes).map_err(|_| self.refused(more))
    }

    fn refused(&self, bytes: usize) -> Error {
        let limit = match self.pool.memory_limit() {
            MemoryLimit::Finite(limit) => format!("{limit} bytes"),
            MemoryLimit::Infinite | MemoryLimit::Unknown => "a limit".to_owned(),
        };
        let message = format!(
            "out of memory: {} need {bytes} bytes more, and --query-memory allows {limit} for all queries, of \
             which {} are in use",
            self.what,
            self.pool.reserved()
        );
        DataFusionError::ResourcesExhausted(message).into()
    }
}

/// The memory of rows on their way to a client, encoded; few bytes are not charged.
#[derive(Debug)]
pub struct SentRows<'a> {
    database: &'a Database,
    charge: Option<Charge>,
}

/// Bytes of encoded rows that are not charged.
const SENT_BYTES_FREE: usize = 1 << 20;

impl<'a> SentRows<'a> {
    pub(super) fn new(database: &'a Database) -> Self {
        Self { database, charge: None }
    }

    /// Charges `bytes` in total from now on.
    ///
    /// # Errors
    /// 53200: the memory of queries does not have them.
    pub fn hold(&mut self, bytes: usize) -> Result<()> {
        if bytes <= SENT_BYTES_FREE {
            self.charge = None;
            return Ok(());
        }
        let named = || Charge::named(self.database, "rows on their way to the client");
        self.charge.get_or_insert_with(named).set(bytes)
    }
}

/// Bytes of changes that a transaction keeps in memory.
pub(super) fn share_of(database: &Database) -> usize {
    match database.query_memory_max() {
        usize::MAX => usize::MAX,
        limit => (limit / SHARE).max(SHARE_MIN),
    }
}

/// All rows of `first` and `rest`, for one batch, with their charge.
///
/// # Errors
/// Those of `rest`; 53200.
pub(super) async fn all_of(
    database: &Database,
    first: Vec<RecordBatch>,
    mut rest: BoxStream<'_, Result<RecordBatch>>,
) -> Result<(Vec<RecordBatch>, Charge)> {
    let (charge, mut all) = (Charge::new(database), first);
    for rows in &all {
        charge.grow(2 * byte_count(rows))?;
    }
    while let Some(rows) = rest.next().await.transpose()? {
        charge.grow(2 * byte_count(&rows))?;
        all.push(rows);
    }
    Ok((all, charge))
}

#[cfg(test)]
mod tests {
    //! It gives back what it took, and says which setting it is about.

    use super::*;
    use cleave_catalog::query_memory::query_runtime;

    #[test]
    fn what_the_pool_does_not_have_is_refused_by_name() {
        let pool = Arc::clone(&query_runtime(1000, None).unwrap().memory_pool);
        let charge = || Charge {
            what: "rows that a transaction changes",
            pool: Arc::clone(&pool),
            reservation: MemoryConsumer::new("rows to change").register(&pool),
        };
        let (one, other) = (charge(), charge());
        one.grow(600).unwrap();
        let refused = other.set(500).unwrap_err();
        assert_eq!(refused.sqlstate(), "53200");
        let text = refused.to_string();
        assert!(text.contains("--query-memory allows 1000 bytes"), "{text}");
        one.set(100).unwrap();
        other.set(500).unwrap();
        drop((one, other));
        assert_eq!(pool.reserved(), 0);
    }
}
