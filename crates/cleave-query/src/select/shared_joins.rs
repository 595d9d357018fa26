//! Equal joins of one statement run once: an optimised plan in; out, the plan over tables that stand for them, and a
//! plan of each of them, which runs as a query of WITH does ([`with_parts`](super::with_parts)).
//!
//! ```text
//!  SELECT k, sum(v) FROM a, b WHERE a.k = b.k AND b.x = 1 GROUP BY k
//!  HAVING sum(v) > (SELECT sum(v) / 9 FROM a, b WHERE a.k = b.k AND b.x = 1)
//!    ─▶ part: SELECT a.k, a.v FROM a, b WHERE a.k = b.k AND b.x = 1
//!       main: Aggregate … over the part, HAVING … the aggregate over the part
//! ```
//!
//! 1. A [`Block`] is a tree of inner joins, filters and columns over different whole tables. Blocks are equal if they
//!    have the same tables and the same conditions, in whichever order the text has them; their columns may differ.
//! 2. [`shared`] looks for blocks that are equal, of which one is read whole: by an aggregate of a subquery that runs
//!    once, without a join above that would restrict it by its keys. That one makes all rows anyhow. Without it, rows
//!    that no reader wants could be made and kept.
//! 3. The block is rebuilt with the columns of all its uses, and optimised anew.
//!
//! Invariant: a block has no volatile function, no parameter and no subquery, and every use has the same rows.

use cleave_fragment::walk::{Walk, WalkPlan};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cleave_catalog::catalog::DeviceId;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, JoinType, NullEquality, TableReference};
use datafusion::datasource::source_as_provider;
use datafusion::error::Result;
use datafusion::logical_expr::expr::Alias;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{
    BinaryExpr, Expr, LogicalPlan, LogicalPlanBuilder, Operator, Projection, TableSource,
};

use super::table_provider::CleaveTable;
use super::with_parts;

/// Most tables of a block; conditions are compared as texts.
const TABLE_COUNT_MAX: usize = 12;

/// Most operators of a plan: each may be looked at once for each operator above it.
const OPERATOR_COUNT_MAX: usize = 300;

/// A join that several places of a plan make.
#[derive(Debug)]
pub(super) struct SharedJoin {
    /// Its number among the parts of the statement.
    pub(super) number: usize,
    pub(super) name: String,
    /// All columns that are read of it; not optimised.
    pub(super) plan: LogicalPlan,
    /// Devices of its tables.
    pub(super) devices: BTreeSet<DeviceId>,
}

/// Inner joins of different tables.
#[derive(Clone)]
struct Block {
    tables: BTreeMap<String, Arc<dyn TableSource>>,
    /// Over the columns of the tables by their own names, each once and with its text. They keep the order of the
    /// query: a condition may guard the next one from an error.
    conditions: Vec<(String, Expr)>,
    /// The column of a table that each of its columns is.
    columns: Vec<Column>,
}

/// Which blocks are equal: their tables, and the texts of their conditions.
type BlockKey = (Vec<(String, u32)>, Vec<String>);

/// Where the blocks of a plan are.
#[derive(Default)]
struct Uses {
    /// The columns of each block, how often it is used, and whether one use makes all its rows.
    of: BTreeMap<BlockKey, (Block, usize, bool)>,
}

/// The joins that `plan` makes several times, and `plan` over the parts that stand for them, which are numbered from
/// `first` on. `None` if there are none.
pub(super) fn shared(
    plan: &LogicalPlan,
    first: usize,
) -> Result<Option<(LogicalPlan, Vec<SharedJoin>)>> {
    let (mut subqueries, mut operator_count) = (Vec::new(), 0);
    note_subqueries(plan, &mut subqueries, &mut operator_count)?;
    if subqueries.is_empty() || operator_count > OPERATOR_COUNT_MAX {
        return Ok(None);
    }
    let mut uses = Uses::default();
    uses.note_all(plan, false);
    for subquery in &subqueries {
        uses.note_all(subquery, true);
    }
    let mut parts: BTreeMap<BlockKey, Part> = BTreeMap::new();
    let mut joins = Vec::new();
    for (key, (block, count, is_whole)) in uses.of {
        if count < 2 || !is_whole {
            continue;
        }
        let number = first + joins.len();
        let columns: BTreeSet<Column> = block.columns.iter().cloned().collect();
        let columns: Vec<Column> = columns.into_iter().collect();
        let mut names: Vec<String> = columns.iter().map(Column::flat_name).collect();
        names.sort_unstable();
        names.dedup();
        if names.len() < columns.len() {
            continue;
        }
        let name = block.tables.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        let plan = block.plan(&columns)?;
        let source = with_parts::part_source(number, &plan);
        let devices = block.devices();
        joins.push(SharedJoin { number, name, plan, devices });
        parts.insert(key, Part { number, columns, source, block });
    }
    if joins.is_empty() {
        return Ok(None);
    }
    let replaced = plan.clone().transform_down_everywhere(|node| {
        let Some(block) = Block::of(&node).filter(Block::is_join) else {
            return Ok(Transformed::no(node));
        };
        // Its own joins were not counted.
        let next = TreeNodeRecursion::Jump;
        match parts.get(&block.key()).filter(|part| part.block.has_conditions_of(&block)) {
            Some(part) => Ok(Transformed::new(part.read(&node, &block)?, true, next)),
            None => Ok(Transformed::new(node, false, next)),
        }
    })?;
    Ok(Some((replaced.data, joins)))
}

/// What stands for equal blocks.
struct Part {
    number: usize,
    columns: Vec<Column>,
    source: Arc<dyn TableSource>,
    block: Block,
}

impl Part {
    /// The rows of `node`, which is `block`, read from it.
    fn read(&self, node: &LogicalPlan, block: &Block) -> Result<LogicalPlan> {
        let place = |column: &Column| self.columns.iter().position(|own| own == column);
        let read: Option<BTreeSet<usize>> = block.columns.iter().map(place).collect();
        let read = read.map(|read| read.into_iter().collect());
        let part = TableReference::bare(with_parts::part_name(self.number));
        let source = Arc::clone(&self.source);
        let scan = LogicalPlanBuilder::scan(part.clone(), source, read)?.build()?;
        let fields = block.columns.iter().zip(node.schema().iter());
        let own = fields.map(|(column, (relation, field))| {
            let read = Expr::Column(Column::new(Some(part.clone()), column.flat_name()));
            read.alias_qualified(relation.cloned(), field.name())
        });
        let own = own.collect();
        Ok(LogicalPlan::Projection(Projection::try_new(own, Arc::new(scan))?))
    }
}

/// Subqueries of `plan` that run once, also those in them.
fn note_subqueries(
    plan: &LogicalPlan,
    noted: &mut Vec<Arc<LogicalPlan>>,
    operator_count: &mut usize,
) -> Result<()> {
    plan.apply(|node| {
        *operator_count += 1;
        node.each_expression(|expression| {
            expression.apply(|expression| {
                if let Expr::ScalarSubquery(subquery) = expression
                    && subquery.outer_ref_columns.is_empty()
                {
                    noted.push(Arc::clone(&subquery.subquery));
                    note_subqueries(&subquery.subquery, noted, operator_count)?;
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(())
}

impl Uses {
    /// Notes the largest blocks of `plan`; `is_whole`: nothing above restricts its rows.
    fn note_all(&mut self, plan: &LogicalPlan, is_whole: bool) {
        if let Some(block) = Block::of(plan).filter(Block::is_join) {
            let columns = block.columns.clone();
            let entry = self.of.entry(block.key());
            let (known, count, is_any_whole) = entry.or_insert_with(|| (block.clone(), 0, false));
            if !known.has_conditions_of(&block) {
                return;
            }
            known.columns.extend(columns);
            *count += 1;
            *is_any_whole |= is_whole;
            return;
        }
        let is_whole = is_whole
            && match plan {
                LogicalPlan::Projection(_)
                | LogicalPlan::Aggregate(_)
                | LogicalPlan::Filter(_)
                | LogicalPlan::SubqueryAlias(_) => true,
                LogicalPlan::Sort(sort) => sort.fetch.is_none(),
                _ => false,
            };
        for input in plan.inputs() {
            self.note_all(input, is_whole);
        }
    }
}

impl Block {
    /// `plan`, if it is one.
    fn of(plan: &LogicalPlan) -> Option<Self> {
        match plan {
            LogicalPlan::TableScan(scan) => {
                let provider = source_as_provider(&scan.source).ok()?;
                let table = provider.downcast_ref::<CleaveTable>()?.plain_name()?;
                if scan.fetch.is_some() {
                    return None;
                }
                let relation = TableReference::bare(table);
                let name = |field: &str| Column::new(Some(relation.clone()), field);
                let columns = scan.projected_schema.fields().iter().map(|field| name(field.name()));
                let mut block = Self {
                    tables: BTreeMap::from([(table.to_owned(), Arc::clone(&scan.source))]),
                    conditions: Vec::new(),
                    columns: columns.collect(),
                };
                for filter in &scan.filters {
                    block.add(renamed(filter, |column| Some(name(&column.name)))?);
                }
                Some(block)
            }
            LogicalPlan::SubqueryAlias(alias) => Self::of(&alias.input),
            LogicalPlan::Projection(projection) => {
                let mut block = Self::of(&projection.input)?;
                let places = projection.expr.iter().map(|expression| {
                    let column = plain_column(expression)?;
                    projection.input.schema().maybe_index_of_column(column)
                });
                let columns = places.map(|place| block.columns.get(place?).cloned());
                block.columns = columns.collect::<Option<_>>()?;
                Some(block)
            }
            LogicalPlan::Filter(filter) => {
                let mut block = Self::of(&filter.input)?;
                let condition = block.renamed(&filter.predicate, filter.input.schema())?;
                block.add(condition);
                Some(block)
            }
            LogicalPlan::Join(join)
                if join.join_type == JoinType::Inner
                    && join.null_equality == NullEquality::NullEqualsNothing =>
            {
                let (mut block, right) = (Self::of(&join.left)?, Self::of(&join.right)?);
                let mut conditions = Vec::new();
                for (a, b) in &join.on {
                    let a = block.renamed(a, join.left.schema())?;
                    let b = right.renamed(b, join.right.schema())?;
                    let (a, b) = if a.to_string() <= b.to_string() { (a, b) } else { (b, a) };
                    let (left, right) = (Box::new(a), Box::new(b));
                    conditions.push(Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }));
                }
                for (table, source) in right.tables {
                    // A table that is joined with itself has several rows at a time.
                    block.tables.insert(table, source).is_none().then_some(())?;
                }
                (block.tables.len() <= TABLE_COUNT_MAX).then_some(())?;
                right.conditions.into_iter().for_each(|(_, condition)| block.add(condition));
                block.columns.extend(right.columns);
                if let Some(filter) = &join.filter {
                    conditions.push(block.renamed(filter, &join.schema)?);
                }
                conditions.into_iter().for_each(|condition| block.add(condition));
                Some(block)
            }
            _ => None,
        }
    }

    fn devices(&self) -> BTreeSet<DeviceId> {
        let tables = self.tables.values().filter_map(|source| source_as_provider(source).ok());
        let devices = tables.flat_map(|table| {
            let table = table.downcast_ref::<CleaveTable>().map(CleaveTable::table_state);
            let tablets = table.map(|table| table.tablets.iter().map(|tablet| tablet.device));
            tablets.into_iter().flatten().collect::<Vec<_>>()
        });
        devices.collect()
    }

    fn is_join(&self) -> bool {
        self.tables.len() > 1
    }

    fn key(&self) -> BlockKey {
        let id = |table: &CleaveTable| table.table_state().schema.table_id;
        let tables = self.tables.iter().map(|(name, source)| {
            let provider = source_as_provider(source).ok();
            let table = provider.as_ref().and_then(|table| table.downcast_ref::<CleaveTable>());
            (name.clone(), table.map_or(0, id))
        });
        let mut texts: Vec<String> = self.conditions.iter().map(|(text, _)| text.clone()).collect();
        texts.sort_unstable();
        (tables.collect(), texts)
    }

    /// Whether it has the conditions of `other`, which has the same texts: different ones may have one text.
    fn has_conditions_of(&self, other: &Self) -> bool {
        self.conditions.iter().all(|condition| other.conditions.contains(condition))
    }

    /// Adds a condition, each side of AND by itself.
    fn add(&mut self, condition: Expr) {
        for condition in datafusion::logical_expr::utils::split_conjunction_owned(condition) {
            let condition = (condition.to_string(), condition);
            if !self.conditions.contains(&condition) {
                self.conditions.push(condition);
            }
        }
    }

    /// `expression`, which is over columns of `schema`, over those of the tables.
    fn renamed(&self, expression: &Expr, schema: &DFSchema) -> Option<Expr> {
        renamed(expression, |column| {
            self.columns.get(schema.maybe_index_of_column(column)?).cloned()
        })
    }

    /// A query of these `columns` of it.
    fn plan(&self, columns: &[Column]) -> Result<LogicalPlan> {
        let mut all: Option<LogicalPlanBuilder> = None;
        for (table, source) in &self.tables {
            let relation = TableReference::bare(table.as_str());
            let scan = LogicalPlanBuilder::scan(relation, Arc::clone(source), None)?;
            all = Some(match all {
                Some(all) => all.cross_join(scan.build()?)?,
                None => scan,
            });
        }
        let Some(mut all) = all else {
            return datafusion::common::internal_err!("a join of no tables");
        };
        if let Some(condition) =
            conjunction(self.conditions.iter().map(|(_, condition)| condition.clone()))
        {
            all = all.filter(condition)?;
        }
        let own = columns.iter().map(|column| {
            Expr::Column(column.clone()).alias_qualified(None::<TableReference>, column.flat_name())
        });
        all.project(own.collect::<Vec<_>>())?.build()
    }
}

/// The column that `expression` passes on.
fn plain_column(expression: &Expr) -> Option<&Column> {
    match expression {
        Expr::Column(column) => Some(column),
        Expr::Alias(Alias { expr, .. }) => plain_column(expr),
        _ => None,
    }
}

/// `expression` with other columns; `None` if it may give other results elsewhere.
fn renamed(expression: &Expr, name: impl Fn(&Column) -> Option<Column>) -> Option<Expr> {
    let mut is_plain = true;
    let renamed = expression.clone().transform_up(|expression| {
        is_plain &= !expression.is_volatile_node();
        Ok(match expression {
            Expr::Column(column) => match name(&column) {
                Some(column) => Transformed::yes(Expr::Column(column)),
                None => {
                    is_plain = false;
                    Transformed::no(Expr::Column(column))
                }
            },
            Expr::Placeholder(_)
            | Expr::OuterReferenceColumn(..)
            | Expr::ScalarSubquery(_)
            | Expr::Exists(_)
            | Expr::InSubquery(_)
            | Expr::SetComparison(_) => {
                is_plain = false;
                Transformed::no(expression)
            }
            other => Transformed::no(other),
        })
    });
    renamed.ok().filter(|_| is_plain).map(|renamed| renamed.data)
}
