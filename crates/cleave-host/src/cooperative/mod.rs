//! The host's half of a split statement: it runs fragments on devices and takes their rows.
//!
//! [`fragment_exec`] is the plan node above a cut; [`figures`] is what is measured on the way;
//! [`spill_space`] is where fragments that outgrow their memory put rows.

pub mod figures;
pub mod fragment_exec;
mod spill_space;
