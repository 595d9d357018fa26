//! Replaces the network in simulations: on a simulator's thread, links to remote devices are made by the simulator.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use super::link::{Link, LinkError};
use super::remote::RemoteAddress;

/// Makes the link to the device at an address.
pub type Dial = Rc<dyn Fn(&RemoteAddress) -> Result<Arc<dyn Link>, LinkError>>;

thread_local! {
    static DIAL: RefCell<Option<Dial>> = const { RefCell::new(None) };
}

/// Has `dial` make this thread's links to remote devices until the guard is dropped.
#[must_use]
pub fn simulate_network(dial: Dial) -> SimulatedNetwork {
    SimulatedNetwork { before: DIAL.replace(Some(dial)) }
}

/// The link to `address`, if this thread's network is simulated.
pub fn dial_simulated(address: &RemoteAddress) -> Option<Result<Arc<dyn Link>, LinkError>> {
    let dial = DIAL.with_borrow(Option::clone)?;
    Some(dial(address))
}

/// Ends the simulation of the network when dropped.
pub struct SimulatedNetwork {
    before: Option<Dial>,
}

impl Drop for SimulatedNetwork {
    fn drop(&mut self) {
        DIAL.set(self.before.take());
    }
}

impl fmt::Debug for SimulatedNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimulatedNetwork")
    }
}
