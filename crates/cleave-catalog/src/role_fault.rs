//! Errors of statements about roles and rights, and of missing rights.

/// Decides the SQLSTATE of an [`Error::Invalid`](crate::error::Error::Invalid).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RoleFault {
    /// A missing right (42501).
    Rights,
    /// A role that may not connect (28000).
    Authorization,
    /// An impossible grant (0LP01).
    Grant,
    /// A reserved name (42939).
    ReservedName,
    /// A role that is in use (55006).
    InUse,
    /// A change of the session's own role (0A000).
    OwnRole,
    /// A dropped role (42704).
    Gone,
    /// An unknown database (3D000).
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
