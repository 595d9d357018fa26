//! What is wrong with a statement about roles and rights, or lacks them.

/// Decides the SQLSTATE of an [`Error::Invalid`](crate::error::Error::Invalid).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RoleFault {
    /// What the role may not do (42501).
    Rights,
    /// A role that may not connect (28000).
    Authorization,
    /// A grant that cannot be (0LP01).
    Grant,
    /// A name that is kept for something else (42939).
    ReservedName,
    /// A role that is in use (55006).
    InUse,
    /// A change of the role that a session has (0A000).
    OwnRole,
    /// A role that is gone (42704).
    Gone,
    /// A database that there is not (3D000).
    Database,
}

impl RoleFault {
    /// The SQLSTATE, as PostgreSQL has it.
    #[must_use]
    pub fn sqlstate(self) -> &'static str {
        match self {
            Self::Rights => "42501",
            Self::Authorization => "28000",
            Self::Grant => "0LP01",
            Self::ReservedName => "42939",
            Self::InUse => "55006",
            Self::OwnRole => "0A000",
            Self::Gone => "42704",
            Self::Database => "3D000",
        }
    }
}
