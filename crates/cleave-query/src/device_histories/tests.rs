//! What is remembered of a device follows the last reports.

use std::sync::Arc;

use cleave_catalog::catalog::DeviceId;
use cleave_fragment::filter_history::Formula;
use cleave_store::{AbsentValues, ColumnRef, Projection};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, Literal};

use super::{DeviceHistories, LEAVES_MAX};

/// `x < bound`.
fn below(bound: i32) -> Vec<Formula> {
    let of = Projection {
        schema: Arc::new(Schema::new(vec![Field::new("x", DataType::Int32, true)])),
        columns: vec![ColumnRef::User(1)],
        absent: AbsentValues::default(),
    };
    let bound = Arc::new(Literal::new(ScalarValue::Int32(Some(bound))));
    let expr = BinaryExpr::new(Arc::new(Column::new("x", 0)), Operator::Lt, bound);
    let expr: Arc<dyn PhysicalExpr> = Arc::new(expr);
    vec![Formula::of(&expr, 7, &of).unwrap()]
}

#[test]
fn the_last_report_counts_and_few_pages_tell_nothing_of_others() {
    let (one, other) = (DeviceId(1), DeviceId(2));
    let histories = DeviceHistories::default();
    assert_eq!(histories.pages(one, &below(5)), 0);
    histories.note(one, &below(5), 40, 50);
    assert_eq!(histories.pages(one, &below(5)), 40);
    assert_eq!((histories.pages(other, &below(5)), histories.pages(one, &below(6))), (0, 0));
    // All leaves must be known.
    histories.note(one, &below(6), 10, 10);
    assert_eq!(histories.pages(one, &[below(5), below(6)].concat()), 10);
    histories.note(one, &below(5), 3, 3);
    assert_eq!(histories.pages(one, &below(5)), 40, "the other pages were not asked for");
    histories.note(one, &below(5), 2, 3);
    assert_eq!(histories.pages(one, &below(5)), 2, "some were forgotten");
    histories.note(one, &below(5), 0, 50);
    assert!(histories.may_know(one, 7), "the other comparison");
    histories.note(one, &below(6), 0, 50);
    assert!(!histories.may_know(one, 7));
    assert_eq!(histories.lock().count, 0);
}

#[test]
fn no_more_leaves_are_remembered_than_there_is_room_for() {
    let histories = DeviceHistories::default();
    for bound in 0..5000 {
        histories.note(DeviceId(1), &below(bound), 1, 1);
    }
    let known = histories.lock();
    assert!(known.count <= LEAVES_MAX);
    assert_eq!(known.pages.values().map(|of_table| of_table.len()).sum::<usize>(), known.count);
    drop(known);
    assert!(!histories.may_know(DeviceId(1), 8) && !histories.may_know(DeviceId(2), 7));
    assert_eq!(histories.pages(DeviceId(1), &below(4999)), 1);
}
