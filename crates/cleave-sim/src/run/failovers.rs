//! Failovers: hosts are lost with their folders, and new ones continue from the log replica on the remote device.
//!
//! 1. A failover is tried under the faults of the run, and the new host may lose its power meanwhile; then it is
//!    started again, in the same folder, and succeeds.
//! 2. Then exactly the acknowledged statements are there: [`Simulation::look`] and [`Simulation::check`] verify it.

use std::rc::Rc;

use cleave_fragment::waiting::{sleep, timeout};
use cleave_host::log_replica::FailoverSource;
use cleave_host::replication::fail_over;
use cleave_host::{Error, StorageError};

use super::{CALM, Found, STATEMENT_LIMIT, Simulation, machines};
use crate::media::SimMedia;
use crate::world::{Disk, Rates, SimWorld};

/// Whether a statement is committed here but not on the replica.
pub(super) fn is_not_replicated(error: &Error) -> bool {
    let Error::Storage(error) = error else { return false };
    matches!(**error, StorageError::NotReplicated { .. })
}

impl Simulation {
    /// Loses the host for good; another one fails over.
    pub(super) async fn lose_host(&mut self, world: &Rc<SimWorld>) -> Found<()> {
        world.log(&"host: is lost");
        self.crashes += 1;
        world.set_host_power(false);
        self.open = None;
        sleep(CALM).await;
        world.host_files().lose_power();
        world.host_files().lose_folder(&self.place);
        let number = self.lost_hosts.unwrap_or_default() + 1;
        self.lost_hosts = Some(number);
        self.place = self.folder.join(format!("host{number}"));
        self.near = SimMedia::new("near", true);
        world.set_host_power(true);
        for machine in &self.machines {
            machine.boot();
            machine.restart_if_asked();
        }
        let mut is_there = false;
        while self.random.below(2) == 0 && !is_there {
            world.set_rates(self.rates);
            if self.random.below(2) == 0 {
                let changes = self.random.below(80);
                world.log(&format_args!("event: a failover's power goes after {changes} changes"));
                world.cut_host_power_after(changes);
            }
            is_there = self.failed_over().await?.is_ok();
            if !world.host_has_power() {
                is_there = false;
                sleep(CALM).await;
                world.host_files().lose_power();
                self.near.lose_power();
            }
            world.set_host_power(true);
            self.machines.iter().for_each(|machine| machine.restart_if_asked());
        }
        world.set_rates(Rates::default());
        Disk::ALL.into_iter().for_each(|disk| world.set_room(disk, None));
        sleep(CALM).await;
        if !is_there {
            match self.failed_over().await? {
                // It was complete before its power failed.
                Err(Error::Storage(error)) if is_whole(&error) => {}
                taken => taken
                    .map(drop)
                    .map_err(|error| format!("without faults, a failover: {error}"))?,
            }
        }
        sleep(CALM).await;
        Box::pin(self.look(world)).await?;
        Box::pin(self.check()).await
    }

    async fn failed_over(&self) -> Found<Result<(), Error>> {
        // No host has ever committed without the replica.
        let from = FailoverSource { way: machines::way_to("far").into(), accepts_stale: true };
        let options = self.options();
        let taking = timeout(STATEMENT_LIMIT, Box::pin(fail_over(&self.place, &from, &options)));
        Ok(taking.await.ok_or("a failover hangs")?.map(drop))
    }
}

fn is_whole(error: &StorageError) -> bool {
    matches!(error, StorageError::BackupPlace { .. })
}
