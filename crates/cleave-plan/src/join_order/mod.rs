//! The order of inner joins: a logical plan in, the same plan with its joins in a better order out.
//!
//! 1. [`reorder_joins`] finds each largest tree of inner joins and takes it apart into leaves,
//!    equality edges and other conditions.
//! 2. [`greedy_order`] starts at the smallest leaf and goes along edges to what keeps the result
//!    smallest; a cross product comes only where no edge is left.
//! 3. The tree is put together again: the smaller input of each join on the left, which is the side
//!    that a hash join builds; conditions as low as their columns allow.
//!
//! The real optimizer (dynamic programming over sampled sizes) replaces step 2.

mod greedy;
mod reorder;

pub use greedy::{Edge, JoinTree, greedy_order};
pub use reorder::reorder_joins;
