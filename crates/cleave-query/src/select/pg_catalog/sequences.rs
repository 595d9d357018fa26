//! Sequences, as both schemas show them.

use std::sync::Arc;

use cleave_catalog::catalog::rights::Privilege;
use cleave_catalog::catalog::sequence::Sequence;
use cleave_sql::statement::catalog_tables::Row;
use cleave_sql::statement::catalog_tables::numbers::sequence_oid;
use cleave_sql::statement::names::quoted;
use cleave_store::{Column, TableSchema};

use super::view::{View, type_of, type_text};

/// What `attidentity` says of a column: nothing, `a` or `d`.
pub(super) fn identity_letter(view: &View, schema: &TableSchema, column: &Column) -> &'static str {
    let owned = view.sequence_of(schema, column).and_then(|sequence| sequence.owner);
    let is_identity = owned.is_some_and(|owner| owner.is_identity);
    let table = view.tables().find(|table| table.schema.table_id == schema.table_id);
    let is_always = table.is_some_and(|table| table.rules.always.contains(&column.id));
    match (is_identity, is_always) {
        (false, _) => "",
        (true, true) => "a",
        (true, false) => "d",
    }
}

impl View {
    /// Whether the asker may know which number a sequence has given last.
    pub(super) fn may_see_last(&self, sequence: &Sequence) -> bool {
        let mut enough = [Privilege::Usage, Privilege::Select].into_iter();
        enough.any(|privilege| self.may(sequence.id, privilege))
    }

    /// All sequences.
    pub(super) fn sequences(&self) -> impl Iterator<Item = &Arc<Sequence>> {
        self.state().sequences.values()
    }

    /// The sequence that goes with a column.
    pub(super) fn sequence_of(&self, schema: &TableSchema, column: &Column) -> Option<&Sequence> {
        let owns = |sequence: &&Arc<Sequence>| {
            let owner = sequence.owner;
            owner.is_some_and(|owner| (owner.table, owner.column) == (schema.table_id, column.id))
        };
        self.sequences().find(owns).map(Arc::as_ref)
    }

    /// What `pg_get_serial_sequence` says.
    pub(super) fn serial_sequence(&self, table: &str, column: &str) -> Option<String> {
        let table = self.relation(table).and_then(|oid| self.table(oid))?;
        let column = table.schema.column(column)?;
        let sequence = self.sequence_of(&table.schema, column)?;
        Some(format!("public.{}", quoted(&sequence.name)))
    }
}

/// A row of `pg_sequence`.
pub(super) fn row(sequence: &Sequence) -> Row {
    vec![
        ("seqrelid", sequence_oid(sequence).into()),
        ("seqtypid", type_of(sequence.data_type).0.into()),
        ("seqstart", sequence.start.into()),
        ("seqincrement", sequence.increment.into()),
        ("seqmax", sequence.max.into()),
        ("seqmin", sequence.min.into()),
        ("seqcache", sequence.cache.into()),
        ("seqcycle", sequence.cycle.into()),
    ]
}

/// A row of `pg_sequences`, with the last value where one was given.
pub(super) fn listed(view: &View, sequence: &Sequence, last: Option<i64>) -> Row {
    vec![
        ("schemaname", "public".into()),
        ("sequencename", sequence.name.as_str().into()),
        ("sequenceowner", view.owner_name(sequence.id).into()),
        ("data_type", type_text(type_of(sequence.data_type).0, -1).into()),
        ("start_value", sequence.start.into()),
        ("min_value", sequence.min.into()),
        ("max_value", sequence.max.into()),
        ("increment_by", sequence.increment.into()),
        ("cycle", sequence.cycle.into()),
        ("cache_size", sequence.cache.into()),
        ("last_value", last.into()),
    ]
}

/// What `information_schema.columns` says of the sequence of an identity.
pub(super) fn identity(sequence: &Sequence) -> Row {
    vec![
        ("identity_start", sequence.start.to_string().into()),
        ("identity_increment", sequence.increment.to_string().into()),
        ("identity_maximum", sequence.max.to_string().into()),
        ("identity_minimum", sequence.min.to_string().into()),
        ("identity_cycle", if sequence.cycle { "YES" } else { "NO" }.into()),
    ]
}

/// A row of `information_schema.sequences`.
pub(super) fn information(catalog: &str, sequence: &Sequence) -> Row {
    let bits = match type_of(sequence.data_type).0 {
        21 => 16,
        23 => 32,
        _ => 64,
    };
    vec![
        ("sequence_catalog", catalog.into()),
        ("sequence_schema", "public".into()),
        ("sequence_name", sequence.name.as_str().into()),
        ("data_type", type_text(type_of(sequence.data_type).0, -1).into()),
        ("numeric_precision", bits.into()),
        ("numeric_precision_radix", 2.into()),
        ("numeric_scale", 0.into()),
        ("start_value", sequence.start.to_string().into()),
        ("minimum_value", sequence.min.to_string().into()),
        ("maximum_value", sequence.max.to_string().into()),
        ("increment", sequence.increment.to_string().into()),
        ("cycle_option", if sequence.cycle { "YES" } else { "NO" }.into()),
    ]
}
