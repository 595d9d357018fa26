//! Text that PostgreSQL accepts gives the same value here; text that it refuses is refused with the same SQLSTATE.

use super::{
    boolean, bytea, date, digits_of, double, integer, numeric, real, time, timestamp, timestamp_tz,
    uuid,
};
use crate::value::error::ValueFault;

#[test]
fn whole_numbers() {
    assert_eq!(integer::<i32>(" -42 ", "").unwrap(), -42);
    assert_eq!(integer::<i16>("+7", "").unwrap(), 7);
    assert_eq!(integer::<i64>("-9223372036854775808", "").unwrap(), i64::MIN);
    assert_eq!(integer::<i16>("32768", "").unwrap_err().fault, ValueFault::OutOfRange);
    for text in ["", " ", "12x", "1.5", "0x10", "--1", "1 2"] {
        assert_eq!(integer::<i32>(text, "").unwrap_err().fault, ValueFault::Malformed, "{text}");
    }
}

#[test]
fn floats() {
    assert_eq!(double("1e3").unwrap(), 1000.0);
    assert_eq!(double(" .5 ").unwrap(), 0.5);
    assert!(double("NaN").unwrap().is_nan());
    assert_eq!(double("-infinity").unwrap(), f64::NEG_INFINITY);
    assert_eq!(double("0e999").unwrap(), 0.0);
    assert_eq!(double("-0").unwrap().to_bits(), (-0.0_f64).to_bits());
    assert_eq!(double("1e400").unwrap_err().fault, ValueFault::OutOfRange);
    assert_eq!(double("1e-400").unwrap_err().fault, ValueFault::OutOfRange);
    assert_eq!(real("1e39").unwrap_err().fault, ValueFault::OutOfRange);
    assert_eq!(real("3.5").unwrap(), 3.5);
    for text in [
        "0",
        "5.",
        "-12345.67",
        "00.10",
        "0.3",
        "9007199254740991",
        "9007199254740993",
        "900719925474099.3",
        "0.0000000000000001",
        "999999999999999999",
        "12345678901234567890.5",
    ] {
        let expected: f64 = text.parse().unwrap();
        assert_eq!(double(text).unwrap().to_bits(), expected.to_bits(), "{text}");
    }
    for text in ["", "1,5", "one", "1e", ".", "-", "1.2.3", "-."] {
        assert_eq!(double(text).unwrap_err().fault, ValueFault::Malformed, "{text}");
    }
}

#[test]
fn numbers_in_plain_digits() {
    for (text, digits) in [
        ("7", "7"),
        ("007", "7"),
        ("-0", "0"),
        ("-0.00", "0.00"),
        (".5", "0.5"),
        ("5.", "5"),
        ("-1.50", "-1.50"),
        ("1e3", "1000"),
        ("1.50e1", "15.0"),
        ("1.25e2", "125"),
        ("1.25e5", "125000"),
        ("25E-4", "0.0025"),
        ("1234.5e-2", "12.345"),
        ("100e-2", "1.00"),
    ] {
        assert_eq!(digits_of(text).unwrap(), digits, "{text}");
    }
    assert_eq!(digits_of("1e100000").unwrap().len(), 100_001);
    for text in ["1e200000", "1e-99999999999999999999"] {
        assert_eq!(digits_of(text).unwrap_err().fault, ValueFault::OutOfRange, "{text}");
    }
    for text in ["", ".", "1e", "0x10", "1 2"] {
        assert_eq!(digits_of(text).unwrap_err().fault, ValueFault::Malformed, "{text}");
    }
}

#[test]
fn numerics_round_half_away_from_zero() {
    for (text, precision, scale, value) in [
        ("0", 5, 2, 0),
        ("12.5", 5, 2, 1250),
        ("-12.345", 5, 2, -1235),
        ("12.344", 5, 2, 1234),
        ("0.005", 5, 2, 1),
        ("0.0049", 5, 2, 0),
        ("999.99", 5, 2, 99_999),
        ("1.5e2", 5, 2, 15_000),
        ("150e-2", 5, 2, 150),
        (".5", 3, 0, 1),
        ("5.", 3, 0, 5),
        ("-0.4", 3, 0, 0),
        ("1e-100000000000", 5, 2, 0),
        ("0e100000000000", 5, 2, 0),
        ("0000000000000000000000000000000000000000001", 3, 0, 1),
        ("12345", 5, -2, 123),
        ("-7", 38, 30, -7 * 10_i128.pow(30)),
        ("123456789012345678", 18, 0, 123_456_789_012_345_678),
        (
            "0.123456789012345678901234567890123456789",
            38,
            38,
            12_345_678_901_234_567_890_123_456_789_012_345_679,
        ),
        ("99999999999999999999999999999999999999", 38, 0, 10_i128.pow(38) - 1),
    ] {
        assert_eq!(numeric(text, precision, scale).unwrap(), value, "{text}");
    }
    for text in ["1000", "999.995", "1e3", "1e100", "1e99999999999999999999"] {
        assert_eq!(numeric(text, 5, 2).unwrap_err().fault, ValueFault::OutOfRange, "{text}");
    }
    for text in ["", ".", "-", "1.2.3", "1e", "1e+", "abc", "1_000", "--1"] {
        assert_eq!(numeric(text, 5, 2).unwrap_err().fault, ValueFault::Malformed, "{text}");
    }
    for text in ["NaN", "-Infinity"] {
        assert_eq!(numeric(text, 5, 2).unwrap_err().fault, ValueFault::Unsupported, "{text}");
    }
}

#[test]
fn booleans() {
    for text in ["t", "TRUE", "tr", "y", "yes", "on", "1", " true "] {
        assert!(boolean(text).unwrap(), "{text}");
    }
    for text in ["f", "False", "n", "no", "off", "of", "0"] {
        assert!(!boolean(text).unwrap(), "{text}");
    }
    for text in ["", "o", "2", "truely", "ja", "ü"] {
        assert_eq!(boolean(text).unwrap_err().fault, ValueFault::Malformed, "{text}");
    }
}

#[test]
fn there_is_one_nan() {
    for text in ["NaN", "-NaN", " nan "] {
        assert_eq!(double(text).unwrap().to_bits(), f64::NAN.to_bits(), "{text}");
        assert_eq!(real(text).unwrap().to_bits(), f32::NAN.to_bits(), "{text}");
    }
}

#[test]
fn dates() {
    for (text, days) in [
        ("1970-01-01", 0),
        ("2024-02-29", 19_782),
        ("2024-2-9", 19_762),
        ("20240229", 19_782),
        ("2024/02/29", 19_782),
        ("01-02-2024", 19_724),
        ("2 Jan 24", 19_724),
        ("0001-01-01", -719_162),
        ("0001-01-01 BC", -719_528),
        (" 1969-12-31 ", -1),
    ] {
        assert_eq!(date(text).unwrap(), days, "{text}");
    }
    for text in [
        "2023-02-29",
        "2024-13-01",
        "2024-00-10",
        "2024-01-32",
        "0000-01-01",
        "5874898-01-01",
        "24-01-02",
    ] {
        assert_eq!(date(text).unwrap_err().fault, ValueFault::TimeOutOfRange, "{text}");
    }
    for text in ["", "2024", "2024-01", "01-02", "2024-01-02x", "2024-01/02", "yesteryear"] {
        assert_eq!(date(text).unwrap_err().fault, ValueFault::MalformedTime, "{text}");
    }
    assert_eq!(date("now").unwrap_err().fault, ValueFault::Unsupported);
}

#[test]
fn times() {
    assert_eq!(time("04:05").unwrap(), 14_700_000_000);
    assert_eq!(time("4:05:06.789").unwrap(), 14_706_789_000);
    assert_eq!(time("00:00:00.0000005").unwrap(), 0);
    assert_eq!(time("00:00:00.0000015").unwrap(), 2);
    assert_eq!(time("00:00:00.00000050000001").unwrap(), 1);
    assert_eq!(time("00:00:00.0000004999").unwrap(), 0);
    assert_eq!(time("23:59:60").unwrap(), 86_400_000_000);
    assert_eq!(time("24:00:00").unwrap(), 86_400_000_000);
    for text in ["24:00:01", "25:00", "12:60", "12:00:61"] {
        assert_eq!(time(text).unwrap_err().fault, ValueFault::TimeOutOfRange, "{text}");
    }
    assert_eq!(time("12:00 PM").unwrap(), 43_200_000_000);
    assert_eq!(time("12:00am").unwrap(), 0);
    assert_eq!(time("040506.5").unwrap(), 14_706_500_000);
    assert_eq!(time("allballs").unwrap(), 0);
    assert_eq!(time("2024-02-29 04:05+02").unwrap(), 14_700_000_000);
    for text in ["13:00 PM", "2024-02-30 04:05"] {
        assert_eq!(time(text).unwrap_err().fault, ValueFault::TimeOutOfRange, "{text}");
    }
    for text in ["", "12", "12:", "12:00 XM", "a:b", "2024-02-29", "04050", "0405065"] {
        assert_eq!(time(text).unwrap_err().fault, ValueFault::MalformedTime, "{text}");
    }
}

#[test]
fn timestamps() {
    let day = 19_782_i64 * 86_400_000_000;
    for (text, value) in [
        ("2024-02-29 03:04:05.678", day + 11_045_678_000),
        ("2024-02-29T03:04:05.678", day + 11_045_678_000),
        ("2024-02-29", day),
        ("2024-02-29 03:04:05+02", day + 11_045_000_000),
        ("epoch", 0),
        ("0044-03-15 12:00:00 BC", -63_517_780_800_000_000),
    ] {
        assert_eq!(timestamp(text).unwrap(), value, "{text}");
    }
    for (text, value) in [
        ("2024-02-29 03:04:05Z", day + 11_045_000_000),
        ("2024-02-29 03:04:05", day + 11_045_000_000),
        ("2024-02-29 03:04:05 UTC", day + 11_045_000_000),
        ("2024-02-29 03:04:05+02", day + 11_045_000_000 - 7_200_000_000),
        ("2024-02-29 03:04:05-0330", day + 11_045_000_000 + 12_600_000_000),
        ("2024-02-29 03:04:05+05:30", day + 11_045_000_000 - 19_800_000_000),
        ("2024-02-29 00:00:00+00", day),
    ] {
        assert_eq!(timestamp_tz(text).unwrap(), value, "{text}");
    }
    for text in ["2024-02-29 25:00:00", "400000-01-01 00:00:00"] {
        assert_eq!(timestamp_tz(text).unwrap_err().fault, ValueFault::TimeOutOfRange, "{text}");
    }
    let far = timestamp_tz("2024-02-29 00:00:00+16").unwrap_err().fault;
    assert_eq!(far, ValueFault::ZoneOutOfRange);
    for text in ["", "2024-02-29 03:04:05 Europe/Berlin", "2024-02-29 03", "2024-02-29x", "12:00"] {
        assert_eq!(timestamp_tz(text).unwrap_err().fault, ValueFault::MalformedTime, "{text}");
    }
}

#[test]
fn infinite_times() {
    for (text, days, micros) in [
        ("infinity", i32::MAX, i64::MAX),
        (" INFINITY ", i32::MAX, i64::MAX),
        ("-infinity", i32::MIN, i64::MIN),
        ("- Infinity", i32::MIN, i64::MIN),
    ] {
        assert_eq!(date(text).unwrap(), days, "{text}");
        assert_eq!(timestamp(text).unwrap(), micros, "{text}");
        assert_eq!(timestamp_tz(text).unwrap(), micros, "{text}");
    }
    for text in ["inf", "+infinity", "--infinity", "infinity1", "infinit"] {
        assert_eq!(date(text).unwrap_err().fault, ValueFault::MalformedTime, "{text}");
        assert_eq!(timestamp(text).unwrap_err().fault, ValueFault::MalformedTime, "{text}");
    }
    assert_eq!(time("infinity").unwrap_err().fault, ValueFault::MalformedTime);
}

#[test]
fn bytes() {
    assert_eq!(bytea("\\xDEADbeef").unwrap(), [0xde, 0xad, 0xbe, 0xef]);
    assert_eq!(bytea("\\x").unwrap(), [0_u8; 0]);
    assert_eq!(bytea("\\x de ad").unwrap(), [0xde, 0xad]);
    assert_eq!(bytea("a\\\\b\\001").unwrap(), [b'a', b'\\', b'b', 1]);
    for text in ["\\xabc", "\\xzz", "a\\b", "\\400", "\\"] {
        assert_eq!(bytea(text).unwrap_err().fault, ValueFault::Malformed, "{text}");
    }
}

#[test]
fn uuids() {
    let plain = uuid("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11").unwrap();
    assert_eq!(plain[..2], [0xa0, 0xee]);
    for text in [
        "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}",
        "a0eebc999c0b4ef8bb6d6bb9bd380a11",
        "A0EE-BC99-9c0b4ef8-bb6d6bb9-bd380a11",
    ] {
        assert_eq!(uuid(text).unwrap(), plain, "{text}");
    }
    for text in [
        "",
        "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1",
        "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a111",
        "a0eebc99--9c0b-4ef8-bb6d-6bb9bd380a11",
        "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11-",
        "g0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        "a0e-ebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
    ] {
        assert_eq!(uuid(text).unwrap_err().fault, ValueFault::Malformed, "{text}");
    }
}
