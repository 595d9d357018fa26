//! The order of inner joins: a logical plan in, the same plan with its joins in a better order and the expected rows
//! out.
//!
//! 1. [`reorder_joins`] finds each largest tree of inner joins and takes it apart into leaves, equality edges and other
//!    conditions.
//! 2. [`JoinGraph`] says how many rows a join of any of the leaves has. Columns that equalities make equal, also by way
//!    of a third, are a [`KeyClass`]: any two leaves of it may be joined, and each equality counts once.
//! 3. [`samples`](mod@samples) corrects it for joins with tables of which ANALYZE has kept all rows.
//! 4. [`cheapest_order`] finds the order with the least work, by dynamic programming over connected parts, bushy trees
//!    among them; where these are too many, over the intervals of several linear orders. A cross product comes only
//!    where no edge is left.
//! 5. [`Reordered::others`] finds orders that a device could prefer ([`by_site`](mod@by_site)) and predicts when each
//!    is done ([`predict_order`](mod@predict_order)), for pricing the cuts of several orders.
//! 6. The tree is put together again: the smaller input of each join on the left, which is the side that a hash join
//!    builds; conditions as low as their columns allow. The estimates of its joins are returned as
//!    [`PlanEstimates`](crate::PlanEstimates).

mod by_site;
mod enumerate;
mod graph;
mod joined_samples;
mod predict_order;
mod reorder;
mod samples;

pub use by_site::LeafCost;
pub use enumerate::{JoinTree, PAIR_COUNT_MAX, cheapest_order};
pub use graph::{JoinGraph, KeyClass, LEAF_COUNT_MAX, LeafSet, Member};
pub use joined_samples::JoinedSamples;
pub use reorder::{OTHERS_MAX, Ordered, Others, Reordered, reorder_joins};
