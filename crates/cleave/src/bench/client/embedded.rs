//! A [`Client`] over a session of a database in this process; compared with the wire, it shows the wire's cost.

use std::io::Read;

use cleave_host::value::value_text;
use cleave_host::{ClientStreams, Error, Outcome, Session};
use tokio::runtime::Handle;

use super::{Client, ClientError, CsvPieces, Rows, Value, count_in};

/// A session, and the threads that its statements run on.
pub(crate) struct Embedded {
    session: Session,
    runtime: Handle,
}

impl Embedded {
    /// A client over `session`.
    pub(crate) fn new(session: Session, runtime: Handle) -> Self {
        Self { session, runtime }
    }
}

impl Client for Embedded {
    fn run(&mut self, sql: &str) -> Result<Rows, ClientError> {
        let outcomes = self.runtime.block_on(self.session.run(sql))?;
        outcomes.into_iter().next_back().map_or(Ok(Rows::default()), rows)
    }

    fn prepare(&mut self, name: &str, sql: &str) -> Result<(), ClientError> {
        Ok(self.runtime.block_on(self.session.prepare(name, sql, &[]))?)
    }

    fn execute(&mut self, name: &str, values: &[Value]) -> Result<Rows, ClientError> {
        let values: Vec<Option<&str>> = values.iter().map(|value| value.0.as_deref()).collect();
        rows(self.runtime.block_on(self.session.execute(name, &values))?)
    }

    fn load(&mut self, table: &str, pieces: CsvPieces) -> Result<(), ClientError> {
        let input = Box::new(Pieces { pieces, piece: Vec::new(), taken: 0 });
        self.session.set_client_streams(ClientStreams { input: Some(input), output: None });
        self.run(&format!("COPY {table} FROM STDIN WITH (FORMAT csv)")).map(|_| ())
    }
}

fn rows(outcome: Outcome) -> Result<Rows, ClientError> {
    let batches = match outcome {
        Outcome::Done { tag } => return Ok(Rows { rows: Vec::new(), count: count_in(&tag) }),
        Outcome::Rows { batches, .. } => batches,
    };
    let mut rows = Vec::new();
    for batch in &batches {
        for row in 0..batch.num_rows() {
            let texts = batch.columns().iter().map(|column| value_text(column, row));
            rows.push(texts.collect::<Result<Vec<_>, _>>()?);
        }
    }
    let count = rows.len() as u64;
    Ok(Rows { rows, count })
}

impl From<Error> for ClientError {
    fn from(error: Error) -> Self {
        Self::Refused { state: error.sqlstate().to_owned(), message: error.to_string() }
    }
}

/// Pieces as one stream of bytes.
struct Pieces {
    pieces: CsvPieces,
    piece: Vec<u8>,
    taken: usize,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        while self.taken == self.piece.len() {
            let Some(piece) = self.pieces.next() else { return Ok(0) };
            (self.piece, self.taken) = (piece, 0);
        }
        let rest = self.piece.get(self.taken..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        if let (Some(to), Some(from)) = (buffer.get_mut(..count), rest.get(..count)) {
            to.copy_from_slice(from);
        }
        self.taken += count;
        Ok(count)
    }
}
