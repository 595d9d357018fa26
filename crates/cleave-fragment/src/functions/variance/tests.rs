//! Decimals of variances, against those of PostgreSQL 15.

use super::*;

fn deviation(values: &[i64], scale: i32, is_sample: bool, is_root: bool) -> Option<String> {
    let mut state = Deviation {
        values: None,
        count: 0,
        shown: scale,
        sum: BigInt::ZERO,
        squares: BigInt::ZERO,
        scale,
        is_sample,
        is_root,
    };
    values.iter().for_each(|value| state.add(BigInt::from(*value)));
    state.deviation().unwrap().map(|found| format!("{}e-{}", found.value, found.scale))
}

#[test]
fn deviations_have_postgresqls_digits() {
    let of = |is_sample, is_root| deviation(&[15, 225, 40], 1, is_sample, is_root).unwrap();
    assert_eq!(of(true, false), "1315833333333333333e-16");
    assert_eq!(of(true, true), "114709778717131755e-16");
    assert_eq!(of(false, false), "877222222222222222e-16");
    assert_eq!(deviation(&[7], 0, true, false), None);
    assert_eq!(deviation(&[7], 0, false, true).unwrap(), "0e-0");
    assert_eq!(deviation(&[], 0, false, true), None);
}
