//! The workloads: tables and rows, the operations and their shares, and the invariants of the rows afterwards.
//!
//! Each is written from its published description, with statements that every PostgreSQL understands.

pub(crate) mod ch;
pub(crate) mod linkbench;
pub(crate) mod tpcc;
pub(crate) mod ycsb;

use super::client::{Client, ClientError, CsvPieces};
use crate::generate::random::Draw;

/// The client's number and that of its operation, unique in a run.
pub(crate) type Turn = (u64, u64);

/// A workload.
pub(crate) trait Workload: Sync {
    /// The names of its operations.
    fn operations(&self) -> &'static [&'static str];

    /// Makes its tables anew, and their rows.
    fn load(&self, client: &mut dyn Client, seed: u64) -> Result<(), ClientError>;

    /// Prepares the statements that a client runs.
    fn prepare(&self, client: &mut dyn Client) -> Result<(), ClientError>;

    /// Chooses the next operation, by its position in the list.
    fn choose(&self, draw: &mut Draw, turn: Turn) -> usize;

    /// Runs an operation. After a failure it may be run again, with the same choices.
    fn perform(
        &self,
        operation: usize,
        client: &mut dyn Client,
        draw: Draw,
        turn: Turn,
    ) -> Result<(), ClientError>;

    /// The violated invariants of its rows after a run.
    fn check(&self, client: &mut dyn Client) -> Result<Vec<String>, ClientError>;
}

/// Bytes of a piece of CSV.
const PIECE_BYTES: usize = 64 << 10;

/// The lines that `line` appends for each number below `count`, in pieces.
fn csv(count: u64, mut line: impl FnMut(u64, &mut String) + Send + 'static) -> CsvPieces {
    let mut next = 0;
    Box::new(std::iter::from_fn(move || {
        let mut piece = String::with_capacity(PIECE_BYTES + 4096);
        while next < count && piece.len() < PIECE_BYTES {
            line(next, &mut piece);
            next += 1;
        }
        (!piece.is_empty()).then(|| piece.into_bytes())
    }))
}

/// The position of the first cumulative share, in thousandths, above a random number.
fn by_share(draw: &mut Draw, shares: &[u32]) -> usize {
    let drawn = draw.below(1000);
    let mut sum = 0;
    let at = shares.iter().position(|share| {
        sum += share;
        drawn < sum
    });
    at.unwrap_or(shares.len().saturating_sub(1))
}

/// `operation` within BEGIN and COMMIT.
fn in_transaction<T>(
    client: &mut dyn Client,
    operation: impl FnOnce(&mut dyn Client) -> Result<T, ClientError>,
) -> Result<T, ClientError> {
    client.run("BEGIN")?;
    let done = operation(client)?;
    client.run("COMMIT")?;
    Ok(done)
}

/// The failure of a client that finds an impossible result.
fn unexpected(what: impl Into<String>) -> ClientError {
    ClientError::Connection(what.into())
}

/// The records of a scale of 1.
const RECORDS: f64 = 100_000.0;

/// `scale` times [`RECORDS`], at least 100.
fn records(scale: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a bounded scale")]
    let records = (RECORDS * scale) as u64;
    records.max(100)
}
