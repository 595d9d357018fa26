//! Lock messages survive encoding; how long they are, and which are refused.

use cleave_store::SegmentId;
use proptest::prelude::*;

use super::*;
use crate::command::wire::{Frame, FrameKind};
use crate::command::{Command, CommandHeader, Request};

fn batch(vids: Vec<u64>) -> LockBatch {
    LockBatch { number: 3, object: 7, waits: true, vids }
}

fn encoded(batch: &LockBatch) -> Vec<u8> {
    LockCall::Lock(batch.clone()).encode()
}

#[test]
fn a_lock_takes_few_bytes() {
    let count = LOCK_ROWS_MAX as u64;
    let scanned = batch((1 << 40..).take(LOCK_ROWS_MAX).collect());
    assert!(encoded(&scanned).len() < LOCK_ROWS_MAX + 20, "a byte a row in a scan's order");
    let scattered = (0..count).map(|row| row.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24);
    let scattered = batch(scattered.collect());
    assert!(encoded(&scattered).len() < LOCK_ROWS_MAX * 6 + 20, "of a million millions");
    let granted = LockAnswers { number: 3, answers: vec![LockAnswer::Granted; LOCK_ROWS_MAX] };
    let say = LockSay::Answers(granted.clone());
    assert!(say.encode().len() < LOCK_ROWS_MAX / 4 + 20);
    assert!(granted.answer(&scanned));
    assert!(!LockAnswers { number: 4, ..granted }.answer(&scanned));
}

/// Includes all frame overhead, before TLS: both directions together, for scattered rows.
#[test]
fn a_batch_of_a_thousand_scattered_rows_takes_less_than_twelve_bytes_a_row() {
    let rows = (0..1000).map(|row: u64| row.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24);
    let asked = batch(rows.collect());
    let frame = Frame::of_head(FrameKind::Locks, 1, encoded(&asked));
    let newest = RecId::new(SegmentId(3), 4, 5).unwrap();
    let answers = (0..1000).map(|row| match row % 10 {
        0 => LockAnswer::Conflict(newest),
        _ => LockAnswer::Granted,
    });
    let say = LockSay::Answers(LockAnswers { number: 3, answers: answers.collect() });
    let header =
        CommandHeader { database: [7; 16], incarnation: u64::MAX, run: 9, ..Default::default() };
    let answer =
        crate::command::proto::encode_command(0, Command::new(header, Request::Locks(say)));
    // The bytes before the length's end.
    let bytes = frame.length().unwrap() + answer.length().unwrap() + 2 * 17;
    assert!(bytes <= 12 * 1000, "{bytes} bytes");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let batch = LockBatch { number: 1, object: 2, waits: false, vids: vec![5, 3, u64::MAX, 0] };
    let bytes = encoded(&batch);
    assert_eq!(LockCall::decode(&bytes), Ok(LockCall::Lock(batch)));
    for end in 0..bytes.len() {
        assert!(LockCall::decode(&bytes[..end]).is_err());
    }
    let call = |bytes: &[u8]| LockCall::decode(bytes).unwrap_err().to_string();
    assert!(call(&[bytes.as_slice(), &[0]].concat()).contains("end"));
    // More rows than bytes, more than a batch has, a number that is too large or longer than necessary.
    assert!(call(&[0, 1, 2, 0, 100, 1, 1]).contains("count"));
    let many = [vec![0, 1, 2, 0, 0x81, 0x80, 1], vec![0; LOCK_ROWS_MAX + 1]].concat();
    assert!(call(&many).contains("count"));
    assert!(call(&[0, 0xff, 0xff, 0xff, 0xff, 0x1f, 2, 0, 0]).contains("number"));
    assert!(call(&[0, 0x81, 0, 2, 0, 0]).contains("number"));
    assert!(call(&[0, 1, 2, 0, 1, 0xff]).contains("row"));
    assert!(call(&[0, 1, 2, 2, 0]).contains("wait"));
    // An unknown kind, no bytes, trailing bytes.
    assert!(call(&[4]).contains("kind") && call(&[]).contains("kind"));
    assert!(call(&[2, 0]).contains("end") && call(&[1, 0, 0]).contains("end"));
    assert!(call(&[3]).contains("object") && call(&[3, 1, 1]).contains("end"));
    let say = |bytes: &[u8]| LockSay::decode(bytes).unwrap_err().to_string();
    assert!(
        say(&[5]).contains("kind") && say(&[]).contains("kind") && say(&[3, 0]).contains("end")
    );
    // An outcome behind the last, a conflict without a version, more than a message has.
    assert!(say(&[0, 1, 1, 4]).contains("outcome"));
    assert!(say(&[0, 1, 1, 2, 0]).contains("newest version"));
    assert!(say(&[0, 1, 0xff, 0xff, 0xff, 0xff, 0x7f, 0]).contains("outcome"));
    assert!(say(&[1, 1, 1, 0x80, 0x80, 2]).contains("row of a grant"));
    assert!(say(&[1, 1, 1, 1, 0]).contains("newest version"));
    assert!(say(&[2, 9]).contains("reason") && say(&[2]).contains("reason"));
}

fn newest() -> impl Strategy<Value = RecId> {
    (1_u32..100, 0_u32..1000, any::<u16>())
        .prop_map(|(segment, page, slot)| RecId::new(SegmentId(segment), page, slot).unwrap())
}

fn answer() -> impl Strategy<Value = LockAnswer> {
    let conflict = newest().prop_map(LockAnswer::Conflict);
    let others = [LockAnswer::Granted, LockAnswer::Queued, LockAnswer::NotFree];
    prop_oneof![proptest::sample::select(others.to_vec()), conflict]
}

fn grant() -> impl Strategy<Value = LockGrant> {
    (any::<u32>(), 0_u32..1 << 14, proptest::option::of(newest()))
        .prop_map(|(number, row, newest)| LockGrant { number, row, newest })
}

fn call() -> impl Strategy<Value = LockCall> {
    let rows = proptest::collection::vec(any::<u64>(), 0..50);
    let batch = (any::<u32>(), any::<u64>(), any::<bool>(), rows)
        .prop_map(|(number, object, waits, vids)| LockBatch { number, object, waits, vids });
    prop_oneof![
        batch.prop_map(LockCall::Lock),
        any::<u32>().prop_map(|below| LockCall::GiveUp { below }),
        Just(LockCall::Release),
        any::<u64>().prop_map(|object| LockCall::Escalate { object }),
    ]
}

fn say() -> impl Strategy<Value = LockSay> {
    let answers = (any::<u32>(), proptest::collection::vec(answer(), 0..50));
    let answers = answers.prop_map(|(number, answers)| LockAnswers { number, answers });
    let refused = proptest::sample::select(LockRefusal::ALL.to_vec());
    prop_oneof![
        answers.prop_map(LockSay::Answers),
        proptest::collection::vec(grant(), 0..50).prop_map(LockSay::Grants),
        refused.prop_map(LockSay::Refused),
        Just(LockSay::Released),
        any::<u64>().prop_map(|object| LockSay::Escalated { object }),
    ]
}

proptest! {
    #[test]
    fn messages_come_as_they_went(call in call(), say in say()) {
        prop_assert_eq!(LockCall::decode(&call.encode()), Ok(call));
        prop_assert_eq!(LockSay::decode(&say.encode()), Ok(say));
    }

    #[test]
    fn any_bytes_are_refused_or_written_again_as_they_were(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        if let Ok(call) = LockCall::decode(&bytes) {
            prop_assert_eq!(call.encode(), bytes.clone());
        }
        if let Ok(say) = LockSay::decode(&bytes) {
            prop_assert_eq!(say.encode(), bytes);
        }
    }
}
