//! The memory pool that all queries of a database share.

use std::sync::Arc;

use datafusion_execution::memory_pool::{FairSpillPool, MemoryLimit};
use datafusion_execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};

use crate::error::{Error, Result};

/// The memory and spill space of a database's statements: `memory_bytes` in all; beyond it, operators spill to
/// temporary files if they can.
pub fn query_runtime(memory_bytes: u64) -> Result<Arc<RuntimeEnv>> {
    let pool = FairSpillPool::new(usize::try_from(memory_bytes).unwrap_or(usize::MAX));
    RuntimeEnvBuilder::new().with_memory_pool(Arc::new(pool)).build_arc().map_err(Error::from)
}

/// Bytes that all queries of `runtime` together may take.
pub fn memory_max(runtime: &RuntimeEnv) -> usize {
    match runtime.memory_pool.memory_limit() {
        MemoryLimit::Finite(bytes) => bytes,
        MemoryLimit::Infinite | MemoryLimit::Unknown => usize::MAX,
    }
}
