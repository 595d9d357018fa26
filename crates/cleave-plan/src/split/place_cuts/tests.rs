//! Tests of where cuts lie, shown as text: what goes down, what stays, and what a forced split refuses.

use std::sync::Mutex;

use arrow::datatypes::{DataType, Field, Schema};
use cleave_fragment::operators::table_scan_exec::{References, TableScan};
use cleave_fragment::{WorkingTableExec, hand_down_filters};
use cleave_store::{ColumnRef, Projection};
use datafusion_common::config::ConfigOptions;
use datafusion_common::{JoinType, NullEquality};
use datafusion_physical_expr::expressions::Column;
use datafusion_physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion_physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion_physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion_physical_plan::displayable;
use datafusion_physical_plan::empty::EmptyExec;
use datafusion_physical_plan::joins::{
    CrossJoinExec, HashJoinExecBuilder, NestedLoopJoinExec, PartitionMode,
};
use datafusion_physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion_physical_plan::projection::ProjectionExec;
use datafusion_physical_plan::sorts::sort::SortExec;

use super::super::{Leaves, ScanDivision, TabletHomes, When};
use super::*;
use crate::cost::{Limits as CostLimits, ScanWork};
use crate::profile::Profile;

/// Answers as told, and leaves a marked leaf where a fragment runs.
struct Told {
    refusal: Option<String>,
    /// For each device.
    result_bytes: Vec<f64>,
    link_is_free: Vec<bool>,
    /// Bytes that each scan reads.
    chunk_bytes: f64,
    broadcast_bytes: u64,
    /// Tables that lie on one of the devices alone.
    alone: Vec<(&'static str, usize)>,
    key_filters: When,
    rows_only: bool,
    is_prescribed: bool,
    /// Tables are divided among the devices by a hash of their only column.
    is_hashed: bool,
    fragments: Mutex<Vec<FragmentPlan>>,
}

impl Default for Told {
    fn default() -> Self {
        Self {
            refusal: None,
            result_bytes: vec![0.0],
            link_is_free: vec![false],
            chunk_bytes: 1e7,
            broadcast_bytes: 16 << 20,
            alone: Vec::new(),
            key_filters: When::WherePays,
            rows_only: false,
            is_prescribed: false,
            is_hashed: false,
            fragments: Mutex::default(),
        }
    }
}

impl CutContext for Told {
    fn rows_only(&self) -> bool {
        self.rows_only
    }

    fn is_prescribed(&self) -> bool {
        self.is_prescribed
    }

    fn shares(&self, scan: &TableScanExec) -> Vec<ScanShare> {
        let share = |number| ScanShare {
            device: format!("d{number}"),
            refusal: self.refusal.clone().filter(|_| number == 0),
        };
        let alone = self.alone.iter().find(|(table, _)| *table == scan.scan().table);
        match alone {
            Some((_, number)) => vec![share(*number)],
            None => (0..self.result_bytes.len()).map(share).collect(),
        }
    }

    fn division(&self, _scan: &TableScanExec) -> Option<ScanDivision> {
        let homes =
            TabletHomes { bounds: None, types: vec![DataType::Int32], devices: vec![0, 1, 0] };
        self.is_hashed.then(|| ScanDivision { columns: vec![vec![0]], homes })
    }

    fn weights(&self, _fragment: &FragmentPlan) -> Vec<CutWeight> {
        let weight = |(result_bytes, link_is_free): (&f64, &bool)| CutWeight {
            result_bytes: *result_bytes,
            chunk_bytes: 1e6,
            held_bytes: 0.0,
            link_is_free: *link_is_free,
        };
        self.result_bytes.iter().zip(&self.link_is_free).map(weight).collect()
    }

    fn key_filters(&self) -> When {
        self.key_filters
    }

    fn scan_work(&self, scan: &TableScanExec) -> ScanWork {
        let rows = 1e6;
        let table = scan.scan().table.clone();
        ScanWork { table, rows, pages: 1.0, chunk_bytes: self.chunk_bytes, ..ScanWork::default() }
    }

    fn rows(&self, plan: &Arc<dyn ExecutionPlan>) -> Vec<f64> {
        let row_bytes = row_bytes(&plan.schema());
        let mut rows = vec![self.result_bytes.iter().sum::<f64>() / row_bytes];
        plan.children().into_iter().for_each(|input| rows.extend(self.rows(input)));
        rows
    }

    fn profile(&self) -> Profile {
        Profile::assumed()
    }

    fn limits(&self) -> CostLimits {
        CostLimits {
            device_memory_bytes: 64 << 20,
            host_memory_bytes: 1 << 30,
            device_load: 0.0,
            slot_size: crate::cost::SlotSize::Fixed(256 << 10),
            slot_count: 16,
            device_partitions: 2,
            host_threads: 2,
            shares_work: false,
            lent_share: 0.0,
            cut_share_max: 0.57,
            broadcast_bytes: self.broadcast_bytes,
        }
    }

    fn fragment_exec(&self, fragment: FragmentPlan) -> Result<Arc<dyn ExecutionPlan>> {
        let leaf = EmptyExec::new(fragment.plan.schema()).with_partitions(fragment.partition_count);
        self.fragments.lock().unwrap().push(fragment);
        Ok(Arc::new(leaf))
    }
}

fn scan(table: &str, fetch: Option<usize>, partitions: usize) -> Arc<dyn ExecutionPlan> {
    let schema = Arc::new(Schema::new(vec![Field::new("id", DataType::Int32, true)]));
    let none = Arc::new(Schema::empty());
    Arc::new(TableScanExec::new(
        TableScan {
            table: table.into(),
            table_id: 1,
            output: Projection::new(schema, vec![ColumnRef::User(1)]),
            filter: Projection::new(none, vec![]),
            predicate: None,
            input: 0,
            fetch,
            references: References::None,
        },
        partitions,
    ))
}

/// A hash join of two scans by a column of this type, whose filter is at the second scan.
fn joined_by(data_type: DataType, null_equality: NullEquality) -> Arc<dyn ExecutionPlan> {
    let side = |input| {
        let field = Field::new("key", data_type.clone(), true);
        let output = Projection::new(Arc::new(Schema::new(vec![field])), vec![ColumnRef::User(1)]);
        let filter = Projection::new(Arc::new(Schema::empty()), vec![]);
        let (table, predicate) = (format!("t{input}"), None);
        let scan = TableScan {
            table,
            table_id: 1,
            output,
            filter,
            predicate,
            input,
            fetch: None,
            references: References::None,
        };
        Arc::new(TableScanExec::new(scan, 1)) as Arc<dyn ExecutionPlan>
    };
    let key = || Arc::new(Column::new("key", 0)) as Arc<dyn PhysicalExpr>;
    let join = HashJoinExecBuilder::new(side(0), side(1), vec![(key(), key())], JoinType::Inner)
        .with_partition_mode(PartitionMode::CollectLeft)
        .with_null_equality(null_equality);
    hand_down_filters(join.build_exec().unwrap(), &ConfigOptions::default()).unwrap()
}

fn projected(input: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    let id: Arc<dyn PhysicalExpr> = Arc::new(Column::new("id", 0));
    Arc::new(ProjectionExec::try_new(vec![(id, "id".to_owned())], input).unwrap())
}

fn sorted(input: Arc<dyn ExecutionPlan>, fetch: Option<usize>) -> Arc<dyn ExecutionPlan> {
    let order = LexOrdering::new([PhysicalSortExpr::new_default(Arc::new(Column::new("id", 0)))]);
    Arc::new(
        SortExec::new(order.unwrap(), input).with_fetch(fetch).with_preserve_partitioning(true),
    )
}

fn joined(left: Arc<dyn ExecutionPlan>, right: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    Arc::new(CrossJoinExec::new(left, right))
}

fn names(plan: &Arc<dyn ExecutionPlan>) -> Vec<String> {
    displayable(plan.as_ref())
        .indent(false)
        .to_string()
        .lines()
        .map(|line| line.split(':').next().unwrap_or_default().trim().to_owned())
        .collect()
}

#[test]
fn host_split_cuts_nothing() {
    let plan = projected(scan("t", None, 2));
    let placed = place_cuts(Arc::clone(&plan), Split::Host, false, &Told::default()).unwrap();
    assert!(Arc::ptr_eq(&placed.plan, &plan));
    assert_eq!(placed.decisions[0].to_string(), "t: host, as the settings ask");
}

#[test]
fn h0_cuts_over_every_leaf_and_leaves_joins() {
    let told = Told::default();
    let plan = joined(projected(scan("a", None, 1)), scan("b", None, 2));
    let placed = place_cuts(plan, Split::H0, false, &told).unwrap();
    assert_eq!(names(&placed.plan), ["CrossJoinExec", "EmptyExec", "EmptyExec"]);
    assert_eq!(
        placed.decisions[0].device_operators,
        ["TableScanExec".to_owned(), "ProjectionExec".to_owned()]
    );
    let fragments = told.fragments.lock().unwrap();
    assert_eq!(fragments[1].partition_count, 2);
    assert_eq!(fragments[1].plan.output_partitioning().partition_count(), 1);
}

#[test]
fn topk_goes_down_and_stays_above() {
    let told = Told::default();
    let placed = place_cuts(sorted(scan("t", None, 2), Some(5)), Split::H0, false, &told).unwrap();
    assert_eq!(names(&placed.plan), ["SortExec", "EmptyExec"]);
    let fragments = told.fragments.lock().unwrap();
    assert_eq!(names(&fragments[0].plan), ["SortExec", "TableScanExec"]);
    assert_eq!(fragments[0].fetch, None, "the best rows may come last");
}

#[test]
fn full_sort_stays_on_the_host() {
    let told = Told::default();
    let placed = place_cuts(sorted(scan("t", None, 2), None), Split::H0, false, &told).unwrap();
    assert_eq!(names(&placed.plan), ["SortExec", "EmptyExec"]);
    assert_eq!(names(&told.fragments.lock().unwrap()[0].plan), ["TableScanExec"]);
}

#[test]
fn offset_is_skipped_once() {
    let told = Told::default();
    let limit = Arc::new(GlobalLimitExec::new(scan("t", None, 1), 3, Some(5)));
    let placed = place_cuts(limit, Split::H0, false, &told).unwrap();
    assert_eq!(names(&placed.plan), ["GlobalLimitExec", "CoalescePartitionsExec", "EmptyExec"]);
    let fragments = told.fragments.lock().unwrap();
    assert_eq!(names(&fragments[0].plan), ["LocalLimitExec", "TableScanExec"]);
    let limit = fragments[0].plan.downcast_ref::<LocalLimitExec>().unwrap();
    assert_eq!(limit.fetch(), 8);
    assert_eq!(fragments[0].fetch, Some(8));
}

#[test]
fn what_counts_rows_is_not_put_above_a_limited_scan() {
    let told = Told::default();
    place_cuts(sorted(scan("t", Some(10), 1), Some(5)), Split::H0, false, &told).unwrap();
    let fragments = told.fragments.lock().unwrap();
    assert_eq!(names(&fragments[0].plan), ["TableScanExec"]);
    assert_eq!(fragments[0].fetch, Some(10));
}

#[test]
fn ndp_takes_the_whole_plan() {
    let told = Told::default();
    let placed = place_cuts(sorted(scan("t", None, 1), None), Split::Ndp, false, &told).unwrap();
    assert_eq!(names(&placed.plan), ["EmptyExec"]);
    let fragments = told.fragments.lock().unwrap();
    assert_eq!(names(&fragments[0].plan), ["SortExec", "TableScanExec"]);
    assert!(!fragments[0].may_run_as_partitions);
}

/// ((a ⋈ b) ⋈ (c ⋈ d)), each join with a projection above it.
fn bushy() -> Arc<dyn ExecutionPlan> {
    let pair = |one, other| projected(joined(scan(one, None, 1), projected(scan(other, None, 2))));
    projected(joined(pair("a", "b"), pair("c", "d")))
}

#[test]
fn joins_go_down_one_by_one_with_the_chains_above_them() {
    let tables = |split: &str| {
        let told = Told::default();
        place_cuts(bushy(), split.parse().unwrap(), false, &told).unwrap();
        let fragments = told.fragments.lock().unwrap();
        fragments.iter().map(FragmentPlan::tables).collect::<Vec<_>>()
    };
    assert_eq!(tables("h0"), ["a", "b", "c", "d"]);
    assert_eq!(tables("h1"), ["a, b"]);
    assert_eq!(tables("h1+"), ["a, b", "c", "d"]);
    assert_eq!(tables("h2"), ["a, b", "c, d"]);
    assert_eq!(tables("h3"), ["a, b, c, d"]);
    assert_eq!(tables("ndp"), ["a, b, c, d"]);
    let told = Told::default();
    let placed = place_cuts(bushy(), "h1".parse().unwrap(), false, &told).unwrap();
    assert_eq!(
        names(&placed.plan),
        [
            "ProjectionExec",
            "CrossJoinExec",
            "EmptyExec",
            "ProjectionExec",
            "CrossJoinExec",
            "TableScanExec",
            "ProjectionExec",
            "TableScanExec"
        ]
    );
    assert_eq!(
        placed.decisions[0].to_string(),
        "a, b: device [TableScanExec > ProjectionExec > TableScanExec > CrossJoinExec > ProjectionExec], as the \
            settings ask"
    );
    let fragments = told.fragments.lock().unwrap();
    assert!(fragments[0].may_run_as_partitions);
    assert_eq!(fragments[0].partition_count, 2);
}

#[test]
fn more_joins_than_there_are_is_an_error_that_counts_them() {
    let error = place_cuts(bushy(), "h4".parse().unwrap(), false, &Told::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "split \"h4\" cannot run this statement: the plan: a device can run 3 of its 3 joins"
    );
}

#[test]
fn exchanges_stay_above_and_vanish_below() {
    let told = Told::default();
    let merged = Arc::new(CoalescePartitionsExec::new(scan("a", None, 2)));
    let plan = joined(merged, scan("b", None, 2));
    place_cuts(Arc::clone(&plan), "h1".parse().unwrap(), false, &told).unwrap();
    assert_eq!(
        names(&told.fragments.lock().unwrap()[0].plan),
        ["CrossJoinExec", "TableScanExec", "TableScanExec"]
    );
    let placed = place_cuts(plan, Split::H0, false, &Told::default()).unwrap();
    assert_eq!(
        names(&placed.plan),
        ["CrossJoinExec", "CoalescePartitionsExec", "EmptyExec", "EmptyExec"]
    );
}

/// Two devices, on which all tables are divided but those `alone` on one.
fn two_devices(alone: &[(&'static str, usize)]) -> Told {
    let (result_bytes, link_is_free) = (vec![0.0; 2], vec![false; 2]);
    Told { result_bytes, link_is_free, alone: alone.to_vec(), ..Told::default() }
}

#[test]
fn what_a_join_collects_is_broadcast_to_where_the_other_side_lies() {
    let join = || projected(joined(projected(scan("a", None, 1)), scan("b", None, 2)));
    let told = two_devices(&[("a", 0)]);
    let placed = place_cuts(join(), "h1".parse().unwrap(), false, &told).unwrap();
    assert_eq!(
        placed.decisions[0].to_string(),
        "b: device [TableScanExec > BroadcastExec > CrossJoinExec > ProjectionExec], as the settings ask"
    );
    assert_eq!(placed.decisions[1].to_string(), "a: host, as the settings ask");
    let fragments = told.fragments.lock().unwrap();
    let [fragment] = fragments.as_slice() else { panic!("{} fragments", fragments.len()) };
    assert_eq!(
        names(&fragment.plan),
        ["ProjectionExec", "CrossJoinExec", "BroadcastExec", "TableScanExec"]
    );
    assert_eq!((fragment.tables().as_str(), fragment.on_device.len()), ("b", 2));
    assert_eq!(names(&fragment.broadcasts[0].plan), ["ProjectionExec", "TableScanExec"]);
    // The host's own scan may be a fragment too, which is done first.
    let told = two_devices(&[("a", 0)]);
    place_cuts(join(), "h1+".parse().unwrap(), false, &told).unwrap();
    let fragments = told.fragments.lock().unwrap();
    let tables: Vec<_> = fragments.iter().map(FragmentPlan::tables).collect();
    assert_eq!(tables, ["a", "b"]);
    assert_eq!(names(&fragments[1].broadcasts[0].plan), ["EmptyExec"]);
    // Of a table on one device, the same.
    let told = two_devices(&[("a", 0), ("b", 1)]);
    place_cuts(join(), "h1".parse().unwrap(), false, &told).unwrap();
    assert_eq!(told.fragments.lock().unwrap()[0].on_device, [true]);
}

#[test]
fn joins_within_what_is_broadcast_have_cuts_of_their_own() {
    let tables = |split: &str| {
        // a ⋈ b on one device, collected by a join over c ⋈ d, whose sides lie apart.
        let told = two_devices(&[("a", 0), ("b", 0), ("c", 1)]);
        place_cuts(bushy(), split.parse().unwrap(), false, &told).unwrap();
        let fragments = told.fragments.lock().unwrap();
        let of = |one: &FragmentPlan| (one.tables(), one.broadcasts.len());
        fragments.iter().map(of).collect::<Vec<_>>()
    };
    let found = |list: &[(&str, usize)]| {
        list.iter().map(|(tables, count)| ((*tables).to_owned(), *count)).collect::<Vec<_>>()
    };
    assert_eq!(tables("h1"), found(&[("a, b", 0)]));
    assert_eq!(tables("h2"), found(&[("a, b", 0), ("d", 1)]));
    assert_eq!(tables("h3"), found(&[("a, b", 0), ("d", 2)]));
    assert_eq!(tables("h3+"), found(&[("a, b", 0), ("c", 0), ("d", 2)]));
}

#[test]
fn rows_that_are_collected_are_handed_on_by_one_device_only() {
    let join = |join_type| -> Arc<dyn ExecutionPlan> {
        let (left, right) = (scan("a", None, 1), scan("b", None, 1));
        Arc::new(NestedLoopJoinExec::try_new(left, right, None, &join_type, None).unwrap())
    };
    let below = |told: &Told, plan| place_cuts(plan, "h1".parse().unwrap(), false, told);
    for join_type in [JoinType::Inner, JoinType::Right, JoinType::RightSemi, JoinType::RightAnti] {
        assert!(below(&two_devices(&[("a", 0)]), join(join_type)).is_ok(), "{join_type}");
    }
    for join_type in [JoinType::Left, JoinType::Full, JoinType::LeftSemi, JoinType::LeftAnti] {
        let error = below(&two_devices(&[("a", 0)]), join(join_type)).unwrap_err().to_string();
        assert!(
            error.contains("it needs all rows of \"b\", which lie on 2 devices (d0, d1)"),
            "{error}"
        );
        assert!(below(&two_devices(&[("a", 0), ("b", 1)]), join(join_type)).is_ok(), "{join_type}");
    }
    // Operators that need all rows first cannot be divided either.
    let counted = joined(scan("a", None, 1), scan("b", Some(7), 1));
    let error = below(&two_devices(&[]), counted).unwrap_err().to_string();
    assert!(error.contains("it needs all rows of"), "{error}");
}

#[test]
fn what_has_to_be_whole_below_a_join_has_one_copy() {
    let partitions = |streamed| {
        let told = Told::default();
        place_cuts(joined(scan("a", None, 1), streamed), "h1".parse().unwrap(), false, &told)
            .unwrap();
        let fragments = told.fragments.lock().unwrap();
        (fragments[0].may_run_as_partitions, names(&fragments[0].plan)[2].clone())
    };
    assert_eq!(partitions(projected(scan("b", None, 1))), (true, "ProjectionExec".to_owned()));
    assert_eq!(partitions(sorted(scan("b", None, 1), None)), (false, "SortExec".to_owned()));
    assert_eq!(partitions(sorted(scan("b", None, 1), Some(3))), (false, "SortExec".to_owned()));
    // A limit skips once.
    let limit = GlobalLimitExec::new(scan("b", None, 1), 3, Some(5));
    assert_eq!(partitions(Arc::new(limit)), (false, "GlobalLimitExec".to_owned()));
}

#[test]
fn a_plan_that_broadcasts_is_not_one_devices() {
    let plan = joined(scan("a", None, 1), scan("b", None, 1));
    let told = two_devices(&[("a", 0), ("b", 1)]);
    let error = place_cuts(plan, Split::Ndp, false, &told).unwrap_err().to_string();
    assert!(error.contains("its inputs lie on several devices (d0, d1)"), "{error}");
}

#[test]
fn a_cut_over_all_joins_is_at_the_root_where_what_they_collect_is_sent() {
    let plan = || projected(joined(projected(scan("a", None, 1)), scan("b", None, 2)));
    let told = two_devices(&[("a", 0)]);
    let placed = place_cuts(plan(), Split::ALL_JOINS, false, &told).unwrap();
    assert_eq!(names(&placed.plan), ["EmptyExec"]);
    let fragments = told.fragments.lock().unwrap();
    let tables: Vec<_> = fragments.iter().map(FragmentPlan::tables).collect();
    assert_eq!(tables, ["a", "b"]);
    // What needs the rows of all devices stays above.
    let ordered = sorted(plan(), None);
    let placed = place_cuts(ordered, Split::ALL_JOINS, false, &two_devices(&[("a", 0)])).unwrap();
    assert_eq!(names(&placed.plan), ["SortExec", "EmptyExec"]);
    let refused = |whole, told: &Told| {
        place_cuts(whole, Split::ALL_JOINS, false, told).unwrap_err().to_string()
    };
    let error = refused(projected(scan("a", None, 1)), &two_devices(&[]));
    assert!(error.contains("a device can run 0 of its 0 joins"), "{error}");
    let refusal = Some("d0 serves pages only".to_owned());
    let error = refused(plan(), &Told { refusal, ..two_devices(&[("a", 1)]) });
    assert!(error.contains("d0 serves pages only"), "{error}");
}

#[test]
fn a_join_over_several_devices_that_may_not_broadcast_stays_and_says_why() {
    let told = Told { broadcast_bytes: 0, ..two_devices(&[]) };
    let plan = joined(scan("a", None, 1), scan("b", None, 1));
    let error = place_cuts(plan, "h1".parse().unwrap(), false, &told).unwrap_err().to_string();
    assert!(error.contains("its inputs lie on several devices (d0, d1)"), "{error}");
}

#[test]
fn names_of_splits_are_read_as_they_are_shown() {
    for name in ["host", "h0", "h1", "h1+", "h63+", "g0", "g63", "ndp", "auto"] {
        assert_eq!(name.parse::<Split>().unwrap().to_string(), name);
    }
    for name in ["", "h", "h64", "h01+x", "h-1", "h+1", "h1*", "h0+", "all"] {
        assert!(name.parse::<Split>().is_err(), "{name}");
    }
}

#[test]
fn forced_ndp_names_the_operator_that_cannot() {
    let scans = vec![scan("a", None, 1), scan("b", None, 1)];
    let plan = datafusion_physical_plan::union::UnionExec::try_new(scans).unwrap();
    let error = place_cuts(plan, Split::Ndp, false, &Told::default()).unwrap_err().to_string();
    assert!(error.contains("\"ndp\"") && error.contains("UnionExec"), "{error}");
}

#[test]
fn forced_h0_names_the_device_that_will_not_and_auto_stays() {
    let told = Told { refusal: Some("device \"d\" serves pages only".into()), ..Told::default() };
    let error = place_cuts(scan("t", None, 1), Split::H0, false, &told).unwrap_err().to_string();
    assert!(error.contains("serves pages only"), "{error}");
    let placed = place_cuts(scan("t", None, 1), Split::Auto, false, &told).unwrap();
    assert_eq!(placed.decisions[0].to_string(), "t: host, device \"d\" serves pages only");
}

#[test]
fn auto_cuts_where_fewer_bytes_cross() {
    let told = Told { result_bytes: vec![10.0], ..Told::default() };
    let placed = place_cuts(scan("t", None, 1), Split::Auto, false, &told).unwrap();
    assert_eq!(names(&placed.plan), ["EmptyExec"]);
    assert!(placed.priced.iter().any(|one| one.split == Split::H0 && one.is_chosen));
    let told = Told { result_bytes: vec![2e7], ..Told::default() };
    let placed = place_cuts(scan("t", None, 1), Split::Auto, false, &told).unwrap();
    assert_eq!(names(&placed.plan), ["TableScanExec"]);
    assert!(placed.decisions[0].reason.contains("clearly sooner: h0 "), "{}", placed.decisions[0]);
    assert!(placed.priced[0].is_chosen);
}

#[test]
fn auto_weighs_each_device_of_a_table() {
    let told = Told {
        result_bytes: vec![1e3, 2e6, 0.0],
        link_is_free: vec![false, false, true],
        ..Told::default()
    };
    let placed = place_cuts(scan("t", None, 2), Split::Auto, false, &told).unwrap();
    assert_eq!(
        placed.decisions[0].to_string(),
        "t: device [TableScanExec], d0: about 1000 B of rows instead of 1000 kB of column chunks to read; \
         d1: on the host, about 2000 kB of rows would cross, against 1000 kB of column chunks to read; \
         d2: runs its part beside the others"
    );
    assert_eq!(told.fragments.lock().unwrap()[0].on_device, [true, false, true]);
    // Where it pays nowhere, nothing is cut: also not where it would cost nothing.
    let told =
        Told { result_bytes: vec![2e6, 0.0], link_is_free: vec![false, true], ..Told::default() };
    let placed = place_cuts(scan("t", None, 2), Split::Auto, false, &told).unwrap();
    assert_eq!(names(&placed.plan), ["TableScanExec"]);
    // A device that refuses is read by the host.
    let told = Told {
        refusal: Some("d0 serves pages only".to_owned()),
        result_bytes: vec![1e3, 1e3],
        link_is_free: vec![false, false],
        ..Told::default()
    };
    place_cuts(scan("t", None, 2), Split::Auto, false, &told).unwrap();
    assert_eq!(told.fragments.lock().unwrap()[0].on_device, [false, true]);
    assert!(place_cuts(scan("t", None, 2), Split::H0, false, &told).is_err());
}

#[test]
fn rows_alone_leave_no_scan_to_the_host() {
    let scanned = |plan: Arc<dyn ExecutionPlan>, rows_only: bool| {
        let told = Told { rows_only, result_bytes: vec![2e7], ..Told::default() };
        let placed = place_cuts(plan, Split::Auto, false, &told).unwrap();
        assert!(placed.priced.iter().any(|one| one.is_chosen));
        names(&placed.plan).into_iter().filter(|name| name == "TableScanExec").count()
    };
    assert_eq!(scanned(scan("t", None, 1), false), 1);
    assert_eq!(scanned(scan("t", None, 1), true), 0);
    assert_eq!(scanned(joined(scan("a", None, 1), scan("b", None, 1)), true), 0);
    // But for devices that refuse.
    let told = Told {
        rows_only: true,
        refusal: Some("d0 serves pages only".to_owned()),
        result_bytes: vec![2e6, 2e6, 0.0],
        link_is_free: vec![false, false, true],
        ..Told::default()
    };
    place_cuts(scan("t", None, 2), Split::Auto, false, &told).unwrap();
    assert_eq!(told.fragments.lock().unwrap()[0].on_device, [false, true, true]);
}

#[test]
fn devices_that_are_named_run_every_scan_or_none() {
    let named = |refusal: Option<&str>| Told {
        rows_only: true,
        is_prescribed: true,
        refusal: refusal.map(str::to_owned),
        result_bytes: vec![2e6, 2e6],
        link_is_free: vec![false, false],
        ..Told::default()
    };
    let told = named(None);
    let placed = place_cuts(scan("t", None, 2), Split::Auto, false, &told).unwrap();
    assert_eq!(told.fragments.lock().unwrap()[0].on_device, [true, true]);
    assert!(placed.decisions[0].reason.contains("on the devices that are named"));
    let told = named(Some("d0 serves pages only"));
    let error = place_cuts(scan("t", None, 2), Split::Auto, false, &told).unwrap_err();
    let PlaceCutsError::Forced { operator, reason, .. } = error else { panic!("{error}") };
    assert_eq!((operator.as_str(), reason.as_str()), ("TableScanExec", "d0 serves pages only"));
}

#[test]
fn a_cut_at_the_root_merges_no_devices() {
    let told = || Told {
        result_bytes: vec![0.0, 0.0],
        link_is_free: vec![false, false],
        ..Told::default()
    };
    let placed = place_cuts(projected(scan("t", None, 1)), Split::Ndp, false, &told()).unwrap();
    assert_eq!(names(&placed.plan), ["EmptyExec"]);
    let error =
        place_cuts(sorted(scan("t", None, 1), Some(5)), Split::Ndp, false, &told()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "split \"ndp\" cannot run this statement: SortExec(TopK): it needs all rows of \"t\", which lie on 2 devices \
            (d0, d1)"
    );
    // A scan that counts rows counts those of all devices.
    assert!(place_cuts(scan("t", Some(5), 1), Split::Ndp, false, &told()).is_err());
}

/// How many scans of fragments may be sent keys, and whether the plan above them collects some.
fn keys_sent(plan: &Arc<dyn ExecutionPlan>, split: Split, context: &Told) -> (usize, bool) {
    let placed = place_cuts(Arc::clone(plan), split, false, context).unwrap();
    let fragments = context.fragments.lock().unwrap();
    let count = fragments.iter().flat_map(|fragment| &fragment.scans);
    let count = count.map(|scan| scan.keys_above.len()).sum();
    (count, displayable(placed.plan.as_ref()).indent(true).to_string().contains("CollectKeysExec"))
}

#[test]
fn keys_are_collected_where_a_fragment_may_be_asked_for_them() {
    let told = |key_filters| Told { result_bytes: vec![1e6], key_filters, ..Told::default() };
    let texts = joined_by(DataType::Utf8, NullEquality::NullEqualsNothing);
    assert_eq!(keys_sent(&texts, Split::H0, &told(When::WherePays)), (1, true));
    assert_eq!(keys_sent(&texts, Split::H0, &told(When::Always)), (1, true));
    assert_eq!(keys_sent(&texts, Split::H0, &told(When::Never)), (0, false));
    // Below a cut the scan asks the join's own table.
    let below = Split::Hybrid { joins: 1, leaves: Leaves::None };
    assert_eq!(keys_sent(&texts, below, &told(When::Always)), (0, false));
    assert_eq!(keys_sent(&texts, Split::Host, &told(When::Always)), (0, false));
    // Types without a hash, and joins where NULL is a key.
    let floats = joined_by(DataType::Float64, NullEquality::NullEqualsNothing);
    assert_eq!(keys_sent(&floats, Split::H0, &told(When::Always)), (0, false));
    let nulls = joined_by(DataType::Utf8, NullEquality::NullEqualsNull);
    assert_eq!(keys_sent(&nulls, Split::H0, &told(When::Always)), (0, false));
}

/// `WITH RECURSIVE r AS (first UNION ALL SELECT r.id FROM r CROSS JOIN again)`, and a projection.
fn recursion(
    first: Arc<dyn ExecutionPlan>,
    again: Arc<dyn ExecutionPlan>,
) -> Arc<dyn ExecutionPlan> {
    let schema = first.schema();
    let table = WorkingTableExec::new("r".to_owned(), vec![0], Arc::clone(&schema)).unwrap();
    let terms = [first, projected(joined(Arc::new(table), again))];
    projected(Arc::new(RecursionExec::new("r".to_owned(), schema, terms, false).unwrap()))
}

#[test]
fn recursion_goes_down_as_one_join_does() {
    let plan = || recursion(scan("a", None, 1), scan("b", None, 1));
    let whole = [
        "ProjectionExec",
        "RecursionExec",
        "TableScanExec",
        "ProjectionExec",
        "CrossJoinExec",
        "WorkingTableExec",
        "TableScanExec",
    ];
    for split in ["h1", "ndp"] {
        let told = Told::default();
        let placed = place_cuts(plan(), split.parse().unwrap(), false, &told).unwrap();
        assert_eq!(names(&placed.plan), ["EmptyExec"]);
        let fragments = told.fragments.lock().unwrap();
        assert_eq!(names(&fragments[0].plan), whole);
        assert_eq!(fragments[0].tables(), "a, b");
        assert!(!fragments[0].may_run_as_partitions && fragments[0].sharing.is_none());
    }
    let told = Told::default();
    place_cuts(plan(), Split::H0, false, &told).unwrap();
    let tables: Vec<String> =
        told.fragments.lock().unwrap().iter().map(FragmentPlan::tables).collect();
    assert_eq!(tables, ["a", "b"], "the join of a round is none without its recursion");
    let error = place_cuts(plan(), "h2".parse().unwrap(), false, &Told::default()).unwrap_err();
    assert!(error.to_string().contains("can run 1 of its 1 joins"), "{error}");
}

#[test]
fn joins_without_the_working_table_enter_before_their_recursion() {
    let pair = || joined(scan("b", None, 1), scan("c", None, 1));
    let tables = |split: &str| {
        let told = Told::default();
        let plan = recursion(scan("a", None, 1), projected(pair()));
        place_cuts(plan, split.parse().unwrap(), false, &told).unwrap();
        let fragments = told.fragments.lock().unwrap();
        fragments.iter().map(FragmentPlan::tables).collect::<Vec<_>>()
    };
    assert_eq!(tables("h1"), ["b, c"]);
    assert_eq!(tables("h1+"), ["a", "b, c"]);
    assert_eq!(tables("h2"), ["a, b, c"]);
}

#[test]
fn static_term_that_is_not_there_is_broadcast_and_a_round_is_not() {
    let two = || Told {
        result_bytes: vec![0.0; 2],
        link_is_free: vec![false; 2],
        alone: vec![("a", 1), ("b", 0)],
        ..Told::default()
    };
    let constant = || {
        let schema = scan("a", None, 1).schema();
        Arc::new(EmptyExec::new(schema)) as Arc<dyn ExecutionPlan>
    };
    for first in [scan("a", None, 1), constant()] {
        let told = two();
        let plan = recursion(first, scan("b", None, 1));
        place_cuts(Arc::clone(&plan), "h1".parse().unwrap(), false, &told).unwrap();
        let fragments = told.fragments.lock().unwrap();
        assert_eq!(names(&fragments[0].plan)[1..3], ["RecursionExec", "BroadcastExec"]);
        assert_eq!((fragments[0].tables().as_str(), fragments[0].broadcasts.len()), ("b", 1));
        let without = Told { broadcast_bytes: 0, ..two() };
        place_cuts(plan, "h1".parse().unwrap(), false, &without).unwrap_err();
    }
    // The rows of a round are on the device: they are not sent to where the other table lies.
    let told = two();
    let plan = recursion(scan("a", None, 1), scan("on both", None, 1));
    let error = place_cuts(plan, "h1".parse().unwrap(), false, &told).unwrap_err().to_string();
    assert!(error.contains("its inputs lie on several devices"), "{error}");
    // And without a table there is nothing to run where it lies.
    let plan = recursion(constant(), constant());
    place_cuts(plan, "h1".parse().unwrap(), false, &two()).unwrap_err();
}

/// Groups by `id`, made of partial ones.
fn grouped(input: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    let by_id = |mode, input: Arc<dyn ExecutionPlan>| {
        let id: Arc<dyn PhysicalExpr> = Arc::new(Column::new("id", 0));
        let by = PhysicalGroupBy::new_single(vec![(id, "id".to_owned())]);
        let schema = input.schema();
        let made = AggregateExec::try_new(mode, by, vec![], vec![], input, schema).unwrap();
        Arc::new(made) as Arc<dyn ExecutionPlan>
    };
    let states = Arc::new(CoalescePartitionsExec::new(by_id(AggregateMode::Partial, input)));
    by_id(AggregateMode::Final, states)
}

/// A hash join of two scans by their only column.
fn met(join_type: JoinType) -> Arc<dyn ExecutionPlan> {
    let id = || Arc::new(Column::new("id", 0)) as Arc<dyn PhysicalExpr>;
    let (one, other) = (scan("a", None, 1), scan("b", None, 2));
    let join = HashJoinExecBuilder::new(one, other, vec![(id(), id())], join_type);
    join.with_partition_mode(PartitionMode::CollectLeft).build_exec().unwrap()
}

#[test]
fn groups_by_what_divides_the_rows_go_down_whole() {
    let hashed = || Told { is_hashed: true, ..two_devices(&[]) };
    let below = |plan: Arc<dyn ExecutionPlan>, split: &str, told: &Told| {
        let placed = place_cuts(plan, split.parse().unwrap(), false, told).unwrap();
        let fragments = std::mem::take(&mut *told.fragments.lock().unwrap());
        let partitions = fragments[0].may_run_as_partitions;
        (names(&placed.plan), names(&fragments[0].plan), partitions)
    };
    let whole = ["AggregateExec", "AggregateExec", "TableScanExec"].map(str::to_owned);
    let grouping = || projected(grouped(scan("t", None, 2)));
    let (above, fragment, partitions) = below(grouping(), "h0", &hashed());
    assert_eq!(above, ["ProjectionExec", "AggregateExec", "CoalescePartitionsExec", "EmptyExec"]);
    assert!(fragment == whole[1..] && partitions, "{fragment:?}");
    for split in ["g0", "ndp"] {
        let (above, fragment, partitions) = below(grouping(), split, &hashed());
        assert_eq!(above, ["EmptyExec"], "{split}");
        assert!(fragment[1..] == whole && !partitions, "{split}: {fragment:?}");
    }
    // The best of each device are merged; groups of groups are of the same rows.
    let top = sorted(grouped(grouped(scan("t", None, 2))), Some(3));
    let (above, fragment, _) = below(top, "g0", &hashed());
    assert_eq!(above, ["SortExec", "EmptyExec"]);
    assert_eq!(fragment.len(), 6, "{fragment:?}");
    // Where rows are not divided, only so many are wanted, or one device has them all, nothing is complete on each.
    let one = Told { is_hashed: true, ..Told::default() };
    for (plan, told) in [
        (grouping(), two_devices(&[])),
        (grouped(sorted(scan("t", None, 1), Some(5))), hashed()),
        (grouped(scan("t", Some(5), 1)), hashed()),
        (projected(scan("t", None, 1)), hashed()),
        (grouping(), one),
    ] {
        let error = place_cuts(plan, "g0".parse().unwrap(), false, &told).unwrap_err().to_string();
        assert!(error.contains("no groups are complete on each of several devices"), "{error}");
    }
}

#[test]
fn a_limit_within_a_plan_of_several_devices_is_for_all_of_them() {
    let limited = || -> Arc<dyn ExecutionPlan> {
        let groups = CoalescePartitionsExec::new(grouped(scan("t", None, 2)));
        Arc::new(groups.with_fetch(Some(5)))
    };
    let hashed = || Told { is_hashed: true, ..two_devices(&[]) };
    let error = place_cuts(projected(limited()), Split::Ndp, false, &hashed()).unwrap_err();
    let PlaceCutsError::Forced { operator, reason, .. } = error else { panic!("{error}") };
    assert_eq!(operator, "CoalescePartitionsExec");
    assert!(reason.contains("it needs all rows of \"t\""), "{reason}");
    // The host counts what comes of a cut at the root.
    let told = hashed();
    place_cuts(limited(), Split::Ndp, false, &told).unwrap();
    assert_eq!(told.fragments.lock().unwrap()[0].fetch, Some(5));
}

#[test]
fn joins_whose_rows_meet_on_their_devices_send_nothing() {
    let types = [
        JoinType::Inner,
        JoinType::Left,
        JoinType::Right,
        JoinType::Full,
        JoinType::LeftSemi,
        JoinType::RightAnti,
    ];
    for join_type in types {
        let told = Told { is_hashed: true, broadcast_bytes: 0, ..two_devices(&[]) };
        place_cuts(met(join_type), "h1".parse().unwrap(), false, &told).unwrap();
        let fragments = told.fragments.lock().unwrap();
        let made: Vec<_> =
            fragments.iter().map(|one| (one.tables(), one.on_device.len())).collect();
        assert_eq!(made, [("a, b".to_owned(), 2)], "{join_type}");
        assert!(fragments[0].broadcasts.is_empty(), "{join_type}");
    }
    // Groups by a key that may be NULL for want of a match are not those of the device that has it.
    let told = || Told { is_hashed: true, ..two_devices(&[]) };
    let complete = |join_type| {
        place_cuts(grouped(met(join_type)), "g1".parse().unwrap(), false, &told()).is_ok()
    };
    assert!(complete(JoinType::Inner) && complete(JoinType::Left) && complete(JoinType::RightSemi));
    assert!(!complete(JoinType::Right) && !complete(JoinType::Full));
    // Tables by other values, or on a device alone, are sent.
    let apart = two_devices(&[]);
    place_cuts(met(JoinType::Inner), "h1".parse().unwrap(), false, &apart).unwrap();
    assert_eq!(apart.fragments.lock().unwrap()[0].broadcasts.len(), 1);
}
