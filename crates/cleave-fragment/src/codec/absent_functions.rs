//! The functions of DataFusion that no side of a cut has.

/// Functions of DataFusion that neither side has: they make values of types that no table has, of any width; or they
/// have the names of the host's own functions, and a device would run DataFusion's instead.
pub const ABSENT_FUNCTIONS: [&str; 20] = [
    "array_dims",
    "array_has_all",
    "array_has_any",
    "array_length",
    "array_ndims",
    "array_remove",
    "array_replace",
    "arrow_cast",
    "arrow_try_cast",
    "cast_to_type",
    "make_date",
    "regexp_count",
    "regexp_instr",
    "regexp_match",
    "regexp_replace",
    "string_to_array",
    "to_char",
    "to_date",
    "to_timestamp",
    "try_cast_to_type",
];
