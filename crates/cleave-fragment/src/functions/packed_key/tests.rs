//! Packing and unpacking give the same values, and misfits are errors.

use arrow::array::{
    Array, ArrayRef, BooleanArray, Date32Array, Int16Array, Int32Array, Int64Array, StringArray,
};

use super::*;

fn check(layout: &str, columns: &[ArrayRef]) -> Int64Array {
    let layout: KeyLayout = layout.parse().unwrap();
    assert_eq!(layout.to_string().parse::<KeyLayout>().unwrap(), layout);
    let keys = layout.pack(columns, columns[0].len()).unwrap();
    let packed: ArrayRef = Arc::new(keys.clone());
    for (number, column) in columns.iter().enumerate() {
        assert_eq!(&layout.unpack(number, &packed).unwrap(), column, "part {number}");
    }
    keys
}

#[test]
fn values_come_back() {
    let flags: ArrayRef = Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)]));
    let small: ArrayRef = Arc::new(Int16Array::from(vec![i16::MIN, -1, i16::MAX]));
    let days: ArrayRef = Arc::new(Date32Array::from(vec![Some(i32::MIN), Some(-1), None]));
    check("b? h d?", &[flags, small, Arc::clone(&days)]);
    check("d?", &[days]);
    let numbers: ArrayRef = Arc::new(Int32Array::from(vec![i32::MIN, -1, i32::MAX]));
    let letters: ArrayRef = Arc::new(StringArray::from(vec!["\u{10ffff}", "", "\0"]));
    check("i c1", &[Arc::clone(&numbers), Arc::clone(&letters)]);
    check("c1 i", &[letters, Arc::clone(&numbers)]);
    check("i i", &[Arc::clone(&numbers), numbers]);
    let texts = vec![Some("\u{10ffff}bc"), Some("abc"), Some("é\u{10ffff}"), None, Some("a")];
    check("c3?", &[Arc::new(StringArray::from(texts))]);
}

#[test]
fn different_values_have_different_keys() {
    let texts: Vec<Option<&str>> =
        vec![None, Some(""), Some("\0"), Some("\0\0"), Some("a"), Some("a\0"), Some("\0a")];
    let mut keys = check("c2?", &[Arc::new(StringArray::from(texts))]).values().to_vec();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 7);
}

#[test]
fn what_does_not_fit_is_refused() {
    for layout in ["", "x", "c", "c4", "i i b", "d i?", "c3 h", "c4294967295", "b  b"] {
        assert!(layout.parse::<KeyLayout>().is_err(), "{layout:?}");
    }
    let layout: KeyLayout = "c1".parse().unwrap();
    let texts = |text: Option<&str>| -> [ArrayRef; 1] { [Arc::new(StringArray::from(vec![text]))] };
    assert!(layout.pack(&texts(Some("ab")), 1).is_err());
    assert!(layout.pack(&texts(None), 1).is_err());
    assert!(layout.pack(&[], 1).is_err());
    let number: ArrayRef = Arc::new(Int32Array::from(vec![1]));
    assert!(layout.pack(&[number], 1).is_err());
    let hostile: ArrayRef = Arc::new(Int64Array::from(vec![0x1f_ffff]));
    assert!(layout.unpack(0, &hostile).is_err());
    assert!(layout.unpack(1, &hostile).is_err());
}
