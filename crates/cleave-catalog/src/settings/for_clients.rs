//! Settings of PostgreSQL without effect here that its clients set, `pg_dump` above all: one value is true, and others
//! are accepted if they would change nothing.

use super::{Setting, Values};

const fn taken(
    name: &'static str,
    description: &'static str,
    only: &'static str,
    others: &'static [&'static str],
) -> Setting {
    let values = Values::OnlyOr(only, others);
    Setting { name, description, values, get: |_| String::new(), set: |_, _| {} }
}

pub(super) const CHECK_FUNCTION_BODIES: Setting = taken(
    "check_function_bodies",
    "Whether functions are checked when they are made: there are none to make",
    "on",
    &["off", "false", "0", "no", "true", "1", "yes"],
);

pub(super) const DEFAULT_TABLE_ACCESS_METHOD: Setting =
    taken("default_table_access_method", "How tables are stored", "heap", &[]);

pub(super) const DEFAULT_TABLESPACE: Setting =
    taken("default_tablespace", "Where tables are put: their devices say", "", &["pg_default"]);

pub(super) const ROW_SECURITY: Setting = taken(
    "row_security",
    "Whether policies hide rows: there are none",
    "on",
    &["off", "false", "0", "no", "true", "1", "yes"],
);

pub(super) const SYNCHRONIZE_SEQSCANS: Setting = taken(
    "synchronize_seqscans",
    "Whether a scan may begin in the midst of a table: it never does",
    "off",
    &["on", "false", "0", "no", "true", "1", "yes"],
);

pub(super) const XMLOPTION: Setting =
    taken("xmloption", "What XML is taken to be: there is none", "content", &["document"]);
