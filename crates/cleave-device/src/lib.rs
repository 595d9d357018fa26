//! The device: admits a fragment, runs it near the pages within its budget, and serves blocks.
//!
//! Commands enter over a link; replies and slots of rows leave.
//!
//! 1. [`serve`]: a listener, TLS and the token, or shared memory; commands and runs of one connection side by side.
//! 2. [`runtime`]: [`Runtime`], the implementation of every command; ownership by database and epoch, which
//!    [`OwnerRecord`] keeps over a restart.
//! 3. `reservations`: where the host may write; `grants`: what it lets other devices have.
//! 4. `admission`, `memory_budget`: how many bytes runs may have, together and each.
//! 5. `node`: the engines of one process, which lend idle cores to each other's runs.
//! 6. `fragment_run`: one run, its rings of slots and its end. `run_partitions`: the partitions of its pipeline.
//!    `row_division`: which of several devices gets which of its rows. `peer_rows`: rows that it takes from others.
//!    `run_pages`: the media as the run reads it, counted; `home_pages`: those of other devices too.
//!    `run_space`: where it may write, which the host extends. `peers`: links to other devices, and their pages.
//! 7. [`command_line`]: `cleaved`, and `cleave device-process`, which is the same.
//!    [`process_log`]: the log of a process; [`supervisor`] tells who started it that it serves; [`signals`] end it.
//!
//! Deliberately absent: SQL, planning, transactions, catalogs, placement. The host owns all of them; a device knows
//! blocks, and fragments while they run. Only the media and the record of its owner survive a restart.

mod admission;
pub mod command_line;
mod device_error;
mod fragment_run;
mod grants;
mod home_pages;
mod lane_tasks;
mod memory_budget;
mod node;
mod owner_record;
mod peer_rows;
mod peers;
pub mod process_log;
mod reservations;
mod reserved_pages;
mod row_division;
mod run_pages;
mod run_partitions;
mod run_space;
pub mod runtime;
pub mod serve;
pub mod signals;
pub mod supervisor;

pub use command_line::main_with_args;
pub use node::Node;
pub use owner_record::{OwnerRecord, OwnerRecordError};
pub use peers::PeerConnector;
pub use runtime::{Runtime, RuntimeError, RuntimeOptions};
pub use serve::{ListenOptions, Listener, LocalListener, LocalOptions, ServeError};
