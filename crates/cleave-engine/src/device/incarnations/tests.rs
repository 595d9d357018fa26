//! The list comes back as it was written, or is refused by name.

use super::*;

#[test]
fn incarnations_are_read_as_they_were_written_and_damage_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let incarnations = Incarnations::of(directory.path(), DeviceId(3));
    assert_eq!(incarnations.read().unwrap(), [0; 0]);
    for numbers in [vec![1], vec![1, u64::MAX], Vec::new()] {
        incarnations.replace(&numbers).unwrap();
        assert_eq!(Incarnations::of(directory.path(), DeviceId(3)).read().unwrap(), numbers);
    }
    incarnations.replace(&[7, 8]).unwrap();
    let path = directory.path().join("device-3.incarnations");
    let whole = FORMAT.seal(&[7_u64, 8].map(u64::to_le_bytes).concat());
    assert!(fs::read(&path).unwrap().starts_with(&whole));
    let refused = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        let error = incarnations.read().unwrap_err();
        assert!(error.to_string().contains("device-3.incarnations"), "{error}");
        assert_eq!(error.sqlstate(), "XX001");
    };
    (0..whole.len()).for_each(|length| refused(&whole[..length]));
    for place in 0..whole.len() {
        let mut changed = whole.clone();
        changed[place] ^= 1;
        refused(&changed);
    }
    refused(&FORMAT.seal(&[1, 2, 3]));
    incarnations.remove();
    assert_eq!(incarnations.read().unwrap(), [0; 0]);
}
