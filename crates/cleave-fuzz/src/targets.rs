//! The fuzzing targets: the decoders of everything that comes from media or from a peer.

pub mod command;
pub mod fragment;
pub mod log;
pub mod page;
pub mod stored;

use crate::mutate::Shape;

/// A decoder under test.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name, equal to that of its test.
    pub name: &'static str,
    /// The structure of its inputs.
    pub shape: Shape,
    /// Inputs made by the real encoders.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Decodes one input; panics on any defect.
    pub run: fn(&[u8]),
}

/// All targets.
pub const TARGETS: [Target; 5] =
    [page::TARGET, stored::TARGET, command::TARGET, fragment::TARGET, log::TARGET];

impl Target {
    /// The target called `name`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        TARGETS.into_iter().find(|target| target.name == name)
    }
}

#[cfg(test)]
mod tests {
    //! Every seed passes, and reaches its decoder.

    use super::TARGETS;

    #[test]
    fn seeds_of_every_target_pass() {
        for target in TARGETS {
            let seeds = (target.seeds)();
            assert!(seeds.len() > 5, "{} has {} seeds", target.name, seeds.len());
            for seed in seeds {
                (target.run)(&seed);
            }
        }
    }
}
