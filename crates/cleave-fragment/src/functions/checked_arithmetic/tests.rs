//! Numerics of every scale and size, constants and NULLs among them, against Arrow's own kernels.

use arrow::array::{Array, AsArray, Decimal128Array, Int64Array, Scalar};
use arrow::datatypes::Decimal128Type;
use cleave_media::SplitMix64;

use super::*;

fn numerics(random: &mut SplitMix64, precision: u8, scale: i8, count: usize) -> Decimal128Array {
    let bits = 1 + random.below(u64::from(precision) * 3);
    let values = (0..count).map(|_| {
        let wide = (u128::from(random.next_u64()) << 64) | u128::from(random.next_u64());
        let value = i128::try_from(wide >> (128 - bits)).unwrap_or(0);
        (random.below(5) > 0).then_some(if random.below(2) == 0 { value } else { -value })
    });
    values.collect::<Decimal128Array>().with_precision_and_scale(precision, scale).unwrap()
}

#[test]
fn numerics_are_as_the_engine_has_them() {
    let mut random = SplitMix64::new(7);
    let mut narrow_count = 0;
    for _ in 0..2000 {
        let mut number = |below: u64| u8::try_from(random.below(below)).unwrap();
        let (p1, p2) = (1 + number(38), 1 + number(38));
        let (s1, s2) = (number(u64::from(p1) + 1), number(u64::from(p2) + 1));
        let (s1, s2) = (i8::try_from(s1).unwrap(), i8::try_from(s2).unwrap());
        let a = numerics(&mut random, p1, s1, 9);
        let b = numerics(&mut random, p2, s2, 9);
        let constant = Scalar::new(b.slice(0, 1));
        let pairs: [(&dyn Datum, &dyn Datum); 3] = [(&a, &b), (&a, &constant), (&constant, &a)];
        for operator in [Operator::Plus, Operator::Minus, Operator::Multiply] {
            for (left, right) in pairs {
                let engine = match operator {
                    Operator::Plus => add(left, right),
                    Operator::Minus => sub(left, right),
                    _ => mul(left, right),
                };
                let Some(ours) = narrow_numerics::compute(operator, left, right).unwrap() else {
                    continue;
                };
                let engine = engine.unwrap();
                assert_eq!(&ours, &engine, "{operator} of ({p1}, {s1}) and ({p2}, {s2})");
                assert_eq!(ours.data_type(), engine.data_type());
                narrow_count += 1;
            }
        }
    }
    assert!(narrow_count > 2000, "{narrow_count} results were computed here");
}

#[test]
fn edges_of_64_bits_are_told_apart() {
    let edge =
        |value: i128| Decimal128Array::from(vec![value]).with_precision_and_scale(38, 0).unwrap();
    for (value, is_narrow) in [
        (i128::from(i64::MAX), true),
        (i128::from(i64::MIN), true),
        (i128::from(i64::MAX) + 1, false),
        (i128::from(i64::MIN) - 1, false),
        (-1, true),
    ] {
        let a = edge(value);
        let ours = narrow_numerics::compute(Operator::Multiply, &a, &a).unwrap();
        assert_eq!(ours.is_some(), is_narrow, "{value}");
        if let Some(ours) = ours {
            assert_eq!(ours.as_primitive::<Decimal128Type>().value(0), value * value);
        }
    }
}

#[test]
fn what_does_not_fit_is_an_error() {
    let large = Decimal128Array::from(vec![10_i128.pow(37)]);
    let large = large.with_precision_and_scale(38, 0).unwrap();
    let of = |operator| Checked::new("checked", operator);
    let error = of(Operator::Multiply).compute(&large, &large).unwrap_err();
    assert!(matches!(error, ArrowError::ArithmeticOverflow(_)), "{error}");
    let integers = Int64Array::from(vec![i64::MAX]);
    assert!(of(Operator::Plus).compute(&integers, &integers).is_err());
}
