//! Walks over plans and expressions whose code is compiled once, whatever the closure.
//!
//! DataFusion's `TreeNode` is generic over the closure and calls itself for each node, so the walk is compiled anew for
//! each closure, with what it does for every kind of node. [`Walk`] has methods of the same names that take the same
//! closures, and compiles each walk once, for a closure behind a pointer:
//!
//! ```text
//!  plan.transform_up(closure) ─▶ transform_up_through(&mut dyn FnMut) ─▶ closure(node)
//!  small, at each call           compiled once, here
//! ```
//!
//! Invariant: the project imports `Walk` in place of `TreeNode`, which clippy refuses elsewhere (`clippy.toml`).

use std::sync::Arc;

use datafusion_common::Result;
#[expect(
    clippy::disallowed_types,
    reason = "the walks here are what others use in place of it"
)]
use datafusion_common::tree_node::TreeNode;
use datafusion_common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion_expr::{Expr, LogicalPlan};
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_plan::ExecutionPlan;

/// Looks at a node and says whether the walk goes on.
pub type OnNode<'f, N> = &'f mut dyn FnMut(&N) -> Result<TreeNodeRecursion>;

/// Looks at a node that may be kept for as long as the tree.
pub type OnNodeOf<'f, 'n, N> = &'f mut dyn FnMut(&'n N) -> Result<TreeNodeRecursion>;

/// Gives a node back, changed or not.
pub type ChangeNode<'f, N> = &'f mut dyn FnMut(N) -> Result<Transformed<N>>;

/// The walks of DataFusion's `TreeNode`, which errors and results are those of.
pub trait Walk: Sized {
    /// Calls `on` for the node and then for each below it.
    ///
    /// # Errors
    /// What `on` fails with.
    fn apply<'n>(
        &'n self,
        mut on: impl FnMut(&'n Self) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.apply_through(&mut on)
    }

    /// Whether `is_it` holds for the node or one below it.
    ///
    /// # Errors
    /// What `is_it` fails with.
    fn exists(&self, mut is_it: impl FnMut(&Self) -> Result<bool>) -> Result<bool> {
        let mut found = false;
        self.apply_through(&mut |node| {
            found = is_it(node)?;
            Ok(match found {
                true => TreeNodeRecursion::Stop,
                false => TreeNodeRecursion::Continue,
            })
        })?;
        Ok(found)
    }

    /// Changes the nodes below and then the node.
    ///
    /// # Errors
    /// What `change` fails with.
    fn transform_up(
        self,
        mut change: impl FnMut(Self) -> Result<Transformed<Self>>,
    ) -> Result<Transformed<Self>> {
        self.transform_up_through(&mut change)
    }

    /// Changes the node and then those below.
    ///
    /// # Errors
    /// What `change` fails with.
    fn transform_down(
        self,
        mut change: impl FnMut(Self) -> Result<Transformed<Self>>,
    ) -> Result<Transformed<Self>> {
        self.transform_down_through(&mut change)
    }

    /// Calls `on` for each node right below.
    ///
    /// # Errors
    /// What `on` fails with.
    fn apply_children<'n>(
        &'n self,
        mut on: impl FnMut(&'n Self) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.apply_children_through(&mut on)
    }

    /// Changes each node right below.
    ///
    /// # Errors
    /// What `change` fails with.
    fn map_children(
        self,
        mut change: impl FnMut(Self) -> Result<Transformed<Self>>,
    ) -> Result<Transformed<Self>> {
        self.map_children_through(&mut change)
    }

    /// [`apply`](Self::apply), compiled once.
    ///
    /// # Errors
    /// What `on` fails with.
    fn apply_through<'n>(&'n self, on: OnNodeOf<'_, 'n, Self>) -> Result<TreeNodeRecursion>;

    /// [`transform_up`](Self::transform_up), compiled once.
    ///
    /// # Errors
    /// What `change` fails with.
    fn transform_up_through(self, change: ChangeNode<'_, Self>) -> Result<Transformed<Self>>;

    /// [`transform_down`](Self::transform_down), compiled once.
    ///
    /// # Errors
    /// What `change` fails with.
    fn transform_down_through(self, change: ChangeNode<'_, Self>) -> Result<Transformed<Self>>;

    /// [`apply_children`](Self::apply_children), compiled once.
    ///
    /// # Errors
    /// What `on` fails with.
    fn apply_children_through<'n>(
        &'n self,
        on: OnNodeOf<'_, 'n, Self>,
    ) -> Result<TreeNodeRecursion>;

    /// [`map_children`](Self::map_children), compiled once.
    ///
    /// # Errors
    /// What `change` fails with.
    fn map_children_through(self, change: ChangeNode<'_, Self>) -> Result<Transformed<Self>>;
}

/// The walks of a type that has DataFusion's.
macro_rules! walk {
    ($node:ty) => {
        impl Walk for $node {
            fn apply_through<'n>(
                &'n self,
                on: OnNodeOf<'_, 'n, Self>,
            ) -> Result<TreeNodeRecursion> {
                TreeNode::apply(self, on)
            }

            fn transform_up_through(
                self,
                change: ChangeNode<'_, Self>,
            ) -> Result<Transformed<Self>> {
                TreeNode::transform_up(self, change)
            }

            fn transform_down_through(
                self,
                change: ChangeNode<'_, Self>,
            ) -> Result<Transformed<Self>> {
                TreeNode::transform_down(self, change)
            }

            fn apply_children_through<'n>(
                &'n self,
                on: OnNodeOf<'_, 'n, Self>,
            ) -> Result<TreeNodeRecursion> {
                TreeNode::apply_children(self, on)
            }

            fn map_children_through(
                self,
                change: ChangeNode<'_, Self>,
            ) -> Result<Transformed<Self>> {
                TreeNode::map_children(self, change)
            }
        }
    };
}

walk!(Expr);
walk!(LogicalPlan);
walk!(Arc<dyn PhysicalExpr>);
walk!(Arc<dyn ExecutionPlan>);

/// The walks that a logical plan has of its own, over the expressions of a node and the plans of subqueries.
///
/// DataFusion's methods of a plan cannot be hidden as a trait's can; hence other names.
pub trait WalkPlan: Sized {
    /// Calls `on` for each expression of the node, not for those in one: `LogicalPlan::apply_expressions`.
    ///
    /// # Errors
    /// What `on` fails with.
    fn each_expression(
        &self,
        mut on: impl FnMut(&Expr) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.each_expression_through(&mut on)
    }

    /// Changes each expression of the node: `LogicalPlan::map_expressions`.
    ///
    /// # Errors
    /// What `change` fails with.
    fn change_expressions(
        self,
        mut change: impl FnMut(Expr) -> Result<Transformed<Expr>>,
    ) -> Result<Transformed<Self>> {
        self.change_expressions_through(&mut change)
    }

    /// Calls `on` for the node and then for each below it and in its subqueries: `LogicalPlan::apply_with_subqueries`.
    ///
    /// # Errors
    /// What `on` fails with.
    fn apply_everywhere(
        &self,
        mut on: impl FnMut(&Self) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.apply_everywhere_through(&mut on)
    }

    /// Changes the nodes below and in subqueries, then the node: `LogicalPlan::transform_up_with_subqueries`.
    ///
    /// # Errors
    /// What `change` fails with.
    fn transform_up_everywhere(
        self,
        mut change: impl FnMut(Self) -> Result<Transformed<Self>>,
    ) -> Result<Transformed<Self>> {
        self.transform_up_everywhere_through(&mut change)
    }

    /// Changes the node, then those below and in subqueries: `LogicalPlan::transform_down_with_subqueries`.
    ///
    /// # Errors
    /// What `change` fails with.
    fn transform_down_everywhere(
        self,
        mut change: impl FnMut(Self) -> Result<Transformed<Self>>,
    ) -> Result<Transformed<Self>> {
        self.transform_down_everywhere_through(&mut change)
    }

    /// [`each_expression`](Self::each_expression), compiled once.
    ///
    /// # Errors
    /// What `on` fails with.
    fn each_expression_through(&self, on: OnNode<'_, Expr>) -> Result<TreeNodeRecursion>;

    /// [`change_expressions`](Self::change_expressions), compiled once.
    ///
    /// # Errors
    /// What `change` fails with.
    fn change_expressions_through(self, change: ChangeNode<'_, Expr>) -> Result<Transformed<Self>>;

    /// [`apply_everywhere`](Self::apply_everywhere), compiled once.
    ///
    /// # Errors
    /// What `on` fails with.
    fn apply_everywhere_through(&self, on: OnNode<'_, Self>) -> Result<TreeNodeRecursion>;

    /// [`transform_up_everywhere`](Self::transform_up_everywhere), compiled once.
    ///
    /// # Errors
    /// What `change` fails with.
    fn transform_up_everywhere_through(
        self,
        change: ChangeNode<'_, Self>,
    ) -> Result<Transformed<Self>>;

    /// [`transform_down_everywhere`](Self::transform_down_everywhere), compiled once.
    ///
    /// # Errors
    /// What `change` fails with.
    fn transform_down_everywhere_through(
        self,
        change: ChangeNode<'_, Self>,
    ) -> Result<Transformed<Self>>;
}

impl WalkPlan for LogicalPlan {
    fn each_expression_through(&self, on: OnNode<'_, Expr>) -> Result<TreeNodeRecursion> {
        self.apply_expressions(on)
    }

    fn change_expressions_through(self, change: ChangeNode<'_, Expr>) -> Result<Transformed<Self>> {
        self.map_expressions(change)
    }

    fn apply_everywhere_through(&self, on: OnNode<'_, Self>) -> Result<TreeNodeRecursion> {
        self.apply_with_subqueries(on)
    }

    fn transform_up_everywhere_through(
        self,
        change: ChangeNode<'_, Self>,
    ) -> Result<Transformed<Self>> {
        self.transform_up_with_subqueries(change)
    }

    fn transform_down_everywhere_through(
        self,
        change: ChangeNode<'_, Self>,
    ) -> Result<Transformed<Self>> {
        self.transform_down_with_subqueries(change)
    }
}
