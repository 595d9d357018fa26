//! Locks of a device that has no memory in common with the host: VIDs in one way, outcomes back.
//!
//! ```text
//! batch    number │ object │ count │ count × difference of the VID to the one before            device → host
//! answers  number │ count │ outcomes, 2 bits each, four a byte │ RecIDs of the conflicts       host → device
//! grants   count │ count × (batch, row in it)                                                  host → device, pushed
//! ```
//!
//! The host's memory is the only authority (rule 20): it takes the job's side of a table of its own. The
//! device sends the next batch while it scans on; a row that is queued is parked there, and a grant of it is pushed. A conflict
//! is a row that has changed since the job's snapshot, with its newest version.
//!
//! Numbers are varints, seven bits a byte, least first; differences have their sign in the lowest bit, so that rows in
//! the order of a scan take a byte each. What a peer sends is checked before memory is taken, and nothing may
//! follow it. Nothing sends these before fragments update; the frame that carries them comes with it.

#![deny(clippy::indexing_slicing)]

use cleave_store::RecId;

use super::proto::MalformedMessage;

/// Most rows of one batch, and grants of one message.
pub const LOCK_ROWS_MAX: usize = 1 << 14;

type Decoded<T> = Result<T, MalformedMessage>;

/// Rows of one object that a job wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockBatch {
    /// Which of the job's batches: answers and grants name it.
    pub number: u32,
    /// The table that the rows are in.
    pub object: u64,
    /// The rows, best in the order of a scan; at most [`LOCK_ROWS_MAX`].
    pub vids: Vec<u64>,
}

/// What became of one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockAnswer {
    /// The job has it.
    Granted,
    /// Others have it: a grant will follow.
    Queued,
    /// It has changed: this is its newest version.
    Conflict(RecId),
}

/// What became of a batch, row by row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockAnswers {
    /// The batch.
    pub number: u32,
    /// An answer a row, in the batch's order.
    pub answers: Vec<LockAnswer>,
}

/// A row that was queued and is the job's now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockGrant {
    /// The batch.
    pub number: u32,
    /// Which row of it.
    pub row: u32,
}

impl LockBatch {
    /// As it is sent.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(16 + self.vids.len() * 2);
        put(&mut bytes, self.number.into());
        put(&mut bytes, self.object);
        put(&mut bytes, self.vids.len() as u64);
        put_differences(&mut bytes, self.vids.iter().copied());
        bytes
    }

    /// What was sent.
    ///
    /// # Errors
    /// [`MalformedMessage::Field`].
    pub fn decode(mut bytes: &[u8]) -> Decoded<Self> {
        let number = take_u32(&mut bytes, "number of a batch of locks")?;
        let object = take(&mut bytes).ok_or(MalformedMessage::Field("object of locks"))?;
        let count = take_count(&mut bytes)?;
        let vids = take_differences(&mut bytes, count)?;
        end(bytes)?;
        Ok(Self { number, object, vids })
    }
}

impl LockAnswers {
    /// As they are sent.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(16 + self.answers.len() / 4);
        put(&mut bytes, self.number.into());
        put(&mut bytes, self.answers.len() as u64);
        for four in self.answers.chunks(4) {
            let codes = four.iter().rev().fold(0_u8, |codes, answer| codes << 2 | answer.code());
            bytes.push(codes);
        }
        let newest = self.answers.iter().filter_map(|answer| match answer {
            LockAnswer::Conflict(newest) => Some(newest.bits()),
            LockAnswer::Granted | LockAnswer::Queued => None,
        });
        put_differences(&mut bytes, newest);
        bytes
    }

    /// What was sent.
    ///
    /// # Errors
    /// [`MalformedMessage::Field`].
    pub fn decode(mut bytes: &[u8]) -> Decoded<Self> {
        let outcome = || MalformedMessage::Field("outcome of a lock");
        let number = take_u32(&mut bytes, "number of a batch of locks")?;
        let count = take(&mut bytes).and_then(|count| usize::try_from(count).ok());
        let count = count.filter(|count| *count <= LOCK_ROWS_MAX).ok_or_else(outcome)?;
        let (packed, rest) = bytes.split_at_checked(count.div_ceil(4)).ok_or_else(outcome)?;
        bytes = rest;
        let codes: Vec<u8> =
            packed.iter().flat_map(|four| (0..4).map(move |at| four >> (2 * at) & 3)).collect();
        let (codes, unused) = codes.split_at_checked(count).ok_or_else(outcome)?;
        if unused.iter().any(|code| *code != 0) || codes.contains(&3) {
            return Err(outcome());
        }
        let conflicts = codes.iter().filter(|code| **code == LockAnswer::CONFLICT).count();
        let mut newest = take_differences(&mut bytes, conflicts)?.into_iter();
        end(bytes)?;
        let answer =
            |code: &u8| match *code {
                LockAnswer::GRANTED => Ok(LockAnswer::Granted),
                LockAnswer::QUEUED => Ok(LockAnswer::Queued),
                _ => newest.next().and_then(RecId::from_bits).map(LockAnswer::Conflict).ok_or(
                    MalformedMessage::Field("newest version of a row that was to be locked"),
                ),
            };
        Ok(Self { number, answers: codes.iter().map(answer).collect::<Decoded<_>>()? })
    }

    /// Whether these answer `batch`: its number, and an answer a row.
    pub fn answer(&self, batch: &LockBatch) -> bool {
        self.number == batch.number && self.answers.len() == batch.vids.len()
    }
}

impl LockAnswer {
    const GRANTED: u8 = 0;
    const QUEUED: u8 = 1;
    const CONFLICT: u8 = 2;

    fn code(self) -> u8 {
        match self {
            Self::Granted => Self::GRANTED,
            Self::Queued => Self::QUEUED,
            Self::Conflict(_) => Self::CONFLICT,
        }
    }
}

impl LockGrant {
    /// Some, as they are sent; at most [`LOCK_ROWS_MAX`].
    pub fn encode(grants: &[Self]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(4 + grants.len() * 4);
        put(&mut bytes, grants.len() as u64);
        for grant in grants {
            put(&mut bytes, grant.number.into());
            put(&mut bytes, grant.row.into());
        }
        bytes
    }

    /// What was sent.
    ///
    /// # Errors
    /// [`MalformedMessage::Field`].
    pub fn decode(mut bytes: &[u8]) -> Decoded<Vec<Self>> {
        let count = take_count(&mut bytes)?;
        let mut grants = Vec::with_capacity(count);
        for _ in 0..count {
            let number = take_u32(&mut bytes, "number of a batch of locks")?;
            let row = take_u32(&mut bytes, "row of a grant")?;
            if row as usize >= LOCK_ROWS_MAX {
                return Err(MalformedMessage::Field("row of a grant"));
            }
            grants.push(Self { number, row });
        }
        end(bytes)?;
        Ok(grants)
    }
}

/// A varint.
fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while let Some(rest) = Some(number >> 7).filter(|rest| *rest > 0) {
        bytes.push(low_seven(number) | 0x80);
        number = rest;
    }
    bytes.push(low_seven(number));
}

#[expect(clippy::cast_possible_truncation, reason = "the low bits are what is wanted")]
fn low_seven(number: u64) -> u8 {
    number as u8 & 0x7f
}

/// The varint at the beginning, in its shortest form alone, so that what is accepted is written as it was read.
fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..u64::BITS).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let part = u64::from(byte & 0x7f);
        if part << shift >> shift != part || (*byte == 0 && shift > 0) {
            return None;
        }
        number |= part << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn take_u32(bytes: &mut &[u8], field: &'static str) -> Decoded<u32> {
    take(bytes).and_then(|number| u32::try_from(number).ok()).ok_or(MalformedMessage::Field(field))
}

/// A count of things of at least a byte each.
fn take_count(bytes: &mut &[u8]) -> Decoded<usize> {
    take(bytes)
        .and_then(|count| usize::try_from(count).ok())
        .filter(|count| *count <= LOCK_ROWS_MAX.min(bytes.len()))
        .ok_or(MalformedMessage::Field("count of locks"))
}

/// Numbers by how they differ from the one before.
fn put_differences(bytes: &mut Vec<u8>, numbers: impl Iterator<Item = u64>) {
    let mut before = 0;
    for number in numbers {
        let difference = number.wrapping_sub(before);
        // The sign goes to the lowest bit.
        put(bytes, difference << 1 ^ (difference >> 63).wrapping_neg());
        before = number;
    }
}

fn take_differences(bytes: &mut &[u8], count: usize) -> Decoded<Vec<u64>> {
    if count > bytes.len() {
        return Err(MalformedMessage::Field("count of locks"));
    }
    let mut before = 0_u64;
    let mut numbers = Vec::with_capacity(count);
    for _ in 0..count {
        let coded = take(bytes).ok_or(MalformedMessage::Field("row to be locked"))?;
        before = before.wrapping_add(coded >> 1 ^ (coded & 1).wrapping_neg());
        numbers.push(before);
    }
    Ok(numbers)
}

fn end(bytes: &[u8]) -> Decoded<()> {
    bytes.is_empty().then_some(()).ok_or(MalformedMessage::Field("end of locks"))
}

#[cfg(test)]
mod tests;
