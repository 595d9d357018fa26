//! Two machines whose devices read each other's pages and take each other's rows.
//!
//! 1. Tables lie on either machine, on both, or on one and the host. Half the queries join, and each names devices that
//!    compute, or lets devices exchange rows ([`PEER_WAYS`]). What the host sends and what devices send each other
//!    fails at the same rates, each by itself.
//! 2. An event may also be one of the network between the machines: nothing comes through in one direction for a while;
//!    or a device's process is replaced at once, with another incarnation, so that its runs and its grants are gone.
//! 3. When the run [looks](Simulation::look), some tables are read in these ways as well, without faults. Then no
//!    device has a grant, a link to another one, or a run.

use std::time::Duration;

use cleave_fragment::waiting::{sleep, timeout};

use super::machines::Layout;
use super::{Found, STATEMENT_LIMIT, Simulation, beside};
use crate::model::Query;
use crate::workload::{NO_DEVICES, PEER_WAYS, may_be_refused};
use crate::world;

impl Simulation {
    /// Something of the network between the machines.
    pub(super) fn network_event(&mut self, soon: Duration, later: Duration) {
        self.events += 1;
        let machine = self.a_machine();
        if self.random.below(3) == 0 {
            beside(async move {
                sleep(soon).await;
                machine.kill(false);
                machine.boot();
            });
            return;
        }
        let mut names = self.machines.iter().map(|other| other.name());
        let Some(other) = names.find(|name| *name != machine.name()) else { return };
        beside(async move {
            sleep(soon).await;
            // Also for longer than a device waits for pages.
            world::with(|world| world.cut(machine.name(), other, later * 400));
        });
    }

    /// Lets each device work for itself, as statements without a word of devices do.
    pub(super) fn name_no_devices(&mut self) -> Found<()> {
        if self.layout != Layout::Peers {
            return Ok(());
        }
        for (name, value) in NO_DEVICES {
            self.session()?.set(name, value).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Reads some tables by devices that reach each other, without faults.
    pub(super) async fn look_between_devices(&mut self) -> Found<()> {
        if self.layout != Layout::Peers {
            return Ok(());
        }
        self.ask_devices().await?;
        let names: Vec<String> = self.model.tables.keys().cloned().collect();
        for way in PEER_WAYS.iter().filter(|_| !names.is_empty()) {
            for (name, value) in *way {
                self.session()?.set(name, value).map_err(|error| error.to_string())?;
            }
            let mut table = || names[world::index(&mut self.random, names.len())].clone();
            let queries = [Query::All(table()), Query::JoinGroups(table(), table())];
            for query in queries {
                let ran = timeout(STATEMENT_LIMIT, self.session()?.run(&query.sql())).await;
                let ran = ran.ok_or_else(|| format!("it hangs: {}", query.sql()))?;
                if ran
                    .as_ref()
                    .is_err_and(|error| error.sqlstate() == "0A000" && may_be_refused(way))
                {
                    continue;
                }
                let outcomes = ran
                    .map_err(|error| format!("{way:?} {}: without faults, {error}", query.sql()))?;
                self.compare(&query, &outcomes)?;
            }
        }
        self.name_no_devices()
    }
}
