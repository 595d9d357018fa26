//! The commands that are not the shell and not the demo, one file each.

pub(crate) mod device;
pub(crate) mod generate;
pub(crate) mod load;
mod progress;
