//! The location-free operators: execution plans that run unchanged on either side of a link.

pub mod table_scan_exec;
