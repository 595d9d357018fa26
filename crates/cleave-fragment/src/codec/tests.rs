//! Fragments survive the way to bytes and back; what is no fragment is refused by name.

use arrow::datatypes::{DataType, Field};
use cleave_store::Snapshot;
use datafusion_common::ScalarValue;
use datafusion_execution::runtime_env::RuntimeEnv;
use datafusion_expr::Operator;
use datafusion_physical_expr::expressions::{BinaryExpr, Column, Literal};
use datafusion_physical_plan::displayable;
use datafusion_physical_plan::empty::EmptyExec;
use datafusion_physical_plan::filter::FilterExec;
use datafusion_physical_plan::limit::GlobalLimitExec;

use super::*;
use crate::fragment::{FragmentContext, fragment_task_context};

fn schema(names: &[&str]) -> SchemaRef {
    let fields: Vec<Field> =
        names.iter().map(|name| Field::new(*name, DataType::Int32, true)).collect();
    Arc::new(Schema::new(fields))
}

fn scan() -> TableScan {
    TableScan {
        table: "title".into(),
        table_id: 7,
        output: Projection { schema: schema(&["id"]), columns: vec![ColumnRef::User(1)] },
        filter: Projection { schema: schema(&["year"]), columns: vec![ColumnRef::User(5)] },
        predicate: Some(Arc::new(BinaryExpr::new(
            Arc::new(Column::new("year", 0)),
            Operator::Gt,
            Arc::new(Literal::new(2000i32.into())),
        ))),
        input: 3,
        fetch: Some(10),
    }
}

fn task() -> Arc<TaskContext> {
    #[derive(Debug)]
    struct NoPages;
    impl cleave_store::PageSource for NoPages {
        fn read(
            &self,
            _reads: Vec<cleave_store::PageRead>,
        ) -> futures::future::BoxFuture<
            '_,
            Result<Vec<cleave_store::PageColumns>, cleave_store::StoreError>,
        > {
            Box::pin(async { Ok(Vec::new()) })
        }
        fn read_overflow(
            &self,
            _segment: cleave_store::SegmentRef,
            _pages: Vec<cleave_store::PageRef>,
        ) -> futures::future::BoxFuture<'_, Result<Vec<bytes::Bytes>, cleave_store::StoreError>>
        {
            Box::pin(async { Ok(Vec::new()) })
        }
    }
    let context = Arc::new(FragmentContext {
        pages: Arc::new(NoPages),
        snapshot: Snapshot { commit: 1 },
        inputs: Default::default(),
        read_ahead: 1,
        counters: Arc::default(),
    });
    fragment_task_context(context, Arc::new(RuntimeEnv::default()), &[]).unwrap()
}

fn shown(plan: &Arc<dyn ExecutionPlan>) -> String {
    displayable(plan.as_ref()).indent(true).to_string()
}

#[test]
fn scan_survives_the_way_to_bytes_and_back() {
    let plan: Arc<dyn ExecutionPlan> = Arc::new(TableScanExec::new(scan(), 1));
    let plan: Arc<dyn ExecutionPlan> = Arc::new(GlobalLimitExec::new(plan, 0, Some(5)));
    let bytes = encode_fragment(&plan).unwrap();
    let back = decode_fragment(&bytes, &task()).unwrap();
    assert_eq!(shown(&plan), shown(&back));
    let input = back.children()[0];
    let decoded = input.downcast_ref::<TableScanExec>().unwrap().scan();
    assert_eq!((decoded.table_id, decoded.input, decoded.fetch), (7, 3, Some(10)));
    assert_eq!(decoded.filter.columns, vec![ColumnRef::User(5)]);
    assert!(bytes.len() < 1000, "a fragment names and does not hold: {} bytes", bytes.len());
}

#[test]
fn operator_off_the_list_is_refused_by_name() {
    let plan: Arc<dyn ExecutionPlan> = Arc::new(EmptyExec::new(schema(&["x"])));
    let bytes = encode_fragment(&plan).unwrap();
    let error = decode_fragment(&bytes, &task()).unwrap_err().to_string();
    assert!(error.contains("EmptyExec"), "{error}");
}

#[test]
fn operator_that_holds_data_is_refused_before_it_is_decoded() {
    // A stream of Arrow that promises more schema than there is memory.
    let mut data = vec![0xff; 4];
    data.extend(i32::MAX.to_le_bytes());
    let scan = protobuf::MemoryScanExecNode { partitions: vec![data], ..Default::default() };
    let plan =
        protobuf::PhysicalPlanNode { physical_plan_type: Some(PhysicalPlanType::MemoryScan(scan)) };
    let error = decode_fragment(&plan.encode_to_vec(), &task()).unwrap_err().to_string();
    assert!(error.contains("MemoryScanExec does not run on a device"), "{error}");
}

#[test]
fn plan_that_cannot_be_printed_is_refused() {
    let number = ScalarValue::Decimal128(Some(5), 9, 2);
    let mut odd = scan();
    odd.predicate = Some(Arc::new(BinaryExpr::new(
        Arc::new(Literal::new(number.clone())),
        Operator::Eq,
        Arc::new(Literal::new(number)),
    )));
    let plan: Arc<dyn ExecutionPlan> = Arc::new(TableScanExec::new(odd, 1));
    let bytes = encode_fragment(&plan).unwrap();
    decode_fragment(&bytes, &task()).unwrap();
    // Any byte may be the precision or the scale: whatever decodes can be printed.
    for place in 0..bytes.len() {
        for value in [0, 38, 100, 127, 200, 255] {
            let mut changed = bytes.clone();
            changed[place] = value;
            if let Ok(plan) = decode_fragment(&changed, &task()) {
                assert!(!shown(&plan).is_empty());
            }
        }
    }
}

#[test]
fn operator_of_more_expressions_than_memory_is_refused() {
    let aggregate = protobuf::AggregateExecNode {
        aggr_expr: vec![protobuf::PhysicalExprNode::default(); EXPRESSION_COUNT_MAX + 1],
        ..Default::default()
    };
    let plan = protobuf::PhysicalPlanNode {
        physical_plan_type: Some(PhysicalPlanType::Aggregate(Box::new(aggregate))),
    };
    let error = decode_fragment(&plan.encode_to_vec(), &task()).unwrap_err().to_string();
    assert!(error.contains("more than 1024 expressions"), "{error}");
}

#[test]
fn plan_that_the_engine_panics_at_is_refused() {
    // Grouping sets of no expressions.
    let scan: Arc<dyn ExecutionPlan> = Arc::new(TableScanExec::new(scan(), 1));
    let scan = encode_fragment(&scan).unwrap();
    let aggregate = protobuf::AggregateExecNode {
        groups: vec![true],
        input: Some(Box::new(protobuf::PhysicalPlanNode::decode(scan.as_slice()).unwrap())),
        input_schema: Some((&*schema(&["id"])).try_into().unwrap()),
        ..Default::default()
    };
    let plan = protobuf::PhysicalPlanNode {
        physical_plan_type: Some(PhysicalPlanType::Aggregate(Box::new(aggregate))),
    };
    let error = decode_fragment(&plan.encode_to_vec(), &task()).unwrap_err().to_string();
    assert!(error.contains("no engine writes a plan like it"), "{error}");
}

#[test]
fn operator_off_the_list_is_refused_below_others() {
    let empty: Arc<dyn ExecutionPlan> = Arc::new(EmptyExec::new(schema(&["x"])));
    let predicate: Arc<dyn PhysicalExpr> = Arc::new(Literal::new(true.into()));
    let plan: Arc<dyn ExecutionPlan> = Arc::new(FilterExec::try_new(predicate, empty).unwrap());
    let error = decode_fragment(&encode_fragment(&plan).unwrap(), &task()).unwrap_err().to_string();
    assert!(error.contains("EmptyExec"), "{error}");
}

#[test]
fn damaged_bytes_are_an_error_and_no_panic() {
    let plan: Arc<dyn ExecutionPlan> = Arc::new(TableScanExec::new(scan(), 1));
    let bytes = encode_fragment(&plan).unwrap();
    let task = task();
    for length in 0..bytes.len() {
        drop(decode_fragment(&bytes[..length], &task));
    }
    for position in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[position] ^= 1 << bit;
            drop(decode_fragment(&damaged, &task));
        }
    }
    assert!(decode_fragment(b"no plan at all", &task).is_err());
}

#[test]
fn columns_and_schema_that_disagree_are_refused() {
    let mut wrong = scan();
    wrong.output.columns.push(ColumnRef::User(2));
    let plan: Arc<dyn ExecutionPlan> = Arc::new(TableScanExec::new(wrong, 1));
    let error = decode_fragment(&encode_fragment(&plan).unwrap(), &task()).unwrap_err().to_string();
    assert!(error.contains("names 2 output columns and describes 1"), "{error}");
}

/// A scan for the rows whose year is one of `count`, as a chain of ORs.
fn one_of_years(count: i32) -> Vec<u8> {
    let equals = |year: i32| -> Arc<dyn PhysicalExpr> {
        let column = Arc::new(Column::new("year", 0));
        Arc::new(BinaryExpr::new(column, Operator::Eq, Arc::new(Literal::new(year.into()))))
    };
    let chain = (1..count).fold(equals(0), |before, year| -> Arc<dyn PhysicalExpr> {
        Arc::new(BinaryExpr::new(before, Operator::Or, equals(year)))
    });
    let plan: Arc<dyn ExecutionPlan> =
        Arc::new(TableScanExec::new(TableScan { predicate: Some(chain), ..scan() }, 1));
    encode_fragment(&plan).unwrap()
}

#[test]
fn a_chain_too_deep_to_be_walked_is_refused_before_it_is_built() {
    decode_fragment(&one_of_years(200), &task()).unwrap();
    let error = decode_fragment(&one_of_years(600), &task()).unwrap_err().to_string();
    assert!(error.contains("more than 512 deep"), "{error}");
    // The same message by hand, far longer than a chain that any thread could build and drop.
    let operands = vec![protobuf::PhysicalExprNode::default(); 1_000_000];
    let chain = protobuf::PhysicalBinaryExprNode { l: None, r: None, op: "Or".into(), operands };
    let predicate = protobuf::PhysicalExprNode {
        expr_id: None,
        expr_type: Some(ExprType::BinaryExpr(Box::new(chain))),
    };
    let task = task();
    let context = PhysicalPlanDecodeContext::new(&task, &FragmentCodec);
    let decoder = BoundedDecoder::default();
    let error = decoder.proto_to_physical_expr(&predicate, &schema(&["year"]), &context);
    assert!(error.unwrap_err().to_string().contains("more than 512 deep"));
    assert_eq!(decoder.depth.get(), 0);
}

#[test]
fn columns_of_a_type_that_no_page_has_are_refused() {
    let wide = Field::new("wide", DataType::FixedSizeBinary(i32::MAX), true);
    let mut wrong = scan();
    wrong.output.schema = Arc::new(Schema::new(vec![wide]));
    let plan: Arc<dyn ExecutionPlan> = Arc::new(TableScanExec::new(wrong, 1));
    let error = decode_fragment(&encode_fragment(&plan).unwrap(), &task()).unwrap_err().to_string();
    assert!(error.contains("output column \"wide\""), "{error}");
}

#[test]
fn settings_that_do_not_travel_are_refused_by_name() {
    let context = FragmentContext::of(&task()).unwrap();
    let settings = vec![("datafusion.catalog.location".to_owned(), "x".to_owned())];
    let error = fragment_task_context(context, Arc::new(RuntimeEnv::default()), &settings);
    assert!(error.unwrap_err().to_string().contains("datafusion.catalog.location"));
}

#[test]
fn build_id_names_the_engine_of_the_lock_file() {
    let lock = include_str!("../../../../Cargo.lock");
    let package = format!("name = \"datafusion-physical-plan\"\nversion = \"{ENGINE_VERSION}\"");
    assert!(lock.contains(&package), "ENGINE_VERSION is not the version in Cargo.lock");
    assert!(build_id().contains(ENGINE_VERSION));
}
