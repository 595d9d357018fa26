//! The order of commits, and what snapshots hold.
