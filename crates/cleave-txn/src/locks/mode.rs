//! Lock modes and their conflicts: PostgreSQL's.
//!
//! ```text
//!  rows, keys               KS S  NU U      tables                      AS RS RX SU S  SX X  AX
//!  FOR KEY SHARE         KS          x      ACCESS SHARE             AS                      x
//!  FOR SHARE             S        x  x      ROW SHARE                RS                   x  x
//!  FOR NO KEY UPDATE     NU    x  x  x      ROW EXCLUSIVE            RX             x  x  x  x
//!  FOR UPDATE            U  x  x  x  x      SHARE UPDATE EXCLUSIVE   SU          x  x  x  x  x
//!                                           SHARE                    S        x  x     x  x  x
//!                                           SHARE ROW EXCLUSIVE      SX       x  x  x  x  x  x
//!                                           EXCLUSIVE                X     x  x  x  x  x  x  x
//!                                           ACCESS EXCLUSIVE         AX x  x  x  x  x  x  x  x
//! ```

use std::fmt;

/// A lock mode. The first four are for rows, keys and transactions, the others for tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum LockMode {
    /// `FOR KEY SHARE`: the key stays; taken by a foreign key check.
    ForKeyShare,
    /// `FOR SHARE`: the row stays as it is.
    ForShare,
    /// `FOR NO KEY UPDATE`: taken by an `UPDATE` that changes no key.
    ForNoKeyUpdate,
    /// `FOR UPDATE`: taken by `DELETE` and an `UPDATE` of a key.
    ForUpdate,
    /// `ACCESS SHARE`: reading.
    AccessShare,
    /// `ROW SHARE`: `SELECT … FOR UPDATE` and similar.
    RowShare,
    /// `ROW EXCLUSIVE`: writing rows.
    RowExclusive,
    /// `SHARE UPDATE EXCLUSIVE`: vacuum, `ANALYZE`.
    ShareUpdateExclusive,
    /// `SHARE`: `CREATE INDEX`.
    Share,
    /// `SHARE ROW EXCLUSIVE`: adding a foreign key.
    ShareRowExclusive,
    /// `EXCLUSIVE`: only readers beside it.
    Exclusive,
    /// `ACCESS EXCLUSIVE`: no other lock beside it; `DROP TABLE`, `TRUNCATE`, most of `ALTER TABLE`.
    AccessExclusive,
}

impl LockMode {
    /// All modes.
    pub const ALL: [Self; 12] = [
        Self::ForKeyShare,
        Self::ForShare,
        Self::ForNoKeyUpdate,
        Self::ForUpdate,
        Self::AccessShare,
        Self::RowShare,
        Self::RowExclusive,
        Self::ShareUpdateExclusive,
        Self::Share,
        Self::ShareRowExclusive,
        Self::Exclusive,
        Self::AccessExclusive,
    ];

    /// Whether two transactions cannot hold these modes on one key.
    #[must_use]
    pub fn conflicts_with(self, other: Self) -> bool {
        Modes::conflicting(self).has(other)
    }

    /// Whether it is a table mode.
    #[must_use]
    pub fn is_for_tables(self) -> bool {
        self >= Self::AccessShare
    }
}

impl fmt::Display for LockMode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::ForKeyShare => "FOR KEY SHARE",
            Self::ForShare => "FOR SHARE",
            Self::ForNoKeyUpdate => "FOR NO KEY UPDATE",
            Self::ForUpdate => "FOR UPDATE",
            Self::AccessShare => "ACCESS SHARE",
            Self::RowShare => "ROW SHARE",
            Self::RowExclusive => "ROW EXCLUSIVE",
            Self::ShareUpdateExclusive => "SHARE UPDATE EXCLUSIVE",
            Self::Share => "SHARE",
            Self::ShareRowExclusive => "SHARE ROW EXCLUSIVE",
            Self::Exclusive => "EXCLUSIVE",
            Self::AccessExclusive => "ACCESS EXCLUSIVE",
        })
    }
}

/// A set of modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Modes(u16);

impl Modes {
    pub(crate) const NONE: Self = Self(0);

    pub(crate) const fn of(mode: LockMode) -> Self {
        Self(1 << mode as u8)
    }

    /// The modes that conflict with `mode`.
    pub(crate) const fn conflicting(mode: LockMode) -> Self {
        const CONFLICTS: [u16; 12] = [
            0b1000,
            0b1100,
            0b1110,
            0b1111,
            0b1000_0000 << 4,
            0b1100_0000 << 4,
            0b1111_0000 << 4,
            0b1111_1000 << 4,
            0b1110_1100 << 4,
            0b1111_1100 << 4,
            0b1111_1110 << 4,
            0b1111_1111 << 4,
        ];
        Self(CONFLICTS[mode as usize])
    }

    pub(crate) fn has(self, mode: LockMode) -> bool {
        self.intersects(Self::of(mode))
    }

    pub(crate) fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    #[must_use]
    pub(crate) fn with(self, mode: LockMode) -> Self {
        Self(self.0 | Self::of(mode).0)
    }

    #[must_use]
    pub(crate) fn without(self, mode: LockMode) -> Self {
        Self(self.0 & !Self::of(mode).0)
    }

    #[must_use]
    pub(crate) fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = LockMode> {
        LockMode::ALL.into_iter().filter(move |mode| self.has(*mode))
    }

    /// Whether these modes conflict with all that `mode` conflicts with.
    pub(crate) fn cover(self, mode: LockMode) -> bool {
        let excluded = self.iter().fold(0, |excluded, held| excluded | Self::conflicting(held).0);
        !self.is_empty() && Self::conflicting(mode).0 & !excluded == 0
    }
}
