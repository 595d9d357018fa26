//! Batches that come as they went, how long they are, and what is refused.

use cleave_store::SegmentId;
use proptest::prelude::*;

use super::*;

#[test]
fn a_lock_takes_few_bytes() {
    let count = LOCK_ROWS_MAX as u64;
    let scanned =
        LockBatch { number: 3, object: 7, vids: (1 << 40..).take(LOCK_ROWS_MAX).collect() };
    assert!(scanned.encode().len() < LOCK_ROWS_MAX + 16, "a byte a row in a scan's order");
    let scattered = (0..count).map(|row| row.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24);
    let scattered = LockBatch { number: 3, object: 7, vids: scattered.collect() };
    assert!(scattered.encode().len() < LOCK_ROWS_MAX * 6 + 16, "of a million millions");
    let granted = LockAnswers { number: 3, answers: vec![LockAnswer::Granted; LOCK_ROWS_MAX] };
    assert!(granted.encode().len() < LOCK_ROWS_MAX / 4 + 16);
    assert!(granted.answer(&scanned));
    assert!(!LockAnswers { number: 4, ..granted }.answer(&scanned));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let batch = LockBatch { number: 1, object: 2, vids: vec![5, 3, u64::MAX, 0] };
    let bytes = batch.encode();
    assert_eq!(LockBatch::decode(&bytes), Ok(batch));
    for end in 0..bytes.len() {
        assert!(LockBatch::decode(&bytes[..end]).is_err());
    }
    let field = |decoded: Decoded<LockBatch>| decoded.unwrap_err().to_string();
    assert!(field(LockBatch::decode(&[bytes.as_slice(), &[0]].concat())).contains("end"));
    // More rows than bytes, more than a batch has, a number that is too large or longer than it need be.
    assert!(field(LockBatch::decode(&[1, 2, 100, 1, 1])).contains("count"));
    let many = [vec![1, 2, 0x81, 0x80, 1], vec![0; LOCK_ROWS_MAX + 1]].concat();
    assert!(field(LockBatch::decode(&many)).contains("count"));
    assert!(field(LockBatch::decode(&[0xff, 0xff, 0xff, 0xff, 0x1f, 2, 0])).contains("number"));
    assert!(field(LockBatch::decode(&[0x81, 0, 2, 0])).contains("number"));
    assert!(field(LockBatch::decode(&[1, 2, 1, 0xff])).contains("row"));
    // An outcome that there is not, one behind the last, a conflict with nothing.
    let answers = |bytes: &[u8]| LockAnswers::decode(bytes).unwrap_err().to_string();
    assert!(answers(&[1, 1, 3]).contains("outcome"));
    assert!(answers(&[1, 1, 4]).contains("outcome"));
    assert!(answers(&[1, 1, 2, 0]).contains("newest version"));
    assert!(answers(&[1, 0xff, 0xff, 0xff, 0xff, 0x7f, 0]).contains("outcome"));
    let grants = |bytes: &[u8]| LockGrant::decode(bytes).unwrap_err().to_string();
    assert!(grants(&[1, 1, 0x80, 0x80, 1]).contains("row of a grant"));
}

fn answer() -> impl Strategy<Value = LockAnswer> {
    let conflict = (1_u32..100, 0_u32..1000, any::<u16>()).prop_map(|(segment, page, slot)| {
        LockAnswer::Conflict(RecId::new(SegmentId(segment), page, slot).unwrap())
    });
    prop_oneof![Just(LockAnswer::Granted), Just(LockAnswer::Queued), conflict]
}

proptest! {
    #[test]
    fn messages_come_as_they_went(
        number: u32,
        object: u64,
        vids in proptest::collection::vec(any::<u64>(), 0..50),
        answers in proptest::collection::vec(answer(), 0..50),
        grants in proptest::collection::vec((any::<u32>(), 0_u32..1 << 14), 0..50),
    ) {
        let batch = LockBatch { number, object, vids };
        prop_assert_eq!(LockBatch::decode(&batch.encode()), Ok(batch));
        let answers = LockAnswers { number, answers };
        prop_assert_eq!(LockAnswers::decode(&answers.encode()), Ok(answers));
        let grants: Vec<_> = grants.into_iter().map(|(number, row)| LockGrant { number, row }).collect();
        prop_assert_eq!(LockGrant::decode(&LockGrant::encode(&grants)), Ok(grants));
    }

    #[test]
    fn any_bytes_are_refused_or_written_again_as_they_were(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        if let Ok(batch) = LockBatch::decode(&bytes) {
            prop_assert_eq!(batch.encode(), bytes.clone());
        }
        if let Ok(answers) = LockAnswers::decode(&bytes) {
            prop_assert_eq!(answers.encode(), bytes.clone());
        }
        if let Ok(grants) = LockGrant::decode(&bytes) {
            prop_assert_eq!(LockGrant::encode(&grants), bytes);
        }
    }
}
