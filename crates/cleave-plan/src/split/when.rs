//! How eagerly an optimisation that changes no rows is applied: never, where it pays, always.

/// Whether to do it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum When {
    /// Never, to compare.
    Never,
    /// Where it is expected to save more than it takes.
    #[default]
    WherePays,
    /// Wherever it can be done.
    Always,
}
