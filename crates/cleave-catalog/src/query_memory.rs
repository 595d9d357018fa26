//! The memory pool that all queries of a database share.
//!
//! An operator that can spill has its fair share: what those that cannot spill leave, divided by how many can. Most of
//! them need little, as the exchanges and partial aggregates of a plan, so one that needs more may take up to twice
//! what is unused. What remains unused shrinks as others come, and with it what one may take: whoever then has too much
//! is refused more, spills, and gives all back (dynamic thresholds; Choudhury and Hahne, "Dynamic Queue Length
//! Thresholds for Shared-Memory Packet Switches"). One operator alone leaves a third of the pool unused, two a fifth.

use std::fmt;
use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use datafusion_common::{DataFusionError, resources_datafusion_err};
use datafusion_execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion_execution::memory_pool::{
    MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};
use datafusion_execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};

use crate::error::{Error, Result};
use crate::tasks::carry_statements;

/// How many times as much as is unused one operator may take beyond its share.
const UNUSED_TIMES: usize = 2;

/// The memory and spill space of a database's statements: `memory_bytes` in all; beyond it, operators spill to
/// temporary files if they can, in a folder of this user alone in `spills` or else in the system's for such files.
pub fn query_runtime(memory_bytes: u64, spills: Option<PathBuf>) -> Result<Arc<RuntimeEnv>> {
    carry_statements();
    let pool = QueryPool::new(usize::try_from(memory_bytes).unwrap_or(usize::MAX));
    let builder = RuntimeEnvBuilder::new().with_memory_pool(Arc::new(pool));
    let folder = spills.unwrap_or_else(std::env::temp_dir);
    let mode = DiskManagerMode::Directories(vec![folder]);
    let disks = DiskManagerBuilder::default().with_mode(mode);
    let runtime = builder.with_disk_manager_builder(disks).build_arc()?;
    // Others could list its files.
    for path in runtime.disk_manager.temp_dir_paths() {
        set_permissions(&path, Permissions::from_mode(0o700))
            .map_err(|error| Error::io("make private", &path, error))?;
    }
    Ok(runtime)
}

/// Bytes that all queries of `runtime` together may take.
pub fn memory_max(runtime: &RuntimeEnv) -> usize {
    match runtime.memory_pool.memory_limit() {
        MemoryLimit::Finite(bytes) => bytes,
        MemoryLimit::Infinite | MemoryLimit::Unknown => usize::MAX,
    }
}

/// See the [module](self).
#[derive(Debug)]
struct QueryPool {
    byte_count: usize,
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    /// Consumers that can spill.
    spiller_count: usize,
    /// Bytes of those.
    spillable: usize,
    /// Bytes of all others.
    fixed: usize,
}

impl QueryPool {
    fn new(byte_count: usize) -> Self {
        Self { byte_count, used: Mutex::default() }
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refused(&self, by: &MemoryReservation, more: usize, left: usize) -> DataFusionError {
        resources_datafusion_err!(
            "{} needs {more} bytes beside the {} that it has; {left} of the {} bytes of all queries are left to it",
            by.consumer().name(),
            by.size(),
            self.byte_count
        )
    }
}

impl Used {
    /// Bytes in which consumers of this kind count.
    fn of(&mut self, consumer: &MemoryConsumer) -> &mut usize {
        if consumer.can_spill() { &mut self.spillable } else { &mut self.fixed }
    }

    /// The most that a consumer may have that can spill and has `own` bytes.
    fn spillable_max(&self, byte_count: usize, own: usize) -> usize {
        let unused = byte_count.saturating_sub(self.fixed + self.spillable);
        let share = byte_count.saturating_sub(self.fixed) / self.spiller_count.max(1);
        // What it takes is unused no more: `own + more <= times * (unused - more)`.
        let total = own.saturating_add(unused);
        let threshold = total / (UNUSED_TIMES + 1) * UNUSED_TIMES;
        share.max(threshold).min(total)
    }
}

impl MemoryPool for QueryPool {
    fn name(&self) -> &'static str {
        "queries"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.used().spiller_count += usize::from(consumer.can_spill());
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        let mut used = self.used();
        used.spiller_count = used.spiller_count.saturating_sub(usize::from(consumer.can_spill()));
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        *self.used().of(reservation.consumer()) += additional;
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        let mut used = self.used();
        let own = used.of(reservation.consumer());
        *own = own.saturating_sub(shrink);
    }

    fn try_grow(
        &self,
        reservation: &MemoryReservation,
        additional: usize,
    ) -> datafusion_common::Result<()> {
        let mut used = self.used();
        let own = reservation.size();
        let left = if reservation.consumer().can_spill() {
            used.spillable_max(self.byte_count, own).saturating_sub(own)
        } else {
            self.byte_count.saturating_sub(used.fixed + used.spillable)
        };
        if additional > left {
            return Err(self.refused(reservation, additional, left));
        }
        *used.of(reservation.consumer()) += additional;
        Ok(())
    }

    fn reserved(&self) -> usize {
        let used = self.used();
        used.fixed + used.spillable
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.byte_count)
    }
}

impl fmt::Display for QueryPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "queries: {} of {} bytes", self.reserved(), self.byte_count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spiller(pool: &Arc<dyn MemoryPool>) -> MemoryReservation {
        MemoryConsumer::new("spiller").with_can_spill(true).register(pool)
    }

    #[test]
    fn nobody_else_reads_spilled_rows() {
        let folder = tempfile::tempdir().unwrap();
        for spills in [Some(folder.path().to_owned()), None] {
            let runtime = query_runtime(1 << 20, spills).unwrap();
            let file = runtime.disk_manager.create_tmp_file("a test").unwrap();
            let paths = runtime.disk_manager.temp_dir_paths();
            assert_eq!(paths.len(), 1);
            let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode();
            assert_eq!(mode(&paths[0]) & 0o777, 0o700);
            drop(file);
        }
    }

    #[test]
    fn one_operator_takes_what_others_leave_and_no_more() {
        let pool: Arc<dyn MemoryPool> = Arc::new(QueryPool::new(3000));
        let idle: Vec<MemoryReservation> = (0..5).map(|_| spiller(&pool)).collect();
        let large = spiller(&pool);
        large.try_grow(2000).unwrap();
        assert!(large.try_grow(1).is_err(), "a third stays unused");
        let other = spiller(&pool);
        other.try_grow(666).unwrap();
        assert!(other.try_grow(1).is_err());
        assert!(idle[0].try_grow(222).is_ok());
        assert!(large.try_grow(1).is_err());
        // It spills, and the other may have more.
        large.free();
        other.try_grow(1000).unwrap();
        assert_eq!(pool.reserved(), 1888);
    }

    #[test]
    fn a_share_is_left_to_each_while_the_pool_has_room() {
        let pool: Arc<dyn MemoryPool> = Arc::new(QueryPool::new(1000));
        let all: Vec<MemoryReservation> = (0..4).map(|_| spiller(&pool)).collect();
        for own in &all {
            own.try_grow(250).unwrap();
        }
        assert!(all.iter().all(|own| own.try_grow(1).is_err()));
        let fixed = MemoryConsumer::new("fixed").register(&pool);
        assert!(fixed.try_grow(1).is_err());
        all[0].shrink(100);
        fixed.try_grow(100).unwrap();
        assert!(all[0].try_grow(1).is_err(), "nothing is left");
        assert_eq!(pool.reserved(), 1000);
        drop(all);
        assert_eq!(pool.reserved(), 100);
    }
}
