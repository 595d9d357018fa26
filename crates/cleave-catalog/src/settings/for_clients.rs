//! Settings of PostgreSQL that have no meaning here and that its clients set, above all `pg_dump`. One value is in
//! force; others are accepted if they would change nothing.

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
    "Whether function bodies are checked; there are no user-defined functions",
    "on",
    &["off", "false", "0", "no", "true", "1", "yes"],
);

pub(super) const DEFAULT_TABLE_ACCESS_METHOD: Setting =
    taken("default_table_access_method", "Access method of tables; there is one", "heap", &[]);

pub(super) const DEFAULT_TABLESPACE: Setting =
    taken("default_tablespace", "Tablespace of new tables; not used", "", &["pg_default"]);

pub(super) const ROW_SECURITY: Setting = taken(
    "row_security",
    "Whether row security policies apply; there are none",
    "on",
    &["off", "false", "0", "no", "true", "1", "yes"],
);

pub(super) const SERVER_VERSION_NUM: Setting = Setting {
    name: "server_version_num",
    description: "The same version of PostgreSQL as a number",
    values: Values::ReadOnly("150000"),
    get: |_| "150000".to_owned(),
    set: |_, _| {},
};

pub(super) const SYNCHRONIZE_SEQSCANS: Setting = taken(
    "synchronize_seqscans",
    "Whether a scan may begin in the middle of a table; it never does",
    "off",
    &["on", "false", "0", "no", "true", "1", "yes"],
);

pub(super) const XMLOPTION: Setting =
    taken("xmloption", "How XML is read; there is no XML type", "content", &["document"]);

/// Whether `text` is equivalent to `only`: clients write `utf-8`, `unicode`, `ISO` and `Etc/UTC` too.
pub(super) fn only_means(only: &str, text: &str) -> bool {
    let also: &[&str] = match only {
        "UTF8" => &["utf-8", "unicode"],
        "UTC" => &["Etc/UTC", "GMT", "0"],
        "ISO, MDY" => &["ISO"],
        "on" => &["true", "1", "yes"],
        "off" => &["false", "0", "no"],
        // Both mean what PostgreSQL has written since its version 12.
        "1" => &["2", "3"],
        _ => &[],
    };
    std::iter::once(&only).chain(also).any(|word| word.eq_ignore_ascii_case(text))
}
