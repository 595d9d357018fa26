//! A filter reaches its scan, older ones do not, and malformed ones are refused.

use arrow::datatypes::{DataType, Field, Schema};
use cleave_store::{ColumnRef, Projection};
use datafusion_expr::Operator;
use datafusion_physical_expr::expressions::BinaryExpr;

use super::*;
use crate::fragment::unread_task_context;

fn scan(names: [&str; 2], fetch: Option<usize>) -> TableScanExec {
    let fields = names.map(|name| Field::new(name, DataType::Int32, true));
    let none = Arc::new(Schema::empty());
    let scan = TableScan {
        table: "t".into(),
        table_id: 1,
        output: Projection::new(
            Arc::new(Schema::new(fields.to_vec())),
            vec![ColumnRef::User(1), ColumnRef::User(2)],
        ),
        filter: Projection::new(none, vec![]),
        predicate: None,
        input: 4,
        fetch,
        references: References::None,
    };
    TableScanExec::new(scan, 1)
}

fn below(bound: i32) -> Arc<dyn PhysicalExpr> {
    let column = Arc::new(Column::new("k", 1));
    Arc::new(BinaryExpr::new(column, Operator::Lt, lit(bound)))
}

#[test]
fn the_newest_filter_is_the_scans() {
    let task = unread_task_context().unwrap();
    let plan: Arc<dyn ExecutionPlan> = Arc::new(scan(["id", "k"], None));
    let (plan, fed) = FedFilter::attach(plan, 4).unwrap();
    let fed = fed.unwrap();
    let current = || {
        let scan = plan.downcast_ref::<TableScanExec>().unwrap();
        let filter = scan.dynamic_filters().last().unwrap();
        filter.downcast_ref::<DynamicFilterPhysicalExpr>().unwrap().current().unwrap().to_string()
    };
    assert_eq!(current(), "true");
    let scan = scan(["id", "k"], None);
    let bytes = |bound| encode_filter(&scan, [below(bound)]).unwrap();
    fed.take(2, &bytes(20), &task).unwrap();
    assert_eq!(current(), "k@1 < 20");
    fed.take(1, &bytes(10), &task).unwrap();
    fed.take(2, &bytes(15), &task).unwrap();
    assert_eq!(current(), "k@1 < 20", "it is not older");
    fed.take(7, &bytes(5), &task).unwrap();
    assert_eq!(current(), "k@1 < 5");
}

#[test]
fn what_is_no_filter_of_the_scan_is_refused_and_changes_nothing() {
    let task = unread_task_context().unwrap();
    let plan: Arc<dyn ExecutionPlan> = Arc::new(scan(["id", "k"], None));
    let (_, fed) = FedFilter::attach(plan, 4).unwrap();
    let fed = fed.unwrap();
    let refused = |bytes: &[u8]| fed.take(1, bytes, &task).unwrap_err().to_string();
    assert!(!refused(b"no plan").is_empty());
    let other = encode_filter(&scan(["id", "other"], None), [below(1)]).unwrap();
    assert!(refused(&other).contains("other columns"), "{}", refused(&other));
    let bare: Arc<dyn ExecutionPlan> = Arc::new(scan(["id", "k"], None));
    assert!(refused(&encode_fragment(&bare).unwrap()).contains("other columns"));
    assert!(refused(&vec![0; FILTER_BYTES_MAX + 1]).contains("may have"));
    fed.take(1, &encode_filter(&scan(["id", "k"], None), [below(3)]).unwrap(), &task).unwrap();
}

#[test]
fn a_scan_with_a_limit_gets_none() {
    let limited: Arc<dyn ExecutionPlan> = Arc::new(scan(["id", "k"], Some(5)));
    assert!(FedFilter::attach(limited, 4).unwrap().1.is_none());
    let plan: Arc<dyn ExecutionPlan> = Arc::new(scan(["id", "k"], None));
    assert!(FedFilter::attach(plan, 3).unwrap().1.is_none(), "another input");
}
