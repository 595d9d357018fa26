//! The rules of a new table, such as its check constraints: takes those of CREATE TABLE, gives each check a name, and
//! compiles it to find errors.

use cleave_catalog::catalog::index_definition::{IndexDefinition, chosen_name};
use cleave_catalog::catalog::rules::{Check, TableRules};
use cleave_catalog::error::{Error, NameKind, Result};
use cleave_query::check_constraints::compile;
use cleave_sql::statement::CreateTable;

use crate::database::Database;

/// The rules of `create`, whose indexes are `indexes`.
///
/// # Errors
/// [`Error::NameTaken`]; those of an expression that is no condition on one row.
pub(super) async fn defined(
    database: &Database,
    create: &CreateTable,
    indexes: &[IndexDefinition],
) -> Result<TableRules> {
    let schema = &create.schema;
    let always = create.sequences.iter().filter(|sequence| sequence.is_always);
    let always = always.map(|sequence| sequence.column).collect();
    let mut rules = TableRules { always, ..TableRules::default() };
    let taken = |rules: &TableRules, name: &str| {
        rules.is_name_taken(name) || indexes.iter().any(|index| index.name == name)
    };
    // Rules with explicit names keep them; generated names avoid these.
    let (named, unnamed): (Vec<_>, Vec<_>) =
        create.checks.iter().partition(|given| given.name.is_some());
    for given in named.into_iter().chain(unnamed) {
        let name = match &given.name {
            Some(name) if taken(&rules, name) => {
                return Err(Error::NameTaken { kind: NameKind::Constraint, name: name.clone() });
            }
            Some(name) => name.clone(),
            None => {
                let columns = match given.columns.as_slice() {
                    [only] => schema.column_by_id(*only),
                    _ => None,
                };
                let columns: Vec<&str> = columns.iter().map(|column| &*column.name).collect();
                chosen_name(&schema.name, &columns, "check", |name| taken(&rules, name))
            }
        };
        let check = Check {
            id: rules.next_id(),
            name,
            expression: given.expression.clone(),
            columns: given.columns.clone(),
        };
        let compiled = compile(database.query_runtime(), schema, std::slice::from_ref(&check));
        Box::pin(compiled).await.map_err(|error| error.at(given.position))?;
        rules.checks.push(check);
    }
    rules.checks.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(rules)
}
