//! Time limits of idle sessions, statements, waits for locks, and transactions.

use super::{Setting, Values};

/// Time limits that a server enforces, in milliseconds; 0: no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Timeouts {
    /// `idle_in_transaction_session_timeout`: without a statement, in a transaction block.
    pub idle_in_transaction_ms: u32,
    /// `idle_session_timeout`: without a statement, outside of one.
    pub idle_ms: u32,
    /// `transaction_timeout`: from the first statement of a transaction to its end.
    pub transaction_ms: u32,
}

const MILLISECONDS: Values = Values::Milliseconds(2_147_483_647);

/// The milliseconds of `text`, read like PostgreSQL's times: rounded to whole ones.
pub(super) fn milliseconds(text: &str) -> Option<u64> {
    let end = text.find(|digit: char| !digit.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at_checked(end)?;
    let number: u64 = digits.parse().ok()?;
    let scale: u64 = match unit.trim_start() {
        "us" => return Some(number.saturating_add(500) / 1000),
        "" | "ms" => 1,
        "s" => 1000,
        "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.checked_mul(scale)
}

/// Milliseconds in the largest unit that divides them, as PostgreSQL shows times.
pub(super) fn milliseconds_text(milliseconds: u64) -> String {
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"), (1, "ms")];
    let unit = units.into_iter().find(|(scale, _)| milliseconds.is_multiple_of(*scale));
    match unit.filter(|_| milliseconds > 0) {
        Some((scale, unit)) => format!("{}{unit}", milliseconds / scale),
        None => "0".to_owned(),
    }
}

pub(super) const IDLE_IN_TRANSACTION: Setting = Setting {
    name: "idle_in_transaction_session_timeout",
    description: "Milliseconds until a server ends a session idle in an open transaction; 0: never",
    values: MILLISECONDS,
    get: |settings| milliseconds_text(settings.timeouts.idle_in_transaction_ms.into()),
    set: |settings, value| settings.timeouts.idle_in_transaction_ms = value.number_u32(),
};

pub(super) const IDLE: Setting = Setting {
    name: "idle_session_timeout",
    description: "Milliseconds until a server ends an idle session; 0: the server's --idle-timeout",
    values: MILLISECONDS,
    get: |settings| milliseconds_text(settings.timeouts.idle_ms.into()),
    set: |settings, value| settings.timeouts.idle_ms = value.number_u32(),
};

pub(super) const LOCK: Setting = Setting {
    name: "lock_timeout",
    description: "Milliseconds that a statement waits for a lock; 0: no limit",
    values: MILLISECONDS,
    get: |settings| milliseconds_text(settings.lock_timeout_ms),
    set: |settings, value| settings.lock_timeout_ms = value.number(),
};

pub(super) const STATEMENT: Setting = Setting {
    name: "statement_timeout",
    description: "Milliseconds until a statement is cancelled; 0: never",
    values: MILLISECONDS,
    get: |settings| milliseconds_text(settings.statement_timeout_ms.into()),
    set: |settings, value| settings.statement_timeout_ms = value.number_u32(),
};

pub(super) const TRANSACTION: Setting = Setting {
    name: "transaction_timeout",
    description: "Milliseconds until a server ends a session whose transaction is still open; 0: never",
    values: MILLISECONDS,
    get: |settings| milliseconds_text(settings.timeouts.transaction_ms.into()),
    set: |settings, value| settings.timeouts.transaction_ms = value.number_u32(),
};

#[cfg(test)]
mod tests {
    use super::{milliseconds, milliseconds_text};

    #[test]
    fn times_have_units_or_are_milliseconds() {
        let read = ["0", "250", "250ms", "5s", "5 min", "2h", "1d", "1600us"].map(milliseconds);
        let expected = [0, 250, 250, 5000, 300_000, 7_200_000, 86_400_000, 2].map(Some);
        assert_eq!(read, expected);
        for wrong in
            ["", "s", "-1", "1.5s", "5 years", "5S", "99999999999999999999", "9999999999999999999d"]
        {
            assert_eq!(milliseconds(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn times_are_shown_in_the_largest_unit_that_divides_them() {
        for text in ["0", "1ms", "250ms", "5s", "90s", "1min", "36h", "2d", "2147483647ms"] {
            assert_eq!(milliseconds_text(milliseconds(text).unwrap()), text);
        }
        assert_eq!(milliseconds_text(120_000), "2min");
    }
}
