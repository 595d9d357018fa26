//! Where columns of a result come from: clients edit rows by the table and column that a result names, and show lengths
//! by its modifiers. A bound plan in, its schema with a note on each column that is one of a table or view out.
//!
//! A column that is computed, or of a set operation, has none, as in PostgreSQL. One of a view is the view's.

use std::collections::HashMap;
use std::sync::Arc;

use cleave_catalog::catalog::CatalogState;
use cleave_store::{ColumnType, TableSchema};
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::logical_expr::{Expr, JoinType, LogicalPlan};

use super::pg_catalog::{table_oid, type_of};
use super::table_provider::SCHEMA;

const KEY: &str = "cleave.origin";

/// The column of a table from which a column of a result comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColumnOrigin {
    /// The number of the table.
    pub table: u32,
    /// The number of the column in it, from 1.
    pub column: i16,
    /// The number of its type.
    pub type_oid: u32,
    /// The type's modifier; -1: it has none.
    pub modifier: i32,
}

impl ColumnOrigin {
    /// That of a column of a described result; None: it is computed.
    #[must_use]
    pub fn of(field: &Field) -> Option<Self> {
        let mut parts = field.metadata().get(KEY)?.split(' ');
        let origin = Self {
            table: parts.next()?.parse().ok()?,
            column: parts.next()?.parse().ok()?,
            type_oid: parts.next()?.parse().ok()?,
            modifier: parts.next()?.parse().ok()?,
        };
        Some(origin)
    }

    /// The type, where a result alone would say `text`.
    #[must_use]
    pub fn text_type(self) -> Option<ColumnType> {
        let length = u32::try_from(self.modifier - 4).ok();
        match self.type_oid {
            1042 => length.map(ColumnType::Char),
            1043 => Some(ColumnType::Varchar(length)),
            _ => None,
        }
    }

    fn new(schema: &TableSchema, place: usize) -> Option<Self> {
        let column = schema.columns.get(place)?;
        let (type_oid, modifier) = type_of(column.column_type);
        Some(Self {
            table: u32::try_from(table_oid(schema)).ok()?,
            column: i16::try_from(place + 1).ok()?,
            type_oid: u32::try_from(type_oid).ok()?,
            modifier: i32::try_from(modifier).ok()?,
        })
    }
}

/// The origins of the columns of `plan`.
pub(super) fn origins(plan: &LogicalPlan, state: &CatalogState) -> Vec<Option<ColumnOrigin>> {
    (0..plan.schema().fields().len()).map(|place| origin(plan, place, state)).collect()
}

/// `schema` with the origins of its columns.
pub(super) fn noted(schema: &SchemaRef, origins: &[Option<ColumnOrigin>]) -> SchemaRef {
    if schema.fields().len() != origins.len() {
        return Arc::clone(schema);
    }
    let fields = schema.fields().iter().zip(origins).map(|(field, origin)| {
        let note = origin.map(|ColumnOrigin { table, column, type_oid, modifier }| {
            (KEY.to_owned(), format!("{table} {column} {type_oid} {modifier}"))
        });
        Field::clone(field).with_metadata(HashMap::from_iter(note))
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

fn origin(plan: &LogicalPlan, place: usize, state: &CatalogState) -> Option<ColumnOrigin> {
    let (mut plan, mut place) = (plan, place);
    // Each step goes down: a plan has an end.
    loop {
        match plan {
            LogicalPlan::TableScan(scan) => {
                // Tables of the catalog may have the names of others.
                if scan.table_name.schema().is_some_and(|schema| schema != SCHEMA) {
                    return None;
                }
                let table = state.table(scan.table_name.table())?;
                let name = scan.projected_schema.fields().get(place)?.name();
                let own = table.schema.columns.iter().position(|column| column.name == *name)?;
                return ColumnOrigin::new(&table.schema, own);
            }
            LogicalPlan::SubqueryAlias(alias) => {
                if let Some(view) = state.view(alias.alias.table())
                    && !matches!(*alias.input, LogicalPlan::TableScan(_))
                    && view.schema.columns.len() == plan.schema().fields().len()
                {
                    return ColumnOrigin::new(&view.schema, place);
                }
            }
            _ => {}
        }
        (plan, place) = below(plan, place)?;
    }
}

/// The input of `plan`, and the place in it, from which the column at `place` comes unchanged; None: it is computed, or
/// that of a table.
pub(super) fn below(plan: &LogicalPlan, place: usize) -> Option<(&LogicalPlan, usize)> {
    match plan {
        LogicalPlan::SubqueryAlias(alias) => Some((&alias.input, place)),
        LogicalPlan::Projection(projection) => {
            let place = column_of(projection.expr.get(place)?, &projection.input)?;
            Some((&projection.input, place))
        }
        LogicalPlan::Aggregate(aggregate) => {
            let place = column_of(aggregate.group_expr.get(place)?, &aggregate.input)?;
            Some((&aggregate.input, place))
        }
        LogicalPlan::Filter(filter) => Some((&filter.input, place)),
        LogicalPlan::Sort(sort) => Some((&sort.input, place)),
        LogicalPlan::Limit(limit) => Some((&limit.input, place)),
        LogicalPlan::Join(join) => {
            use JoinType as Type;
            let left = join.left.schema().fields().len();
            match join.join_type {
                Type::Inner | Type::Left | Type::Right | Type::Full if place >= left => {
                    Some((&join.right, place - left))
                }
                Type::Inner
                | Type::Left
                | Type::Right
                | Type::Full
                | Type::LeftSemi
                | Type::LeftAnti
                | Type::LeftMark
                    if place < left =>
                {
                    Some((&join.left, place))
                }
                _ => None,
            }
        }
        _ => None,
    }
}

/// The place of the column that `expression` is in the rows of `input`.
fn column_of(expression: &Expr, input: &LogicalPlan) -> Option<usize> {
    match expression {
        Expr::Column(column) => input.schema().maybe_index_of_column(column),
        Expr::Alias(alias) => column_of(&alias.expr, input),
        _ => None,
    }
}
