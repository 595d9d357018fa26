//! The tables of the schemas `pg_catalog` and `information_schema` with their columns, and values to rows of them;
//! [`numbers`] has their numbers. The rows are made when a session asks for them.
//!
//! A column is a name and a letter: `o` the number of an object (bigint), `i` integer, `s` smallint, `b` boolean, `f`
//! real, `t` text (names and single characters too), `z` timestamp with time zone; `O`, `S`, `T`: lists of these.

use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BooleanBuilder, Float32Builder, Int16Builder, Int32Builder, Int64Builder,
    ListBuilder, RecordBatch, RecordBatchOptions, StringBuilder, TimestampMicrosecondBuilder,
};
use datafusion::arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use datafusion::error::Result;

use cleave_catalog::error;
use cleave_catalog::error::{Error, NameKind};

mod more;
pub mod numbers;

/// Name of the schema of PostgreSQL's own tables.
pub const CATALOG_SCHEMA: &str = "pg_catalog";
/// Name of the schema that the SQL standard has.
pub const INFORMATION_SCHEMA: &str = "information_schema";

/// A table: its name, its columns, and whether it can have rows.
pub struct Shape {
    /// Its name.
    pub name: &'static str,
    columns: &'static str,
    /// Whether it never has a row.
    pub is_empty: bool,
}

/// A value of a row.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// NULL.
    Null,
    /// Of a boolean column.
    Bool(bool),
    /// Of any column of numbers.
    Number(i64),
    /// Of a text column.
    Text(String),
    /// Of a list of numbers.
    Numbers(Vec<i64>),
    /// Of a list of texts.
    Texts(Vec<String>),
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<bool> for Cell {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i64> for Cell {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl<T: Into<Self>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// A row: the columns that are not NULL.
pub type Row = Vec<(&'static str, Cell)>;

/// The tables of a schema.
pub fn tables(schema: &str) -> impl Iterator<Item = &'static Shape> {
    let (tables, more) = match schema {
        CATALOG_SCHEMA => (PG_CATALOG, more::PG_CATALOG),
        INFORMATION_SCHEMA => (INFORMATION, more::INFORMATION),
        _ => (&[][..], &[][..]),
    };
    tables.iter().chain(more)
}

/// The error of a table that the schema does not have, with the nearest one that it has.
pub fn check_table(schema: &str, name: &str) -> error::Result<()> {
    let names = || tables(schema).map(|shape| shape.name);
    match names().any(|known| known == name) {
        true => Ok(()),
        false => Err(Error::unknown(NameKind::Relation, name, names())),
    }
}

/// The names of the columns of a table of `schema`; None: it has no such table.
pub fn columns(schema: &str, table: &str) -> Option<Vec<String>> {
    let shape = tables(schema).find(|shape| shape.name == table)?;
    Some(shape.columns().map(|(name, _)| name.to_owned()).collect())
}

/// Whether there is a table of this name in the schema that is always searched first.
pub fn is_catalog_table(name: &str) -> bool {
    name.starts_with("pg_") && tables(CATALOG_SCHEMA).any(|shape| shape.name == name)
}

/// Whether a table is one that never has a row.
pub(crate) fn is_always_empty(name: &str) -> bool {
    tables(CATALOG_SCHEMA).any(|shape| shape.name == name && shape.is_empty)
}

impl Shape {
    /// Names and kinds of its columns.
    fn columns(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.columns.split_whitespace().filter_map(|column| column.split_once(':'))
    }

    /// `rows` as a batch; columns that a row does not name are NULL.
    pub fn batch(&self, rows: Vec<Row>) -> Result<RecordBatch> {
        let mut fields = Vec::new();
        let mut arrays = Vec::new();
        for (name, kind) in self.columns() {
            let cells = rows.iter().map(|row| {
                row.iter().find(|(column, _)| *column == name).map_or(&Cell::Null, |(_, cell)| cell)
            });
            let array = array(kind, cells);
            fields.push(Field::new(name, array.data_type().clone(), true));
            arrays.push(array);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)?)
    }
}

fn array<'a>(kind: &str, cells: impl Iterator<Item = &'a Cell>) -> ArrayRef {
    fn number(cell: &Cell) -> Option<i64> {
        match cell {
            Cell::Number(number) => Some(*number),
            _ => None,
        }
    }
    fn numbers(cell: &Cell) -> Option<&[i64]> {
        match cell {
            Cell::Numbers(numbers) => Some(numbers),
            _ => None,
        }
    }
    fn small<T: TryFrom<i64>>(number: i64) -> Option<T> {
        T::try_from(number).ok()
    }
    match kind {
        "o" => {
            let mut builder = Int64Builder::new();
            cells.for_each(|cell| builder.append_option(number(cell)));
            Arc::new(builder.finish())
        }
        "i" => {
            let mut builder = Int32Builder::new();
            cells.for_each(|cell| builder.append_option(number(cell).and_then(small)));
            Arc::new(builder.finish())
        }
        "s" => {
            let mut builder = Int16Builder::new();
            cells.for_each(|cell| builder.append_option(number(cell).and_then(small)));
            Arc::new(builder.finish())
        }
        "b" => {
            let mut builder = BooleanBuilder::new();
            cells.for_each(|cell| {
                builder.append_option(if let Cell::Bool(value) = cell {
                    Some(*value)
                } else {
                    None
                });
            });
            Arc::new(builder.finish())
        }
        "f" => {
            let mut builder = Float32Builder::new();
            cells.for_each(|cell| builder.append_option(number(cell).map(|number| number as f32)));
            Arc::new(builder.finish())
        }
        "z" => {
            let zone = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
            let mut builder = TimestampMicrosecondBuilder::new().with_data_type(zone);
            cells.for_each(|cell| builder.append_option(number(cell)));
            Arc::new(builder.finish())
        }
        "S" => {
            let mut builder = ListBuilder::new(Int16Builder::new());
            cells.for_each(|cell| {
                let items = numbers(cell);
                builder
                    .append_option(items.map(|items| items.iter().map(|item| small::<i16>(*item))));
            });
            Arc::new(builder.finish())
        }
        "O" => {
            let mut builder = ListBuilder::new(Int64Builder::new());
            cells.for_each(|cell| {
                let items = numbers(cell);
                builder.append_option(items.map(|items| items.iter().copied().map(Some)));
            });
            Arc::new(builder.finish())
        }
        "T" => {
            let mut builder = ListBuilder::new(StringBuilder::new());
            cells.for_each(|cell| {
                let items = if let Cell::Texts(items) = cell { Some(items) } else { None };
                builder.append_option(items.map(|items| items.iter().map(Some)));
            });
            Arc::new(builder.finish())
        }
        _ => {
            let mut builder = StringBuilder::new();
            cells.for_each(|cell| match cell {
                Cell::Text(text) => builder.append_value(text),
                _ => builder.append_null(),
            });
            Arc::new(builder.finish())
        }
    }
}

const fn filled(name: &'static str, columns: &'static str) -> Shape {
    Shape { name, columns, is_empty: false }
}

const fn empty(name: &'static str, columns: &'static str) -> Shape {
    Shape { name, columns, is_empty: true }
}

const TABLE_STATISTICS: &str = "relid:o schemaname:t relname:t seq_scan:o seq_tup_read:o idx_scan:o idx_tup_fetch:o \
    n_tup_ins:o n_tup_upd:o \
     n_tup_del:o n_tup_hot_upd:o n_live_tup:o n_dead_tup:o n_mod_since_analyze:o n_ins_since_vacuum:o last_vacuum:z \
     last_autovacuum:z last_analyze:z last_autoanalyze:z vacuum_count:o autovacuum_count:o analyze_count:o \
     autoanalyze_count:o";

const PG_CATALOG: &[Shape] = &[
    filled("pg_am", "oid:o amname:t amhandler:t amtype:t"),
    empty(
        "pg_amop",
        "oid:o amopfamily:o amoplefttype:o amoprighttype:o amopstrategy:s amoppurpose:t amopopr:o amopmethod:o \
         amopsortfamily:o",
    ),
    empty(
        "pg_amproc",
        "oid:o amprocfamily:o amproclefttype:o amprocrighttype:o amprocnum:s amproc:t",
    ),
    filled("pg_attrdef", "oid:o adrelid:o adnum:s adbin:t"),
    filled(
        "pg_attribute",
        "attrelid:o attname:t atttypid:o attstattarget:i attlen:s attnum:s attndims:i attcacheoff:i atttypmod:i \
         attbyval:b attalign:t attstorage:t attcompression:t attnotnull:b atthasdef:b atthasmissing:b attidentity:t \
         attgenerated:t attisdropped:b attislocal:b attinhcount:i attcollation:o attacl:T attoptions:T \
         attfdwoptions:T attmissingval:t",
    ),
    filled("pg_auth_members", "roleid:o member:o grantor:o admin_option:b"),
    filled(
        "pg_authid",
        "oid:o rolname:t rolsuper:b rolinherit:b rolcreaterole:b rolcreatedb:b rolcanlogin:b rolreplication:b \
         rolbypassrls:b rolconnlimit:i rolpassword:t rolvaliduntil:z",
    ),
    empty("pg_cast", "oid:o castsource:o casttarget:o castfunc:o castcontext:t castmethod:t"),
    filled(
        "pg_class",
        "oid:o relname:t relnamespace:o reltype:o reloftype:o relowner:o relam:o relfilenode:o reltablespace:o \
         relpages:i reltuples:f relallvisible:i reltoastrelid:o relhasindex:b relisshared:b relpersistence:t \
         relkind:t relnatts:s relchecks:s relhasrules:b relhastriggers:b relhassubclass:b relrowsecurity:b \
         relforcerowsecurity:b relispopulated:b relreplident:t relispartition:b relrewrite:o relfrozenxid:o \
         relminmxid:o relacl:T reloptions:T relpartbound:t",
    ),
    empty(
        "pg_collation",
        "oid:o collname:t collnamespace:o collowner:o collprovider:t collisdeterministic:b collencoding:i \
         collcollate:t collctype:t colliculocale:t collversion:t",
    ),
    filled(
        "pg_constraint",
        "oid:o conname:t connamespace:o contype:t condeferrable:b condeferred:b convalidated:b conrelid:o contypid:o \
         conindid:o conparentid:o confrelid:o confupdtype:t confdeltype:t confmatchtype:t conislocal:b coninhcount:i \
         connoinherit:b conkey:S confkey:S conpfeqop:O conppeqop:O conffeqop:O conexclop:O conbin:t confdelsetcols:S",
    ),
    empty(
        "pg_conversion",
        "oid:o conname:t connamespace:o conowner:o conforencoding:i contoencoding:i conproc:t condefault:b",
    ),
    filled(
        "pg_database",
        "oid:o datname:t datdba:o encoding:i datlocprovider:t datistemplate:b datallowconn:b datconnlimit:i \
         datfrozenxid:o datminmxid:o dattablespace:o datcollate:t datctype:t daticulocale:t datcollversion:t \
         datacl:T",
    ),
    filled("pg_db_role_setting", "setdatabase:o setrole:o setconfig:T"),
    filled("pg_default_acl", "oid:o defaclrole:o defaclnamespace:o defaclobjtype:t defaclacl:T"),
    filled(
        "pg_depend",
        "classid:o objid:o objsubid:i refclassid:o refobjid:o refobjsubid:i deptype:t",
    ),
    filled("pg_description", "objoid:o classoid:o objsubid:i description:t"),
    empty("pg_enum", "oid:o enumtypid:o enumsortorder:f enumlabel:t"),
    empty(
        "pg_event_trigger",
        "oid:o evtname:t evtevent:t evtowner:o evtfoid:o evtenabled:t evttags:T",
    ),
    empty(
        "pg_extension",
        "oid:o extname:t extowner:o extnamespace:o extrelocatable:b extversion:t extconfig:O extcondition:T",
    ),
    empty(
        "pg_foreign_data_wrapper",
        "oid:o fdwname:t fdwowner:o fdwhandler:o fdwvalidator:o fdwacl:T fdwoptions:T",
    ),
    empty(
        "pg_foreign_server",
        "oid:o srvname:t srvowner:o srvfdw:o srvtype:t srvversion:t srvacl:T srvoptions:T",
    ),
    empty("pg_foreign_table", "ftrelid:o ftserver:o ftoptions:T"),
    filled(
        "pg_index",
        "indexrelid:o indrelid:o indnatts:s indnkeyatts:s indisunique:b indnullsnotdistinct:b indisprimary:b \
         indisexclusion:b indimmediate:b indisclustered:b indisvalid:b indcheckxmin:b indisready:b indislive:b \
         indisreplident:b indkey:S indcollation:O indclass:O indoption:S indexprs:t indpred:t",
    ),
    filled("pg_indexes", "schemaname:t tablename:t indexname:t tablespace:t indexdef:t"),
    empty("pg_inherits", "inhrelid:o inhparent:o inhseqno:i inhdetachpending:b"),
    empty("pg_init_privs", "objoid:o classoid:o objsubid:i privtype:t initprivs:T"),
    empty(
        "pg_language",
        "oid:o lanname:t lanowner:o lanispl:b lanpltrusted:b lanplcallfoid:o laninline:o lanvalidator:o lanacl:T",
    ),
    empty("pg_largeobject_metadata", "oid:o lomowner:o lomacl:T"),
    filled(
        "pg_locks",
        "locktype:t database:o relation:o page:o tuple:o virtualxid:t transactionid:o classid:o objid:o objsubid:s \
         virtualtransaction:t pid:i mode:t granted:b fastpath:b waitstart:z",
    ),
    filled("pg_namespace", "oid:o nspname:t nspowner:o nspacl:T"),
    empty(
        "pg_opclass",
        "oid:o opcmethod:o opcname:t opcnamespace:o opcintype:o opcdefault:b opcowner:o opcfamily:o opckeytype:o",
    ),
    empty(
        "pg_operator",
        "oid:o oprname:t oprnamespace:o oprkind:t oprleft:o oprright:o oprresult:o oprowner:o oprcanmerge:b \
         oprcanhash:b oprcom:o oprnegate:o oprcode:t oprrest:t oprjoin:t",
    ),
    empty("pg_opfamily", "oid:o opfmethod:o opfname:t opfnamespace:o opfowner:o"),
    empty(
        "pg_partitioned_table",
        "partrelid:o partstrat:t partnatts:s partdefid:o partattrs:S partclass:O partcollation:O partexprs:t",
    ),
    empty(
        "pg_policy",
        "oid:o polname:t polrelid:o polcmd:t polpermissive:b polroles:O polqual:t polwithcheck:t",
    ),
    filled(
        "pg_proc",
        "oid:o proname:t pronamespace:o proowner:o prolang:o prokind:t proretset:b provolatile:t pronargs:s \
         prorettype:o proargtypes:O proallargtypes:O proargmodes:T proargnames:T prosrc:t proisagg:b procost:f \
         prorows:f provariadic:o prosupport:t prosecdef:b proleakproof:b proisstrict:b proparallel:t \
         pronargdefaults:s proargdefaults:t protrftypes:O probin:t prosqlbody:t proconfig:T proacl:T",
    ),
    empty(
        "pg_publication",
        "oid:o pubname:t pubowner:o puballtables:b pubinsert:b pubupdate:b pubdelete:b pubtruncate:b pubviaroot:b",
    ),
    empty("pg_publication_namespace", "oid:o pnpubid:o pnnspid:o"),
    empty("pg_publication_rel", "oid:o prpubid:o prrelid:o prqual:t prattrs:S"),
    empty("pg_publication_tables", "pubname:t schemaname:t tablename:t attnames:T rowfilter:t"),
    empty(
        "pg_range",
        "rngtypid:o rngsubtype:o rngmultitypid:o rngcollation:o rngsubopc:o rngcanonical:t rngsubdiff:t",
    ),
    filled(
        "pg_rewrite",
        "oid:o rulename:t ev_class:o ev_type:t ev_enabled:t is_instead:b ev_qual:t ev_action:t",
    ),
    filled(
        "pg_roles",
        "rolname:t rolsuper:b rolinherit:b rolcreaterole:b rolcreatedb:b rolcanlogin:b rolreplication:b \
         rolconnlimit:i rolpassword:t rolvaliduntil:z rolbypassrls:b rolconfig:T oid:o",
    ),
    empty("pg_seclabel", "objoid:o classoid:o objsubid:i provider:t label:t"),
    empty(
        "pg_seclabels",
        "objoid:o classoid:o objsubid:i objtype:t objnamespace:o objname:t provider:t label:t",
    ),
    filled(
        "pg_sequence",
        "seqrelid:o seqtypid:o seqstart:o seqincrement:o seqmax:o seqmin:o seqcache:o seqcycle:b",
    ),
    filled(
        "pg_sequences",
        "schemaname:t sequencename:t sequenceowner:t data_type:t start_value:o min_value:o max_value:o \
         increment_by:o cycle:b cache_size:o last_value:o",
    ),
    filled(
        "pg_settings",
        "name:t setting:t unit:t category:t short_desc:t extra_desc:t context:t vartype:t source:t min_val:t \
         max_val:t enumvals:T boot_val:t reset_val:t sourcefile:t sourceline:i pending_restart:b",
    ),
    empty("pg_shdepend", "dbid:o classid:o objid:o objsubid:i refclassid:o refobjid:o deptype:t"),
    filled("pg_shdescription", "objoid:o classoid:o description:t"),
    empty("pg_shseclabel", "objoid:o classoid:o provider:t label:t"),
    filled(
        "pg_stat_activity",
        "datid:o datname:t pid:i leader_pid:i usesysid:o usename:t application_name:t client_addr:t \
         client_hostname:t client_port:i backend_start:z xact_start:z query_start:z state_change:z wait_event_type:t \
         wait_event:t state:t backend_xid:o backend_xmin:o query_id:o query:t backend_type:t",
    ),
    filled("pg_stat_all_tables", TABLE_STATISTICS),
    filled("pg_stat_user_tables", TABLE_STATISTICS),
    empty(
        "pg_statistic_ext",
        "oid:o stxrelid:o stxname:t stxnamespace:o stxowner:o stxstattarget:i stxkeys:S stxkind:T stxexprs:t",
    ),
    empty(
        "pg_subscription",
        "oid:o subdbid:o subname:t subowner:o subenabled:b subskiplsn:t subbinary:b substream:b subtwophasestate:t \
         subdisableonerr:b subconninfo:t subslotname:t subsynccommit:t subpublications:T",
    ),
    filled(
        "pg_tables",
        "schemaname:t tablename:t tableowner:t tablespace:t hasindexes:b hasrules:b hastriggers:b rowsecurity:b",
    ),
    filled("pg_tablespace", "oid:o spcname:t spcowner:o spcacl:T spcoptions:T"),
    empty("pg_transform", "oid:o trftype:o trflang:o trffromsql:t trftosql:t"),
    empty(
        "pg_trigger",
        "oid:o tgrelid:o tgparentid:o tgname:t tgfoid:o tgtype:s tgenabled:t tgisinternal:b tgconstrrelid:o \
         tgconstrindid:o tgconstraint:o tgdeferrable:b tginitdeferred:b tgnargs:s tgattr:S tgargs:t tgqual:t \
         tgoldtable:t tgnewtable:t",
    ),
    empty("pg_ts_config", "oid:o cfgname:t cfgnamespace:o cfgowner:o cfgparser:o"),
    empty(
        "pg_ts_dict",
        "oid:o dictname:t dictnamespace:o dictowner:o dicttemplate:o dictinitoption:t",
    ),
    empty(
        "pg_ts_parser",
        "oid:o prsname:t prsnamespace:o prsstart:t prstoken:t prsend:t prsheadline:t prslextype:t",
    ),
    empty("pg_ts_template", "oid:o tmplname:t tmplnamespace:o tmplinit:t tmpllexize:t"),
    filled(
        "pg_type",
        "oid:o typname:t typnamespace:o typowner:o typlen:s typbyval:b typtype:t typcategory:t typispreferred:b \
         typisdefined:b typdelim:t typrelid:o typsubscript:t typelem:o typarray:o typinput:t typoutput:t \
         typreceive:t typsend:t typmodin:t typmodout:t typalign:t typstorage:t typnotnull:b typbasetype:o \
         typtypmod:i typndims:i typcollation:o typdefault:t typacl:T typanalyze:t typdefaultbin:t",
    ),
    filled(
        "pg_user",
        "usename:t usesysid:o usecreatedb:b usesuper:b userepl:b usebypassrls:b passwd:t valuntil:z useconfig:T",
    ),
    filled(
        "pg_matviews",
        "schemaname:t matviewname:t matviewowner:t tablespace:t hasindexes:b ispopulated:b definition:t",
    ),
    filled("pg_views", "schemaname:t viewname:t viewowner:t definition:t"),
];

const INFORMATION: &[Shape] = &[
    filled("applicable_roles", "grantee:t role_name:t is_grantable:t"),
    filled(
        "check_constraints",
        "constraint_catalog:t constraint_schema:t constraint_name:t check_clause:t",
    ),
    filled(
        "constraint_column_usage",
        "table_catalog:t table_schema:t table_name:t column_name:t constraint_catalog:t constraint_schema:t \
         constraint_name:t",
    ),
    filled("enabled_roles", "role_name:t"),
    filled("information_schema_catalog_name", "catalog_name:t"),
    filled(
        "key_column_usage",
        "constraint_catalog:t constraint_schema:t constraint_name:t table_catalog:t table_schema:t table_name:t \
         column_name:t ordinal_position:i position_in_unique_constraint:i",
    ),
    filled(
        "referential_constraints",
        "constraint_catalog:t constraint_schema:t constraint_name:t unique_constraint_catalog:t \
            unique_constraint_schema:t \
         unique_constraint_name:t match_option:t update_rule:t delete_rule:t",
    ),
    filled(
        "role_table_grants",
        "grantor:t grantee:t table_catalog:t table_schema:t table_name:t privilege_type:t is_grantable:t \
            with_hierarchy:t",
    ),
    filled(
        "sequences",
        "sequence_catalog:t sequence_schema:t sequence_name:t data_type:t numeric_precision:i \
            numeric_precision_radix:i \
         numeric_scale:i start_value:t minimum_value:t maximum_value:t increment:t cycle_option:t",
    ),
    filled(
        "table_privileges",
        "grantor:t grantee:t table_catalog:t table_schema:t table_name:t privilege_type:t is_grantable:t \
            with_hierarchy:t",
    ),
    filled(
        "views",
        "table_catalog:t table_schema:t table_name:t view_definition:t check_option:t is_updatable:t \
         is_insertable_into:t is_trigger_updatable:t is_trigger_deletable:t is_trigger_insertable_into:t",
    ),
];
