//! Lock messages of a device that shares no memory with the host: VIDs to the host, outcomes to the device.
//!
//! ```text
//! call     lock      0 │ number │ object │ waits │ count │ count × difference of the VID to the one before
//!          give up   1 │ below                                                                 device → host
//!          release   2
//!          escalate  3 │ object
//! say      answers   0 │ number │ count │ outcomes, 2 bits each, four a byte │ RecIDs of the conflicts
//!          grants    1 │ count │ count × (batch, row in it and whether it changed, RecID if so)
//!          refused   2 │ why                                                                   host → device
//!          released  3
//!          escalated 4 │ object
//! ```
//!
//! The host's memory is the only authority (rule 20): the host takes the job's side of a lock table of its own
//! ([`HostedJob`](crate::row_locks::HostedJob)). The device ([`AskedLocks`](crate::row_locks::AskedLocks)) sends the
//! next batch while it goes on scanning. A queued row is parked at the host, and its grant is pushed. A conflict is a
//! row that the job has locked and that has changed since its snapshot; its newest version comes with it.
//!
//! A message may be lost with its connection, come late or twice. Batches of a job are numbered without gaps. A call
//! asks for a state, not for a step, and what a say reports is final: a locked row stays locked until the job releases
//! all its rows. The state of each row only advances, and over the next connection the device repeats every request
//! that has no final answer.
//!
//! Numbers are varints, seven bits a byte, least significant first. Differences have their sign in the lowest bit, so
//! that rows in the order of a scan take a byte each. What a peer sends is checked before memory is taken, and nothing
//! may follow it.

#![deny(clippy::indexing_slicing)]

use cleave_store::RecId;

use super::proto::MalformedMessage;

/// Most rows of one batch, and grants of one message.
pub const LOCK_ROWS_MAX: usize = 1 << 14;

type Decoded<T> = Result<T, MalformedMessage>;

const KIND: MalformedMessage = MalformedMessage::Field("kind of a message about locks");
const REFUSAL: MalformedMessage = MalformedMessage::Field("reason why a job locks no more");
const NEWEST: MalformedMessage =
    MalformedMessage::Field("newest version of a row that was to be locked");

/// Most bytes of one message: that many grants with the longest numbers.
pub const LOCK_MESSAGE_BYTES_MAX: u32 = 32 + (20 << 14);

/// A message of a job's device to the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockCall {
    /// Lock these rows. → [`LockSay::Answers`], and [`LockSay::Grants`] where some are queued
    Lock(LockBatch),
    /// Queued rows of batches below this number are no longer wanted; nor is such a batch if it arrives late.
    GiveUp {
        /// The first batch that stays.
        below: u32,
    },
    /// The job releases all its locks, and locks no more. → [`LockSay::Released`]
    Release,
    /// The job holds most of the lock table: lock this object for its transaction, if nobody else has it now. From a
    /// device that locks by itself. → [`LockSay::Escalated`]; nothing where others have it
    Escalate {
        /// The table that the rows are in.
        object: u64,
    },
}

/// A message of the host to a job's device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockSay {
    /// The answer to a batch.
    Answers(LockAnswers),
    /// Grants of rows that were queued.
    Grants(Vec<LockGrant>),
    /// The job locks no more: end its run.
    Refused(LockRefusal),
    /// The answer to a release.
    Released,
    /// The job's transaction has locked this object: all its rows are the job's.
    Escalated {
        /// The table.
        object: u64,
    },
}

/// Why a job locks no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LockRefusal {
    /// Its transaction has ended, or the host has taken its locks away: end the run.
    #[error("the locks of this run were taken away: its transaction is over")]
    Over,
    /// It is in a deadlock cycle: roll back and try the transaction again.
    #[error("deadlock detected: the run waits for rows of transactions that wait for its own")]
    Deadlock,
    /// More rows wait than a run may have: lock the whole table instead.
    #[error("more rows of this run wait for locks than may; lock the whole table instead")]
    TooMany,
    /// The lock table is corrupted, or a message answers nothing that was asked: a defect.
    #[error("the lock table of the host is spoilt; end the device's runs and attach it again")]
    Spoilt,
    /// It is to lock in a table that its connection did not hand over, as after a lost connection: begin a new run.
    #[error(
        "the run locks rows in a lock table that this connection did not hand over; begin it again"
    )]
    NoTable,
}

/// Rows of one object that a job wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockBatch {
    /// Its number in the job: answers and grants name it.
    pub number: u32,
    /// The table that the rows are in.
    pub object: u64,
    /// Whether the job waits for rows that others have locked; else they are [`LockAnswer::NotFree`].
    pub waits: bool,
    /// The rows, best in the order of a scan; at most [`LOCK_ROWS_MAX`].
    pub vids: Vec<u64>,
}

/// The outcome for one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockAnswer {
    /// The job has locked it.
    Granted,
    /// Others have locked it: a grant will follow.
    Queued,
    /// The job has locked it, and it has changed since the job's snapshot: this is its newest version.
    Conflict(RecId),
    /// Others have locked it, and the job does not wait.
    NotFree,
}

/// The outcome of a batch, row by row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockAnswers {
    /// The batch.
    pub number: u32,
    /// One answer for each row, in the batch's order.
    pub answers: Vec<LockAnswer>,
}

/// A row that was queued and is now locked by the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockGrant {
    /// The batch.
    pub number: u32,
    /// The row's position in it.
    pub row: u32,
    /// Its newest version, if it has changed since the job's snapshot.
    pub newest: Option<RecId>,
}

impl LockCall {
    const LOCK: u8 = 0;
    const GIVE_UP: u8 = 1;
    const RELEASE: u8 = 2;
    const ESCALATE: u8 = 3;

    /// Encodes the message.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Lock(batch) => batch.encode_behind(vec![Self::LOCK]),
            Self::GiveUp { below } => {
                let mut bytes = vec![Self::GIVE_UP];
                put(&mut bytes, (*below).into());
                bytes
            }
            Self::Release => vec![Self::RELEASE],
            Self::Escalate { object } => encode_object(Self::ESCALATE, *object),
        }
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// [`MalformedMessage::Field`].
    pub fn decode(bytes: &[u8]) -> Decoded<Self> {
        let (kind, mut bytes) = bytes.split_first().ok_or(KIND)?;
        match *kind {
            Self::LOCK => Ok(Self::Lock(LockBatch::decode(bytes)?)),
            Self::GIVE_UP => {
                let below = take_u32(&mut bytes, "number of a batch of locks")?;
                end(bytes)?;
                Ok(Self::GiveUp { below })
            }
            Self::RELEASE => end(bytes).map(|()| Self::Release),
            Self::ESCALATE => Ok(Self::Escalate { object: decode_object(bytes)? }),
            _ => Err(KIND),
        }
    }
}

impl LockSay {
    const ANSWERS: u8 = 0;
    const GRANTS: u8 = 1;
    const REFUSED: u8 = 2;
    const RELEASED: u8 = 3;
    const ESCALATED: u8 = 4;

    /// Encodes the message.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Answers(answers) => answers.encode_behind(vec![Self::ANSWERS]),
            Self::Grants(grants) => LockGrant::encode_behind(grants, vec![Self::GRANTS]),
            Self::Refused(why) => vec![Self::REFUSED, why.code()],
            Self::Released => vec![Self::RELEASED],
            Self::Escalated { object } => encode_object(Self::ESCALATED, *object),
        }
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// [`MalformedMessage::Field`].
    pub fn decode(bytes: &[u8]) -> Decoded<Self> {
        let (kind, bytes) = bytes.split_first().ok_or(KIND)?;
        match *kind {
            Self::ANSWERS => Ok(Self::Answers(LockAnswers::decode(bytes)?)),
            Self::GRANTS => Ok(Self::Grants(LockGrant::decode(bytes)?)),
            Self::REFUSED => {
                let (code, bytes) = bytes.split_first().ok_or(REFUSAL)?;
                end(bytes)?;
                LockRefusal::from_code(*code).map(Self::Refused).ok_or(REFUSAL)
            }
            Self::RELEASED => end(bytes).map(|()| Self::Released),
            Self::ESCALATED => Ok(Self::Escalated { object: decode_object(bytes)? }),
            _ => Err(KIND),
        }
    }
}

fn encode_object(kind: u8, object: u64) -> Vec<u8> {
    let mut bytes = vec![kind];
    put(&mut bytes, object);
    bytes
}

fn decode_object(mut bytes: &[u8]) -> Decoded<u64> {
    let object = take(&mut bytes).ok_or(MalformedMessage::Field("object of locks"))?;
    end(bytes)?;
    Ok(object)
}

impl LockRefusal {
    const ALL: [Self; 5] = [Self::Over, Self::Deadlock, Self::TooMany, Self::Spoilt, Self::NoTable];

    fn code(self) -> u8 {
        match self {
            Self::Over => 0,
            Self::Deadlock => 1,
            Self::TooMany => 2,
            Self::Spoilt => 3,
            Self::NoTable => 4,
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|why| why.code() == code)
    }
}

impl LockBatch {
    fn encode_behind(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        bytes.reserve(16 + self.vids.len() * 2);
        put(&mut bytes, self.number.into());
        put(&mut bytes, self.object);
        put(&mut bytes, self.waits.into());
        put(&mut bytes, self.vids.len() as u64);
        put_differences(&mut bytes, self.vids.iter().copied());
        bytes
    }

    fn decode(mut bytes: &[u8]) -> Decoded<Self> {
        let number = take_u32(&mut bytes, "number of a batch of locks")?;
        let object = take(&mut bytes).ok_or(MalformedMessage::Field("object of locks"))?;
        let waits = match take(&mut bytes) {
            Some(0) => false,
            Some(1) => true,
            _ => return Err(MalformedMessage::Field("way to wait for locks")),
        };
        let count = take_count(&mut bytes)?;
        let vids = take_differences(&mut bytes, count)?;
        end(bytes)?;
        Ok(Self { number, object, waits, vids })
    }
}

impl LockAnswers {
    fn encode_behind(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        bytes.reserve(16 + self.answers.len() / 4);
        put(&mut bytes, self.number.into());
        put(&mut bytes, self.answers.len() as u64);
        for four in self.answers.chunks(4) {
            let codes = four.iter().rev().fold(0_u8, |codes, answer| codes << 2 | answer.code());
            bytes.push(codes);
        }
        let newest = self.answers.iter().filter_map(|answer| match answer {
            LockAnswer::Conflict(newest) => Some(newest.bits()),
            LockAnswer::Granted | LockAnswer::Queued | LockAnswer::NotFree => None,
        });
        put_differences(&mut bytes, newest);
        bytes
    }

    fn decode(mut bytes: &[u8]) -> Decoded<Self> {
        let outcome = || MalformedMessage::Field("outcome of a lock");
        let number = take_u32(&mut bytes, "number of a batch of locks")?;
        let count = take(&mut bytes).and_then(|count| usize::try_from(count).ok());
        let count = count.filter(|count| *count <= LOCK_ROWS_MAX).ok_or_else(outcome)?;
        let (packed, rest) = bytes.split_at_checked(count.div_ceil(4)).ok_or_else(outcome)?;
        bytes = rest;
        let codes: Vec<u8> =
            packed.iter().flat_map(|four| (0..4).map(move |at| four >> (2 * at) & 3)).collect();
        let (codes, unused) = codes.split_at_checked(count).ok_or_else(outcome)?;
        if unused.iter().any(|code| *code != 0) {
            return Err(outcome());
        }
        let conflicts = codes.iter().filter(|code| **code == LockAnswer::CONFLICT).count();
        let mut newest = take_differences(&mut bytes, conflicts)?.into_iter();
        end(bytes)?;
        let answer = |code: &u8| match *code {
            LockAnswer::GRANTED => Ok(LockAnswer::Granted),
            LockAnswer::QUEUED => Ok(LockAnswer::Queued),
            LockAnswer::NOT_FREE => Ok(LockAnswer::NotFree),
            _ => {
                let newest = newest.next().and_then(RecId::from_bits);
                newest.map(LockAnswer::Conflict).ok_or(NEWEST)
            }
        };
        Ok(Self { number, answers: codes.iter().map(answer).collect::<Decoded<_>>()? })
    }

    /// Whether these answer `batch`: the same number, and one answer for each row.
    pub fn answer(&self, batch: &LockBatch) -> bool {
        self.number == batch.number && self.answers.len() == batch.vids.len()
    }
}

impl LockAnswer {
    const GRANTED: u8 = 0;
    const QUEUED: u8 = 1;
    const CONFLICT: u8 = 2;
    const NOT_FREE: u8 = 3;

    fn code(self) -> u8 {
        match self {
            Self::Granted => Self::GRANTED,
            Self::Queued => Self::QUEUED,
            Self::Conflict(_) => Self::CONFLICT,
            Self::NotFree => Self::NOT_FREE,
        }
    }
}

impl LockGrant {
    fn encode_behind(grants: &[Self], mut bytes: Vec<u8>) -> Vec<u8> {
        bytes.reserve(4 + grants.len() * 4);
        put(&mut bytes, grants.len() as u64);
        for grant in grants {
            put(&mut bytes, grant.number.into());
            put(&mut bytes, u64::from(grant.row) << 1 | u64::from(grant.newest.is_some()));
            if let Some(newest) = grant.newest {
                put(&mut bytes, newest.bits());
            }
        }
        bytes
    }

    fn decode(mut bytes: &[u8]) -> Decoded<Vec<Self>> {
        let count = take_count(&mut bytes)?;
        let mut grants = Vec::with_capacity(count);
        for _ in 0..count {
            let number = take_u32(&mut bytes, "number of a batch of locks")?;
            let coded = take_u32(&mut bytes, "row of a grant")?;
            let row = coded >> 1;
            if row as usize >= LOCK_ROWS_MAX {
                return Err(MalformedMessage::Field("row of a grant"));
            }
            let newest = if coded & 1 == 0 {
                None
            } else {
                Some(take(&mut bytes).and_then(RecId::from_bits).ok_or(NEWEST)?)
            };
            grants.push(Self { number, row, newest });
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

/// Takes a varint, in its shortest form only, so that every accepted message is encoded as it was read.
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

/// A count of items of at least a byte each.
fn take_count(bytes: &mut &[u8]) -> Decoded<usize> {
    take(bytes)
        .and_then(|count| usize::try_from(count).ok())
        .filter(|count| *count <= LOCK_ROWS_MAX.min(bytes.len()))
        .ok_or(MalformedMessage::Field("count of locks"))
}

/// Writes numbers by their differences from the one before.
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
