//! Takes inner-join trees of a logical plan apart, orders them, and puts them together again.

use cleave_fragment::walk::{Walk, WalkPlan};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use datafusion_common::tree_node::{Transformed, TransformedResult, TreeNodeRecursion};
use datafusion_common::{Column, NullEquality, Result};
use datafusion_expr::utils::{conjunction, split_conjunction_owned};
use datafusion_expr::{
    Expr, ExprSchemable, Join, JoinConstraint, JoinType, LogicalPlan, LogicalPlanBuilder,
};

use super::by_site::{LeafCost, RowBytes, SiteCosts, orders_by_site};
use super::enumerate::{JoinTree, PAIR_COUNT_MAX, Search};
use super::graph::{JoinGraph, KeyClass, LEAF_COUNT_MAX, LeafSet, Member};
use super::predict_order::Orders;
use super::samples::{KeyColumns, expect_keys, expect_samples};
use crate::TableFacts;
use crate::cardinality::{LeafEstimate, LeafKey, PlanEstimates, estimate_leaf, selectivity};
use crate::cost::Limits;
use crate::profile::Profile;
use crate::split::type_bytes;
use crate::statistics::KeySample;

/// Most orders that are offered beside the one with the least work: each costs a physical plan.
pub const OTHERS_MAX: usize = 1;

/// A plan whose inner joins are in the order with the least work.
#[derive(Debug, Clone)]
pub struct Reordered {
    /// The plan.
    pub cheapest: Ordered,
    /// The statement's names for the inputs of its inner joins; empty: it has none.
    pub names: BTreeSet<String>,
    /// Whether some of its inner joins could not be put in order: they have no chosen build side.
    pub keeps_joins: bool,
    /// The plan as it was.
    unordered: LogicalPlan,
    /// Its trees of inner joins in the order in which they are met.
    trees: Vec<SearchedTree>,
}

/// A plan with its inner joins in some order.
#[derive(Debug, Clone)]
pub struct Ordered {
    /// The same columns in the same order as before.
    pub plan: LogicalPlan,
    /// The estimates of its leaves and joins.
    pub estimates: PlanEstimates,
    /// Its trees of inner joins, in words: of each join what builds, then what probes.
    pub orders: Vec<String>,
}

/// Orders beside the one with the least work.
#[derive(Debug, Clone)]
pub struct Others {
    /// How many orders of all trees were looked at, those with the least work included.
    pub looked_at: usize,
    /// Orders that may be done sooner, the most promising first.
    pub orders: Vec<Ordered>,
}

/// Reorders every tree of inner joins in `plan`. Inputs that `leading` names are joined first in their tree, in that
/// order.
pub fn reorder_joins(
    plan: LogicalPlan,
    leading: &[String],
    facts: &dyn TableFacts,
) -> Result<Reordered> {
    let source = Source::Search { leading, facts };
    let mut so_far = SoFar { trees: Vec::new(), keeps_joins: false, source };
    let ordered = reorder(plan.clone(), &mut so_far)?;
    so_far.keeps_joins |= has_joins_apart(&plan)?;
    let SoFar { trees, keeps_joins, .. } = so_far;
    let names = trees.iter().flat_map(|tree| tree.names.iter().flatten().cloned()).collect();
    let orders: Vec<JoinTree> = trees.iter().map(|tree| tree.cheapest.clone()).collect();
    let cheapest = Ordered::new(ordered, &trees, &orders);
    Ok(Reordered { cheapest, names, keeps_joins, unordered: plan, trees })
}

impl Reordered {
    /// Whether there is an order to choose: two tables have none.
    pub fn has_orders(&self) -> bool {
        self.trees.iter().any(|tree| tree.names.len() > 2)
    }

    /// The same plan in other orders that may be done sooner where devices run the first joins, the most promising
    /// first: at most [`OTHERS_MAX`]. `leaf` says what reading a leaf costs, `profile` and `limits` what both sides
    /// have; each is expected to take at most `share_max` of the time.
    ///
    /// # Errors
    /// Those of putting the plan together.
    pub fn others(
        &self,
        leaf: impl Fn(&LeafKey) -> Option<LeafCost>,
        (profile, limits): (&Profile, &Limits),
        share_max: f64,
    ) -> Result<Others> {
        let sides = (profile, limits);
        let (mut offers, mut looked_at) = (Vec::with_capacity(self.trees.len()), 0);
        for tree in &self.trees {
            let (of_tree, count) = tree.offers(&leaf, sides, share_max);
            looked_at += count;
            offers.push(of_tree);
        }
        let count = offers.iter().map(Vec::len).max().unwrap_or(0);
        let other = |place: usize| {
            let of_tree = |(tree, offers): (&SearchedTree, &Vec<JoinTree>)| {
                offers.get(place).unwrap_or(&tree.cheapest).clone()
            };
            let orders: Vec<JoinTree> = self.trees.iter().zip(&offers).map(of_tree).collect();
            let source = Source::Known { trees: &self.trees, orders: &orders };
            let mut so_far = SoFar { trees: Vec::new(), keeps_joins: false, source };
            let plan = reorder(self.unordered.clone(), &mut so_far)?;
            Ok(Ordered::new(plan, &self.trees, &orders))
        };
        let orders = (0..count).map(other).collect::<Result<_>>()?;
        Ok(Others { looked_at, orders })
    }
}

impl Ordered {
    fn new(plan: LogicalPlan, trees: &[SearchedTree], orders: &[JoinTree]) -> Self {
        let mut estimates = PlanEstimates::default();
        let mut texts = Vec::with_capacity(orders.len());
        for (tree, order) in trees.iter().zip(orders) {
            remember(order, tree.search.graph(), &tree.leaves, &mut estimates);
            texts.push(tree.in_words(order));
        }
        Self { plan, estimates, orders: texts }
    }
}

/// The result for one tree of inner joins.
#[derive(Debug, Clone)]
struct SearchedTree {
    search: Search,
    cheapest: JoinTree,
    leaves: Vec<LeafEstimate>,
    /// What the statement calls each leaf.
    names: Vec<Option<String>>,
    row_bytes: RowBytes,
}

impl SearchedTree {
    /// Other orders that are predicted to take at most `share_max` of the time of the cheapest, the best first; and of
    /// how many orders that was predicted, the cheapest included.
    fn offers(
        &self,
        leaf: impl Fn(&LeafKey) -> Option<LeafCost>,
        (profile, limits): (&Profile, &Limits),
        share_max: f64,
    ) -> (Vec<JoinTree>, usize) {
        let cost = |of: &LeafEstimate| of.key.as_ref().and_then(&leaf);
        let leaves: Vec<Option<LeafCost>> = self.leaves.iter().map(cost).collect();
        let is_far = |leaf: &LeafCost| leaf.device_s.is_some();
        if leaves.len() < 3 || !leaves.iter().flatten().any(is_far) {
            return (Vec::new(), 0);
        }
        let (graph, row_bytes) = (self.search.graph(), &self.row_bytes);
        let orders = Orders { graph, leaves: &leaves, row_bytes, profile, limits };
        let of_cheapest = orders.finish_s(&self.cheapest);
        let costs = SiteCosts::of(profile, limits);
        let found = orders_by_site(&self.search, &leaves, &self.row_bytes, &costs);
        let looked_at = found.len() + 1;
        let predicted = found.into_iter().map(|tree| (orders.finish_s(&tree), tree));
        let mut sooner: Vec<(f64, JoinTree)> =
            predicted.filter(|(finish_s, _)| *finish_s <= share_max * of_cheapest).collect();
        sooner.sort_by(|a, b| a.0.total_cmp(&b.0));
        (sooner.into_iter().take(OTHERS_MAX).map(|(_, tree)| tree).collect(), looked_at)
    }

    /// `order` with the names of leaves, as `(a b) c`.
    fn in_words(&self, order: &JoinTree) -> String {
        let input = |tree: &JoinTree| match tree {
            JoinTree::Leaf(_) => self.in_words(tree),
            JoinTree::Join(..) => format!("({})", self.in_words(tree)),
        };
        match order {
            JoinTree::Leaf(leaf) => {
                let name = self.names.get(*leaf).and_then(Option::as_deref);
                name.unwrap_or("(subquery)").to_owned()
            }
            JoinTree::Join(build, probe) => format!("{} {}", input(build), input(probe)),
        }
    }
}

/// The inputs for all trees, and the results of those that are done.
struct SoFar<'a> {
    /// The trees searched so far.
    trees: Vec<SearchedTree>,
    /// Whether a tree was left as it is.
    keeps_joins: bool,
    source: Source<'a>,
}

/// Where the order of a tree comes from.
enum Source<'a> {
    /// A search for the least work.
    Search { leading: &'a [String], facts: &'a dyn TableFacts },
    /// These orders of these trees, those that come next.
    Known { trees: &'a [SearchedTree], orders: &'a [JoinTree] },
}

impl Source<'_> {
    /// The order of the next tree, and what joins its leaves; searched now, it is added to `found`.
    fn order(
        &mut self,
        parts: &Parts,
        found: &mut Vec<SearchedTree>,
    ) -> Result<(JoinTree, JoinGraph)> {
        match self {
            Self::Search { leading, facts } => {
                let tree = search(parts, leading, *facts)?;
                let order = (tree.cheapest.clone(), tree.search.graph().clone());
                found.push(tree);
                Ok(order)
            }
            Self::Known { trees, orders } => {
                let (Some((tree, trees_left)), Some((order, orders_left))) =
                    (trees.split_first(), orders.split_first())
                else {
                    return datafusion_common::internal_err!("a join tree that was not searched");
                };
                (*trees, *orders) = (trees_left, orders_left);
                Ok((order.clone(), tree.search.graph().clone()))
            }
        }
    }
}

/// Searches the order of a tree that has been taken apart.
fn search(parts: &Parts, leading: &[String], facts: &dyn TableFacts) -> Result<SearchedTree> {
    let leaves: Vec<LeafEstimate> =
        parts.leaves.iter().map(|leaf| estimate_leaf(leaf, facts)).collect();
    let graph = graph(parts, &leaves, facts);
    let names: Vec<Option<String>> =
        parts.leaves.iter().map(|leaf| leaf_name(leaf).map(str::to_owned)).collect();
    let place = |name: &String| names.iter().position(|leaf| leaf.as_ref() == Some(name));
    let leading: Vec<usize> = leading.iter().filter_map(place).collect();
    let found = Search::run(&graph, &leading, PAIR_COUNT_MAX);
    let Some((search, cheapest)) = found.and_then(|it| it.cheapest().map(|tree| (it, tree))) else {
        return datafusion_common::internal_err!("a join tree without inputs");
    };
    Ok(SearchedTree { search, cheapest, leaves, names, row_bytes: row_bytes(parts) })
}

/// Bytes of the columns of `parts`: what classes make equal is carried once, while there is something to join by it.
fn row_bytes(parts: &Parts) -> RowBytes {
    let mut is_key: BTreeSet<&Column> = BTreeSet::new();
    let mut keys = Vec::with_capacity(parts.classes.len());
    for class in &parts.classes {
        is_key.extend(class.members.iter().flat_map(|(_, expr)| expr.column_refs()));
        let leaves = class.members.iter().fold(0, |set: LeafSet, (leaf, _)| set | (1 << leaf));
        let first = class
            .members
            .first()
            .and_then(|(leaf, expr)| expr.get_type(parts.leaves.get(*leaf)?.schema()).ok());
        keys.push((leaves, first.map_or(0.0, |data_type| type_bytes(&data_type))));
    }
    let carried = parts.leaves.iter().map(|leaf| {
        let columns = leaf
            .schema()
            .iter()
            .filter(|(qualifier, field)| !is_key.contains(&Column::from((*qualifier, *field))));
        columns.map(|(_, field)| type_bytes(field.data_type())).sum()
    });
    RowBytes { carried: carried.collect(), keys }
}

fn reorder(plan: LogicalPlan, so_far: &mut SoFar<'_>) -> Result<LogicalPlan> {
    let reordered = plan.transform_down(|node| {
        if !is_inner_join(&node) {
            return Ok(Transformed::no(node));
        }
        let tree = reorder_tree(node, so_far)?;
        // The leaves are done already; going on into the new tree would not end.
        Ok(Transformed::new(tree, true, TreeNodeRecursion::Jump))
    })?;
    Ok(reordered.data)
}

/// Whether inner joins of `plan` stay as they are: those of subqueries in expressions, and those that may not move.
fn has_joins_apart(plan: &LogicalPlan) -> Result<bool> {
    let mut all = 0;
    plan.apply_everywhere(|node| {
        let is_inner = matches!(node, LogicalPlan::Join(join) if join.join_type == JoinType::Inner
            && join.null_equality == NullEquality::NullEqualsNothing);
        all += usize::from(is_inner);
        Ok(TreeNodeRecursion::Continue)
    })?;
    let mut moved = 0;
    plan.apply(|node| {
        moved += usize::from(is_inner_join(node));
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(moved < all)
}

fn is_inner_join(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::Join(join) if joins_freely(join))
}

/// Whether the inputs of `join` may be joined in any order.
fn joins_freely(join: &Join) -> bool {
    join.join_type == JoinType::Inner
        && join.null_equality == NullEquality::NullEqualsNothing
        && !join.filter.as_ref().is_some_and(Expr::is_volatile)
}

/// A tree of inner joins, taken apart.
#[derive(Default)]
struct Parts {
    leaves: Vec<LogicalPlan>,
    /// Expressions of one leaf each that are all equal.
    classes: Vec<EqualExprs>,
    /// Everything else that joins or filters.
    conditions: Vec<Expr>,
}

/// What equalities make equal.
#[derive(Default)]
struct EqualExprs {
    /// Each expression once, with its leaf.
    members: Vec<(usize, Expr)>,
    /// The equalities as they were written, by members.
    written: Vec<(usize, usize)>,
}

fn reorder_tree(root: LogicalPlan, so_far: &mut SoFar<'_>) -> Result<LogicalPlan> {
    let columns: Vec<Expr> = root.schema().columns().into_iter().map(Expr::Column).collect();
    let mut parts = Parts::default();
    let mut pairs = Vec::new();
    take_apart(root.clone(), &mut parts, &mut pairs)?;
    if shares_columns(&parts.leaves) || parts.leaves.len() > LEAF_COUNT_MAX {
        // A derived table hid one of two columns of one name; in one join they would meet.
        so_far.keeps_joins = true;
        let below = |child| Ok(Transformed::yes(reorder(child, so_far)?));
        return root.map_children(below).data();
    }
    let mut below = |leaf: LogicalPlan| {
        let child = |child| Ok(Transformed::yes(reorder(child, so_far)?));
        leaf.map_children(child).data()
    };
    parts.leaves = parts.leaves.into_iter().map(&mut below).collect::<Result<_>>()?;
    for (left, right) in pairs {
        match (leaf_of(&left, &parts.leaves), leaf_of(&right, &parts.leaves)) {
            (Some(a), Some(b)) if a != b => make_equal(&mut parts.classes, (a, left), (b, right)),
            _ => parts.conditions.push(left.eq(right)),
        }
    }
    let (order, graph) = so_far.source.order(&parts, &mut so_far.trees)?;
    let mut conditions = std::mem::take(&mut parts.conditions);
    let (joined, _) = put_together(&order, &parts, &graph, &mut conditions)?;
    let mut builder = LogicalPlanBuilder::from(joined);
    if let Some(rest) = conjunction(conditions) {
        builder = builder.filter(rest)?;
    }
    builder.project(columns)?.build()
}

/// What the statement calls a leaf: its alias, or the table's name.
fn leaf_name(leaf: &LogicalPlan) -> Option<&str> {
    match leaf {
        LogicalPlan::SubqueryAlias(named) => Some(named.alias.table()),
        LogicalPlan::TableScan(scan) => Some(scan.table_name.table()),
        LogicalPlan::Filter(filter) => leaf_name(&filter.input),
        LogicalPlan::Projection(projection) => leaf_name(&projection.input),
        LogicalPlan::Join(join) => match join.join_type {
            JoinType::LeftSemi | JoinType::LeftAnti => leaf_name(&join.left),
            JoinType::RightSemi | JoinType::RightAnti => leaf_name(&join.right),
            _ => None,
        },
        _ => None,
    }
}

/// Merges two expressions, with their leaves, into one class.
fn make_equal(classes: &mut Vec<EqualExprs>, left: (usize, Expr), right: (usize, Expr)) {
    let take_class = |classes: &mut Vec<EqualExprs>, member: (usize, Expr)| match classes
        .iter()
        .position(|class| class.members.contains(&member))
    {
        Some(place) => classes.remove(place),
        None => EqualExprs { members: vec![member], written: Vec::new() },
    };
    let mut class = take_class(classes, left.clone());
    if !class.members.contains(&right) {
        let other = take_class(classes, right.clone());
        let first = class.members.len();
        class.members.extend(other.members);
        class.written.extend(other.written.iter().map(|(a, b)| (a + first, b + first)));
    }
    let place = |member| class.members.iter().position(|known| known == member);
    if let (Some(left), Some(right)) = (place(&left), place(&right)) {
        class.written.push((left, right));
    }
    classes.push(class);
}

fn graph(parts: &Parts, leaves: &[LeafEstimate], facts: &dyn TableFacts) -> JoinGraph {
    let of_leaf = |condition: &Expr| {
        condition.column_refs().into_iter().fold(0, |set: LeafSet, column| {
            let leaf = parts.leaves.iter().position(|leaf| has_column(leaf, column));
            set | leaf.map_or(0, |leaf| 1 << leaf)
        })
    };
    let conditions = parts.conditions.iter().map(|condition| {
        (of_leaf(condition), selectivity(condition, "", 1.0 / f64::EPSILON, facts))
    });
    let conditions = conditions.filter(|(set, _)| *set != 0).collect();
    let row_counts = leaves.iter().map(|leaf| leaf.row_count).collect();
    let classes = parts.classes.iter().map(|class| key_class(class, leaves, facts)).collect();
    let mut graph = JoinGraph::new(row_counts, classes, conditions);
    let keys: Vec<KeyColumns> = parts.classes.iter().map(key_columns).collect();
    for columns in &keys {
        let known = counted_keys(columns, leaves, facts);
        let known = known.iter().map(|(leaf, column)| (*leaf, column.as_ref())).collect();
        expect_keys(&mut graph, &known);
    }
    expect_samples(&mut graph, leaves, &keys, facts.joined_samples());
    graph
}

/// Of each leaf, the expression with the most distinct values.
fn key_class(class: &EqualExprs, leaves: &[LeafEstimate], facts: &dyn TableFacts) -> KeyClass {
    let sides: Vec<(usize, Side)> = class
        .members
        .iter()
        .filter_map(|(leaf, expr)| Some((*leaf, side(expr, leaves.get(*leaf)?, facts))))
        .collect();
    // The row count stands in for an unknown count, bounded by known ones of others.
    let known = sides.iter().filter_map(|(_, side)| side.distinct_count);
    let most = known.fold(f64::NEG_INFINITY, f64::max);
    let fewest = sides.iter().map(|(_, side)| side.row_count).fold(f64::INFINITY, f64::min);
    let bound = if most > 0.0 { most } else { fewest };
    let mut members: Vec<Member> = Vec::new();
    for (leaf, side) in sides {
        let distinct_count = side.distinct_count.unwrap_or(side.row_count.min(bound));
        let member = Member { leaf, distinct_count, value_fraction: side.value_fraction };
        match members.iter_mut().find(|known| known.leaf == leaf) {
            Some(known) if known.distinct_count < distinct_count => *known = member,
            Some(_) => {}
            None => members.push(member),
        }
    }
    members.sort_by_key(|member| member.leaf);
    KeyClass { members }
}

/// The columns of `class`, of the leaves that have one expression in it.
fn key_columns(class: &EqualExprs) -> KeyColumns {
    let is_alone = |leaf: usize| class.members.iter().filter(|other| other.0 == leaf).count() == 1;
    let columns = class.members.iter().filter_map(|(leaf, expr)| match expr {
        Expr::Column(column) if is_alone(*leaf) => Some((*leaf, column.name.clone())),
        _ => None,
    });
    columns.collect()
}

/// The counted values of `columns`.
fn counted_keys(
    columns: &KeyColumns,
    leaves: &[LeafEstimate],
    facts: &dyn TableFacts,
) -> BTreeMap<usize, Arc<KeySample>> {
    let of = |(leaf, column): (&usize, &String)| {
        let table = leaves.get(*leaf)?.table.as_ref()?;
        Some((*leaf, facts.column(table, column).statistics?.keys.as_ref().map(Arc::clone)?))
    };
    columns.iter().filter_map(of).collect()
}

/// Tells what is expected of the leaves and of every part of `order`.
fn remember(
    order: &JoinTree,
    graph: &JoinGraph,
    leaves: &[LeafEstimate],
    estimates: &mut PlanEstimates,
) {
    for leaf in leaves {
        if let Some(key) = &leaf.key {
            estimates.expect_leaf(key.clone(), leaf.row_count);
        }
    }
    for part in order.parts().into_iter().filter(|part| part.count_ones() > 1) {
        let inside = leaves.iter().enumerate().filter(|(leaf, _)| part & (1 << leaf) != 0);
        let keys: Option<Vec<LeafKey>> = inside.map(|(_, leaf)| leaf.key.clone()).collect();
        if let Some(keys) = keys {
            estimates.expect_join(keys, graph.row_count(part));
        }
    }
}

/// Collects the leaves below `node`, the equality pairs and the other conditions.
fn take_apart(node: LogicalPlan, parts: &mut Parts, pairs: &mut Vec<(Expr, Expr)>) -> Result<()> {
    match node {
        LogicalPlan::Join(join) if joins_freely(&join) => {
            pairs.extend(join.on);
            if let Some(filter) = join.filter {
                parts.conditions.extend(split_conjunction_owned(filter));
            }
            take_apart(Arc::unwrap_or_clone(join.left), parts, pairs)?;
            take_apart(Arc::unwrap_or_clone(join.right), parts, pairs)
        }
        LogicalPlan::Filter(filter)
            if !filter.predicate.is_volatile() && is_join_below(&filter.input) =>
        {
            parts.conditions.extend(split_conjunction_owned(filter.predicate));
            take_apart(Arc::unwrap_or_clone(filter.input), parts, pairs)
        }
        // A projection that only drops columns; what is needed is projected again at the end.
        LogicalPlan::Projection(projection)
            if is_join_below(&projection.input)
                && projection.expr.iter().all(|expr| matches!(expr, Expr::Column(_))) =>
        {
            take_apart(Arc::unwrap_or_clone(projection.input), parts, pairs)
        }
        leaf => {
            parts.leaves.push(leaf);
            Ok(())
        }
    }
}

fn is_join_below(plan: &LogicalPlan) -> bool {
    match plan {
        // How often random() is called is part of what it means: such a filter stays where it is.
        LogicalPlan::Filter(filter) => {
            !filter.predicate.is_volatile() && is_join_below(&filter.input)
        }
        LogicalPlan::Projection(projection) => {
            projection.expr.iter().all(|expr| matches!(expr, Expr::Column(_)))
                && is_join_below(&projection.input)
        }
        other => is_inner_join(other),
    }
}

/// Whether two leaves have a column of one table and name.
fn shares_columns(leaves: &[LogicalPlan]) -> bool {
    let mut seen = BTreeSet::new();
    !leaves.iter().flat_map(|leaf| leaf.schema().columns()).all(|column| seen.insert(column))
}

/// The one leaf that has every column of `expr`; `None` for a constant or several leaves.
fn leaf_of(expr: &Expr, leaves: &[LogicalPlan]) -> Option<usize> {
    let columns = expr.column_refs();
    if columns.is_empty() {
        return None;
    }
    leaves.iter().position(|leaf| columns.iter().all(|column| has_column(leaf, column)))
}

fn has_column(plan: &LogicalPlan, column: &Column) -> bool {
    plan.schema().has_column(column)
}

/// What is known of one side of an equality.
struct Side {
    row_count: f64,
    distinct_count: Option<f64>,
    /// Share of rows that are not NULL.
    value_fraction: f64,
}

fn side(expr: &Expr, leaf: &LeafEstimate, facts: &dyn TableFacts) -> Side {
    let column = match (expr, leaf.table.as_deref()) {
        (Expr::Column(column), Some(table)) => Some((table, &column.name)),
        _ => None,
    };
    let null = column.and_then(|(table, column)| facts.column(table, column).null_fraction);
    Side {
        row_count: leaf.row_count_base,
        distinct_count: column.and_then(|(table, column)| facts.distinct_count(table, column)),
        value_fraction: 1.0 - null.unwrap_or(0.0),
    }
}

/// Builds `tree`; returns the plan and the leaves in it. Conditions that it could apply are taken
/// out of `conditions`.
fn put_together(
    tree: &JoinTree,
    parts: &Parts,
    graph: &JoinGraph,
    conditions: &mut Vec<Expr>,
) -> Result<(LogicalPlan, LeafSet)> {
    let (left, right) = match tree {
        JoinTree::Leaf(leaf) => {
            let plan = parts.leaves.get(*leaf).cloned().ok_or_else(|| {
                datafusion_common::internal_datafusion_err!("join order names leaf {leaf}")
            })?;
            return Ok((plan, 1 << leaf));
        }
        JoinTree::Join(left, right) => (left, right),
    };
    let (left, left_leaves) = put_together(left, parts, graph, conditions)?;
    let (right, right_leaves) = put_together(right, parts, graph, conditions)?;
    let on = parts
        .classes
        .iter()
        .flat_map(|class| class.equalities(left_leaves, right_leaves, &graph.row_counts));
    let on = on.collect();
    let applies = |condition: &Expr| {
        condition.column_refs().iter().all(|c| has_column(&left, c) || has_column(&right, c))
    };
    let (here, later): (Vec<Expr>, Vec<Expr>) = conditions.drain(..).partition(applies);
    *conditions = later;
    let join = Join::try_new(
        Arc::new(left),
        Arc::new(right),
        on,
        conjunction(here),
        JoinType::Inner,
        JoinConstraint::On,
        NullEquality::NullEqualsNothing,
        false,
    )?;
    Ok((LogicalPlan::Join(join), left_leaves | right_leaves))
}

impl EqualExprs {
    /// The equalities between the members in `left` and those in `right`, where those in each are equal already.
    fn equalities(&self, left: LeafSet, right: LeafSet, row_counts: &[f64]) -> Vec<(Expr, Expr)> {
        let within = |set: LeafSet| {
            let inside = move |member: &&(usize, Expr)| set & (1 << member.0) != 0;
            self.members.iter().filter(inside)
        };
        // The keys of the build side go down to one scan of the probe side: to its largest.
        let rows = |member: &&(usize, Expr)| row_counts.get(member.0).copied().unwrap_or_default();
        let largest = within(right).max_by(|a, b| rows(a).total_cmp(&rows(b)));
        let (Some((_, one)), Some((_, other))) = (within(left).next(), largest) else {
            return Vec::new();
        };
        let implied = vec![(one.clone(), other.clone())];
        let leaves = self.members.iter().fold(0, |set: LeafSet, member| set | (1 << member.0));
        if leaves.count_ones() as usize == self.members.len() {
            return implied;
        }
        // A leaf with several of them makes them equal by its joins only: each that was written is needed.
        let is_in = |set: LeafSet, place: usize| {
            self.members.get(place).filter(|member| set & (1 << member.0) != 0)
        };
        let crossing = self.written.iter().filter_map(|(a, b)| {
            let (a, b) = match (is_in(left, *a), is_in(right, *b)) {
                (Some(a), Some(b)) => (a, b),
                _ => (is_in(left, *b)?, is_in(right, *a)?),
            };
            Some((a.1.clone(), b.1.clone()))
        });
        let crossing: Vec<(Expr, Expr)> = crossing.collect();
        if crossing.is_empty() { implied } else { crossing }
    }
}

#[cfg(test)]
mod tests;
