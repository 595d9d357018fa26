//! A connection to a server as a [`Client`]: prepared statements, values and rows as text.
//!
//! The session [blocks its thread](cleave_client::blocking): another thread's wake-ups would be measured too. A
//! statement is one send and one receive, and its rows are not decoded.

use cleave_client::{Address, blocking};

use super::{Client, ClientError, CsvPieces, Pieces, Rows, Value};

/// See the [module](self).
pub(crate) struct Wire(cleave_client::Client);

impl Wire {
    /// Connects.
    pub(crate) fn connect(address: &Address) -> Result<Self, ClientError> {
        Ok(Self(blocking::connect(address.clone())?))
    }
}

impl Client for Wire {
    fn run(&mut self, sql: &str) -> Result<Rows, ClientError> {
        Ok(Rows::Sent(blocking::wait(self.0.query_text(sql))?))
    }

    fn prepare(&mut self, name: &str, sql: &str) -> Result<(), ClientError> {
        Ok(blocking::wait(self.0.prepare(name, sql))?)
    }

    fn execute(&mut self, name: &str, values: &[Value]) -> Result<Rows, ClientError> {
        let values = values.iter().map(|value| value.0.as_deref());
        Ok(Rows::Sent(blocking::wait(self.0.execute_text(name, values))?))
    }

    fn load(&mut self, table: &str, pieces: CsvPieces) -> Result<(), ClientError> {
        let sql = format!("COPY {table} FROM STDIN WITH (FORMAT csv)");
        let mut rows = Pieces::new(pieces);
        blocking::wait(self.0.copy_in(&sql, &mut rows))?;
        Ok(())
    }
}

impl From<cleave_client::ClientError> for ClientError {
    fn from(error: cleave_client::ClientError) -> Self {
        match error.server() {
            Some(told) => {
                Self::Refused { state: told.sqlstate.clone(), message: told.message.clone() }
            }
            None => Self::Connection(error.to_string()),
        }
    }
}
