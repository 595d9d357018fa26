//! The device as a host sees it: one suite over every kind of link, then the behaviour of sockets alone.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod bench;
mod broadcasts;
mod conformance;
mod dependencies;
mod extending;
mod faults;
mod fencing;
mod grants;
mod homes;
mod lending;
mod local;
mod lock_rows;
mod locking;
mod merging;
mod peer_pages;
mod peer_rows;
mod peers;
mod profile;
mod program;
mod restart;
mod shipped_delta;
mod spilling;
