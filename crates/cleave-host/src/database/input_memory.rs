//! The share of a database's memory that reading an input may hold.

use datafusion::execution::memory_pool::MemoryLimit;

use super::Database;
use crate::copy::InputMemory;

impl Database {
    /// What COPY and loads may hold of an input at once.
    #[must_use]
    pub fn input_memory(&self) -> InputMemory {
        match self.runtime.memory_pool.memory_limit() {
            MemoryLimit::Finite(bytes) => InputMemory::of(bytes as u64),
            MemoryLimit::Infinite | MemoryLimit::Unknown => InputMemory::default(),
        }
    }
}
