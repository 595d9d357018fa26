//! The input of the cost models: a plan's operators with their expected rows and bytes, and which side runs them.
//!
//! A shape is made once a statement; each candidate split is one [`Placement`] over it. Both are plain figures, so that
//! equal inputs give equal costs and a test can write them by hand.

use super::KnownPages;

/// A plan: operators in preorder, the root first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PlanShape {
    /// The operators.
    pub nodes: Vec<ShapeNode>,
}

/// One operator.
#[derive(Debug, Clone, PartialEq)]
pub struct ShapeNode {
    /// What it does.
    pub work: Work,
    /// Places of its inputs in [`PlanShape::nodes`]; of a join the build side (or inner side) first.
    pub inputs: Vec<usize>,
    /// Rows that leave it.
    pub rows: f64,
    /// Bytes of a row that leaves it.
    pub row_bytes: f64,
    /// Both sides may work at the same time on the fragment whose root it is, each on morsels of its own.
    pub may_share: bool,
    /// It is a join's build side, and where that join runs below a cut, the host makes its rows and sends them there.
    pub is_broadcast: bool,
}

/// What an operator does to its input.
#[derive(Debug, Clone, PartialEq)]
pub enum Work {
    /// Reads a table.
    Scan(ScanWork),
    /// Keeps rows.
    Filter(Conditions),
    /// Computes columns: how many are no plain columns.
    Projection {
        /// Expressions that are computed.
        expressions: f64,
    },
    /// A hash join: all of the first input is kept in memory, then the second passes.
    HashJoin,
    /// A nested-loop join: all of the first input is kept, and each pair is looked at.
    NestedLoopJoin(Conditions),
    /// Groups rows, or makes one of all where there are no keys.
    Aggregate {
        /// Columns that it groups by.
        keys: f64,
        /// Aggregates a group.
        functions: f64,
    },
    /// Sorts, or keeps the first rows of the order.
    Sort {
        /// Rows that it keeps; None: all.
        fetch: Option<f64>,
    },
    /// A recursion: the first input once, the second in each round.
    Recursion {
        /// Rounds that it is taken to run.
        rounds: f64,
        /// Rows that were seen before are left out.
        is_distinct: bool,
    },
    /// Hands rows on: limits, exchanges, unions, working tables.
    Pass,
    /// Anything else, which is taken to look at each row once.
    Other,
}

/// The scan of a table.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ScanWork {
    /// Its name.
    pub table: String,
    /// Rows on the pages that are read.
    pub rows: f64,
    /// Rows of them that its own conditions leave.
    pub rows_matched: f64,
    /// Rows of these that the keys of joins above leave to be decoded.
    pub rows_kept: f64,
    /// Columns that conditions look at.
    pub filter_columns: f64,
    /// Columns that come out.
    pub output_columns: f64,
    /// Pages that are read.
    pub pages: f64,
    /// Bytes of their chunks that are read.
    pub chunk_bytes: f64,
    /// Of these, bytes in the host's buffer pool.
    pub held_bytes: f64,
    /// The conditions on each row.
    pub conditions: Conditions,
    /// Single rows that are looked up in an index instead; 0: the pages are scanned.
    pub looked_up: f64,
    /// Devices beside one that hold pages of it.
    pub devices_beside: f64,
    /// Share of its pages that lie on others than the device that has most of them: they are read beside those.
    pub share_beside: f64,
    /// What the host's filter history knows of its conditions.
    pub known_on_host: KnownPages,
    /// What that of the device knows; of several devices, that of the one which knows least.
    pub known_on_device: KnownPages,
}

/// The conditions on a row.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Conditions {
    /// Comparisons of numbers, dates, short equal texts; NULL tests.
    pub comparisons: f64,
    /// LIKE and other patterns, which walk a text.
    pub patterns: f64,
    /// Sets of keys that joins above hand down: each row is looked for in them.
    pub key_sets: f64,
    /// Bytes of text that are decoded to be asked.
    pub text_bytes: f64,
}

/// The cost of a condition on a column.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AskedColumn {
    /// Share of the rows for which it is asked: of a page that stores each different value once, it is asked of these.
    pub share: f64,
    /// Bytes of a text that is decoded before it is asked; 0 of other types.
    pub text_bytes: f64,
}

impl Default for AskedColumn {
    fn default() -> Self {
        Self { share: 1.0, text_bytes: 0.0 }
    }
}

/// Which operators run on the device, by place in [`PlanShape::nodes`]; the inputs of such an operator do too, but for
/// those that are broadcast, which may.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Placement {
    /// True: on the device.
    pub on_device: Vec<bool>,
}

impl Placement {
    /// Whether the operator at `place` runs on the device.
    pub fn is_on_device(&self, place: usize) -> bool {
        self.on_device.get(place).copied().unwrap_or(false)
    }
}
