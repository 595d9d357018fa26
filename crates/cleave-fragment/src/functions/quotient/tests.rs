//! Digits of quotients, against PostgreSQL's.

use super::*;

fn number(text: &str) -> Numeric {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let value = i256::from_string(&format!("{whole}{fraction}")).unwrap();
    Numeric { value, scale: i32::try_from(fraction.len()).unwrap() }
}

/// A quotient as it is shown.
fn shown(value: i256) -> String {
    let scale = shown_scale(value, PRECISION);
    let kept = value.wrapping_div(power(u32::from((SCALE - scale).unsigned_abs())));
    let digits = kept.wrapping_abs().to_string();
    let behind = usize::from(scale.unsigned_abs());
    let digits = format!("{digits:0>width$}", width = behind + 1);
    let (whole, fraction) = digits.split_at(digits.len() - behind);
    let sign = if value < i256::ZERO { "-" } else { "" };
    if fraction.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
}

#[test]
fn quotients_have_the_digits_of_postgresql() {
    for (left, right, expected) in [
        ("2.0", "3", "0.66666666666666666667"),
        ("1", "3", "0.33333333333333333333"),
        ("10", "3", "3.3333333333333333"),
        ("-10", "3", "-3.3333333333333333"),
        ("100000", "3", "33333.333333333333"),
        ("1", "1", "1.00000000000000000000"),
        ("6", "3", "2.0000000000000000"),
        ("10000", "1", "10000.0000000000000000"),
        ("0", "3", "0.00000000000000000000"),
        ("1", "30000", "0.000033333333333333333333"),
        ("1", "7", "0.14285714285714285714"),
        ("22", "7", "3.1428571428571429"),
        ("5", "2", "2.5000000000000000"),
        ("123456789012345678", "7", "17636684144620811"),
    ] {
        let value = divided(number(left), number(right)).unwrap();
        assert_eq!(shown(value), expected, "{left} / {right}");
    }
}

#[test]
fn wide_operands_are_divided_digit_by_digit() {
    let large = "12345678901234567890123456789012345678";
    let value = divided(number(large), number("0.00000000000000000000000000000000000003"));
    assert!(value.is_err());
    let value = divided(number(large), number("3")).unwrap();
    assert_eq!(shown(value), "4115226300411522630041152263004115226");
    for (left, right) in [("9", "7"), ("123456789", "1001"), ("1", "99999999999999999999999")] {
        let (left, right) = (number(left), number(right));
        let short = small_quotient(left.value, right.value, 20).unwrap();
        assert_eq!(long_quotient(left.value, right.value, 20).unwrap(), i256::from_i128(short));
    }
    assert!(divided(number("1"), number("0")).is_err());
    // A decimal more than a quotient has.
    let value = divided(number("0.25000000000000000000000000000000000004"), number("1")).unwrap();
    assert_eq!(shown(value), "0.25000000000000000000");
}

#[test]
fn arithmetic_with_quotients_keeps_their_digits() {
    let third = divided(number("1"), number("3")).unwrap();
    let third = Numeric { value: third, scale: SCALE.into() };
    let stored = |number: Option<Numeric>| shown(number.unwrap().at_scale().unwrap());
    assert_eq!(stored(multiplied(third, number("2"))), "0.66666666666666666666");
    assert_eq!(stored(added(third, number("1"))), "1.33333333333333333333");
    assert_eq!(stored(subtracted(third, third)), "0.00000000000000000000");
}
