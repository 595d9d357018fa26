//! Files in FROM: `read_csv('a.csv', header => true)`, `read_parquet('*.parquet')`, and `'films.parquet'` for short.
//!
//! ```text
//!  FROM 'films.parquet'  ─▶ FROM "\x01file read_parquet('films.parquet')" AS films
//!  FROM read_csv('a.csv', delim => ';') AS a ─▶ FROM "\x01file read_csv('a.csv', delim => ';')" AS a
//! ```
//!
//! 1. While a statement is read, each such item becomes a relation whose name is the call ([`name_file`]), so that
//!    whatever looks names up finds it as it finds a table. No user can write such a name: the sign before it is
//!    refused.
//! 2. Where parameters of a prepared statement name files, their values go into the call when it runs
//!    ([`put_parameters`]).
//! 3. Who looks the name up reads the call again ([`FileCall::of_relation`]).
//! 4. A view is stored with the call as it was written ([`text_of`]); [`parse_query`](super::parse::parse_query) names
//!    it again.
//!
//! Invariant: a name that [`name_file`] has made is a valid call. Its arguments are constants, and names of files may
//! be parameters.
//!
//! Source: the functions of DuckDB of these names; options have the names of COPY's too.

use std::ops::ControlFlow;
use std::path::Path;

use cleave_catalog::error::{Error, Fault, Result};
use cleave_catalog::suggest::nearest;
use cleave_store::Column;
use datafusion::sql::sqlparser::ast::{
    self, Expr, FunctionArg, FunctionArgExpr, Ident, ObjectName, ObjectNamePart, TableAlias,
    TableFactor, UnaryOperator, Value, VisitorMut,
};

use crate::copy::compressed::Compression;
use crate::copy::options::CsvOptions;
use crate::statement::copy::{single, value_forms};
use crate::statement::locking::HIDDEN;
use crate::statement::names::{fold, position_of};
use crate::statement::parameters::place_of;
use crate::statement::parse::{Statement, parse_expression, parse_script};
use crate::visiting::{visit_mut, visit_relations};

/// The function that reads text.
const CSV: &str = "read_csv";
/// The function that reads Parquet.
const PARQUET: &str = "read_parquet";
/// Behind the hidden sign, before the call.
const PREFIX: &str = "file ";
/// Rows by which the types of columns are inferred.
const SAMPLE_ROWS: u64 = 20_480;
/// The option of both functions.
const BY_NAME: &str = "union_by_name";
/// The options of `read_csv`, for messages.
const CSV_OPTIONS: [&str; 16] = [
    "all_varchar",
    "columns",
    "dateformat",
    "decimal_separator",
    "delim",
    "escape",
    "header",
    "null",
    "nullstr",
    "quote",
    "sample_size",
    "sep",
    "skip",
    "timestampformat",
    "types",
    BY_NAME,
];

/// Files that a statement reads, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileCall {
    /// Their names, as written: a name with `*`, `?` or `[…]` stands for all that fit.
    pub names: Vec<String>,
    /// What is in them.
    pub format: FileFormat,
    /// Their columns are matched by name, and those that a file lacks are NULL.
    pub by_name: bool,
}

/// What files hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileFormat {
    /// Text.
    Csv(Box<CsvCall>),
    /// Apache Parquet.
    Parquet,
}

/// The options of `read_csv`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CsvCall {
    /// Those of COPY; `header` and, unless it is given, `delimiter` are not known yet.
    pub options: CsvOptions,
    /// The first record names the columns; None: the file tells.
    pub header: Option<bool>,
    /// The delimiter was given.
    pub has_delimiter: bool,
    /// Lines before the first record, which are passed over.
    pub skip: u64,
    /// All columns, with their types; empty: the file tells.
    pub columns: Vec<Column>,
    /// The types of some columns.
    pub types: Vec<Column>,
    /// Types are not inferred: every column is text.
    pub all_text: bool,
    /// Rows by which types are inferred; None: all.
    pub sample_rows: Option<u64>,
}

/// Whether `name` is one that [`name_file`] has made.
#[must_use]
pub fn is_file(name: &ObjectName) -> bool {
    call_of(name).is_some()
}

/// The call behind the name of a relation, if it is one of files.
fn call_of(name: &ObjectName) -> Option<&str> {
    match name.0.as_slice() {
        [ObjectNamePart::Identifier(name)] => shown_call(&name.value),
        _ => None,
    }
}

/// The call behind the relation `name`, as messages and plans show it; None: it is no such relation.
#[must_use]
pub fn shown_call(name: &str) -> Option<&str> {
    name.strip_prefix(HIDDEN)?.strip_prefix(PREFIX)
}

/// Gives an item of FROM that reads files the name of its call.
///
/// # Errors
/// Those of the call.
pub(crate) fn name_file(factor: &mut TableFactor) -> Result<()> {
    let TableFactor::Table { name, alias, args, with_ordinality: false, .. } = factor else {
        return Ok(());
    };
    let [ObjectNamePart::Identifier(own)] = name.0.as_slice() else { return Ok(()) };
    let position = position_of(own.span.start);
    let (call, called) = match args {
        None if own.quote_style == Some('\'') => {
            let function = function_of(&own.value).map_err(|error| error.at(position))?;
            (format!("{function}({})", quoted(&own.value)), called_after(&own.value))
        }
        Some(args) if own.quote_style.is_none() && args.settings.is_none() => {
            let function = fold(own);
            if ![CSV, PARQUET].contains(&function.as_str()) {
                return Ok(());
            }
            check_call(&function, &args.args).map_err(|error| error.at(position))?;
            (written_call(&function, &args.args)?, function)
        }
        _ => return Ok(()),
    };
    let span = own.span;
    let hidden = Ident::with_quote('"', format!("{HIDDEN}{PREFIX}{call}"));
    *name = ObjectName::from(vec![Ident { span, ..hidden }]);
    *args = None;
    alias.get_or_insert_with(|| TableAlias {
        explicit: true,
        name: Ident { span, ..Ident::with_quote('"', called) },
        columns: Vec::new(),
        at: None,
    });
    Ok(())
}

/// Checks a call in which parameters may stand for names of files.
fn check_call(function: &str, args: &[FunctionArg]) -> Result<()> {
    let mut args = args.to_vec();
    each_name(&mut args, &mut |item| {
        if place_of(item)?.is_some() {
            *item = Expr::value(Value::SingleQuotedString("f".to_owned()));
        }
        Ok(())
    })?;
    FileCall::of(function, &args).map(drop)
}

/// The places, from 0, of the parameters that name files in the relation `name`.
///
/// # Errors
/// Those of a parameter that is written wrongly.
pub(crate) fn parameters_of(name: &ObjectName) -> Result<Vec<usize>> {
    let mut places = Vec::new();
    // No other name is read again.
    if let Some(call) = call_of(name).filter(|call| call.contains('$')) {
        let (_, mut args) = read_call(call)?;
        each_name(&mut args, &mut |item| {
            places.extend(place_of(item)?);
            Ok(())
        })?;
    }
    Ok(places)
}

/// Puts values into the relation `name` for the parameters that name files in it.
///
/// # Errors
/// Those of `value`.
pub(crate) fn put_parameters(
    name: &mut ObjectName,
    value: &dyn Fn(usize) -> Result<String>,
) -> Result<()> {
    let Some(call) = call_of(name).filter(|call| call.contains('$')) else { return Ok(()) };
    let (function, mut args) = read_call(call)?;
    each_name(&mut args, &mut |item| {
        if let Some(place) = place_of(item)? {
            *item = Expr::value(Value::SingleQuotedString(value(place)?));
        }
        Ok(())
    })?;
    let call = written_call(&function, &args)?;
    if let [ObjectNamePart::Identifier(own)] = name.0.as_mut_slice() {
        own.value = format!("{HIDDEN}{PREFIX}{call}");
    }
    Ok(())
}

/// Whether parameters of `query` name files: what columns it has, only their values tell.
///
/// # Errors
/// Those of a parameter that is written wrongly.
pub fn has_parameters(query: &ast::Query) -> Result<bool> {
    let found = visit_relations(query, |name| match parameters_of(name) {
        Ok(places) if places.is_empty() => ControlFlow::Continue(()),
        Ok(_) => ControlFlow::Break(Ok(true)),
        Err(error) => ControlFlow::Break(Err(error)),
    });
    match found {
        ControlFlow::Break(found) => found,
        ControlFlow::Continue(()) => Ok(false),
    }
}

/// Whether the text of a query may call one of the functions, in the form of [`text_of`].
#[must_use]
pub fn may_call(text: &str) -> bool {
    [CSV, PARQUET].into_iter().any(|function| text.contains(function))
}

/// The names of the relations of files in `query`.
#[must_use]
pub fn files_in(query: &ast::Query) -> Vec<String> {
    let mut names = Vec::new();
    let flow = visit_relations(query, |name| {
        if let Some(call) = call_of(name) {
            names.push(format!("{HIDDEN}{PREFIX}{call}"));
        }
        ControlFlow::<()>::Continue(())
    });
    debug_assert!(flow.is_continue(), "nothing stops the visit");
    names
}

/// The text of `query` with the calls that it names written out, as its reader wrote them.
#[must_use]
pub fn text_of(query: &ast::Query) -> String {
    let mut query = query.clone();
    let flow = visit_mut(&mut query, &mut AsCalls);
    debug_assert!(flow.is_continue(), "nothing stops the visit");
    query.to_string()
}

struct AsCalls;

impl VisitorMut for AsCalls {
    type Break = ();

    fn pre_visit_relation(&mut self, name: &mut ObjectName) -> ControlFlow<()> {
        if let [ObjectNamePart::Identifier(own)] = name.0.as_mut_slice()
            && let Some(call) = shown_call(&own.value)
        {
            // Without quotes it is written as it is.
            (own.value, own.quote_style) = (call.to_owned(), None);
        }
        ControlFlow::Continue(())
    }
}

/// Gives each name of a file among `args` to `on`.
fn each_name(args: &mut [FunctionArg], on: &mut dyn FnMut(&mut Expr) -> Result<()>) -> Result<()> {
    for arg in args {
        if let FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) = arg {
            each_item(value, on)?;
        }
    }
    Ok(())
}

fn each_item(value: &mut Expr, on: &mut dyn FnMut(&mut Expr) -> Result<()>) -> Result<()> {
    match value {
        Expr::Array(array) => {
            for item in &mut array.elem {
                each_item(item, on)?;
            }
            Ok(())
        }
        Expr::Nested(inner) => each_item(inner, on),
        value => on(value),
    }
}

/// The function that reads a file of this name.
fn function_of(name: &str) -> Result<&'static str> {
    let path = Path::new(name);
    let is_compressed = Compression::of_name(path).is_some();
    let path = match is_compressed {
        true => path.file_stem().map_or(path, Path::new),
        false => path,
    };
    let extension = path.extension().and_then(|extension| extension.to_str());
    match extension.unwrap_or_default().to_ascii_lowercase().as_str() {
        "csv" | "tsv" | "txt" => Ok(CSV),
        "parquet" if !is_compressed => Ok(PARQUET),
        _ => Err(Error::Unsupported {
            what: format!("the file '{name}' in FROM, whose name tells no format,"),
            hint: Some(
                "names end in .csv, .tsv, .txt (also with .gz or .zst) or .parquet; read_csv and read_parquet read \
                 files of any name"
                    .to_owned(),
            ),
            position: None,
        }),
    }
}

/// The name by which a statement calls the rows of a file: what is before the first point, without folders.
fn called_after(name: &str) -> String {
    let last = Path::new(name).file_name().and_then(|name| name.to_str()).unwrap_or(name);
    match last.split('.').next() {
        Some(first) if !first.is_empty() => first.to_owned(),
        _ => "file".to_owned(),
    }
}

impl FileCall {
    /// The call behind the relation `name`; None: it is no relation of files.
    pub fn of_relation(name: &str) -> Option<Result<Self>> {
        let call = shown_call(name)?;
        let read = || {
            let (function, args) = read_call(call)?;
            Self::of(&function, &args)
        };
        Some(read())
    }

    /// The call of `function` with these arguments.
    fn of(function: &str, args: &[FunctionArg]) -> Result<Self> {
        let (mut names, mut csv, mut by_name) = (None, Written::default(), None);
        for arg in args {
            let (option, value) = match named(arg)? {
                (Some(option), value) => (option, value),
                (None, value) if names.is_none() => {
                    names = Some(texts(function, value)?);
                    continue;
                }
                (None, _) => {
                    return Err(fault(format!(
                        "{function} takes the name of a file or an array of names; options are named, as in \
                         {function}('f', header => true)"
                    )));
                }
            };
            match function {
                _ if option == BY_NAME => {
                    if by_name.replace(switch(&option, value)?).is_some() {
                        return Err(given_twice(function, &option));
                    }
                }
                CSV => csv.set(&option, value)?,
                _ => {
                    let message =
                        format!("{function} has no option \"{option}\"; it has {BY_NAME}");
                    return Err(fault(message));
                }
            }
        }
        let names = names.filter(|names| !names.is_empty()).ok_or_else(|| {
            fault(format!("{function} takes the name of a file, as in {function}('f')"))
        })?;
        let format = match function {
            CSV => FileFormat::Csv(Box::new(csv.checked(&names)?)),
            _ => FileFormat::Parquet,
        };
        let by_name = by_name.unwrap_or(false);
        if let FileFormat::Csv(csv) = &format
            && by_name
            && !csv.columns.is_empty()
        {
            return Err(fault(format!(
                "{CSV}: columns names the columns of all files, and {BY_NAME} those of each; give one of them"
            )));
        }
        Ok(Self { names, format, by_name })
    }
}

/// The function of a call, and its arguments.
fn read_call(call: &str) -> Result<(String, Vec<FunctionArg>)> {
    let Expr::Function(function) = parse_expression(call)? else {
        return Err(fault(format!("{call} is no call of a function")));
    };
    match function.args {
        ast::FunctionArguments::List(list) => Ok((function.name.to_string(), list.args)),
        ast::FunctionArguments::None | ast::FunctionArguments::Subquery(_) => {
            Err(fault(format!("{call} has no arguments")))
        }
    }
}

/// A call in the form in which [`read_call`] reads it again.
fn written_call(function: &str, args: &[FunctionArg]) -> Result<String> {
    let args = args.iter().map(written).collect::<Result<Vec<_>>>()?;
    Ok(format!("{function}({})", args.join(", ")))
}

/// The name of an option, if it is one, and its value. PostgreSQL's `=>` parts them, or a plain `=`.
fn named(arg: &FunctionArg) -> Result<(Option<String>, &Expr)> {
    fn value(arg: &FunctionArgExpr) -> Result<&Expr> {
        match arg {
            FunctionArgExpr::Expr(value) => Ok(value),
            _ => Err(fault("a star is no argument of a function that reads files".to_owned())),
        }
    }
    match arg {
        FunctionArg::Named { name, arg, .. } => Ok((Some(fold(name)), value(arg)?)),
        FunctionArg::ExprNamed { name: Expr::Identifier(name), arg, .. } => {
            Ok((Some(fold(name)), value(arg)?))
        }
        FunctionArg::ExprNamed { name, .. } => {
            Err(fault(format!("{name} is no name of an option")))
        }
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::BinaryOp {
            left,
            op: ast::BinaryOperator::Eq,
            right,
        })) if matches!(**left, Expr::Identifier(_)) => match &**left {
            Expr::Identifier(name) => Ok((Some(fold(name)), &**right)),
            _ => Ok((None, &**right)),
        },
        FunctionArg::Unnamed(arg) => Ok((None, value(arg)?)),
    }
}

/// An argument in the form in which [`FileCall::of_relation`] reads it again. The parser crate's own form leaves quotes
/// in a text as they are where they look escaped.
fn written(arg: &FunctionArg) -> Result<String> {
    let (option, value) = named(arg)?;
    let value = written_value(value);
    Ok(match option {
        Some(option) => format!("{option} => {value}"),
        None => value,
    })
}

fn written_value(value: &Expr) -> String {
    match value {
        Expr::Array(array) => {
            let items: Vec<String> = array.elem.iter().map(written_value).collect();
            format!("ARRAY[{}]", items.join(", "))
        }
        Expr::Nested(inner) => written_value(inner),
        _ => text("", value).map_or_else(|_| value.to_string(), |text| quoted(&text)),
    }
}

/// A text as a constant.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A text, or an array of texts.
fn texts(function: &str, value: &Expr) -> Result<Vec<String>> {
    match value {
        Expr::Array(array) => array.elem.iter().map(|item| text(function, item)).collect(),
        Expr::Nested(inner) => texts(function, inner),
        _ => Ok(vec![text(function, value)?]),
    }
}

fn constant(value: &Expr) -> Option<&Value> {
    match value {
        Expr::Value(value) => Some(&value.value),
        Expr::Nested(inner) => constant(inner),
        _ => None,
    }
}

fn text(option: &str, value: &Expr) -> Result<String> {
    match constant(value) {
        Some(
            Value::SingleQuotedString(text)
            | Value::EscapedStringLiteral(text)
            | Value::UnicodeStringLiteral(text)
            | Value::NationalStringLiteral(text),
        ) => Ok(text.clone()),
        Some(Value::DollarQuotedString(text)) => Ok(text.value.clone()),
        Some(Value::Placeholder(_)) => Err(Error::Unsupported {
            what: format!("the parameter {value} of a function that reads files, without a value here,"),
            hint: Some(
                "a parameter may name a file in a statement that is prepared; options are constants"
                    .to_owned(),
            ),
            position: None,
        }),
        _ => Err(fault(format!("{option} takes a text in quotes, not {value}"))),
    }
}

fn switch(option: &str, value: &Expr) -> Result<bool> {
    match constant(value) {
        Some(Value::Boolean(value)) => Ok(*value),
        _ => Err(fault(format!("{option} takes true or false, not {value}"))),
    }
}

/// A whole number that is not negative; None: it is none.
fn count(value: &Expr) -> Option<u64> {
    match constant(value) {
        Some(Value::Number(digits, _)) => digits.parse().ok(),
        _ => None,
    }
}

/// Lines that are passed over.
fn skipped_lines(option: &str, value: &Expr) -> Result<u64> {
    count(value).ok_or_else(|| {
        fault(format!(
            "{option} takes the number of lines to pass over, a whole number from 0, not {value}"
        ))
    })
}

/// Rows by which types are inferred; None: all.
fn sampled_rows(option: &str, value: &Expr) -> Result<Option<u64>> {
    let rows = match value {
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } if count(expr) == Some(1) => Some(None),
        _ => count(value).filter(|rows| *rows > 0).map(Some),
    };
    rows.ok_or_else(|| {
        fault(format!(
            "{option} takes a whole number of rows from 1, or -1 for all rows, not {value}"
        ))
    })
}

/// Columns as in CREATE TABLE: `id integer, note text`.
fn columns(option: &str, value: &Expr) -> Result<Vec<Column>> {
    let given = text(option, value)?;
    let wrong = |why: &str| {
        fault(format!(
            "{option} takes names and types as in {option} => 'id integer, note text', not '{given}'{why}"
        ))
    };
    let read = parse_script(&format!("CREATE TABLE t ({given})"));
    let read = read.map_err(|error| wrong(&format!(": {error}")))?;
    match read.as_slice() {
        [parsed] => match &parsed.statement {
            Statement::CreateTable(create) if !create.schema.columns.is_empty() => {
                Ok(create.schema.columns.clone())
            }
            _ => Err(wrong("")),
        },
        _ => Err(wrong("")),
    }
}

fn given_twice(function: &str, option: &str) -> Error {
    fault(format!("{function}: the option \"{option}\" is given twice"))
}

fn fault(message: String) -> Error {
    Error::Invalid { message, fault: Fault::Parameter, position: None }
}

/// The options as written.
#[derive(Default)]
struct Written {
    delimiter: Option<String>,
    quote: Option<String>,
    escape: Option<String>,
    null: Option<String>,
    header: Option<bool>,
    skip: Option<u64>,
    columns: Option<Vec<Column>>,
    types: Option<Vec<Column>>,
    date: Option<String>,
    timestamp: Option<String>,
    decimal: Option<String>,
    all_text: Option<bool>,
    /// Of an inner None: all rows.
    sample_rows: Option<Option<u64>>,
}

impl Written {
    fn set(&mut self, option: &str, value: &Expr) -> Result<()> {
        let is_fresh = match option {
            "delim" | "sep" | "delimiter" => self.delimiter.replace(text(option, value)?).is_none(),
            "quote" => self.quote.replace(text(option, value)?).is_none(),
            "escape" => self.escape.replace(text(option, value)?).is_none(),
            "null" | "nullstr" => self.null.replace(text(option, value)?).is_none(),
            "header" => self.header.replace(switch(option, value)?).is_none(),
            "skip" => self.skip.replace(skipped_lines(option, value)?).is_none(),
            "columns" => self.columns.replace(columns(option, value)?).is_none(),
            "types" => self.types.replace(columns(option, value)?).is_none(),
            "dateformat" | "date_format" => self.date.replace(text(option, value)?).is_none(),
            "timestampformat" | "timestamp_format" => {
                self.timestamp.replace(text(option, value)?).is_none()
            }
            "decimal_separator" => self.decimal.replace(text(option, value)?).is_none(),
            "all_varchar" => self.all_text.replace(switch(option, value)?).is_none(),
            "sample_size" => self.sample_rows.replace(sampled_rows(option, value)?).is_none(),
            _ => {
                let meant = nearest(option, CSV_OPTIONS);
                let meant = meant.map(|meant| format!("; did you mean \"{meant}\"?"));
                let meant = meant.unwrap_or_else(|| format!("; it has {}", CSV_OPTIONS.join(", ")));
                return Err(fault(format!("{CSV} has no option \"{option}\"{meant}")));
            }
        };
        match is_fresh {
            true => Ok(()),
            false => Err(given_twice(CSV, option)),
        }
    }

    fn checked(self, names: &[String]) -> Result<CsvCall> {
        let has_delimiter = self.delimiter.is_some();
        let mut options = CsvOptions::csv();
        match &self.delimiter {
            Some(text) => options.delimiter = single("read_csv: delim", text)?,
            None if names.iter().all(|name| is_tabbed(name)) => options.delimiter = b'\t',
            None => {}
        }
        if let Some(text) = &self.quote {
            options.quote = single("read_csv: quote", text)?;
            options.escape = options.quote;
        }
        if let Some(text) = &self.escape {
            options.escape = single("read_csv: escape", text)?;
        }
        let forms = (self.date.as_deref(), self.timestamp.as_deref(), self.decimal.as_deref());
        options.forms = value_forms(forms.0, forms.1, forms.2)?;
        options.null = self.null.unwrap_or_default();
        let (columns, types) = (self.columns.unwrap_or_default(), self.types.unwrap_or_default());
        if !columns.is_empty() && !types.is_empty() {
            return Err(fault(format!(
                "{CSV}: columns names all columns with their types, and types some; give one of them"
            )));
        }
        Ok(CsvCall {
            options: options.check()?,
            header: self.header,
            has_delimiter: has_delimiter || names.iter().all(|name| is_tabbed(name)),
            skip: self.skip.unwrap_or(0),
            columns,
            types,
            all_text: self.all_text.unwrap_or(false),
            sample_rows: self.sample_rows.unwrap_or(Some(SAMPLE_ROWS)),
        })
    }
}

/// Whether the name of a file says that tabs part its values.
fn is_tabbed(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    [".tsv", ".tsv.gz", ".tsv.zst"].iter().any(|end| lower.ends_with(end))
}

#[cfg(test)]
mod tests {
    use cleave_store::ColumnType;

    use super::*;

    /// The names of relations of a query.
    fn relations(sql: &str) -> Vec<String> {
        let parsed = parse_script(sql).unwrap();
        let Some(Statement::Query(query)) = parsed.first().map(|one| &one.statement) else {
            panic!("{sql}");
        };
        let mut names = Vec::new();
        let _: ControlFlow<()> = visit_relations(&**query, |name| {
            names.extend(name.0.iter().filter_map(ObjectNamePart::as_ident).map(fold));
            ControlFlow::Continue(())
        });
        names
    }

    fn call(from: &str) -> FileCall {
        let names = relations(&format!("SELECT * FROM {from}"));
        FileCall::of_relation(&names[0]).unwrap().unwrap()
    }

    #[test]
    fn calls_are_read_again_from_their_names() {
        let films = call("'data/films.parquet'");
        assert_eq!(
            films,
            FileCall {
                names: vec!["data/films.parquet".into()],
                format: FileFormat::Parquet,
                by_name: false
            }
        );
        // Also quotes that look escaped.
        let names =
            call(r"read_parquet(ARRAY['a', 'b''c', 'd''''e', 'f\''', E'g\'\\', $$h'$$])").names;
        assert_eq!(names, ["a", "b'c", "d''e", r"f\'", r"g'\", "h'"]);
        assert_eq!(call(r"'i\''''.csv'").names, [r"i\''.csv"]);
        let options = "delim => ';', header = true, null => '\\N', skip => 2, sample_size => -1, \
             types => 'id bigint, price numeric(10, 2)', decimal_separator => ','";
        let FileFormat::Csv(csv) = call(&format!("READ_CSV('a.dat', {options}) AS a")).format
        else {
            panic!();
        };
        assert_eq!((csv.options.delimiter, csv.header, csv.skip), (b';', Some(true), 2));
        assert_eq!((csv.options.null.as_str(), csv.sample_rows), ("\\N", None));
        let types: Vec<ColumnType> = csv.types.iter().map(|own| own.column_type).collect();
        assert_eq!(types, [ColumnType::BigInt, ColumnType::Numeric { precision: 10, scale: 2 }]);
        let FileFormat::Csv(csv) = call("'a.TSV.gz'").format else { panic!() };
        assert_eq!((csv.options.delimiter, csv.has_delimiter), (b'\t', true));
        // What is no file stays what it is.
        assert_eq!(
            relations("SELECT extract(year FROM now()), 'a.b' FROM t, \"read_csv\""),
            ["t", "read_csv"]
        );
    }

    #[test]
    fn parameters_name_files() {
        let name = |from: &str| {
            let names = relations(&format!("SELECT * FROM {from}"));
            ObjectName::from(vec![Ident::with_quote('"', names[0].clone())])
        };
        let mut both = name("read_csv(ARRAY[$2, 'b$1', $1], delim => '$')");
        assert_eq!(parameters_of(&both).unwrap(), [1, 0]);
        let named = |place: usize| -> Result<String> { Ok(format!("it's ${place}")) };
        put_parameters(&mut both, &named).unwrap();
        assert_eq!(parameters_of(&both).unwrap(), [0_usize; 0]);
        let call = FileCall::of_relation(&both.0[0].as_ident().unwrap().value).unwrap().unwrap();
        assert_eq!(call.names, ["it's $1", "b$1", "it's $0"]);
        let unknown = name("read_parquet($1)");
        let unknown = FileCall::of_relation(&unknown.0[0].as_ident().unwrap().value).unwrap();
        assert_eq!(unknown.unwrap_err().sqlstate(), "0A000");
    }

    #[test]
    fn a_stored_query_names_the_same_files() {
        for from in [
            "'a.csv'",
            r#"read_csv(ARRAY['it''s', 'b"c', E'd\'e\\'], header => true, delim => ';') AS f (x, y)"#,
            "t JOIN (SELECT * FROM 'f.parquet') AS s ON EXISTS (SELECT 1 FROM read_parquet('g'))",
        ] {
            let parsed = parse_script(&format!("SELECT * FROM {from}")).unwrap();
            let Statement::Query(query) = &parsed[0].statement else { panic!("{from}") };
            let text = text_of(query);
            assert!(!text.contains(HIDDEN) && may_call(&text), "{text}");
            let again = crate::statement::parse::parse_query(text.clone()).unwrap();
            assert_eq!(files_in(&again), files_in(query), "{text}");
            assert!(!files_in(query).is_empty());
            assert_eq!(text_of(&again), text);
        }
    }

    #[test]
    fn what_a_call_cannot_be_is_refused_by_name() {
        for (from, sqlstate, part) in [
            ("'films.xlsx'", "0A000", "'films.xlsx' in FROM"),
            ("'films.parquet.gz'", "0A000", "tells no format"),
            ("read_csv()", "22023", "takes the name of a file"),
            ("read_csv('a', 'b')", "22023", "options are named"),
            ("read_csv('a', headers => true)", "22023", "did you mean \"header\"?"),
            ("read_csv('a', header => 'yes')", "22023", "header takes true or false"),
            ("read_csv('a', header => true, header => true)", "22023", "given twice"),
            ("read_csv('a', delim => 'ab')", "22023", "one ASCII character"),
            ("read_csv('a', dateformat => '%H')", "22023", "%H is none of"),
            ("read_csv('a', columns => 'id nothing')", "22023", "names and types as in"),
            ("read_csv('a', columns => 'id int', types => 'id int')", "22023", "give one of them"),
            ("read_csv('a', sample_size => 1.5)", "22023", "a whole number"),
            ("read_csv('a', sample_size => 0)", "22023", "or -1 for all rows, not 0"),
            ("read_csv('a', sample_size => -2)", "22023", "or -1 for all rows, not -2"),
            ("read_csv('a', skip => -1)", "22023", "a whole number from 0, not -1"),
            ("read_csv('a', skip => 0.5)", "22023", "a whole number from 0, not 0.5"),
            ("read_csv(x)", "22023", "a text in quotes"),
            ("read_csv('a', delim => $1)", "0A000", "the parameter $1"),
            ("read_csv($0)", "42601", "a parameter is written as"),
            ("read_parquet('a', header => true)", "22023", "has no option \"header\""),
            ("read_parquet('a', union_by_name => 1)", "22023", "takes true or false"),
            ("read_csv('a', columns => 'id int', union_by_name => true)", "22023", "give one of"),
        ] {
            let error = parse_script(&format!("SELECT * FROM {from}")).unwrap_err();
            assert_eq!(error.sqlstate(), sqlstate, "{from}: {error}");
            assert!(error.to_string().contains(part), "{from}: {error}");
        }
    }
}
