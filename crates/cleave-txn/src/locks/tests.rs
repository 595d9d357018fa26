//! Conflicts, queues, rings.
