//! Imports from a running PostgreSQL server: the same tables, rows and indexes, with catalog and rows read in one
//! snapshot.
//!
//! ```text
//!  BEGIN REPEATABLE READ, READ ONLY ─▶ sequences, tables with keys ─▶ rows by COPY ─▶ indexes, foreign keys, views
//! ```
//!
//! 1. [`Source::steps`] queries the catalog and makes a [`Step`] of each object: statements as `pg_dump` writes them.
//! 2. An object that this database does not support (types, functions, triggers, …) is a step that fails by name.
//! 3. Rows come as PostgreSQL's text and are streamed: memory holds one message and what a load needs.
//!
//! The tables are locked as any query locks them, so that nobody changes their columns meanwhile. Objects of extensions
//! are not imported.
//!
//! Source: PostgreSQL's manual, "System Catalogs".

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::sync::{Mutex, PoisonError};

use bytes::{Buf, Bytes};
use cleave_client::blocking::{self, wait};
use cleave_client::{Address, Client, ClientError, CopyOut, TextRows};
use cleave_host::Error;

use super::trust::{self, Kind};

/// A step of an import.
#[derive(Debug)]
pub(super) enum Step {
    /// Run a statement of this kind.
    Run(Kind, String),
    /// Make a table: its name, and the statement.
    Table(String, String),
    /// Load the rows of a table: its name, and these of its columns.
    Rows(String, String),
    /// A statement that is not to be run, with the table that it would make, and why.
    Refused(String, Option<String>, Error),
    /// An object that cannot be imported.
    Missing(String),
}

/// A server that is read.
pub(super) struct Source {
    client: Mutex<Client>,
    /// The OID of its schema `public`.
    schema: String,
    /// What its database takes.
    bytes: Option<u64>,
}

/// Rows of a COPY, as bytes.
pub(super) struct CopyRows {
    rows: CopyOut,
    left: Bytes,
}

/// A row of a result.
#[derive(Clone, Copy)]
struct Row<'a> {
    rows: &'a TextRows,
    place: usize,
}

/// Settings that fix the text format of values.
const SETTINGS: [&str; 5] = [
    "DateStyle = ISO",
    "IntervalStyle = postgres",
    "extra_float_digits = 1",
    "search_path = public",
    "client_encoding = UTF8",
];

/// Excludes objects of extensions: the object's OID stands before it.
const OWN: &str = "NOT IN (SELECT objid FROM pg_depend WHERE deptype = 'e')";

impl Source {
    /// Connects, and fixes the snapshot and the format of values.
    pub(super) fn connect(server: Address) -> Result<Self, ClientError> {
        let mut client = blocking::connect(server)?;
        for setting in SETTINGS {
            match wait(client.query_text(&format!("SET {setting}"))) {
                Ok(_) | Err(ClientError::Server(_)) => {}
                Err(error) => return Err(error),
            }
        }
        // Outside of the transaction, which goes on if there is no answer.
        let size = wait(client.query_text("SELECT pg_database_size(current_database())"));
        let bytes = size.ok().and_then(|size| size.text(0, 0)?.parse().ok());
        wait(client.query_text("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"))?;
        let namespace = "SELECT oid FROM pg_namespace WHERE nspname = 'public'";
        let found = wait(client.query_text(namespace))?;
        let schema = found.text(0, 0).unwrap_or("0").to_owned();
        Ok(Self { client: Mutex::new(client), schema, bytes })
    }

    /// What its database takes, if it tells.
    pub(super) fn bytes(&self) -> Option<u64> {
        self.bytes
    }

    /// The rows of a table.
    pub(super) fn rows(&self, table: &str, columns: &str) -> Result<CopyRows, ClientError> {
        let copy = format!("COPY {table} ({columns}) TO STDOUT");
        let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(CopyRows { rows: wait(client.copy_out_pieces(&copy))?, left: Bytes::new() })
    }

    /// All steps, in order.
    pub(super) fn steps(&self) -> Result<Vec<Step>, ClientError> {
        let schema = &self.schema;
        let tables = self.ask(&format!(
            "SELECT c.oid, quote_ident(c.relname) FROM pg_class c WHERE c.relnamespace = {schema} AND c.relkind = \
                'r' AND c.oid {OWN} ORDER BY c.oid",
        ))?;
        let names: Vec<&str> = rows_of(&tables).map(|table| table.text(1)).collect();
        if !names.is_empty() {
            self.ask(&format!("LOCK TABLE {} IN ACCESS SHARE MODE", names.join(", ")))?;
        }
        let mut steps = self.missing()?;
        let (sequences, columns) = (self.sequences()?, self.columns()?);
        let mut constraints = self.constraints()?;
        let owned: Vec<&str> = columns.values().flatten().filter_map(Column::identity).collect();
        let free = sequences.iter().filter(|(name, _)| !owned.contains(&name.as_str()));
        steps.extend(free.map(|(name, sequence)| {
            let Sequence { kind, options, .. } = sequence;
            Step::Run(Kind::Sequence, format!("CREATE SEQUENCE {name} AS {kind} {options}"))
        }));
        let (mut rows, mut behind) = (Vec::new(), Vec::new());
        for table in rows_of(&tables) {
            let (oid, name) = (table.text(0), table.text(1));
            let Some(columns) = columns.get(oid) else {
                steps.push(Step::Missing(format!("table {name}, which has no columns")));
                continue;
            };
            let mut parts: Vec<String> =
                columns.iter().map(|column| column.definition(&sequences)).collect();
            parts.extend(constraints.remove(name).unwrap_or_default());
            let statement = format!("CREATE TABLE {name} ({})", parts.join(", "));
            let defaults = columns.iter().filter_map(|column| column.default.as_deref());
            steps.push(match defaults.map(trust::check_default).find_map(Result::err) {
                None => Step::Table(name.to_owned(), statement),
                Some(error) => Step::Refused(statement, Some(name.to_owned()), error),
            });
            let copied: Vec<&str> = columns.iter().filter_map(Column::copied).collect();
            if !copied.is_empty() {
                rows.push(Step::Rows(name.to_owned(), copied.join(", ")));
            }
            behind.extend(columns.iter().flat_map(|column| column.behind(name, &sequences)));
        }
        steps.append(&mut rows);
        let values = sequences.iter().filter(|(name, _)| !owned.contains(&name.as_str()));
        steps.extend(values.filter_map(|(name, sequence)| {
            let last = sequence.last.as_ref()?;
            let value = format!("SELECT setval({}, {last})", literal(name));
            Some(Step::Run(Kind::Value, value))
        }));
        steps.append(&mut behind);
        let indexes = self.ask(&format!(
            "SELECT pg_get_indexdef(i.indexrelid) FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid \
             WHERE c.relnamespace = {schema} AND c.relkind = 'r' AND NOT i.indisprimary AND c.oid {OWN} \
             AND i.indexrelid NOT IN (SELECT conindid FROM pg_constraint WHERE contype IN ('u', 'x', 'p')) ORDER BY \
                i.indexrelid",
        ))?;
        steps.extend(
            rows_of(&indexes).map(|index| Step::Run(Kind::Index, index.text(0).to_owned())),
        );
        let foreign = self.constraints_of("= 'f'")?;
        steps.extend(rows_of(&foreign).map(|key| {
            let [table, name, text] = [0, 1, 2].map(|place| key.text(place));
            let added = format!("ALTER TABLE {table} ADD CONSTRAINT {name} {text}");
            Step::Run(Kind::Constraint, added)
        }));
        let views = self.ask(&format!(
            "SELECT quote_ident(c.relname), v.definition FROM pg_class c JOIN pg_views v ON v.viewname = c.relname \
                AND v.schemaname = 'public' \
             WHERE c.relnamespace = {schema} AND c.relkind = 'v' AND c.oid {OWN} ORDER BY c.oid",
        ))?;
        steps.extend(rows_of(&views).map(|view| {
            let query = view.text(1).trim().trim_end_matches(';');
            let statement = format!("CREATE VIEW {} AS {query}", view.text(0));
            match trust::check_query(query) {
                Ok(()) => Step::Run(Kind::View, statement),
                Err(error) => Step::Refused(statement, None, error),
            }
        }));
        steps.append(&mut self.comments()?);
        Ok(steps)
    }

    /// The comments of tables, their columns, indexes, sequences and views.
    fn comments(&self) -> Result<Vec<Step>, ClientError> {
        let rows = self.ask(&format!(
            "SELECT c.relkind, quote_ident(c.relname), quote_ident(a.attname), d.description FROM pg_description d \
             JOIN pg_class c ON c.oid = d.objoid LEFT JOIN pg_attribute a ON a.attrelid = d.objoid AND a.attnum = \
                d.objsubid AND d.objsubid > 0 \
             WHERE d.classoid = 1259 AND c.relnamespace = {} AND c.relkind IN ('r', 'i', 'S', 'v') AND c.oid {OWN} \
                ORDER BY c.oid, d.objsubid",
            self.schema
        ))?;
        let comment = |row: Row<'_>| {
            let (name, text) = (row.text(1), literal(row.text(3)));
            let what = match (row.get(2), row.text(0)) {
                (Some(column), _) => format!("COLUMN {name}.{column}"),
                (None, "i") => format!("INDEX {name}"),
                (None, "S") => format!("SEQUENCE {name}"),
                (None, "v") => format!("VIEW {name}"),
                (None, _) => format!("TABLE {name}"),
            };
            Step::Run(Kind::Comment, format!("COMMENT ON {what} IS {text}"))
        };
        Ok(rows_of(&rows).map(comment).collect())
    }

    /// The sequences, by their names.
    fn sequences(&self) -> Result<BTreeMap<String, Sequence>, ClientError> {
        let rows = self.ask(
            "SELECT quote_ident(sequencename), data_type, start_value, increment_by, min_value, max_value, \
                cache_size, cycle, last_value \
             FROM pg_sequences WHERE schemaname = 'public' ORDER BY sequencename",
        )?;
        let sequence = |row: Row<'_>| {
            let [start, increment, min, max, cache] = [2, 3, 4, 5, 6].map(|place| row.text(place));
            let cycle = if row.is_true(7) { " CYCLE" } else { "" };
            // In the one order in which this database parses the options of an identity.
            let options = format!(
                "INCREMENT BY {increment} MINVALUE {min} MAXVALUE {max} START WITH {start} CACHE {cache}{cycle}"
            );
            let (kind, last) = (row.text(1).to_owned(), row.get(8).map(str::to_owned));
            (row.text(0).to_owned(), Sequence { kind, options, last })
        };
        Ok(rows_of(&rows).map(sequence).collect())
    }

    /// The columns of all tables, by the tables' OIDs.
    fn columns(&self) -> Result<BTreeMap<String, Vec<Column>>, ClientError> {
        let rows = self.ask(&format!(
            "SELECT a.attrelid, quote_ident(a.attname), format_type(a.atttypid, a.atttypmod), a.attnotnull, \
             pg_get_expr(d.adbin, d.adrelid), a.attidentity, a.attgenerated, a.attname, quote_ident(c.relname) \
             FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid \
             LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum \
             WHERE c.relnamespace = {} AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped ORDER BY \
                a.attrelid, a.attnum",
            self.schema
        ))?;
        let mut columns: BTreeMap<String, Vec<Column>> = BTreeMap::new();
        for row in rows_of(&rows) {
            let default = row.get(4).map(str::to_owned);
            let is_serial = default.as_ref().is_some_and(|text| text.starts_with("nextval("));
            let mut sequence = None;
            if is_serial || !row.text(5).is_empty() {
                let (table, column) = (literal(row.text(8)), literal(row.text(7)));
                let found =
                    self.ask(&format!("SELECT pg_get_serial_sequence({table}, {column})"))?;
                let name = found.text(0, 0);
                sequence = name.map(|name| name.strip_prefix("public.").unwrap_or(name).to_owned());
            }
            columns.entry(row.text(0).to_owned()).or_default().push(Column {
                name: row.text(1).to_owned(),
                plain_name: row.text(7).to_owned(),
                data_type: row.text(2).to_owned(),
                is_not_null: row.is_true(3),
                default,
                identity: row.text(5).to_owned(),
                is_generated: !row.text(6).is_empty(),
                sequence,
            });
        }
        Ok(columns)
    }

    /// The constraints for CREATE TABLE, by the tables' names.
    fn constraints(&self) -> Result<BTreeMap<String, Vec<String>>, ClientError> {
        let mut constraints: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let rows = self.constraints_of("IN ('p', 'u', 'c', 'x')")?;
        for row in rows_of(&rows) {
            let [table, name, text] = [0, 1, 2].map(|place| row.text(place));
            let of_table = constraints.entry(table.to_owned()).or_default();
            of_table.push(format!("CONSTRAINT {name} {text}"));
        }
        Ok(constraints)
    }

    /// Table, name and text of each constraint of some kinds.
    fn constraints_of(&self, kinds: &str) -> Result<TextRows, ClientError> {
        self.ask(&format!(
            "SELECT quote_ident(c.relname), quote_ident(k.conname), pg_get_constraintdef(k.oid) FROM pg_constraint k \
             JOIN pg_class c ON c.oid = k.conrelid WHERE c.relnamespace = {} AND c.relkind = 'r' AND k.contype \
                {kinds} AND c.oid {OWN} ORDER BY k.oid",
            self.schema
        ))
    }

    /// The objects of kinds that are not imported.
    fn missing(&self) -> Result<Vec<Step>, ClientError> {
        let schema = &self.schema;
        let mut missing = Vec::new();
        for (kind, query) in [
            (
                "",
                format!(
                    "SELECT CASE c.relkind WHEN 'r' THEN 'table ' WHEN 'v' THEN 'view ' WHEN 'm' THEN 'materialized \
                        view ' WHEN 'f' THEN 'foreign table ' \
                     ELSE 'partitioned table ' END || n.nspname || '.' || c.relname FROM pg_class c JOIN \
                        pg_namespace n ON n.oid = c.relnamespace \
                     WHERE c.relkind IN ('r', 'p', 'm', 'f', 'v') AND (c.relnamespace <> {schema} OR c.relkind NOT \
                        IN ('r', 'v')) \
                     AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast', 'cleave') AND n.nspname \
                        NOT LIKE 'pg_temp%' AND c.oid {OWN} ORDER BY 1"
                ),
            ),
            (
                "type ",
                format!(
                    "SELECT t.typname FROM pg_type t WHERE t.typnamespace = {schema} AND t.typtype IN ('d', 'e', \
                        'r') AND t.oid {OWN} ORDER BY 1"
                ),
            ),
            (
                "function ",
                format!(
                    "SELECT p.proname FROM pg_proc p WHERE p.pronamespace = {schema} AND p.oid {OWN} ORDER BY 1"
                ),
            ),
            (
                "trigger ",
                "SELECT t.tgname FROM pg_trigger t WHERE NOT t.tgisinternal ORDER BY 1".to_owned(),
            ),
            ("policy ", "SELECT p.polname FROM pg_policy p ORDER BY 1".to_owned()),
            (
                "extension ",
                "SELECT e.extname FROM pg_extension e WHERE e.extname <> 'plpgsql' ORDER BY 1"
                    .to_owned(),
            ),
        ] {
            let named = self.ask(&query)?;
            let names = rows_of(&named).map(|row| row.text(0));
            missing.extend(names.map(|name| Step::Missing(format!("{kind}{name}"))));
        }
        Ok(missing)
    }

    fn ask(&self, sql: &str) -> Result<TextRows, ClientError> {
        wait(self.client.lock().unwrap_or_else(PoisonError::into_inner).query_text(sql))
    }
}

/// A sequence, with its options as in CREATE SEQUENCE.
struct Sequence {
    kind: String,
    options: String,
    /// Its last value; None if it has given none.
    last: Option<String>,
}

struct Column {
    /// Quoted as in SQL.
    name: String,
    plain_name: String,
    data_type: String,
    is_not_null: bool,
    default: Option<String>,
    /// `a`: GENERATED ALWAYS, `d`: BY DEFAULT AS IDENTITY; empty: neither.
    identity: String,
    /// Whether it is computed from others.
    is_generated: bool,
    /// The sequence that belongs to it.
    sequence: Option<String>,
}

impl Column {
    /// The sequence that is created with it.
    fn identity(&self) -> Option<&str> {
        self.sequence.as_deref().filter(|_| !self.identity.is_empty())
    }

    /// Its name, if its values are stored and so copied.
    fn copied(&self) -> Option<&str> {
        (!self.is_generated).then_some(self.name.as_str())
    }

    /// Its definition in CREATE TABLE.
    fn definition(&self, sequences: &BTreeMap<String, Sequence>) -> String {
        let mut definition = format!("{} {}", self.name, self.data_type);
        let default = self.default.as_deref().unwrap_or_default();
        if let Some(kind) = match self.identity.as_str() {
            "a" => Some("ALWAYS"),
            "d" => Some("BY DEFAULT"),
            _ => None,
        } {
            let options = self.sequence.as_ref().and_then(|name| sequences.get(name));
            let options = options.map(|sequence| format!(" ({})", sequence.options));
            let options = options.unwrap_or_default();
            definition.push_str(&format!(" GENERATED {kind} AS IDENTITY{options}"));
        } else if self.is_generated {
            definition.push_str(&format!(" GENERATED ALWAYS AS ({default}) STORED"));
        } else if !default.is_empty() {
            definition.push_str(&format!(" DEFAULT {default}"));
        }
        if self.is_not_null {
            definition.push_str(" NOT NULL");
        }
        definition
    }

    /// The step to be done after its table and its sequence exist.
    fn behind(&self, table: &str, sequences: &BTreeMap<String, Sequence>) -> Option<Step> {
        let sequence = self.sequence.as_ref()?;
        if self.identity.is_empty() {
            let owner = format!("{table}.{}", self.name);
            let owned = format!("ALTER SEQUENCE {sequence} OWNED BY {owner}");
            return Some(Step::Run(Kind::Owner, owned));
        }
        let last = sequences.get(sequence)?.last.as_ref()?;
        // Here it may have another name.
        let (table, column) = (literal(table), literal(&self.plain_name));
        let value = format!("SELECT setval(pg_get_serial_sequence({table}, {column}), {last})");
        Some(Step::Run(Kind::Value, value))
    }
}

/// The rows of a result.
fn rows_of(rows: &TextRows) -> impl Iterator<Item = Row<'_>> {
    (0..rows.len()).map(move |place| Row { rows, place })
}

impl<'a> Row<'a> {
    fn get(self, column: usize) -> Option<&'a str> {
        self.rows.text(self.place, column)
    }

    /// NULL is the empty text.
    fn text(self, column: usize) -> &'a str {
        self.get(column).unwrap_or_default()
    }

    fn is_true(self, column: usize) -> bool {
        self.text(column).starts_with('t')
    }
}

/// A text as an SQL literal.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

impl Read for CopyRows {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.left.is_empty() {
            // The connection reads into its buffer again once nothing of it is held.
            self.left = Bytes::new();
            match wait(self.rows.next_piece()) {
                Ok(Some(piece)) => self.left = piece,
                Ok(None) => return Ok(0),
                Err(error) => return Err(io::Error::other(error.to_string())),
            }
        }
        let mut left: &[u8] = &self.left;
        let count = left.read(buffer)?;
        self.left.advance(count);
        Ok(count)
    }
}
