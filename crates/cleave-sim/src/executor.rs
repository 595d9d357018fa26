//! The executor of a simulation: one thread runs all tasks, and time jumps to the next event when nothing can run.
//!
//! It is tokio's single-threaded scheduler without clock and sockets: tasks run in the order in which they were woken,
//! and before the thread would sleep, the world advances its time. Blocking work runs as a task
//! ([`cleave_fragment::waiting`]).

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use cleave_media::simulation::{self, World};

use crate::world::{self, SimWorld};

/// Runs `main` in `world` to its end.
///
/// # Errors
/// The reason why it cannot end.
pub fn run<F: Future>(world: &Rc<SimWorld>, main: F) -> Result<F::Output, &'static str> {
    let entered = simulation::enter(Rc::clone(world) as Rc<dyn World>);
    SimWorld::install(Some(Rc::clone(world)));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .on_thread_park(|| world::with(SimWorld::idle))
        .build()
        .expect("a runtime without drivers needs nothing of the system");
    let output = runtime.block_on(async {
        let mut main = pin!(main);
        poll_fn(|context| {
            if let Some(why) = world.check_stuck(context.waker()) {
                return Poll::Ready(Err(why));
            }
            main.as_mut().poll(context).map(Ok)
        })
        .await
    });
    // The rest of the run ends while the world still exists.
    drop(runtime);
    SimWorld::install(None);
    drop(entered);
    output
}
