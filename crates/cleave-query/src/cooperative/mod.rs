//! The host's half of a split statement: it runs fragments on devices and takes their rows.
//!
//! [`fragment_exec`] is the plan node above a cut. It sends a [`prepared_fragment`] to each device that has a part of
//! the pages ([`beginning`]), of a mirror perhaps to [several copies](dividing), with the [`sent_rows`] that its joins
//! need from elsewhere, and takes the rows of a [`shared_run`]. Meanwhile the host may be [`stealing`] morsels, for
//! itself and for devices of other nodes, and [`feeding`] the run tightened filters; a run of which it takes nothing is
//! [`followed`]; [`spill_space`] is where fragments that outgrow their memory spill; [`figures`] are measured on the
//! way. A run that is lost is made again on the host without its [`given_rows`]; where that cannot be, it has
//! [`held_rows`]. Queries of a batch ask for [`memory_share`]s. Pages may lie on other devices than the one that runs a
//! fragment: their [`homes`], which it reads as their [`peers`] if they are of other nodes. Fragments may send their
//! rows to devices that join or group them, and not to the host: [`exchanges`]; or to an engine of their node that
//! merges them first: [`gathering`].
//!
//! A query that is one fragment as a whole ([`whole_fragment`]) may get a root that writes pages or
//! locks rows: for [`changing`] rows, [`inserting`] or [`locking`] them. Rows that change may be [`found_rows`] of the
//! host. Rows that are inserted may be those of several devices, each of which writes its own; [`same_division`] says
//! whether a table that is divided by values has them there. [`update_cost`] predicts what pays. Others see what runs
//! as [`running_queries`], and how far devices are as [`ongoing_run`]; what changes rows is a [`shown_run`] there, and
//! that the host waits for several runs at once a [`shown_wait`].

mod beginning;
pub mod changing;
mod dividing;
pub mod exchanges;
mod feeding;
pub mod figures;
mod followed;
pub mod found_rows;
pub mod fragment_exec;
pub mod gathering;
mod given_rows;
mod held_rows;
mod homes;
pub mod inserting;
pub mod locking;
mod memory_share;
pub mod ongoing_run;
mod peers;
mod prepared_fragment;
pub mod replacing;
mod run_rows;
pub mod running_queries;
mod same_division;
mod sent_rows;
mod shared_run;
mod shown_run;
mod shown_wait;
mod spill_space;
mod stealing;
pub mod update_cost;
pub(crate) mod whole_fragment;
