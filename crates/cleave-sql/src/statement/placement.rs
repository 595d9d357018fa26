//! Placement of a new table: `WITH (devices = (nas * 3, san), tablets = 4, tablet_by = hash (id))`, or
//! `WITH (tablet_by = range (id), bounds = (1000, 2000))`, each also with `mirrors = 2` and `rebalance = on`.
//!
//! The syntax is PostgreSQL's for storage parameters, because a table lies on any number of devices and a tablespace is
//! one name. PostgreSQL's own parameters concern pages that are changed in place, and its vacuum. Those that tools send
//! (`fillfactor`, `autovacuum_…`, `parallel_workers`) change no row and are accepted without effect; any other is
//! refused by name.

use arrow::array::{Array, ArrayRef};
use arrow::compute::concat;
use cleave_catalog::catalog::autovacuum::switch;
use cleave_catalog::catalog::division::{Division, TABLET_COUNT_MAX};
use cleave_catalog::error::{Error, Fault, Position, Result};
use cleave_store::{Column, ColumnType, RangeBounds, StoreError, TableSchema};
use datafusion::sql::sqlparser::ast;

use crate::statement::defaults::constant_value;
use crate::statement::names::{fold, position_of};

/// The devices and tablets of a new table. Missing parts follow the session's settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Placement {
    /// The devices, no two the same; none: not given.
    pub devices: Vec<DeviceShare>,
    /// How many of the devices have each page, 1 or more.
    pub mirrors: Option<u32>,
    /// Tablets, from 1 to [`TABLET_COUNT_MAX`]; where bounds are given, as many as these make.
    pub tablet_count: Option<u32>,
    /// What decides the tablet of a row.
    pub division: Option<Division>,
    /// Whether its tablets move by themselves to devices with fewer rows; None: not given, they do not.
    pub is_balanced: Option<bool>,
}

/// A device, and how many of the tablets it takes beside others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceShare {
    /// Its name.
    pub name: String,
    /// Its weight, from 1 to [`TABLET_COUNT_MAX`].
    pub weight: u32,
}

impl DeviceShare {
    /// The share of a device whose weight nobody says.
    #[must_use]
    pub fn of(name: String) -> Self {
        Self { name, weight: 1 }
    }

    /// Those of the devices called `names`.
    #[must_use]
    pub fn of_all(names: impl IntoIterator<Item = String>) -> Vec<Self> {
        names.into_iter().map(Self::of).collect()
    }
}

/// What is read of a division before all parameters are.
#[derive(Default)]
struct GivenDivision {
    /// Not by ranges.
    whole: Option<Division>,
    /// The column of ranges.
    ranges: Option<(u32, Option<Position>)>,
    /// The bounds as written.
    bounds: Option<(Vec<ast::Expr>, Option<Position>)>,
}

/// Reads the clauses behind the column list of CREATE TABLE of `schema`.
///
/// # Errors
/// [`Error::Unsupported`] for other clauses and parameters, [`Error::Invalid`] for a repeated one and for an invalid
/// name or number, [`Error::UnknownName`] for a column.
pub fn placement(options: &ast::CreateTableOptions, schema: &TableSchema) -> Result<Placement> {
    let parameters = match options {
        ast::CreateTableOptions::None => return Ok(Placement::default()),
        ast::CreateTableOptions::With(parameters) => parameters,
        ast::CreateTableOptions::Plain(clauses)
            if clauses.iter().any(|clause| matches!(clause, ast::SqlOption::TableSpace(_))) =>
        {
            return Err(unsupported(
                "TABLESPACE",
                Some("say WITH (device = name) behind the column list"),
            ));
        }
        _ => return Err(unsupported("options after the column list of CREATE TABLE", None)),
    };
    let (mut placement, mut given) = (Placement::default(), GivenDivision::default());
    for parameter in parameters {
        let ast::SqlOption::KeyValue { key, value } = parameter else {
            return Err(unsupported(&format!("WITH ({parameter})"), None));
        };
        let position = position_of(key.span.start);
        let name = fold(key);
        let is_new = match name.as_str() {
            "device" | "devices" => {
                let devices = devices(value).map_err(|error| error.at(position))?;
                std::mem::replace(&mut placement.devices, devices).is_empty()
            }
            "mirrors" => {
                let count = mirror_count(value).map_err(|error| error.at(position))?;
                placement.mirrors.replace(count).is_none()
            }
            "tablets" => {
                let count = tablet_count(value).map_err(|error| error.at(position))?;
                placement.tablet_count.replace(count).is_none()
            }
            "tablet_by" => {
                let is_new = given.whole.is_none() && given.ranges.is_none();
                match division(value, schema).map_err(|error| error.at(position))? {
                    TabletBy::Whole(division) => given.whole = Some(division),
                    TabletBy::Range(column) => given.ranges = Some((column, position)),
                }
                is_new
            }
            "rebalance" => {
                let text = value.to_string();
                let is_on = switch(text.trim_matches('\'')).ok_or_else(|| {
                    invalid(format!("rebalance = {text}: say on or off")).at(position)
                })?;
                placement.is_balanced.replace(is_on).is_none()
            }
            "bounds" => given.bounds.replace((listed(value), position)).is_none(),
            "fillfactor" | "parallel_workers" | "toast_tuple_target" => true,
            name if name.starts_with("autovacuum_") => true,
            _ => {
                let hint = "there are device (or devices), mirrors, tablets, tablet_by, bounds and rebalance";
                let what = format!("storage parameter \"{name}\"");
                return Err(unsupported(&what, Some(hint)).at(position));
            }
        };
        if !is_new {
            return Err(
                invalid(format!("parameter \"{name}\" specified more than once")).at(position)
            );
        }
    }
    placement.division = given.division(schema, &mut placement.tablet_count)?;
    if placement.is_balanced == Some(true) && placement.devices.iter().any(|one| one.weight > 1) {
        let message = "rebalance = on gives all devices as many rows: it has no weights".to_owned();
        return Err(invalid(message));
    }
    Ok(placement)
}

impl GivenDivision {
    /// The division of the table `schema`, whose tablets were given as `tablet_count`.
    fn division(
        self,
        schema: &TableSchema,
        tablet_count: &mut Option<u32>,
    ) -> Result<Option<Division>> {
        let (id, (bounds, position)) = match (self.ranges, self.bounds) {
            (None, None) => return Ok(self.whole),
            (Some((id, _)), Some(bounds)) if !bounds.0.is_empty() => (id, bounds),
            (Some((_, position)), _) => {
                let message = "tablet_by = range needs bounds = (value, ...)".to_owned();
                return Err(invalid(message).at(position));
            }
            (None, Some((_, position))) => {
                let message = "bounds need tablet_by = range (column)".to_owned();
                return Err(invalid(message).at(position));
            }
        };
        let Some(column) = schema.column_by_id(id) else { return Ok(self.whole) };
        let given = bounds.len();
        let count = u32::try_from(given).unwrap_or(u32::MAX).saturating_add(1);
        if let Some(tablets) = tablet_count.filter(|tablets| *tablets != count) {
            let message = format!("tablets = {tablets}: {given} bounds make {count} tablets");
            return Err(refused(message).at(position));
        }
        if count > TABLET_COUNT_MAX {
            let message = format!("{given} bounds: a table has at most {TABLET_COUNT_MAX} tablets");
            return Err(refused(message).at(position));
        }
        let ranges = ranges(column, &bounds).map_err(|error| error.at(position))?;
        *tablet_count = Some(count);
        Ok(Some(Division::Range(id, ranges)))
    }
}

/// The bounds of `column` that are written as `bounds`.
fn ranges(column: &Column, bounds: &[ast::Expr]) -> Result<RangeBounds> {
    let mut values: Vec<ArrayRef> = Vec::with_capacity(bounds.len());
    for bound in bounds {
        let value = constant_value(column, bound)?.ok_or_else(|| {
            let column_type = column.column_type;
            invalid(format!("bound {bound} is no constant of type {column_type}"))
        })?;
        if value.is_null(0) {
            let message = "a bound is NULL: rows without a value lie in the last tablet".to_owned();
            return Err(invalid(message));
        }
        values.push(value);
    }
    let values: Vec<&dyn Array> = values.iter().map(AsRef::as_ref).collect();
    let keys = RangeBounds::keys_of(&concat(&values)?).map_err(too_long)?;
    let mut pairs = keys.windows(2).zip(bounds.windows(2));
    let twisted = pairs.find(|(keys, _)| keys.first() >= keys.last());
    if let Some((_, [one, other])) = twisted {
        return Err(invalid(format!("bounds do not ascend: {other} comes behind {one}")));
    }
    Ok(RangeBounds::of_keys(&column.column_type.arrow(), keys)?)
}

/// The error of a value that is too long for a key.
fn too_long(error: StoreError) -> Error {
    match error {
        StoreError::OutOfRange { value, max, .. } => Error::Invalid {
            message: format!("a bound of {value} bytes is too long: at most {max} are compared"),
            fault: Fault::TooLong,
            position: None,
        },
        other => other.into(),
    }
}

/// The names in a list that is written without quotes around the whole: in the form of the setting `default_device`.
///
/// # Errors
/// [`Error::Invalid`] for a name that is empty or comes twice.
pub fn device_list(text: &str) -> Result<Vec<String>> {
    let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
    check_distinct(names.iter().map(String::as_str))?;
    Ok(names)
}

fn devices(value: &ast::Expr) -> Result<Vec<DeviceShare>> {
    let shares: Vec<DeviceShare> = listed(value).iter().map(device_share).collect::<Result<_>>()?;
    check_distinct(shares.iter().map(|share| share.name.as_str()))?;
    Ok(shares)
}

/// What is written in parentheses, or the only one without.
fn listed(value: &ast::Expr) -> Vec<ast::Expr> {
    match value {
        ast::Expr::Tuple(all) => all.clone(),
        ast::Expr::Nested(one) => vec![one.as_ref().clone()],
        one => vec![one.clone()],
    }
}

fn check_distinct<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Result<()> {
    for (place, name) in names.clone().enumerate() {
        if name.is_empty() {
            return Err(invalid("the name of a device is missing".to_owned()));
        }
        if names.clone().take(place).any(|before| before == name) {
            return Err(invalid(format!("device \"{name}\" is named twice")));
        }
    }
    Ok(())
}

/// `name`, or `name * weight`.
fn device_share(value: &ast::Expr) -> Result<DeviceShare> {
    let ast::Expr::BinaryOp { left, op: ast::BinaryOperator::Multiply, right } = value else {
        return Ok(DeviceShare::of(device_name(value)?));
    };
    let name = device_name(left)?;
    let weight = right.to_string().parse::<u32>().ok();
    let weight = weight.filter(|weight| (1..=TABLET_COUNT_MAX).contains(weight));
    let weight = weight.ok_or_else(|| {
        refused(format!("{value}: a device takes 1 to {TABLET_COUNT_MAX} tablets at once"))
    })?;
    Ok(DeviceShare { name, weight })
}

fn device_name(value: &ast::Expr) -> Result<String> {
    let name = match value {
        ast::Expr::Identifier(name) => Some(fold(name)),
        ast::Expr::Value(value) => match &value.value {
            ast::Value::SingleQuotedString(name) => Some(name.clone()),
            _ => None,
        },
        _ => None,
    };
    name.ok_or_else(|| {
        invalid(format!("{value} is not the name of a device: say (a, b) for several"))
    })
}

fn mirror_count(value: &ast::Expr) -> Result<u32> {
    let number = value.to_string();
    let count = number.parse::<u32>().ok().filter(|count| *count > 0);
    count.ok_or_else(|| {
        refused(format!("mirrors = {number}: it is the number of devices that have each page"))
    })
}

fn tablet_count(value: &ast::Expr) -> Result<u32> {
    let number = value.to_string();
    let count = number.parse().ok().filter(|count| (1..=TABLET_COUNT_MAX).contains(count));
    count.ok_or_else(|| {
        refused(format!("tablets = {number}: a table has 1 to {TABLET_COUNT_MAX} tablets"))
    })
}

/// What `tablet_by` says.
enum TabletBy {
    /// All of a division.
    Whole(Division),
    /// The column of ranges, by id.
    Range(u32),
}

fn division(value: &ast::Expr, schema: &TableSchema) -> Result<TabletBy> {
    let function = match value {
        ast::Expr::Identifier(name) => match fold(name).as_str() {
            "load_order" => return Ok(TabletBy::Whole(Division::LoadOrder)),
            "round_robin" => return Ok(TabletBy::Whole(Division::RoundRobin)),
            _ => return Err(no_division(value)),
        },
        ast::Expr::Function(function) => function,
        _ => return Err(no_division(value)),
    };
    let name = function.name.to_string().to_lowercase();
    let ast::FunctionArguments::List(list) = &function.args else {
        return Err(no_division(value));
    };
    if !["hash", "range"].contains(&name.as_str()) {
        return Err(no_division(value));
    }
    let mut columns = Vec::with_capacity(list.args.len());
    for argument in &list.args {
        let ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(ast::Expr::Identifier(column))) =
            argument
        else {
            return Err(no_division(value));
        };
        columns.push(dividing_column(column, schema)?);
    }
    match (name.as_str(), columns.as_slice()) {
        ("hash", [_, ..]) => {
            let ids = columns.iter().map(|column| column.id).collect();
            Ok(TabletBy::Whole(Division::Hash(ids)))
        }
        // Its order as a key is none of time.
        ("range", [column]) if column.column_type == ColumnType::Interval => {
            Err(unsupported("tablet_by = range of an interval", None))
        }
        ("range", [column]) => Ok(TabletBy::Range(column.id)),
        _ => Err(no_division(value)),
    }
}

fn dividing_column<'a>(column: &ast::Ident, schema: &'a TableSchema) -> Result<&'a Column> {
    let name = fold(column);
    let position: Option<Position> = position_of(column.span.start);
    let names = schema.columns.iter().map(|column| column.name.as_str());
    schema
        .column(&name)
        .ok_or_else(|| Error::unknown_column(&schema.name, &name, names).at(position))
}

fn no_division(value: &ast::Expr) -> Error {
    invalid(format!(
        "invalid tablet_by {value}: say hash (column, ...), range (column), round_robin or load_order"
    ))
}

fn invalid(message: String) -> Error {
    Error::Invalid { message, fault: Fault::Statement, position: None }
}

/// A number beyond its limits.
fn refused(message: String) -> Error {
    Error::Invalid { message, fault: Fault::Parameter, position: None }
}

fn unsupported(what: &str, hint: Option<&str>) -> Error {
    Error::Unsupported { what: what.to_owned(), hint: hint.map(str::to_owned), position: None }
}
