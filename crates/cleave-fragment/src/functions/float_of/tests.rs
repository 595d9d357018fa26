//! Numerics become the floats that parsing their digits gives.

use arrow::array::{Decimal128Array, Decimal256Array};
use arrow::datatypes::{Float64Type, i256};

use super::*;

/// Every numeric becomes the float that its text parses to, whichever way it is computed.
#[test]
fn numerics_are_the_nearest_floats() {
    let mut value: i128 = 1;
    for step in 0..600_i128 {
        value = value.wrapping_mul(31).wrapping_add(step * 7 + 1) % 10_i128.pow(38);
        for scale in [0_i8, 2, 10, 22, 23, 38] {
            let text = format!("{value}e-{scale}");
            let narrow = Decimal128Array::from(vec![Some(value), None]);
            let narrow: ArrayRef = Arc::new(narrow.with_precision_and_scale(38, scale).unwrap());
            let wide = Decimal256Array::from(vec![Some(i256::from_i128(value)), None]);
            let wide: ArrayRef = Arc::new(wide.with_precision_and_scale(76, scale).unwrap());
            for numerics in [narrow, wide] {
                let doubles = floats_of(&numerics, &DataType::Float64).unwrap();
                let doubles = doubles.as_primitive::<Float64Type>();
                assert_eq!(doubles.value(0), text.parse::<f64>().unwrap(), "{text}");
                assert!(doubles.is_null(1));
                let reals = floats_of(&numerics, &DataType::Float32).unwrap();
                let reals = reals.as_primitive::<Float32Type>();
                assert_eq!(reals.value(0), text.parse::<f32>().unwrap(), "{text}");
            }
        }
    }
}

#[test]
fn the_powers_of_ten_are_exact() {
    for power in 0..=EXACT_POWER {
        let exact: f64 = format!("1e{power}").parse().unwrap();
        assert_eq!(10_f64.powi(power.into()), exact);
    }
}
