//! The numbers (oids) of tables. Those of PostgreSQL's own tables, as in `tableoid` and `classid`, are fixed, since
//! clients have some of them built in. Those of a database's tables are derived from the ids in its catalog.
//!
//! Source: PostgreSQL's `pg_class`, of version 15.

use std::sync::Arc;

use cleave_catalog::catalog::CatalogState;
use cleave_catalog::catalog::sequence::Sequence;

/// `pg_attrdef`.
pub const ATTRDEF: i64 = 2604;
/// `pg_class`.
pub const CLASS: i64 = 1259;
/// `pg_constraint`.
pub const CONSTRAINT: i64 = 2606;
/// `pg_namespace`.
pub const NAMESPACE: i64 = 2615;
/// `pg_rewrite`.
pub const REWRITE: i64 = 2618;

/// The first number of a database's own objects.
pub const FIRST: i64 = 16_384;
/// Numbers of one table with its indexes and constraints.
pub const PER_TABLE: i64 = 1000;

/// The number of the table or sequence with this id.
pub fn oid_of(id: u32) -> i64 {
    FIRST + i64::from(id) * PER_TABLE
}

/// The number of a sequence.
pub fn sequence_oid(sequence: &Sequence) -> i64 {
    oid_of(sequence.id)
}

/// The sequence of this number.
pub fn sequence_of_number(state: &CatalogState, oid: i64) -> Option<&Arc<Sequence>> {
    state.sequences.values().find(|sequence| sequence_oid(sequence) == oid)
}

/// The number of a table of PostgreSQL's own.
pub fn number_of_catalog(name: &str) -> Option<i64> {
    OWN.iter().find(|(known, _)| *known == name).map(|(_, oid)| *oid)
}

/// The table of PostgreSQL's own of this number.
pub fn name_of_catalog(oid: i64) -> Option<&'static str> {
    OWN.iter().find(|(_, known)| *known == oid).map(|(name, _)| *name)
}

/// The tables of PostgreSQL's own that have a number.
pub fn numbered_catalogs() -> impl Iterator<Item = (&'static str, i64)> {
    OWN.iter().copied()
}

/// Those that [`super`] lists.
const OWN: &[(&str, i64)] = &[
    ("pg_am", 2601),
    ("pg_amop", 2602),
    ("pg_amproc", 2603),
    ("pg_attrdef", 2604),
    ("pg_attribute", 1249),
    ("pg_auth_members", 1261),
    ("pg_authid", 1260),
    ("pg_cast", 2605),
    ("pg_class", 1259),
    ("pg_collation", 3456),
    ("pg_constraint", 2606),
    ("pg_conversion", 2607),
    ("pg_database", 1262),
    ("pg_db_role_setting", 2964),
    ("pg_default_acl", 826),
    ("pg_depend", 2608),
    ("pg_description", 2609),
    ("pg_enum", 3501),
    ("pg_event_trigger", 3466),
    ("pg_extension", 3079),
    ("pg_foreign_data_wrapper", 2328),
    ("pg_foreign_server", 1417),
    ("pg_foreign_table", 3118),
    ("pg_index", 2610),
    ("pg_inherits", 2611),
    ("pg_init_privs", 3394),
    ("pg_language", 2612),
    ("pg_largeobject_metadata", 2995),
    ("pg_namespace", 2615),
    ("pg_opclass", 2616),
    ("pg_operator", 2617),
    ("pg_opfamily", 2753),
    ("pg_partitioned_table", 3350),
    ("pg_policy", 3256),
    ("pg_proc", 1255),
    ("pg_publication", 6104),
    ("pg_publication_namespace", 6237),
    ("pg_publication_rel", 6106),
    ("pg_range", 3541),
    ("pg_rewrite", 2618),
    ("pg_roles", 12_000),
    ("pg_seclabel", 3596),
    ("pg_sequence", 2224),
    ("pg_shdepend", 1214),
    ("pg_shdescription", 2396),
    ("pg_shseclabel", 3592),
    ("pg_statistic_ext", 3381),
    ("pg_subscription", 6100),
    ("pg_tablespace", 1213),
    ("pg_transform", 3576),
    ("pg_trigger", 2620),
    ("pg_ts_config", 3602),
    ("pg_ts_dict", 3600),
    ("pg_ts_parser", 3601),
    ("pg_ts_template", 3764),
    ("pg_type", 1247),
];
