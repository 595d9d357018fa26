//! Types of PostgreSQL: which Arrow type each becomes, and in which format its values are asked for.
//!
//! | PostgreSQL | Arrow |
//! |---|---|
//! | boolean, smallint, integer, bigint, real, double precision | the same |
//! | oid | Int64 |
//! | numeric(p, s) | Decimal128(p, s), Decimal256 above 38 digits |
//! | numeric | decided by the first rows (`numeric`) |
//! | text, varchar, char, name, json | Utf8 |
//! | bytea | Binary |
//! | uuid | FixedSizeBinary(16) |
//! | date, time, timestamp | Date32, Time64 and Timestamp in microseconds |
//! | timestamp with time zone | Timestamp in microseconds, UTC |
//! | interval | Interval of months, days and nanoseconds |
//! | lists of one dimension of these, but for numeric | List |
//! | any other | Utf8, as its text |
//!
//! Source: PostgreSQL's `pg_type.dat`.

/// The column's type modifier that says nothing.
pub(crate) const NO_MODIFIER: i32 = -1;

/// A type, by the form of its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    Bool,
    Int2,
    Int4,
    Int8,
    Oid,
    Float4,
    Float8,
    /// With precision and scale, if the server says them.
    Numeric(Option<(u8, i8)>),
    Text,
    Bytea,
    Date,
    Time,
    Timestamp,
    TimestampTz,
    Interval,
    Uuid,
    /// A list of one dimension.
    List(Box<Kind>),
    /// Of any other type, the text.
    Shown,
}

impl Kind {
    /// The kind of the type with this OID and modifier.
    pub(crate) fn of(oid: u32, modifier: i32, lists_as_text: bool) -> Self {
        if let Some(kind) = Self::single(oid, modifier) {
            return kind;
        }
        match item_of(oid).and_then(|item| Self::single(item, NO_MODIFIER)) {
            Some(item) if !lists_as_text && item != Self::Numeric(None) => {
                Self::List(Box::new(item))
            }
            _ => Self::Shown,
        }
    }

    fn single(oid: u32, modifier: i32) -> Option<Self> {
        Some(match oid {
            16 => Self::Bool,
            17 => Self::Bytea,
            20 => Self::Int8,
            21 => Self::Int2,
            23 => Self::Int4,
            26 => Self::Oid,
            700 => Self::Float4,
            701 => Self::Float8,
            // name, text, json, character(n), character varying.
            19 | 25 | 114 | 1042 | 1043 => Self::Text,
            1082 => Self::Date,
            1083 => Self::Time,
            1114 => Self::Timestamp,
            1184 => Self::TimestampTz,
            1186 => Self::Interval,
            1700 => return numeric(modifier),
            2950 => Self::Uuid,
            _ => return None,
        })
    }

    /// Whether its values are asked for in binary.
    pub(crate) fn is_binary(&self) -> bool {
        *self != Self::Shown
    }
}

/// The kind of `numeric` with this modifier; None for more digits than Arrow has.
fn numeric(modifier: i32) -> Option<Kind> {
    let Some(bits) = modifier.checked_sub(4).filter(|bits| *bits >= 0) else {
        return Some(Kind::Numeric(None));
    };
    let precision =
        u8::try_from((bits >> 16) & 0xffff).ok().filter(|precision| *precision <= 76)?;
    // A signed number of eleven bits.
    let scale = ((bits & 0x7ff) ^ 0x400) - 0x400;
    match u8::try_from(scale) {
        Ok(places) if precision > 0 && places <= precision => {
            Some(Kind::Numeric(Some((precision, i8::try_from(scale).ok()?))))
        }
        _ => Some(Kind::Numeric(None)),
    }
}

/// The type of the items of a list type.
fn item_of(oid: u32) -> Option<u32> {
    Some(match oid {
        199 => 114,
        1000 => 16,
        1001 => 17,
        1003 => 19,
        1005 => 21,
        1007 => 23,
        1009 => 25,
        1014 => 1042,
        1015 => 1043,
        1016 => 20,
        1021 => 700,
        1022 => 701,
        1028 => 26,
        1115 => 1114,
        1182 => 1082,
        1183 => 1083,
        1185 => 1184,
        1187 => 1186,
        1231 => 1700,
        2951 => 2950,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_become_what_holds_their_values() {
        // numeric(12, 2), numeric(50, 0), numeric(100, 2), numeric(3, 5), numeric(3, -2).
        let modifier = |precision: i32, scale: i32| ((precision << 16) | (scale & 0x7ff)) + 4;
        let numeric = |precision, scale| Kind::of(1700, modifier(precision, scale), false);
        assert_eq!(numeric(12, 2), Kind::Numeric(Some((12, 2))));
        assert_eq!(numeric(50, 0), Kind::Numeric(Some((50, 0))));
        assert_eq!(numeric(100, 2), Kind::Shown);
        assert_eq!(numeric(3, 5), Kind::Numeric(None));
        assert_eq!(numeric(3, -2), Kind::Numeric(None));
        assert_eq!(Kind::of(1700, NO_MODIFIER, false), Kind::Numeric(None));
        assert_eq!(Kind::of(1009, NO_MODIFIER, false), Kind::List(Box::new(Kind::Text)));
        assert_eq!(Kind::of(1009, NO_MODIFIER, true), Kind::Shown);
        // Lists of numbers with digits, jsonb, and a type that was created.
        for oid in [1231, 3802, 123_456] {
            assert_eq!(Kind::of(oid, NO_MODIFIER, false), Kind::Shown);
        }
    }
}
