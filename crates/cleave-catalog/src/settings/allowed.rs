//! What a setting takes, in words.

use std::fmt;

use cleave_plan::split::SPLIT_JOINS_MAX;

use super::{Idle, Values, bytes_text};

impl fmt::Display for Values {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Words(words) => write!(formatter, "allowed are {}", words.join(", ")),
            Self::Number(min, max) => {
                write!(formatter, "allowed are whole numbers from {min} to {max}")
            }
            Self::Milliseconds(max) => write!(
                formatter,
                "allowed are whole numbers from 0 to {max}, of milliseconds or with us, ms, s, min, h or d"
            ),
            Self::Bytes(min, max) => {
                let (min, max) = (bytes_text(*min), bytes_text(*max));
                write!(formatter, "allowed are {min} to {max}, in B, kB, MB or GB")
            }
            Self::BytesOrAuto(min, max) => {
                write!(formatter, "{}, or auto", Self::Bytes(*min, *max))
            }
            Self::Text => formatter.write_str("allowed is text of at most 63 bytes in one line"),
            Self::Time => formatter.write_str("allowed is a time, as in '2026-11-21 20:00:00+00', or nothing"),
            Self::Split => write!(
                formatter,
                "allowed are host, h0, h1 to h{SPLIT_JOINS_MAX}, h1+ to h{SPLIT_JOINS_MAX}+, \
                 g0 to g{SPLIT_JOINS_MAX}, ndp, auto"
            ),
            Self::SearchPath => formatter.write_str("it takes names of schemas with commas between them"),
            Self::JoinOrder => formatter.write_str(
                "allowed are auto, written, or different names of tables, separated by blanks or commas",
            ),
            Self::Only(only) | Self::OnlyOr(only, _) => {
                write!(formatter, "allowed is only {only} in this version")
            }
            Self::Idle(Idle::Words(words), _) => write!(formatter, "allowed are {}", words.join(", ")),
            Self::Idle(..) => formatter.write_str("it takes a value of its kind"),
            Self::ReadOnly(value) | Self::Preset(value) => write!(formatter, "it is {value} and cannot be changed"),
        }
    }
}
