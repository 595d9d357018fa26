//! Parameters of statements: `$1`, `$2`, … in a syntax tree in, the same tree with typed values in their places out.
//!
//! 1. [`count`] counts them; [`written_types`] finds types in the text: `$1::date` is a date, and LIMIT takes a bigint.
//! 2. [`Parameter::read`] reads a value as a client sends it, by PostgreSQL's input rules.
//! 3. [`Parameters::put_files_into`] puts names of files into a statement, [`Parameters::put_into`] the values into a
//!    query, [`StatementText`] into its text.
//!
//! A value stands in the tree as a literal in quotes with a cast. So it means the same as that literal in a statement
//! without parameters, and every rule of the planner sees a constant. The digits given for a `numeric` count, as for a
//! number written in a statement.
//!
//! A parameter compared by `= ANY` or `<> ALL` is a list ([`any_list`]).
//!
//! Source: PostgreSQL's manual, "PREPARE" and "Positional Parameters".

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use cleave_catalog::error::{Error, Fault, NameKind, Result};
use cleave_catalog::value::{ColumnBuilder, ValueError, value_text};
use cleave_store::ColumnType;
use datafusion::arrow::array::{ArrayRef, BooleanArray};
use datafusion::arrow::datatypes::DataType as ArrowType;
use datafusion::sql::sqlparser::ast::{self, DataType, Expr, TimezoneInfo, Visitor, VisitorMut};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::tokenizer::Token;

use crate::dialect::fitting_numeric;
use crate::statement::files::parameters_of;
use crate::statement::locked_parts::GivenRows;
use crate::statement::parse::{Cursor, tokenize};

mod any_list;
mod by_place;
mod of_files;

use crate::visiting::{visit, visit_mut};
use any_list::AnyList;
pub(in crate::statement) use any_list::item_type;
pub use any_list::{any_of, list_places};

/// Most parameters of a statement, as in PostgreSQL's protocol.
pub const PARAMETER_COUNT_MAX: usize = 65_535;

/// The value of a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    column_type: ColumnType,
    /// Its text as results show it; None: NULL.
    text: Option<String>,
    /// The items of a list; `text` is then the text of the whole list.
    items: Option<Vec<Option<String>>>,
}

/// The values of a statement's parameters, `$1` first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parameters {
    values: Vec<Parameter>,
    /// The results of subqueries of the statement that ran before it.
    pub rows: GivenRows,
}

/// The type of a parameter whose declared or inferred type is `column_type`: a parameter has no length or number of
/// digits.
#[must_use]
pub fn parameter_type(column_type: ColumnType) -> ColumnType {
    match column_type {
        ColumnType::Varchar(_) | ColumnType::Char(_) => ColumnType::Text,
        ColumnType::Numeric { .. } => ColumnType::NUMERIC,
        other => other,
    }
}

/// The name of a parameter's type.
#[must_use]
pub fn type_name(column_type: ColumnType) -> String {
    match column_type {
        ColumnType::Numeric { .. } => "numeric".to_owned(),
        other => other.sql_name(),
    }
}

impl Parameter {
    /// A value of `column_type`, one that [`parameter_type`] gives, from its text; None: NULL.
    ///
    /// # Errors
    /// [`ValueError`] where it is no value of the type.
    pub fn read(column_type: ColumnType, text: Option<&str>) -> Result<Self, ValueError> {
        let text = text.map(|text| canonical(column_type, text)).transpose()?;
        Ok(Self { column_type, text, items: None })
    }

    /// A NULL of this type.
    #[must_use]
    pub fn null(column_type: ColumnType) -> Self {
        Self { column_type, text: None, items: None }
    }

    /// Its type.
    #[must_use]
    pub fn column_type(&self) -> ColumnType {
        self.column_type
    }

    /// Its text; None: NULL.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// It as an array of one value.
    pub fn array(&self) -> Result<ArrayRef, ValueError> {
        let mut builder = ColumnBuilder::new(&self.fitting_type(), 1);
        match &self.text {
            Some(text) => builder.append_text(text)?,
            None => builder.append_null(),
        }
        Ok(builder.finish())
    }

    /// The type of that array.
    pub fn array_type(&self) -> ArrowType {
        self.fitting_type().arrow()
    }

    /// The type, with as many digits as the value has.
    fn fitting_type(&self) -> ColumnType {
        match (self.column_type, &self.text) {
            (ColumnType::NUMERIC, Some(text)) => fitting_numeric(text, 0),
            (other, _) => other,
        }
    }

    /// The only value of `column`, which is of `column_type`, with its digits.
    pub fn of_value(column_type: ColumnType, column: &ArrayRef) -> Result<Self> {
        Ok(Self { column_type, text: value_text(column, 0)?, items: None })
    }

    /// A boolean.
    pub fn of_boolean(value: bool) -> Result<Self> {
        let column: ArrayRef = Arc::new(BooleanArray::from(vec![value]));
        Self::of_value(ColumnType::Boolean, &column)
    }

    /// Its text as a literal in a statement, if it is no list.
    pub fn literal(&self) -> Expr {
        let value = match &self.text {
            Some(text) => ast::Value::SingleQuotedString(text.clone()),
            None => ast::Value::Null,
        };
        Expr::Cast {
            kind: ast::CastKind::Cast,
            expr: Box::new(Expr::value(value)),
            data_type: syntax_of(self.fitting_type()),
            array: false,
            format: None,
        }
    }

    /// The same for display: a count as its digits.
    fn written(&self) -> String {
        use ColumnType as Type;
        match (self.column_type, &self.text) {
            // With a minus before it, both could form a comment.
            (column_type, Some(text)) if self.items.is_some() => {
                let text = Expr::value(ast::Value::SingleQuotedString(text.clone()));
                format!("{text}::{}[]", syntax_of(column_type))
            }
            (Type::SmallInt | Type::Int | Type::BigInt, Some(text)) if !text.starts_with('-') => {
                text.clone()
            }
            _ => self.literal().to_string(),
        }
    }
}

/// `text` as results show its value.
fn canonical(column_type: ColumnType, text: &str) -> Result<String, ValueError> {
    if is_canonical_whole(column_type, text) {
        return Ok(text.to_owned());
    }
    let read_as = match column_type {
        ColumnType::Numeric { .. } => fitting_numeric(text, 0),
        other => other,
    };
    let mut builder = ColumnBuilder::new(&read_as, 1);
    builder.append_text(text)?;
    // A value that the builder accepted has a text.
    let shown = value_text(&builder.finish(), 0).ok().flatten();
    Ok(shown.unwrap_or_else(|| text.to_owned()))
}

/// Whether `text` is a whole number of this type in the form that results show.
fn is_canonical_whole(column_type: ColumnType, text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_plain = !digits.starts_with(['0', '+']) || text == "0";
    is_plain
        && match column_type {
            ColumnType::SmallInt => text.parse::<i16>().is_ok(),
            ColumnType::Int => text.parse::<i32>().is_ok(),
            ColumnType::BigInt => text.parse::<i64>().is_ok(),
            _ => false,
        }
}

fn syntax_of(column_type: ColumnType) -> DataType {
    match column_type {
        ColumnType::SmallInt => DataType::SmallInt(None),
        ColumnType::Int => DataType::Int(None),
        ColumnType::BigInt => DataType::BigInt(None),
        ColumnType::Real => DataType::Real,
        ColumnType::Double => DataType::DoublePrecision,
        ColumnType::NUMERIC => DataType::Numeric(ast::ExactNumberInfo::None),
        ColumnType::Numeric { precision, scale } => DataType::Numeric(
            ast::ExactNumberInfo::PrecisionAndScale(u64::from(precision), i64::from(scale)),
        ),
        ColumnType::Boolean => DataType::Boolean,
        ColumnType::Text | ColumnType::Varchar(_) | ColumnType::Char(_) => DataType::Text,
        ColumnType::Date => DataType::Date,
        ColumnType::Time => DataType::Time(None, TimezoneInfo::None),
        ColumnType::Timestamp => DataType::Timestamp(None, TimezoneInfo::None),
        ColumnType::TimestampTz => DataType::Timestamp(None, TimezoneInfo::WithTimeZone),
        ColumnType::Interval => DataType::Interval { fields: None, precision: None },
        ColumnType::Bytea => DataType::Bytea,
        ColumnType::Uuid => DataType::Uuid,
    }
}

impl Parameters {
    /// These values, `$1` first.
    #[must_use]
    pub fn new(values: Vec<Parameter>) -> Self {
        Self { values, rows: GivenRows::default() }
    }

    /// The values.
    #[must_use]
    pub fn values(&self) -> &[Parameter] {
        &self.values
    }

    /// The value of the parameter at `place`, from 0.
    ///
    /// # Errors
    /// [`Error::UnknownName`]: the statement has no such parameter.
    pub fn get(&self, place: usize) -> Result<&Parameter> {
        self.values.get(place).ok_or_else(|| no_parameter(place))
    }

    /// Puts the values into `query`.
    ///
    /// # Errors
    /// [`Error::UnknownName`] for a parameter that has none.
    pub fn put_into(&self, query: &mut ast::Query) -> Result<()> {
        put_into(query, &|place| self.get(place).map(Some))
    }
}

/// Puts NULLs of the known types into `query`; the other parameters stay.
pub fn put_types_into(query: &mut ast::Query, types: &[Option<ColumnType>]) -> Result<()> {
    let nulls: Vec<Option<Parameter>> =
        types.iter().map(|known| known.map(Parameter::null)).collect();
    put_into(query, &|place| {
        let known = nulls.get(place).ok_or_else(|| no_parameter(place))?;
        Ok(known.as_ref())
    })
}

fn no_parameter(place: usize) -> Error {
    Error::unknown(NameKind::Parameter, &format!("${}", place + 1), [])
}

/// The place, from 0, of the parameter `expression`; None: it is none.
///
/// # Errors
/// [`Error::Syntax`] for a parameter without a number, [`Error::Invalid`] for one too many.
pub fn place_of(expression: &Expr) -> Result<Option<usize>> {
    let Expr::Value(value) = expression else { return Ok(None) };
    match &value.value {
        ast::Value::Placeholder(text) => place_of_text(text).map(Some),
        _ => Ok(None),
    }
}

fn place_of_text(text: &str) -> Result<usize> {
    let digits = text.strip_prefix('$').filter(|rest| rest.bytes().all(|b| b.is_ascii_digit()));
    match digits.map(str::parse::<usize>) {
        Some(Ok(number @ 1..=PARAMETER_COUNT_MAX)) => Ok(number - 1),
        Some(Ok(0)) | None => Err(Error::Syntax {
            message: "a parameter is written as $1, $2, …".to_owned(),
            near: Some(text.to_owned()),
            position: None,
        }),
        Some(_) => Err(Error::Invalid {
            message: format!("a statement has at most {PARAMETER_COUNT_MAX} parameters"),
            fault: Fault::TooLong,
            position: None,
        }),
    }
}

type Flow = ControlFlow<Box<Error>>;

fn ended(flow: Flow) -> Result<()> {
    match flow {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

fn flow(outcome: Result<()>) -> Flow {
    match outcome {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(Box::new(error)),
    }
}

fn put_into<'a>(
    query: &mut ast::Query,
    value: &dyn Fn(usize) -> Result<Option<&'a Parameter>>,
) -> Result<()> {
    ended(visit_mut(query, &mut Put { value }))
}

struct Put<'a, 'b> {
    value: &'b dyn Fn(usize) -> Result<Option<&'a Parameter>>,
}

impl Put<'_, '_> {
    fn replace(&self, expression: &mut Expr, is_count: bool) -> Result<()> {
        if let Some(list) = AnyList::of(expression)? {
            let value = (self.value)(list.place)?;
            *expression = list.with(value);
            return Ok(());
        }
        if let Some((place, list)) = any_list::cast_list(expression)? {
            if let Some(value) = (self.value)(place)? {
                *list = value.list_literal();
            }
            return Ok(());
        }
        let Some(place) = place_of(expression)? else { return Ok(()) };
        let Some(parameter) = (self.value)(place)? else { return Ok(()) };
        if parameter.items.is_some() {
            return Err(list_elsewhere(place));
        }
        *expression = match (is_count, parameter.text()) {
            // DataFusion wants a plain number there.
            (true, Some(text)) => Expr::value(ast::Value::Number(text.to_owned(), false)),
            (true, None) => Expr::value(ast::Value::Null),
            (false, _) => parameter.literal(),
        };
        Ok(())
    }
}

fn list_elsewhere(place: usize) -> Error {
    let what = format!("parameter ${}, a list, outside of = ANY and <> ALL", place + 1);
    Error::unsupported(what)
}

impl VisitorMut for Put<'_, '_> {
    type Break = Box<Error>;

    /// Names of files are in a statement by now, unless it has no values at all.
    fn pre_visit_relation(&mut self, name: &mut ast::ObjectName) -> Flow {
        let places = parameters_of(name);
        flow(places.and_then(|all| all.into_iter().try_for_each(|one| (self.value)(one).map(drop))))
    }

    fn pre_visit_query(&mut self, query: &mut ast::Query) -> Flow {
        let mut counts = row_counts(&mut query.limit_clause);
        flow(counts.iter_mut().try_for_each(|count| self.replace(count, true)))
    }

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> Flow {
        flow(self.replace(expression, false))
    }
}

/// The expressions of LIMIT and OFFSET.
fn row_counts(clause: &mut Option<ast::LimitClause>) -> Vec<&mut Expr> {
    match clause {
        Some(ast::LimitClause::LimitOffset { limit, offset, .. }) => {
            limit.iter_mut().chain(offset.iter_mut().map(|offset| &mut offset.value)).collect()
        }
        Some(ast::LimitClause::OffsetCommaLimit { offset, limit }) => vec![offset, limit],
        None => Vec::new(),
    }
}

/// Number of parameters of `query`: the greatest number that occurs.
///
/// # Errors
/// Those of a parameter that is written wrongly.
pub fn count(query: &ast::Query) -> Result<usize> {
    Ok(places(query)?.last().map_or(0, |last| last + 1))
}

/// The places, from 0, of the parameters that `query` has.
///
/// # Errors
/// As [`count`].
pub fn places(query: &ast::Query) -> Result<BTreeSet<usize>> {
    struct Places(BTreeSet<usize>);
    impl Visitor for Places {
        type Break = Box<Error>;

        fn pre_visit_relation(&mut self, name: &ast::ObjectName) -> Flow {
            flow(parameters_of(name).map(|places| self.0.extend(places)))
        }

        fn pre_visit_expr(&mut self, expression: &Expr) -> Flow {
            flow(place_of(expression).map(|place| self.0.extend(place)))
        }
    }
    let mut places = Places(BTreeSet::new());
    ended(visit(query, &mut places))?;
    Ok(places.0)
}

/// Records in `types` the types that the text of `query` gives to parameters of unknown type.
///
/// # Errors
/// Those of a parameter that is written wrongly, and of an unknown type.
pub fn written_types(query: &ast::Query, types: &mut [Option<ColumnType>]) -> Result<()> {
    struct Written<'a>(&'a mut [Option<ColumnType>]);
    impl Written<'_> {
        fn note(
            &mut self,
            expression: &Expr,
            column_type: impl FnOnce() -> Result<ColumnType>,
        ) -> Result<()> {
            let mut expression = expression;
            while let Expr::Nested(inner) = expression {
                expression = inner;
            }
            let Some(place) = place_of(expression)? else { return Ok(()) };
            if let Some(unknown @ None) = self.0.get_mut(place) {
                *unknown = Some(parameter_type(column_type()?));
            }
            Ok(())
        }
    }
    impl Visitor for Written<'_> {
        type Break = Box<Error>;

        fn pre_visit_relation(&mut self, name: &ast::ObjectName) -> Flow {
            let noted = parameters_of(name).map(|places| {
                for place in places {
                    if let Some(unknown @ None) = self.0.get_mut(place) {
                        *unknown = Some(ColumnType::Text);
                    }
                }
            });
            flow(noted)
        }

        fn pre_visit_query(&mut self, query: &ast::Query) -> Flow {
            let mut clause = query.limit_clause.clone();
            let mut counts = row_counts(&mut clause);
            let bigint = || Ok(ColumnType::BigInt);
            flow(counts.iter_mut().try_for_each(|count| self.note(count, bigint)))
        }

        fn pre_visit_select(&mut self, select: &ast::Select) -> Flow {
            let mut conditions = by_place::types_in_select(select).into_iter();
            flow(conditions.try_for_each(|(parameter, known)| self.note(parameter, || Ok(known))))
        }

        fn pre_visit_expr(&mut self, expression: &Expr) -> Flow {
            if let Ok(Some(list)) = AnyList::of(expression)
                && let Some(item_type) = list.item_type
            {
                let name = format!("${}", list.place + 1);
                let parameter = Expr::value(ast::Value::Placeholder(name));
                let item_type = || crate::statement::ddl::column_type(item_type);
                return flow(self.note(&parameter, item_type));
            }
            for (parameter, column_type) in by_place::types_in(expression) {
                let noted = flow(self.note(parameter, || Ok(column_type)));
                if noted.is_break() {
                    return noted;
                }
            }
            let Expr::Cast { expr, data_type, .. } = expression else {
                return ControlFlow::Continue(());
            };
            let data_type = item_type(data_type).unwrap_or(data_type);
            flow(self.note(expr, || crate::statement::ddl::column_type(data_type)))
        }
    }
    ended(visit(query, &mut Written(types)))
}

/// A statement's text, cut at its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatementText {
    /// Each piece with the parameter that follows it.
    pieces: Vec<(String, usize)>,
    last: String,
}

impl StatementText {
    /// The pieces of `text`, which the parser has read.
    pub fn of(text: &str) -> Self {
        let tokens = tokenize(&PostgreSqlDialect {}, text).unwrap_or_default();
        let (mut pieces, mut begin) = (Vec::new(), 0);
        let mut cursor = Cursor::new(text);
        for token in tokens {
            let Token::Placeholder(name) = &token.token else { continue };
            let Ok(place) = place_of_text(name) else { continue };
            let end = cursor.offset_of(token.span.start);
            pieces.push((text.get(begin..end).unwrap_or_default().to_owned(), place));
            begin = end + name.len();
        }
        Self { pieces, last: text.get(begin..).unwrap_or_default().to_owned() }
    }

    /// Bytes of the text.
    pub fn byte_count(&self) -> usize {
        self.last.len() + self.pieces.iter().map(|(piece, _)| piece.len()).sum::<usize>()
    }

    /// The text of a statement that does the same with constants.
    pub fn with(&self, parameters: &Parameters) -> String {
        let mut text = String::new();
        for (piece, place) in &self.pieces {
            text.push_str(piece);
            match parameters.get(*place) {
                Ok(parameter) => text.push_str(&parameter.written()),
                Err(_) => text.push_str(&format!("${}", place + 1)),
            }
        }
        text + &self.last
    }
}

#[cfg(test)]
mod tests;
