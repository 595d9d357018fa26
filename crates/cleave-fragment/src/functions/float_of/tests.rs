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

#[test]
fn floats_become_numerics_of_their_sure_digits() {
    let shown = |floats: ArrayRef| -> Vec<String> {
        let numerics = numerics_of(&floats, Beyond::Rounded).unwrap();
        let numerics = numerics.as_primitive::<Decimal256Type>();
        let texts = (0..numerics.len()).map(|row| numerics.value_as_string(row));
        // Of 38 digits behind the point, the first two.
        texts.map(|text| text[..text.len() - 36].to_owned()).collect()
    };
    let doubles = vec![0.1 + 0.2, -1.5, 123_456_789_012_345_678.0, 0.0];
    assert_eq!(
        shown(Arc::new(Float64Array::from(doubles))),
        ["0.30", "-1.50", "123456789012346000.00", "0.00"]
    );
    let reals = vec![0.1, 16_777_216.0];
    assert_eq!(shown(Arc::new(Float32Array::from(reals))), ["0.10", "16777200.00"]);
    // Half of the last digit away from zero, and what is smaller.
    let small = vec![5e-39, -5e-39, 4.9e-39, 1e-300];
    let small: ArrayRef = Arc::new(Float64Array::from(small));
    assert!(numerics_of(&small, Beyond::Error).is_err());
    let small = numerics_of(&small, Beyond::Rounded).unwrap();
    let small: Vec<_> = small.as_primitive::<Decimal256Type>().values().iter().copied().collect();
    assert_eq!(small, [1, -1, 0, 0].map(i256::from_i128));
    for value in [f64::NAN, f64::INFINITY, 1e38] {
        let one: ArrayRef = Arc::new(Float64Array::from(vec![value]));
        assert!(numerics_of(&one, Beyond::Rounded).is_err());
    }
}
