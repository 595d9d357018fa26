//! A [`Client`] over a session of a database in this process; compared with the wire, it shows the wire's cost.

use cleave_host::value::value_text;
use cleave_host::{ClientStreams, Error, Outcome, Session};
use tokio::runtime::Handle;

use super::{Client, ClientError, CsvPieces, Pieces, Rows, Value};

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
        let nothing = || Ok(Rows::Made { rows: Vec::new(), count: 0 });
        outcomes.into_iter().next_back().map_or_else(nothing, rows)
    }

    fn prepare(&mut self, name: &str, sql: &str) -> Result<(), ClientError> {
        Ok(self.runtime.block_on(self.session.prepare(name, sql, &[]))?)
    }

    fn execute(&mut self, name: &str, values: &[Value]) -> Result<Rows, ClientError> {
        let values: Vec<Option<&str>> = values.iter().map(|value| value.0.as_deref()).collect();
        rows(self.runtime.block_on(self.session.execute(name, &values))?)
    }

    fn load(&mut self, table: &str, pieces: CsvPieces) -> Result<(), ClientError> {
        let input = Box::new(Pieces::new(pieces));
        self.session.set_client_streams(ClientStreams { input: Some(input), output: None });
        self.run(&format!("COPY {table} FROM STDIN WITH (FORMAT csv)")).map(|_| ())
    }
}

fn rows(outcome: Outcome) -> Result<Rows, ClientError> {
    let batches = match outcome {
        Outcome::Done { tag } => return Ok(Rows::Made { rows: Vec::new(), count: count_in(&tag) }),
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
    Ok(Rows::Made { rows, count })
}

/// The rows that a command's tag counts, as in "INSERT 0 3".
fn count_in(tag: &str) -> u64 {
    tag.rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0)
}

impl From<Error> for ClientError {
    fn from(error: Error) -> Self {
        Self::Refused { state: error.sqlstate().to_owned(), message: error.to_string() }
    }
}
