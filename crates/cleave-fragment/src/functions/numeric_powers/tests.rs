//! Digits of powers and logarithms that PostgreSQL 15 gives.

use std::sync::Arc;

use arrow::array::{AsArray, Decimal128Array};
use arrow::datatypes::Decimal256Type;

use super::*;
use crate::functions::quotient::shown;

fn shown_of(function: &str, args: &[(i128, i8)]) -> Result<String> {
    let args = args.iter().map(|(value, scale)| {
        let one = Decimal128Array::from(vec![*value]).with_precision_and_scale(38, *scale);
        Arc::new(one.unwrap()) as ArrayRef
    });
    let args: Vec<_> = args.collect();
    let types: Vec<_> = args.iter().map(|arg| arg.data_type().clone()).collect();
    let result = result_type(function, &types);
    let array = compute(function, &args, &result)?;
    let DataType::Decimal256(precision, scale) = result else { panic!("{result}") };
    let value = array.as_primitive::<Decimal256Type>().value(0);
    let (value, scale) = shown(value, precision, scale);
    Ok(format!("{value}e-{scale}"))
}

#[test]
fn results_have_postgresqls_digits() {
    for (function, args, expected) in [
        ("sqrt", &[(2, 0)][..], "1414213562373095e-15"),
        ("sqrt", &[(40, 1)], "2000000000000000e-15"),
        ("exp", &[(10, 1)], "27182818284590452e-16"),
        ("ln", &[(20, 1)], "6931471805599453e-16"),
        ("log10", &[(20, 1)], "3010299956639812e-16"),
        ("log10", &[(59048945235237, 8)], "5771212144411727e-15"),
        ("log", &[(20, 1), (640, 1)], "60000000000000000e-16"),
        ("power", &[(10, 0), (-5, 0)], "100000000000e-16"),
        ("power", &[(-20, 1), (3, 0)], "-80000000000000000e-16"),
        ("power", &[(20, 1), (5, 1)], "14142135623730950e-16"),
        ("power", &[(5, 1), (17, 0)], "76293945313e-16"),
    ] {
        assert_eq!(shown_of(function, args).unwrap(), expected, "{function} of {args:?}");
    }
}

#[test]
fn what_has_no_result_is_an_error() {
    for (function, args) in [
        ("sqrt", &[(-1, 0)][..]),
        ("ln", &[(0, 0)]),
        ("log", &[(1, 0), (5, 0)]),
        ("exp", &[(100, 0)]),
        ("exp", &[(-100, 0)]),
        ("power", &[(0, 0), (-1, 0)]),
        ("power", &[(-2, 0), (5, 1)]),
        ("power", &[(10, 0), (40, 0)]),
    ] {
        assert!(shown_of(function, args).is_err(), "{function} of {args:?}");
    }
}
