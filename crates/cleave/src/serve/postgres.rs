//! PostgreSQL's protocol, version 3: bytes of a client in, statements of a [`Session`](cleave_host::Session) and their
//! rows out.
//!
//! 1. [`wire`]: bytes to messages; [`message`]: decodes them; [`reply`] and [`complaint`]: encode answers and errors.
//! 2. [`greet`]: TLS, startup, password by [`scram`].
//! 3. [`connection`]: the loop, the simple protocol; [`extended`]: prepared statements and portals; [`copy`]: COPY;
//!    [`block`]: transaction blocks.
//! 4. [`types`] and [`values`]: columns and values as text or in binary.
//! 5. [`interrupt`]: ends a statement from outside; [`time_limits`]: of statements, of transactions, and between them.
//!
//! Why the protocol is implemented here and not by a library: `docs/design/wire-protocol.md`.

pub(crate) mod block;
pub(crate) mod complaint;
pub(crate) mod connection;
pub(crate) mod copy;
pub(crate) mod extended;
pub(crate) mod greet;
pub(crate) mod interrupt;
pub(crate) mod linger;
pub(crate) mod message;
pub(crate) mod reply;
pub(crate) mod scram;
pub(crate) mod time_limits;
pub(crate) mod types;
pub(crate) mod values;
pub(crate) mod wire;
