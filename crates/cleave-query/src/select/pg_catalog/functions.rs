//! Functions that clients call about the catalog and their own session, for one statement.
//!
//! [`register`] gives DataFusion those that a query calls. Each answers row by row from the [`View`]; none is known to
//! a device, and none needs to be: their arguments are constants, or columns of tables that lie on no device.
//!
//! Source: PostgreSQL's manual, "System Information Functions and Operators".

use std::sync::Arc;

use cleave_catalog::error::{Error, Fault, NameKind, RoleFault};
use cleave_catalog::identifiers::has_schema;
use cleave_catalog::settings::{SERVER_VERSION, Settings};
use cleave_sql::statement::defaults::shown_default;
use cleave_sql::statement::names::quoted;
use cleave_sql::statement::parse::with_schema;
use datafusion::arrow::array::{Array, ArrayRef, ListArray, new_empty_array};
use datafusion::arrow::datatypes::{DataType, Field, Int64Type};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::execution::FunctionRegistry;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::sql::sqlparser::ast;

use super::super::statement_function::{StatementFunction, called};
use super::comments;
use super::io_functions;
use super::privileges::{self, About, Argument};
use super::rows;
use super::sizes::{self, Part};
use super::view::{self, View, is_of_catalog, type_named, type_text};

/// The context of a function beside its arguments.
#[derive(Debug, Clone)]
struct Asker {
    view: View,
    settings: Settings,
}

impl Asker {
    /// Whether what has this number is found by its name without a schema.
    fn finds(&self, oid: i64) -> bool {
        is_of_catalog(oid) || self.settings.search_path.has_public()
    }

    /// The number of what is `written` so, where the search path finds it.
    fn relation(&self, written: &str) -> Option<i64> {
        // As TypeORM names a table: with the database.
        let database = format!("{}.", quoted(&self.view.client.database));
        let written = written.strip_prefix(&*database).unwrap_or(written);
        let found = self.view.relation(written)?;
        (has_schema(written) || self.finds(found)).then_some(found)
    }
}

/// The result type of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Gives {
    Text,
    Number,
    Bool,
    Numbers,
    Texts,
}

/// A function: its name, what it gives, and how it answers.
struct Known {
    name: &'static str,
    gives: Gives,
    answer: fn(&Asker, &[ScalarValue]) -> Result<Answer>,
}

/// An answer.
enum Answer {
    Null,
    Text(String),
    Number(i64),
    Bool(bool),
    Numbers(Vec<i64>),
    Texts(Vec<String>),
}

/// Gives `state` the functions of this module that `query` calls.
pub(in super::super) fn register(
    state: &mut SessionState,
    query: &ast::Query,
    settings: &Settings,
    view: impl FnOnce() -> View,
) -> Result<()> {
    let names = called(query, |name| find(name).map(|known| known.name));
    if names.is_empty() {
        return Ok(());
    }
    let asker = Arc::new(Asker { view: view(), settings: settings.clone() });
    for known in names.into_iter().filter_map(find) {
        let function = StatementFunction::new(known.name, Volatility::Stable, &asker, known);
        state.register_udf(Arc::new(ScalarUDF::new_from_impl(CatalogFunction(function))))?;
    }
    Ok(())
}

/// The name of a function of this module, if `name` is one.
pub(in super::super) fn known_name(name: &str) -> Option<&'static str> {
    find(name).map(|known| known.name)
}

fn find(name: &str) -> Option<&'static Known> {
    KNOWN.iter().find(|known| known.name == name)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct CatalogFunction(StatementFunction<Asker, &'static Known>);

impl std::fmt::Debug for Known {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.name)
    }
}

impl ScalarUDFImpl for CatalogFunction {
    fn name(&self) -> &str {
        self.0.name
    }

    fn signature(&self) -> &Signature {
        &self.0.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(self.0.kind.gives.data_type())
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let ScalarFunctionArgs { args, number_rows, .. } = arguments;
        let answer = |row: usize| {
            let values = args.iter().map(|argument| match argument {
                ColumnarValue::Scalar(value) => Ok(value.clone()),
                ColumnarValue::Array(array) => ScalarValue::try_from_array(array, row),
            });
            let values = values.collect::<Result<Vec<_>>>()?;
            (self.0.kind.answer)(&self.0.context, &values)
                .and_then(|answer| self.0.kind.gives.scalar(answer))
        };
        if args.iter().all(|argument| matches!(argument, ColumnarValue::Scalar(_))) {
            return answer(0).map(ColumnarValue::Scalar);
        }
        let values = (0..number_rows).map(answer).collect::<Result<Vec<_>>>()?;
        let array: ArrayRef = match values.is_empty() {
            true => new_empty_array(&self.0.kind.gives.data_type()),
            false => ScalarValue::iter_to_array(values)?,
        };
        Ok(ColumnarValue::Array(array))
    }
}

impl Gives {
    fn data_type(self) -> DataType {
        let list = |item| DataType::List(Arc::new(Field::new_list_field(item, true)));
        match self {
            Self::Text => DataType::Utf8,
            Self::Number => DataType::Int64,
            Self::Bool => DataType::Boolean,
            Self::Numbers => list(DataType::Int64),
            Self::Texts => list(DataType::Utf8),
        }
    }

    fn scalar(self, answer: Answer) -> Result<ScalarValue> {
        Ok(match answer {
            Answer::Null => ScalarValue::try_from(self.data_type())?,
            Answer::Text(text) => ScalarValue::Utf8(Some(text)),
            Answer::Number(number) => ScalarValue::Int64(Some(number)),
            Answer::Bool(value) => ScalarValue::Boolean(Some(value)),
            Answer::Numbers(numbers) => {
                let numbers = numbers.into_iter().map(Some);
                let list = ListArray::from_iter_primitive::<Int64Type, _, _>([Some(numbers)]);
                ScalarValue::List(Arc::new(list))
            }
            Answer::Texts(texts) => {
                let items: Vec<_> =
                    texts.into_iter().map(|text| ScalarValue::Utf8(Some(text))).collect();
                ScalarValue::List(ScalarValue::new_list_nullable(&items, &DataType::Utf8))
            }
        })
    }
}

/// The argument at `place` as a number.
fn number(arguments: &[ScalarValue], place: usize) -> Option<i64> {
    let value = arguments.get(place)?.cast_to(&DataType::Int64).ok()?;
    match value {
        ScalarValue::Int64(number) => number,
        _ => None,
    }
}

/// The argument at `place` as text.
fn text(arguments: &[ScalarValue], place: usize) -> Option<String> {
    let value = arguments.get(place)?.cast_to(&DataType::Utf8).ok()?;
    match value {
        ScalarValue::Utf8(text) => text,
        _ => None,
    }
}

impl From<Option<String>> for Answer {
    fn from(text: Option<String>) -> Self {
        text.map_or(Self::Null, Self::Text)
    }
}

impl From<Option<i64>> for Answer {
    fn from(number: Option<i64>) -> Self {
        number.map_or(Self::Null, Self::Number)
    }
}

const fn known(
    name: &'static str,
    gives: Gives,
    answer: fn(&Asker, &[ScalarValue]) -> Result<Answer>,
) -> Known {
    Known { name, gives, answer }
}

const fn always_true(name: &'static str) -> Known {
    known(name, Gives::Bool, |_, _| Ok(Answer::Bool(true)))
}

const fn never(name: &'static str) -> Known {
    known(name, Gives::Bool, |_, _| Ok(Answer::Bool(false)))
}

const fn no_text(name: &'static str) -> Known {
    known(name, Gives::Text, |_, _| Ok(Answer::Null))
}

const fn user(name: &'static str) -> Known {
    known(name, Gives::Text, |asker, _| {
        Ok(Answer::Text(asker.view.client.current_user().to_owned()))
    })
}

const fn database(name: &'static str) -> Known {
    known(name, Gives::Text, |asker, _| Ok(Answer::Text(asker.view.client.database.clone())))
}

/// Bytes of a part of what the first argument names or numbers.
fn size(asker: &Asker, arguments: &[ScalarValue], part: Part) -> Result<Answer> {
    let oid = number(arguments, 0).or_else(|| asker.relation(&text(arguments, 0)?));
    Ok(oid.and_then(|oid| sizes::of_relation(&asker.view, oid, part)).into())
}

const KNOWN: &[Known] = &[
    // What the syntax of `::regclass` and the like becomes.
    known("cleave_relation", Gives::Number, relation),
    known("cleave_relation_name", Gives::Text, |asker, arguments| {
        let oid = match relation(asker, arguments)? {
            Answer::Number(oid) => Some(oid),
            _ => None,
        };
        let name = |oid| match asker.view.relation_name(oid) {
            Some(name) if asker.finds(oid) => name,
            Some(name) => format!("public.{name}"),
            None => oid.to_string(),
        };
        Ok(oid.map(name).into())
    }),
    known("cleave_type", Gives::Number, |_, arguments| Ok(type_number(arguments)?.into())),
    known("cleave_function", Gives::Number, |_, arguments| {
        let Some(name) = text(arguments, 0) else { return Ok(Answer::Null) };
        match name.parse().ok().or_else(|| io_functions::number_of(&name)) {
            Some(number) => Ok(Answer::Number(number)),
            None => Err(Error::unknown(NameKind::Function, &name, []).into()),
        }
    }),
    // Of a number, or of a text that is one.
    known("cleave_function_name", Gives::Text, |_, arguments| {
        let Some(name) = text(arguments, 0) else { return Ok(Answer::Null) };
        let known = match name.parse() {
            Ok(0) => Some("-"),
            Ok(number) => io_functions::name_of(number),
            Err(_) => None,
        };
        Ok(Answer::Text(known.map_or(name, str::to_owned)))
    }),
    known("cleave_schema", Gives::Number, |_, arguments| {
        let Some(name) = text(arguments, 0) else { return Ok(Answer::Null) };
        let found = name.parse().ok().or_else(|| rows::schema_number(&name));
        let unknown =
            || Error::unknown(NameKind::Schema, &name, rows::SCHEMAS.map(|(_, name)| name));
        found.map(Answer::Number).ok_or_else(|| unknown().into())
    }),
    known("cleave_schema_name", Gives::Text, |_, arguments| {
        let Some(number) = number(arguments, 0) else { return Ok(Answer::Null) };
        let name = rows::SCHEMAS.iter().find(|(known, _)| *known == number);
        Ok(Answer::Text(name.map_or_else(|| number.to_string(), |(_, name)| (*name).to_owned())))
    }),
    known("cleave_default", Gives::Text, |asker, arguments| {
        let default = || {
            let table = asker.view.table(number(arguments, 0)?)?;
            let place = usize::try_from(number(arguments, 1)?.checked_sub(1)?).ok()?;
            let column = table.schema.columns.get(place)?;
            shown_default(column, asker.settings.search_path.has_public())
        };
        Ok(default().into())
    }),
    known("cleave_subscripts", Gives::Numbers, |_, arguments| {
        let Some(ScalarValue::List(list)) = arguments.first() else { return Ok(Answer::Null) };
        let count = i64::from(list.value_length(0));
        Ok(Answer::Numbers((0..count).collect()))
    }),
    // The numbers of the items of the longest list.
    known("cleave_numbers", Gives::Numbers, |_, arguments| {
        let counts = arguments.iter().filter_map(|argument| match argument {
            ScalarValue::List(list) if list.is_valid(0) => Some(i64::from(list.value_length(0))),
            _ => None,
        });
        let count = counts.max();
        Ok(count.map_or(Answer::Null, |count| Answer::Numbers((1..=count).collect())))
    }),
    no_text("cleave_nothing"),
    // Of the session.
    known("version", Gives::Text, |_, _| {
        let target = format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS);
        Ok(Answer::Text(format!("PostgreSQL {SERVER_VERSION} on {target}, 64-bit")))
    }),
    database("current_catalog"),
    database("current_database"),
    known("current_schema", Gives::Text, |asker, _| {
        let schemas = asker.settings.search_path.schemas(false);
        Ok(schemas.first().map(|schema| (*schema).to_owned()).into())
    }),
    known("current_schemas", Gives::Texts, |asker, arguments| {
        let with_own = matches!(arguments.first(), Some(ScalarValue::Boolean(Some(true))));
        let schemas = asker.settings.search_path.schemas(with_own).into_iter();
        Ok(Answer::Texts(schemas.map(str::to_owned).collect()))
    }),
    user("current_role"),
    user("current_user"),
    known("session_user", Gives::Text, |asker, _| Ok(Answer::Text(asker.view.client.user.clone()))),
    user("user"),
    known("pg_backend_pid", Gives::Number, |asker, _| {
        Ok(Answer::Number(asker.view.client.backend.into()))
    }),
    known("current_setting", Gives::Text, current_setting),
    // All are set before the query is planned; a later call may have set the same again.
    known("set_config", Gives::Text, |asker, arguments| {
        let (Some(name), Some(value)) = (text(arguments, 0), text(arguments, 1)) else {
            return current_setting(asker, arguments.get(..1).unwrap_or_default());
        };
        let mut settings = asker.settings.clone();
        settings.set(&name, &value)?;
        Ok(Answer::Text(settings.show(&name)?))
    }),
    no_text("inet_server_addr"),
    no_text("inet_client_addr"),
    known("inet_server_port", Gives::Number, |_, _| Ok(Answer::Null)),
    known("pg_my_temp_schema", Gives::Number, |_, _| Ok(Answer::Number(0))),
    never("pg_is_in_recovery"),
    never("pg_is_other_temp_schema"),
    known("getdatabaseencoding", Gives::Text, |_, _| Ok(Answer::Text("UTF8".to_owned()))),
    // Of things by their numbers.
    known("format_type", Gives::Text, |_, arguments| {
        let modifier = number(arguments, 1).unwrap_or(-1);
        Ok(type_number(arguments)?.map(|oid| type_text(oid, modifier)).into())
    }),
    known("pg_get_userbyid", Gives::Text, |asker, arguments| {
        let role = number(arguments, 0).and_then(|oid| u32::try_from(oid).ok());
        Ok(role.map(|role| asker.view.role_name(role).to_owned()).into())
    }),
    known("pg_get_indexdef", Gives::Text, index_text),
    known("pg_get_constraintdef", Gives::Text, |asker, arguments| {
        let Some(oid) = number(arguments, 0) else { return Ok(Answer::Null) };
        let index = asker.view.constraint(oid).map(|index| index.constraint_text());
        let pretty = matches!(arguments.get(1), Some(ScalarValue::Boolean(Some(true))));
        let with_schema = !asker.settings.search_path.has_public();
        Ok(index.or_else(|| asker.view.rule_text(oid, pretty, with_schema)).into())
    }),
    // A table that is no partition: psql asks for it together with what this gives.
    known("pg_partition_ancestors", Gives::Number, |_, arguments| Ok(number(arguments, 0).into())),
    known("pg_get_expr", Gives::Text, |_, arguments| Ok(text(arguments, 0).into())),
    known("to_regclass", Gives::Number, |asker, arguments| {
        Ok(text(arguments, 0).and_then(|name| asker.relation(&name)).into())
    }),
    known("to_regtype", Gives::Number, |_, arguments| {
        Ok(text(arguments, 0).and_then(|name| type_named(&name)).into())
    }),
    known("pg_encoding_to_char", Gives::Text, |_, _| Ok(Answer::Text("UTF8".to_owned()))),
    known("quote_ident", Gives::Text, |_, arguments| {
        Ok(text(arguments, 0).map(|name| quoted(&name)).into())
    }),
    // Not PostgreSQL's numbers, which are of its own matter: what is wanted is one number for one text.
    known("hashtext", Gives::Number, |_, arguments| {
        let hash = text(arguments, 0).map(|text| hash_of(&text, 0));
        let half = |hash: u64| u32::try_from(hash >> u32::BITS).unwrap_or_default();
        Ok(hash.map(|hash| i64::from(half(hash).cast_signed())).into())
    }),
    known("hashtextextended", Gives::Number, |_, arguments| {
        let seed = number(arguments, 1).unwrap_or_default();
        Ok(text(arguments, 0).map(|text| hash_of(&text, seed).cast_signed()).into())
    }),
    known("pg_size_pretty", Gives::Text, |_, arguments| {
        Ok(number(arguments, 0).map(pretty_size).into())
    }),
    known("pg_relation_size", Gives::Number, |asker, given| size(asker, given, Part::Rows)),
    known("pg_table_size", Gives::Number, |asker, given| size(asker, given, Part::Rows)),
    known("pg_indexes_size", Gives::Number, |asker, given| size(asker, given, Part::Indexes)),
    known("pg_total_relation_size", Gives::Number, |asker, given| size(asker, given, Part::All)),
    known("pg_database_size", Gives::Number, database_size),
    known("acldefault", Gives::Texts, |asker, arguments| {
        let kind = text(arguments, 0);
        let owner = number(arguments, 1).and_then(|oid| u32::try_from(oid).ok());
        let access =
            kind.zip(owner).and_then(|(kind, owner)| asker.view.access_at_first(&kind, owner));
        Ok(access.map_or(Answer::Null, Answer::Texts))
    }),
    always_true("has_function_privilege"),
    known("has_any_column_privilege", Gives::Bool, |asker, arguments| {
        may(asker, About::AnyColumn, arguments)
    }),
    known("has_column_privilege", Gives::Bool, |asker, arguments| {
        may(asker, About::Column, arguments)
    }),
    known("has_database_privilege", Gives::Bool, |asker, arguments| {
        may(asker, About::Database, arguments)
    }),
    known("has_schema_privilege", Gives::Bool, |asker, arguments| {
        may(asker, About::Schema, arguments)
    }),
    known("has_sequence_privilege", Gives::Bool, |asker, arguments| {
        may(asker, About::Sequence, arguments)
    }),
    known("has_table_privilege", Gives::Bool, |asker, arguments| {
        may(asker, About::Table, arguments)
    }),
    known("pg_has_role", Gives::Bool, |asker, arguments| may(asker, About::Role, arguments)),
    always_true("pg_collation_is_visible"),
    always_true("pg_function_is_visible"),
    always_true("pg_opclass_is_visible"),
    known("pg_table_is_visible", Gives::Bool, |asker, arguments| {
        Ok(number(arguments, 0).map_or(Answer::Null, |oid| Answer::Bool(asker.finds(oid))))
    }),
    always_true("pg_type_is_visible"),
    never("pg_relation_is_publishable"),
    never("row_security_active"),
    known("col_description", Gives::Text, |asker, given| {
        let found = number(given, 0).zip(number(given, 1));
        let text = |(oid, place)| comments::text(&asker.view, oid, Some("pg_class"), place);
        Ok(found.and_then(text).into())
    }),
    known("obj_description", Gives::Text, description),
    known("shobj_description", Gives::Text, description),
    no_text("pg_get_function_arguments"),
    no_text("pg_get_function_identity_arguments"),
    no_text("pg_get_function_result"),
    no_text("pg_get_functiondef"),
    no_text("pg_get_partkeydef"),
    no_text("pg_get_ruledef"),
    known("pg_get_serial_sequence", Gives::Text, |asker, arguments| {
        let (table, column) = (text(arguments, 0), text(arguments, 1));
        let found = table.zip(column);
        Ok(found.and_then(|(table, column)| asker.view.serial_sequence(&table, &column)).into())
    }),
    no_text("pg_get_statisticsobjdef_columns"),
    no_text("pg_get_triggerdef"),
    known("pg_get_viewdef", Gives::Text, |asker, arguments| {
        let oid = number(arguments, 0).or_else(|| asker.relation(&text(arguments, 0)?));
        let query = oid.and_then(|oid| asker.view.view_query(oid));
        let text = query.map(|query| match asker.settings.search_path.has_public() {
            true => format!(" {query};"),
            false => format!(" {};", with_schema(query)),
        });
        Ok(text.into())
    }),
    no_text("pg_tablespace_location"),
    never("pg_is_wal_replay_paused"),
];

/// What is said of a thing, of the class that the second argument names, if there is one.
fn description(asker: &Asker, arguments: &[ScalarValue]) -> Result<Answer> {
    let class = text(arguments, 1);
    let found = number(arguments, 0);
    Ok(found.and_then(|oid| comments::text(&asker.view, oid, class.as_deref(), 0)).into())
}

/// Bytes of the database, by its name or number: there is one.
fn database_size(asker: &Asker, arguments: &[ScalarValue]) -> Result<Answer> {
    let Some(name) = text(arguments, 0) else { return Ok(Answer::Null) };
    let is_it =
        name == asker.view.client.database || number(arguments, 0) == Some(view::number::DATABASE);
    if !is_it {
        return Err(Error::Invalid {
            message: format!("database \"{name}\" does not exist"),
            fault: Fault::Role(RoleFault::Database),
            position: None,
        }
        .into());
    }
    Ok(Answer::Number(sizes::of_database(&asker.view)))
}

/// Whether a role has a privilege.
fn may(asker: &Asker, about: About, arguments: &[ScalarValue]) -> Result<Answer> {
    let arguments: Option<Vec<Argument>> = arguments.iter().map(Argument::of).collect();
    let Some(arguments) = arguments else { return Ok(Answer::Null) };
    let answer = privileges::has(&asker.view, about, &arguments)?;
    Ok(answer.map_or(Answer::Null, Answer::Bool))
}

fn relation(asker: &Asker, arguments: &[ScalarValue]) -> Result<Answer> {
    let Some(name) = text(arguments, 0) else { return Ok(Answer::Null) };
    let found = name.parse().ok().or_else(|| asker.relation(&name));
    let names = || asker.view.tables().map(|table| table.schema.name.as_str());
    let unknown = || Error::unknown(NameKind::Relation, &name, names());
    found.map(Answer::Number).ok_or_else(|| unknown().into())
}

/// The number of the type that the first argument names or is.
fn type_number(arguments: &[ScalarValue]) -> Result<Option<i64>> {
    let Some(name) = text(arguments, 0) else { return Ok(None) };
    let found = name.parse().ok().or_else(|| type_named(&name));
    Ok(Some(found.ok_or_else(|| Error::unknown(NameKind::Type, &name, []))?))
}

fn current_setting(asker: &Asker, arguments: &[ScalarValue]) -> Result<Answer> {
    let Some(name) = text(arguments, 0) else { return Ok(Answer::Null) };
    let is_lenient = matches!(arguments.get(1), Some(ScalarValue::Boolean(Some(true))));
    match asker.settings.show(&name) {
        Ok(value) => Ok(Answer::Text(value)),
        Err(_) if is_lenient => Ok(Answer::Null),
        Err(error) => Err(error.into()),
    }
}

/// The definition of an index, or one of its columns.
fn index_text(asker: &Asker, arguments: &[ScalarValue]) -> Result<Answer> {
    let Some(index) = number(arguments, 0).and_then(|oid| asker.view.index(oid)) else {
        return Ok(Answer::Null);
    };
    Ok(match number(arguments, 1) {
        None | Some(0) => Answer::Text(index.definition_text()),
        Some(place) => {
            let place = place.checked_sub(1).and_then(|place| usize::try_from(place).ok());
            place
                .and_then(|place| index.columns().nth(place))
                .map(|column| quoted(&column.name))
                .into()
        }
    })
}

/// The same number for the same text and seed, in every version (FNV-1a).
fn hash_of(text: &str, seed: i64) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325 ^ seed.cast_unsigned();
    text.bytes().fold(start, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

fn pretty_size(bytes: i64) -> String {
    let mut rest = bytes;
    for unit in ["bytes", "kB", "MB", "GB"] {
        if rest.abs() < 10 * 1024 {
            return format!("{rest} {unit}");
        }
        rest = (rest + 512) / 1024;
    }
    format!("{rest} TB")
}
