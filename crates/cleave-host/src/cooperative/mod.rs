//! The host's half of a split statement: it runs fragments on devices and takes their rows.
//!
//! [`fragment_exec`] is the plan node above a cut; [`figures`] is what is measured on the way.

pub mod figures;
pub mod fragment_exec;
