//! RETURNING with columns of other tables: those of FROM and of USING.
//!
//! ```text
//!  UPDATE t SET b = u.n FROM u WHERE t.a = u.a RETURNING t.b, u.n + 1, u.*           t (a, b), u (a, n)
//!    the target rows:
//!    ─▶ SELECT t.VID, t.a, u.n, u.n AS beside0, NULL AS beside1, u.* FROM target AS t, u WHERE t.a = u.a
//!    RETURNING over them:
//!    ─▶ SELECT t.b, beside0 + 1, "beside1 0" AS a, "beside1 1" AS n FROM rows AS t
//! ```
//!
//! 1. [`Beside::of`] finds the items of RETURNING that are no columns of the table. [`Beside::items`] appends them to
//!    the list of the query for the rows, so they have the values of the row's first match.
//! 2. [`Beside::returned`] is the query over these rows, and the rows with all of these columns.
//!
//! A name without a table is the changed row's if its table has such a column. The query for the rows lists it all the
//! same, so that a name which another table has too is refused as ambiguous.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Field, FieldRef, Schema};
use cleave_catalog::error::{Error, Result};
use cleave_store::TableSchema;
use datafusion::sql::sqlparser::ast::{self, Expr, SelectItem, VisitorMut};

use super::{Modify, over_target};
use crate::dialect::query_names::item_name;
use crate::statement::names::{called_in, fold};
use crate::statement::parse::refuse_in_query;
use crate::visiting::visit_mut;

/// Prefix of the names of the appended columns.
const BESIDE: &str = "\u{1}beside";

/// The items of RETURNING beside the columns of its table.
#[derive(Debug, Default)]
pub struct Beside {
    slots: Vec<Named>,
}

/// One such item.
#[derive(Debug, Clone, PartialEq)]
enum Named {
    /// A column.
    Column(Box<Expr>),
    /// All columns of a table.
    All(ast::ObjectName),
}

/// A column among those that the query for the rows lists: its place there, its name in the result, and its reserved
/// name.
struct Listed {
    place: usize,
    name: String,
    own: ast::Ident,
}

impl Beside {
    /// The items of `modify`'s RETURNING that are no columns of `schema`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for `*` over tables that are joined by columns of one name.
    pub fn of(modify: &Modify, schema: &TableSchema) -> Result<Self> {
        let mut beside = Self::default();
        if modify.from.is_empty() || modify.returning.is_empty() {
            return Ok(beside);
        }
        for item in modify.returning.clone() {
            beside.rewritten(modify, schema, item)?;
        }
        Ok(beside)
    }

    /// The items appended to the list of the query for the rows.
    pub fn items(&self) -> Vec<SelectItem> {
        let mut items = Vec::with_capacity(self.slots.len());
        for (number, slot) in self.slots.iter().enumerate() {
            let (expr, all) = match slot {
                Named::Column(column) => (Expr::clone(column), None),
                // It marks where the columns of the table begin.
                Named::All(table) => (Expr::value(ast::Value::Null), Some(table)),
            };
            items.push(SelectItem::ExprWithAlias { expr, alias: slot_name(number) });
            items.extend(all.map(|table| {
                let kind = ast::SelectItemQualifiedWildcardKind::ObjectName(table.clone());
                SelectItem::QualifiedWildcard(kind, ast::WildcardAdditionalOptions::default())
            }));
        }
        items
    }

    /// The query of the RETURNING list, and the rows that it reads: `rows` of the table with the appended columns
    /// `beside`.
    ///
    /// # Errors
    /// What a query cannot have.
    pub fn returned(
        modify: &Modify,
        schema: &TableSchema,
        rows: &RecordBatch,
        beside: &RecordBatch,
    ) -> Result<(Box<ast::Query>, RecordBatch)> {
        let mut all = Self::of(modify, schema)?;
        let listed = all.listed(beside.schema_ref());
        let mut items = Vec::new();
        for item in modify.returning.clone() {
            for item in all.rewritten(modify, schema, item)? {
                match item {
                    Rewritten::Item(item) => items.push(*item),
                    Rewritten::All(number) => {
                        let columns = listed.get(number).map(Vec::as_slice).unwrap_or_default();
                        items.extend(columns.iter().map(|column| SelectItem::ExprWithAlias {
                            expr: Expr::Identifier(column.own.clone()),
                            alias: ast::Ident::with_quote('"', &column.name),
                        }));
                    }
                }
            }
        }
        let query = over_target(&modify.target_name(), items, Vec::new(), None)?;
        refuse_in_query(&query)?;
        let mut fields: Vec<FieldRef> = rows.schema_ref().fields().iter().cloned().collect();
        let mut columns: Vec<ArrayRef> = rows.columns().to_vec();
        for column in listed.iter().flatten() {
            let array = beside.column(column.place);
            fields.push(Arc::new(Field::new(&column.own.value, array.data_type().clone(), true)));
            columns.push(Arc::clone(array));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        let schema = Arc::new(Schema::new(fields));
        Ok((query, RecordBatch::try_new_with_options(schema, columns, &options)?))
    }

    /// For each item, its columns among `listed`.
    fn listed(&self, listed: &Schema) -> Vec<Vec<Listed>> {
        let mut slots: Vec<Vec<Listed>> = self.slots.iter().map(|_| Vec::new()).collect();
        let mut fields = listed.fields().iter().enumerate().peekable();
        for (number, slot) in self.slots.iter().enumerate() {
            let Some((place, _)) = fields.next() else { break };
            let Some(columns) = slots.get_mut(number) else { break };
            if let Named::Column(_) = slot {
                columns.push(Listed { place, name: String::new(), own: slot_name(number) });
                continue;
            }
            while let Some((place, field)) =
                fields.next_if(|(_, field)| !field.name().starts_with(BESIDE))
            {
                let own = format!("{BESIDE}{number} {}", columns.len());
                let own = ast::Ident::with_quote('"', own);
                columns.push(Listed { place, name: field.name().clone(), own });
            }
        }
        slots
    }

    /// An item of RETURNING, rewritten for rows with the appended columns.
    fn rewritten(
        &mut self,
        modify: &Modify,
        schema: &TableSchema,
        mut item: SelectItem,
    ) -> Result<Vec<Rewritten>> {
        let target = modify.target_name();
        let own = || {
            schema.columns.iter().map(|column| {
                let parts = [target.clone(), ast::Ident::with_quote('"', &column.name)];
                let column = Expr::CompoundIdentifier(parts.to_vec());
                Rewritten::Item(Box::new(SelectItem::UnnamedExpr(column)))
            })
        };
        match &item {
            SelectItem::Wildcard(_) => {
                let mut tables = Vec::new();
                modify.from.iter().try_for_each(|joined| names_of(joined, &mut tables))?;
                let mut all: Vec<Rewritten> = own().collect();
                all.extend(tables.into_iter().map(|table| Rewritten::All(self.all_of(table))));
                return Ok(all);
            }
            SelectItem::QualifiedWildcard(
                ast::SelectItemQualifiedWildcardKind::ObjectName(name),
                _,
            ) => {
                let is_target = matches!(name.0.as_slice(),
                    [ast::ObjectNamePart::Identifier(name)] if fold(name) == fold(&target));
                return Ok(match is_target {
                    true => own().collect(),
                    false => vec![Rewritten::All(self.all_of(name.clone()))],
                });
            }
            _ => {}
        }
        let name = item_name(&item);
        let (target, inner) = (fold(&target), Vec::new());
        let mut columns = Columns { beside: self, schema, target, inner };
        let _: ControlFlow<()> = visit_mut(&mut item, &mut columns);
        let item = match (item, name) {
            (SelectItem::UnnamedExpr(expr), Some(name)) => {
                SelectItem::ExprWithAlias { expr, alias: ast::Ident::with_quote('"', name) }
            }
            (item, _) => item,
        };
        Ok(vec![Rewritten::Item(Box::new(item))])
    }

    fn all_of(&mut self, table: ast::ObjectName) -> usize {
        self.number_of(Named::All(table))
    }

    fn number_of(&mut self, slot: Named) -> usize {
        let known = self.slots.iter().position(|known| *known == slot);
        known.unwrap_or_else(|| {
            self.slots.push(slot);
            self.slots.len() - 1
        })
    }
}

/// The replacement of an item of RETURNING.
enum Rewritten {
    Item(Box<SelectItem>),
    /// All columns of the item with this number.
    All(usize),
}

fn slot_name(number: usize) -> ast::Ident {
    ast::Ident::with_quote('"', format!("{BESIDE}{number}"))
}

/// Replaces columns of other tables by their reserved names. In a subquery a name without a table is one of its own, or
/// the changed row's.
struct Columns<'a> {
    beside: &'a mut Beside,
    schema: &'a TableSchema,
    target: String,
    /// The table names in the enclosing subqueries.
    inner: Vec<BTreeSet<String>>,
}

impl VisitorMut for Columns<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut ast::Query) -> ControlFlow<()> {
        self.inner.push(called_in(query));
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut ast::Query) -> ControlFlow<()> {
        self.inner.pop();
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        let is_inner = |table: &str| self.inner.iter().any(|called| called.contains(table));
        let is_own = match &*expression {
            Expr::Identifier(_) if !self.inner.is_empty() => return ControlFlow::Continue(()),
            Expr::Identifier(name) => self.schema.column(&fold(name)).is_some(),
            Expr::CompoundIdentifier(parts) => match parts.as_slice() {
                [table, _] if fold(table) == self.target || is_inner(&fold(table)) => {
                    return ControlFlow::Continue(());
                }
                _ => false,
            },
            _ => return ControlFlow::Continue(()),
        };
        let number = self.beside.number_of(Named::Column(Box::new(expression.clone())));
        if !is_own {
            *expression = Expr::Identifier(slot_name(number));
        }
        ControlFlow::Continue(())
    }
}

/// The names of the tables of `joined` in a statement, in order.
fn names_of(joined: &ast::TableWithJoins, names: &mut Vec<ast::ObjectName>) -> Result<()> {
    name_of(&joined.relation, names)?;
    for join in &joined.joins {
        use ast::JoinOperator as Op;
        let (Op::Join(constraint)
        | Op::Inner(constraint)
        | Op::Left(constraint)
        | Op::LeftOuter(constraint)
        | Op::CrossJoin(constraint)) = &join.join_operator
        else {
            name_of(&join.relation, names)?;
            continue;
        };
        if matches!(constraint, ast::JoinConstraint::Using(_) | ast::JoinConstraint::Natural) {
            return Err(Error::Unsupported {
                what: "RETURNING * beside JOIN with USING or NATURAL".to_owned(),
                hint: Some("list the columns".to_owned()),
                position: None,
            });
        }
        name_of(&join.relation, names)?;
    }
    Ok(())
}

fn name_of(factor: &ast::TableFactor, names: &mut Vec<ast::ObjectName>) -> Result<()> {
    use ast::TableFactor as Factor;
    let alias = match factor {
        Factor::Table { alias: Some(alias), .. }
        | Factor::Derived { alias: Some(alias), .. }
        | Factor::TableFunction { alias: Some(alias), .. }
        | Factor::Function { alias: Some(alias), .. }
        | Factor::UNNEST { alias: Some(alias), .. }
        | Factor::NestedJoin { alias: Some(alias), .. } => &alias.name,
        Factor::Table { name, .. } => match name.0.last() {
            Some(ast::ObjectNamePart::Identifier(name)) => name,
            _ => return Err(Error::unsupported("RETURNING * beside a table of this kind")),
        },
        Factor::NestedJoin { table_with_joins, alias: None } => {
            return names_of(table_with_joins, names);
        }
        _ => return Err(Error::unsupported("RETURNING * beside a table without a name")),
    };
    names.push(ast::ObjectName::from(vec![alias.clone()]));
    Ok(())
}
