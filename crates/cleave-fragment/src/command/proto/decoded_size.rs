//! Computes how many bytes of memory decoding the head of a message will take, before it is decoded and without taking
//! any.
//!
//! A number of one byte becomes eight, a structure of two bytes a few hundred, and the dead rows of a page a bit for
//! each row of the page. So every repeated field is counted by its size in memory: in the protobuf structure and in the
//! value made of that, while both exist. Unknown fields are skipped, as decoders do.
//!
//! Invariant: never less than decoding takes. Vectors grow by doubling, so each counts twice.
//!
//! Source: the encoding as <https://protobuf.dev/programming-guides/encoding/> describes it.

#![deny(clippy::indexing_slicing)]

use cleave_media::Extent;
use cleave_store::{ColumnRef, KeyRange, PageRef, SegmentId};

use super::dead_rows::ROWS_MAX;
use super::homes::PageHomeProto;
use super::indexes::{
    IndexFilterProto, IndexFilteredPartProto, IndexInputProto, IndexPagesProto, KeyRangeProto,
};
use super::peers::{GrantedOutputProto, OutputsProto, PeerProto, PeerRowsProto, PeerStreamProto};
use super::{
    BroadcastProto, ExtentProto, InputProto, MorselPageProto, MorselProto, PageProto,
    ReadItemProto, SettingProto,
};
use crate::broadcast::Broadcast;
use crate::command::homes::PageHome;
use crate::command::message::{ReadItem, ShippedPage, WriteItem};
use crate::command::peers::{Outputs, Peer, PeerRows, PeerStream};
use crate::field_count::take_varint;
use crate::index_filter::{IndexFilter, IndexFilteredPart};
use crate::index_input::{IndexInput, IndexPages};
use crate::morsel::{Morsel, MorselPage};
use crate::trace::TraceContext;

/// Bytes that a shared slice and the like take besides their content.
const BESIDE: u64 = 64;

/// Bytes that decoding an execute takes, besides its parts.
pub fn execute_bytes(head: &[u8]) -> u64 {
    fields(head)
        .map(|(tag, field)| match tag {
            3 => both::<InputProto, (u32, Vec<Morsel>)>().saturating_add(each(field, input_bytes)),
            8 => both::<SettingProto, (String, String)>().saturating_add(field.length() * 2),
            10 => field.length(),
            11 => both::<IndexInputProto, IndexInput>().saturating_add(each(field, index_bytes)),
            12 => both::<ExtentProto, Extent>(),
            13 => both::<IndexFilterProto, IndexFilter>()
                .saturating_add(each(field, index_filter_bytes)),
            14 => field.number_count() * both::<u32, u32>(),
            15 => both::<BroadcastProto, Broadcast>(),
            16 => field.number_count() * both::<u64, ShippedPage>(),
            22 => both::<PageHomeProto, PageHome>().saturating_add(each(field, home_bytes)),
            23 => both::<PeerProto, Peer>().saturating_add(field.length() * 2),
            24 => both::<PeerRowsProto, PeerRows>().saturating_add(each(field, peer_rows_bytes)),
            25 => both::<OutputsProto, Outputs>().saturating_add(each(field, outputs_bytes)),
            // Anything but a context is refused.
            28 => 2 * (TraceContext::BYTES as u64 + BESIDE),
            _ => 0,
        })
        .fold(0, u64::saturating_add)
}

/// Bytes that decoding a command takes, besides its parts.
pub fn command_bytes(head: &[u8]) -> u64 {
    let request = |(tag, field): (u64, Field<'_>)| match tag {
        3 => each(field, |tag, item| match tag {
            1 => both::<ReadItemProto, ReadItem>().saturating_add(each(item, |tag, columns| {
                if tag == 4 { columns.number_count() * both::<u64, ColumnRef>() } else { 0 }
            })),
            _ => 0,
        }),
        4 => each(field, |tag, starts| match tag {
            1 => starts.number_count() * both::<u64, WriteItem>(),
            _ => 0,
        }),
        6 => each(field, |tag, _| if tag == 1 { both::<ExtentProto, Extent>() } else { 0 }),
        13 => each(field, |tag, _| if tag == 3 { both::<ExtentProto, Extent>() } else { 0 }),
        16 => each(field, |tag, _| if tag == 2 { both::<ExtentProto, Extent>() } else { 0 }),
        18 => each(field, |tag, _| match tag {
            3 => both::<ExtentProto, Extent>(),
            4 => both::<GrantedOutputProto, (u64, u32)>(),
            _ => 0,
        }),
        _ => 0,
    };
    fields(head).map(request).fold(0, u64::saturating_add)
}

fn input_bytes(tag: u64, field: Field<'_>) -> u64 {
    match tag {
        2 => both::<MorselProto, Morsel>().saturating_add(each(field, |tag, page| match tag {
            3 => both::<MorselPageProto, MorselPage>().saturating_add(morsel_page_bytes(page)),
            _ => 0,
        })),
        _ => 0,
    }
}

/// Bytes of a page in a morsel: a bit for each of its rows if some are dead.
fn morsel_page_bytes(page: Field<'_>) -> u64 {
    let mut row_count = 0;
    let mut is_dead = false;
    let bytes = each(page, |tag, field| match tag {
        1 => {
            each(field, |tag, field| {
                if tag == 3 {
                    row_count = field.number().max(row_count);
                }
                0
            });
            0
        }
        3 => both::<PageProto, PageRef>(),
        4 => {
            is_dead = true;
            field.number_count() * both::<u32, usize>()
        }
        5 => field.number_count() * both::<u32, [u64; 2]>(),
        6 => field.number_count() * both::<u64, u64>(),
        7 => {
            is_dead = true;
            field.length() * 4
        }
        _ => 0,
    });
    let bits = u64::from(is_dead) * (row_count.min(u64::from(ROWS_MAX)) / 4 + BESIDE);
    bytes.saturating_add(bits).saturating_add(BESIDE)
}

fn home_bytes(tag: u64, field: Field<'_>) -> u64 {
    if tag == 2 { field.number_count() * both::<u32, SegmentId>() } else { 0 }
}

fn peer_rows_bytes(tag: u64, _: Field<'_>) -> u64 {
    if tag == 2 { both::<PeerStreamProto, PeerStream>() } else { 0 }
}

fn outputs_bytes(tag: u64, field: Field<'_>) -> u64 {
    if tag == 2 { field.number_count() * both::<u32, u32>() } else { 0 }
}

fn index_bytes(tag: u64, field: Field<'_>) -> u64 {
    if tag == 2 { run_bytes(field) } else { 0 }
}

fn run_bytes(run: Field<'_>) -> u64 {
    both::<IndexPagesProto, IndexPages>().saturating_add(each(run, |tag, field| match tag {
        2 => both::<PageProto, PageRef>(),
        3 => both::<Vec<u8>, Vec<u8>>().saturating_add(field.length() * 2),
        _ => 0,
    }))
}

fn index_filter_bytes(tag: u64, field: Field<'_>) -> u64 {
    match tag {
        2 => both::<KeyRangeProto, KeyRange>().saturating_add(field.length() * 2),
        3 => both::<IndexFilteredPartProto, IndexFilteredPart>().saturating_add(each(
            field,
            |tag, field| match tag {
                1 | 4 => field.number_count() * both::<u32, SegmentId>(),
                2 => run_bytes(field),
                3 => field.number_count() * both::<u64, u64>(),
                _ => 0,
            },
        )),
        4 => field.length() * 2,
        _ => 0,
    }
}

/// The size of an item in a repeated field, both decoded and as kept.
fn both<P, M>() -> u64 {
    2 * (size_of::<P>() as u64 + size_of::<M>() as u64)
}

/// The sum of `bytes_of` all fields of the message in `field`.
fn each(field: Field<'_>, mut bytes_of: impl FnMut(u64, Field<'_>) -> u64) -> u64 {
    let Field::Bytes(message) = field else { return 0 };
    fields(message).map(|(tag, field)| bytes_of(tag, field)).fold(0, u64::saturating_add)
}

/// A field's value.
#[derive(Clone, Copy)]
enum Field<'a> {
    Number(u64),
    /// A message, a text, or packed numbers.
    Bytes(&'a [u8]),
}

impl Field<'_> {
    fn length(self) -> u64 {
        match self {
            Self::Number(_) => 0,
            Self::Bytes(bytes) => bytes.len() as u64,
        }
    }

    fn number(self) -> u64 {
        match self {
            Self::Number(number) => number,
            Self::Bytes(_) => 0,
        }
    }

    /// How many numbers it holds, if it is a repeated number.
    fn number_count(self) -> u64 {
        match self {
            Self::Number(_) => 1,
            // The last byte of each has its highest bit clear.
            Self::Bytes(bytes) => bytes.iter().filter(|byte| **byte < 0x80).count() as u64,
        }
    }
}

/// The fields of `message` with their tags, as far as it parses.
fn fields(mut message: &[u8]) -> impl Iterator<Item = (u64, Field<'_>)> {
    std::iter::from_fn(move || {
        loop {
            let key = take_varint(&mut message)?;
            let field = match key & 7 {
                0 => Field::Number(take_varint(&mut message)?),
                1 => Field::Number(take(&mut message, 8).map(|_| 0)?),
                2 => {
                    let length = take_varint(&mut message)?;
                    Field::Bytes(take(&mut message, usize::try_from(length).ok()?)?)
                }
                // The content of a group counts as part of its parent: decoders skip groups.
                3 | 4 => continue,
                5 => Field::Number(take(&mut message, 4).map(|_| 0)?),
                _ => return None,
            };
            return Some((key >> 3, field));
        }
    })
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    Some(taken)
}

#[cfg(test)]
mod tests;
