//! What a split costs: a plan's shape, a placement of its operators and a measured profile in, a prediction out.

mod shape;

pub use shape::{Conditions, Placement, PlanShape, ScanWork, ShapeNode, Work};
