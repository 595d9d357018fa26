//! Seconds of one core, and bytes of memory, that an operator takes: the figures of a side and the rows that pass
//! through in.
//!
//! One rule for both sides: a placement changes the figures, not the work.

use crate::profile::{Figure, SideProfile};

use super::{Conditions, PlanShape, ScanWork, ShapeNode, Work};

/// Bytes that a join's hash table has for each row, beside the row.
const JOIN_ENTRY_BYTES: f64 = 32.0;
/// Bytes that an aggregate has for each group, beside its columns.
const GROUP_BYTES: f64 = 48.0;
/// Bytes of a value that is no text.
const PLAIN_VALUE_BYTES: f64 = 8.0;
/// A look-up in an index searches a few pages of keys: so many probes of a hash table.
const LOOK_UP_PROBES: f64 = 50.0;
/// Reading a page's header and opening its columns, in values decoded.
const PAGE_VALUES: f64 = 2000.0;
/// Looking a key up in a set that is made for pages, in probes of a hash table; from runs, as
/// `docs/design/split-and-cost.md` says.
const KEY_PROBES: f64 = 0.4;
/// Reading a byte of a chunk, in partitions: it is taken in and its checksum made. From the same runs.
const READ_COPIES: f64 = 16.0;
/// Opening a column of text, in decodings of its bytes: its symbols are made text, which is then checked. From the same
/// runs.
const OPENED_TEXTS: f64 = 2.5;

/// Seconds for a unit of each kind of work.
#[derive(Debug, Clone)]
pub(super) struct Seconds {
    copy: f64,
    compare: f64,
    pattern: f64,
    integer: f64,
    text: f64,
    build: f64,
    probe: f64,
    aggregate: f64,
    sort: f64,
    pub(super) slot_encode: f64,
    pub(super) slot_decode: f64,
    pub(super) media_byte: f64,
    pub(super) media_block: f64,
    pub(super) media_write: f64,
}

impl Seconds {
    pub(super) fn of(side: &SideProfile) -> Self {
        let unit = |figure| 1.0 / side.rate(figure);
        Self {
            copy: unit(Figure::Copy),
            compare: unit(Figure::Compare),
            pattern: unit(Figure::Pattern),
            integer: unit(Figure::DecodeInteger),
            text: unit(Figure::DecodeText),
            build: unit(Figure::JoinBuild),
            probe: unit(Figure::JoinProbe),
            aggregate: unit(Figure::Aggregate),
            sort: unit(Figure::Sort),
            slot_encode: unit(Figure::SlotEncode),
            slot_decode: unit(Figure::SlotDecode),
            media_byte: unit(Figure::MediaReadSequential),
            media_block: unit(Figure::MediaReadRandom),
            media_write: unit(Figure::MediaWriteSequential),
        }
    }

    /// Reading a table, without its media.
    pub(super) fn scan(&self, scan: &ScanWork, row_bytes: f64) -> f64 {
        let opened =
            scan.pages * PAGE_VALUES * self.integer + scan.chunk_bytes * READ_COPIES * self.copy;
        let narrowed = scan.rows * scan.filter_columns * self.integer;
        let text_bytes = (row_bytes - scan.output_columns * PLAIN_VALUE_BYTES).max(0.0);
        let row = scan.output_columns * self.integer + text_bytes * self.text;
        let looked_up = scan.looked_up * LOOK_UP_PROBES * self.probe;
        opened + narrowed + self.asked(scan) + scan.rows_kept * row + looked_up
    }

    /// The conditions of a scan, in the cheaper order: its own conditions and then the keys of joins above on the
    /// remaining rows, or the reverse. A column of text is opened whole before its first value is read.
    fn asked(&self, scan: &ScanWork) -> f64 {
        let own = self.conditions(1.0, &scan.conditions);
        let keys = scan.conditions.key_sets * KEY_PROBES * self.probe;
        let matched = (scan.rows_matched / scan.rows.max(1.0)).clamp(0.0, 1.0);
        let with_keys = (scan.rows_kept / scan.rows_matched.max(1.0)).clamp(0.0, 1.0);
        let opened = scan.conditions.text_bytes * OPENED_TEXTS * self.text;
        scan.rows * (opened + (own + matched * keys).min(keys + with_keys * own))
    }

    fn conditions(&self, rows: f64, conditions: &Conditions) -> f64 {
        rows * (conditions.comparisons * self.compare + conditions.patterns * self.pattern)
    }

    /// What a node does to the rows of its last input, which stream through it.
    pub(super) fn stream(&self, shape: &PlanShape, node: &ShapeNode) -> f64 {
        let input = input(shape, node, node.inputs.len().saturating_sub(1));
        let rows = input.map_or(0.0, |input| input.rows);
        let made = node.rows * node.row_bytes * self.copy;
        match &node.work {
            Work::Scan(scan) => self.scan(scan, node.row_bytes),
            Work::Filter(conditions) => {
                let conditions =
                    Conditions { comparisons: conditions.comparisons.max(1.0), ..*conditions };
                self.conditions(rows, &conditions) + made
            }
            Work::Projection { expressions } => rows * expressions * self.compare,
            Work::HashJoin => rows * self.probe + made,
            Work::NestedLoopJoin(conditions) => {
                let kept = self::input(shape, node, 0).map_or(0.0, |input| input.rows);
                self.conditions(rows * kept.max(1.0), conditions) + made
            }
            Work::Aggregate { keys, functions } => {
                rows * (keys.max(0.25) + 0.5 * (functions - 1.0).max(0.0)) * self.aggregate
            }
            Work::Sort { fetch: None } => rows * self.sort * rows.max(2.0).log2() / 16.0,
            // Nearly all rows are seen to come after those that are kept.
            Work::Sort { fetch: Some(kept) } => rows * self.compare + kept.min(rows) * self.sort,
            Work::Pass => 0.0,
            // Rows that come out are kept for the next round, and those of a UNION looked up among all before.
            Work::Recursion { is_distinct, .. } => {
                made + if *is_distinct { node.rows * self.aggregate } else { 0.0 }
            }
            Work::Other => rows * self.aggregate + made,
        }
    }

    /// Taking in all of a join's first input.
    pub(super) fn build(&self, node: &ShapeNode, build: &ShapeNode) -> f64 {
        let bytes = build.rows * build.row_bytes * self.copy;
        if matches!(node.work, Work::HashJoin) { build.rows * self.build + bytes } else { bytes }
    }

    /// Handing on what a breaker holds.
    pub(super) fn emit(&self, node: &ShapeNode) -> f64 {
        node.rows * node.row_bytes * self.copy
    }
}

/// The `place`-th input of a node; none where the shape is not one.
pub(super) fn input<'a>(
    shape: &'a PlanShape,
    node: &ShapeNode,
    place: usize,
) -> Option<&'a ShapeNode> {
    shape.nodes.get(*node.inputs.get(place)?)
}

/// Whether a node takes in its first input before it asks for the second.
pub(super) fn is_join(work: &Work) -> bool {
    matches!(work, Work::HashJoin | Work::NestedLoopJoin(_))
}

/// Whether a node takes in all its input before its first row leaves.
pub(super) fn is_breaker(work: &Work) -> bool {
    matches!(work, Work::Aggregate { .. } | Work::Sort { .. })
}

/// Bytes that a node holds: a join's first input, groups, rows to sort. `partitions` of an aggregate or sort hold their
/// own.
pub(super) fn held_bytes(shape: &PlanShape, node: &ShapeNode, partitions: f64) -> f64 {
    let Some(first) = input(shape, node, 0) else { return 0.0 };
    match &node.work {
        Work::HashJoin => first.rows * (first.row_bytes + JOIN_ENTRY_BYTES),
        Work::NestedLoopJoin(_) => first.rows * first.row_bytes,
        Work::Aggregate { .. } => {
            // No partition has more groups than rows.
            (node.rows * partitions).min(first.rows.max(node.rows)) * (node.row_bytes + GROUP_BYTES)
        }
        // On a device rows wait until the recursion is over, and the host is not worse off.
        Work::Recursion { is_distinct, .. } => {
            node.rows * (node.row_bytes + if *is_distinct { GROUP_BYTES } else { 0.0 })
        }
        Work::Sort { fetch: None } => first.rows * first.row_bytes * 2.0,
        Work::Sort { fetch: Some(kept) } => {
            kept.min(first.rows) * first.row_bytes * 2.0 * partitions
        }
        _ => 0.0,
    }
}
