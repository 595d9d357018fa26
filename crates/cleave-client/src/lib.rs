//! A client of PostgreSQL's protocol, for servers of Cleave and of PostgreSQL: statements in, Arrow batches out.
//!
//! ```text
//!  "postgres://…" ─▶ Address ─▶ transport: TCP, TLS, Unix ─▶ greeting: startup, SCRAM ─▶ Client
//!
//!  Client::run ─▶ Parse, Describe ─▶ kinds of the columns ─▶ Bind, Execute ─▶ DataRow… ─▶ Answer: RecordBatch…
//! ```
//! 1. [`Address`] reads a URL, with what the environment and the password file add to it.
//! 2. `transport` opens TCP, TLS or a Unix socket, `greeting` logs in ([`scram`] proves the password).
//! 3. `wire` has the messages, in both directions, and what the connection owes.
//! 4. [`Client`] runs statements with [`Value`]s; an [`Answer`] gives the rows as batches, made by `columns` from
//!    values in binary. `text` has statements that are prepared and whose rows are not decoded ([`TextRows`]); `copy`
//!    moves rows of COPY, `cancel` stops a statement.
//! 5. [`blocking`] has sessions for threads without a runtime.
//! 6. [`ClientError`] has a variant for each remedy; a [`ServerError`] has all that the server said.
//!
//! Invariants: a result is read as it is asked for, so that no more of it is in memory than one batch and one message.
//! What a server sends is checked before it is used: a value of a wrong length, a count that lies or an endless message
//! is an error. Every future may be dropped at any await: what is left of its answer is skipped before the next
//! statement. A password is sent as a proof only, and is never printed.
//!
//! Why not `tokio-postgres`: it gives neither the state of the transaction nor command tags, and bounds no message.
//!
//! Source: PostgreSQL's manual, "Frontend/Backend Protocol".

mod address;
mod answer;
pub mod blocking;
mod blocking_stream;
mod cancel;
mod client;
mod columns;
mod copy;
mod error;
mod greeting;
mod kind;
mod numeric;
pub mod scram;
mod text;
mod transport;
mod value;
mod wire;

pub use address::{Address, Tls};
pub use answer::{Answer, BATCH_ROWS_MAX};
pub use cancel::CancelHandle;
pub use client::{Client, ScriptOutcome};
pub use copy::CopyOut;
pub use error::{ClientError, ServerError};
pub use text::TextRows;
pub use value::Value;
pub use wire::TransactionStatus;
