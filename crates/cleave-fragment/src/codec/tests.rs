//! Fragments survive encoding and decoding; malformed ones are refused by name.

use arrow::datatypes::{DataType, Field};
use arrow::ipc::CompressionType;
use cleave_store::{ColumnRef, Projection};
use datafusion_common::ScalarValue;
use datafusion_execution::runtime_env::RuntimeEnv;
use datafusion_expr::Operator;
use datafusion_physical_expr::expressions::{
    BinaryExpr, CastExpr, Column, Literal, in_list, is_null,
};
use datafusion_physical_plan::displayable;
use datafusion_physical_plan::empty::EmptyExec;
use datafusion_physical_plan::filter::FilterExec;
use datafusion_physical_plan::limit::GlobalLimitExec;
use datafusion_proto::generated::datafusion_common as common;
use datafusion_proto::generated::datafusion_common::scalar_value::Value as ScalarProto;

use super::*;
use crate::command::arrow_message::tests::Crafted;
use crate::expressions::key_filter::KeyFilterExpr;
use crate::expressions::key_set::compact_keys;
use crate::fragment::{FragmentContext, fragment_task_context, unread_task_context};

fn schema(names: &[&str]) -> SchemaRef {
    let fields: Vec<Field> =
        names.iter().map(|name| Field::new(*name, DataType::Int32, true)).collect();
    Arc::new(Schema::new(fields))
}

fn scan() -> TableScan {
    TableScan {
        table: "title".into(),
        table_id: 7,
        output: Projection::new(schema(&["id"]), vec![ColumnRef::User(1)]),
        filter: Projection::new(schema(&["year"]), vec![ColumnRef::User(5)]),
        predicate: Some(Arc::new(BinaryExpr::new(
            Arc::new(Column::new("year", 0)),
            Operator::Gt,
            Arc::new(Literal::new(2000i32.into())),
        ))),
        input: 3,
        fetch: Some(10),
        references: References::None,
    }
}

fn task() -> Arc<TaskContext> {
    unread_task_context().unwrap()
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
    let codec = FragmentCodec::default();
    let context = PhysicalPlanDecodeContext::new(&task, &codec);
    let decoder = BoundedDecoder::default();
    let error = decoder.proto_to_physical_expr(&predicate, &schema(&["year"]), &context);
    assert!(error.unwrap_err().to_string().contains("more than 512 deep"));
    assert_eq!(decoder.depth.get(), 0);
}

#[test]
fn values_of_a_type_that_no_table_has_are_refused() {
    let item = Arc::new(Field::new("item", DataType::Int32, true));
    let wide = DataType::FixedSizeBinary(i32::MAX);
    // Of the others a NULL is as large as a value, also here.
    let types = [
        wide,
        DataType::FixedSizeList(item, 3),
        DataType::Struct(vec![Field::new("a", DataType::FixedSizeBinary(3), true)].into()),
    ];
    for data_type in types {
        let null = Arc::new(Literal::new(ScalarValue::try_from(&data_type).unwrap()));
        let cast = CastExpr::new(Arc::new(Column::new("year", 0)), data_type, None);
        for value in [null as Arc<dyn PhysicalExpr>, Arc::new(cast)] {
            let scan = TableScan { predicate: Some(is_null(value).unwrap()), ..scan() };
            let plan: Arc<dyn ExecutionPlan> = Arc::new(TableScanExec::new(scan, 1));
            let bytes = encode_fragment(&plan).unwrap();
            let error = decode_fragment(&bytes, &task()).unwrap_err().to_string();
            assert!(error.contains("which no table has"), "{error}");
        }
    }
}

#[test]
fn a_null_larger_than_memory_is_refused_before_it_is_made() {
    let item = Arc::new(Field::new("item", DataType::Int32, true));
    let fields = vec![Field::new("a", DataType::FixedSizeBinary(i32::MAX), true)];
    let types = [DataType::FixedSizeList(item, i32::MAX), DataType::Struct(fields.into())];
    for data_type in types {
        let null = common::ScalarValue {
            value: Some(ScalarProto::NullValue((&data_type).try_into().unwrap())),
        };
        let null =
            protobuf::PhysicalExprNode { expr_id: None, expr_type: Some(ExprType::Literal(null)) };
        let task = task();
        let codec = FragmentCodec::default();
        let context = PhysicalPlanDecodeContext::new(&task, &codec);
        let decoder = BoundedDecoder::default();
        let error = decoder.proto_to_physical_expr(&null, &schema(&["year"]), &context);
        assert!(error.unwrap_err().to_string().contains("which no table has"));
    }
}

#[test]
fn lists_cross_as_they_were() {
    let numbers = [Some(7_i64), None, Some(9)].map(ScalarValue::from);
    let list = ScalarValue::List(ScalarValue::new_list_nullable(&numbers, &DataType::Int64));
    let texts = ["a", "a text that is too long to be in its view"].map(ScalarValue::from);
    let texts = ScalarValue::List(ScalarValue::new_list_nullable(&texts, &DataType::Utf8));
    let empty = ScalarValue::List(ScalarValue::new_list_nullable(&[], &DataType::Utf8));
    let pair = [("a", ScalarValue::from(1_i32)), ("b", ScalarValue::from("x"))].into_iter();
    let pair = pair
        .fold(datafusion_common::scalar::ScalarStructBuilder::new(), |pair, (name, value)| {
            pair.with_scalar(Field::new(name, value.data_type(), true), value)
        });
    for value in [list, texts, empty, pair.build().unwrap()] {
        let literal = Arc::new(Literal::new(value));
        let scan = TableScan { predicate: Some(is_null(literal).unwrap()), ..scan() };
        let plan: Arc<dyn ExecutionPlan> = Arc::new(TableScanExec::new(scan, 1));
        let back = decode_fragment(&encode_fragment(&plan).unwrap(), &task()).unwrap();
        assert_eq!(shown(&plan), shown(&back));
    }
}

#[test]
fn lists_that_would_take_more_than_their_bytes_are_refused_before_they_are_made() {
    let item = Arc::new(Field::new("item", DataType::Int64, true));
    let schema_of_list = Schema::new(vec![Field::new("list", DataType::List(item), true)]);
    let numbers = Crafted::numbers();
    let good = Crafted {
        length: 1,
        nodes: vec![(1, 0), (3, 0)],
        buffers: vec![(0, 0), (0, 8), (8, 0), (8, 24)],
        body: [vec![0, 0, 0, 0, 3, 0, 0, 0], numbers.body.clone()].concat(),
        ..numbers
    };
    let compressed = |codec| Crafted { compression: Some(codec), ..good.clone() };
    let many = Crafted { length: 2, nodes: vec![(2, 0), (0, 0)], ..good.clone() };
    let many = Crafted { buffers: vec![(0, 0), (0, 16), (16, 0), (16, 0)], ..many };
    for (crafted, expected) in [
        (good.clone(), None),
        (compressed(CompressionType::LZ4_FRAME), Some("compressed")),
        (compressed(CompressionType::ZSTD), Some("compressed")),
        (many, Some("2 values in the place of one")),
    ] {
        let list = common::ScalarNestedValue {
            ipc_message: crafted.metadata(),
            arrow_data: crafted.body.clone(),
            schema: Some((&schema_of_list).try_into().unwrap()),
            dictionaries: Vec::new(),
        };
        let value = |list| common::ScalarValue { value: Some(ScalarProto::ListValue(list)) };
        // Also nested in a list.
        let inside = common::ScalarDictionaryValue {
            index_type: Some((&DataType::Int32).try_into().unwrap()),
            value: Some(Box::new(value(list.clone()))),
        };
        let inside =
            common::ScalarValue { value: Some(ScalarProto::DictionaryValue(Box::new(inside))) };
        for literal in [value(list), inside] {
            let expr_type = Some(ExprType::Literal(literal));
            let literal = protobuf::PhysicalExprNode { expr_id: None, expr_type };
            let (task, codec) = (task(), FragmentCodec::default());
            let context = PhysicalPlanDecodeContext::new(&task, &codec);
            let decoder = BoundedDecoder::default();
            let decoded = decoder.proto_to_physical_expr(&literal, &schema(&["year"]), &context);
            match expected {
                None => drop(decoded.unwrap()),
                Some(text) => {
                    let error = decoded.unwrap_err().to_string();
                    assert!(error.contains(text), "{error}");
                }
            }
        }
    }
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

/// As many fields of no bytes as a message may have bytes for, inside what `around` makes of them.
fn empty_fields(tag: u8, bytes_max: usize, around: impl Fn(Vec<u8>) -> Vec<u8>) -> Vec<u8> {
    around([tag << 3 | 2, 0].repeat(bytes_max / 2))
}

/// `field` as field `tag`, below 16, of a message.
fn inside(tag: u8, field: &[u8]) -> Vec<u8> {
    let mut message = vec![tag << 3 | 2];
    prost::encoding::encode_varint(field.len() as u64, &mut message);
    message.extend_from_slice(field);
    message
}

#[test]
fn a_message_of_more_structures_than_memory_is_refused_before_it_is_decoded() {
    let bytes_max = FRAGMENT_BYTES_MAX - 64;
    // Inputs of a union and expressions of a list, each of which would be a structure of a kilobyte.
    let of_a_union =
        protobuf::UnionExecNode { inputs: vec![protobuf::PhysicalPlanNode::default(); 4] };
    let union = protobuf::PhysicalPlanNode {
        physical_plan_type: Some(PhysicalPlanType::Union(of_a_union)),
    }
    .encode_to_vec();
    // The field's tag, the length, and then four inputs of two bytes.
    let (start, inputs) = union.split_at(union.len() - 8);
    let tag = inputs[0] >> 3;
    let mut unions = start[..start.len() - 1].to_vec();
    prost::encoding::encode_varint((bytes_max / 2 * 2) as u64, &mut unions);
    unions.extend(empty_fields(tag, bytes_max, |fields| fields));
    protobuf::PhysicalPlanNode::decode(&union[..]).unwrap();
    let deep = empty_fields(2, bytes_max, |fields| inside(3, &inside(1, &fields)));
    let mut damaged = unions.clone();
    // A last field that is longer than the rest of the bytes.
    *damaged.last_mut().unwrap() = 9;
    for bytes in [unions, deep, damaged] {
        for error in [
            decode_fragment(&bytes, &task()).unwrap_err(),
            reserve_plan(&bytes, &task()).unwrap_err(),
        ] {
            let error = error.to_string();
            assert!(error.contains("fields, where at most 65536"), "{error}");
        }
    }
}

/// A task whose operators may hold `bytes` in all.
fn task_of(bytes: usize) -> Arc<TaskContext> {
    use datafusion_execution::memory_pool::GreedyMemoryPool;
    use datafusion_execution::runtime_env::RuntimeEnvBuilder;
    let pool = Arc::new(GreedyMemoryPool::new(bytes));
    let environment = RuntimeEnvBuilder::new().with_memory_pool(pool).build_arc().unwrap();
    let context = FragmentContext::of(&task()).unwrap();
    fragment_task_context(context, environment, &[]).unwrap()
}

#[test]
fn a_plan_is_charged_to_its_run_with_its_keys() {
    let values: Vec<Arc<dyn PhysicalExpr>> = (0..50_000_i32)
        .map(|year| Arc::new(Literal::new((year * 7).into())) as Arc<dyn PhysicalExpr>)
        .collect();
    let column = Arc::new(Column::new("year", 0));
    let list = in_list(column, values, &false, &schema(&["year"])).unwrap();
    let plan_of = |predicate| -> Vec<u8> {
        let scan = TableScan { predicate: Some(predicate), ..scan() };
        encode_fragment(&(Arc::new(TableScanExec::new(scan, 1)) as Arc<dyn ExecutionPlan>)).unwrap()
    };
    let keys = plan_of(compact_keys(Arc::clone(&list)).unwrap());
    assert!(keys.len() < 60_000, "{} bytes", keys.len());
    let task = task_of(4 << 20);
    let held = reserve_plan(&keys, &task).unwrap();
    let decoded = decode_fragment(&keys, &task).unwrap();
    let reserved = task.memory_pool().reserved();
    assert!((800_000..2 << 20).contains(&reserved), "{reserved} bytes for 50000 keys");
    drop((decoded, held));
    assert_eq!(task.memory_pool().reserved(), 0);
    let error = decode_fragment(&keys, &task_of(100_000)).unwrap_err();
    assert!(matches!(error.find_root(), DataFusionError::ResourcesExhausted(_)), "{error}");
    // The same as a list of literals: over a hundred thousand structures.
    let error = reserve_plan(&plan_of(list), &task).unwrap_err();
    assert!(error.to_string().contains("at most 65536"), "{error}");
    reserve_plan(
        &encode_fragment(&(Arc::new(TableScanExec::new(scan(), 1)) as _)).unwrap(),
        &task_of(0),
    )
    .unwrap();
}

#[test]
fn a_filter_of_keys_crosses_and_is_charged_to_its_run() {
    let hashes: Vec<u64> = (0..100_000).map(cleave_store::bloom::hash_integer).collect();
    let filter = cleave_store::BloomFilter::of(&hashes);
    let filter_bytes = filter.bytes();
    let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new("year", 0));
    let predicate = Some(Arc::new(KeyFilterExpr::new(vec![column], filter)) as _);
    let plan: Arc<dyn ExecutionPlan> =
        Arc::new(TableScanExec::new(TableScan { predicate, ..scan() }, 1));
    let bytes = encode_fragment(&plan).unwrap();
    assert!((filter_bytes..filter_bytes + 1000).contains(&bytes.len()), "{}", bytes.len());
    let task = task_of(1 << 20);
    let back = decode_fragment(&bytes, &task).unwrap();
    assert_eq!(shown(&plan), shown(&back));
    assert!(shown(&back).contains("(year@0) IN (filter of about "), "{}", shown(&back));
    assert_eq!(task.memory_pool().reserved(), filter_bytes);
    drop(back);
    assert_eq!(task.memory_pool().reserved(), 0);
    let error = decode_fragment(&bytes, &task_of(filter_bytes / 2)).unwrap_err();
    assert!(matches!(error.find_root(), DataFusionError::ResourcesExhausted(_)), "{error}");
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

/// `WITH RECURSIVE walk AS (SELECT id FROM title UNION SELECT id FROM walk)`; `leaf` names the recursion it refers to.
fn recursion(leaf: &str) -> Arc<dyn ExecutionPlan> {
    let table = WorkingTableExec::new(leaf.to_owned(), vec![0], schema(&["id"])).unwrap();
    let terms: [Arc<dyn ExecutionPlan>; 2] =
        [Arc::new(TableScanExec::new(scan(), 1)), Arc::new(table)];
    Arc::new(RecursionExec::new("walk".to_owned(), schema(&["id"]), terms, true).unwrap())
}

#[test]
fn recursion_survives_the_way_to_bytes_and_back() {
    let plan = recursion("walk");
    let back = decode_fragment(&encode_fragment(&plan).unwrap(), &task()).unwrap();
    assert_eq!(shown(&plan), shown(&back));
    let back = back.downcast_ref::<RecursionExec>().unwrap();
    assert_eq!((back.query_name(), back.is_distinct()), ("walk", true));
}

#[test]
fn reference_without_its_recursion_is_refused() {
    for plan in [recursion("other"), Arc::clone(recursion("walk").children()[1])] {
        let bytes = encode_fragment(&plan).unwrap();
        let error = decode_fragment(&bytes, &task()).unwrap_err().to_string();
        assert!(error.contains("reads the rows of recursion"), "{error}");
    }
}

#[test]
fn recursion_of_other_columns_or_terms_than_it_says_is_refused() {
    let bytes = encode_fragment(&recursion("walk")).unwrap();
    let mut plan = protobuf::PhysicalPlanNode::decode(bytes.as_slice()).unwrap();
    let Some(PhysicalPlanType::Extension(extension)) = &mut plan.physical_plan_type else {
        panic!("a recursion is a node of our own");
    };
    extension.inputs.pop();
    let error = decode_fragment(&plan.encode_to_vec(), &task()).unwrap_err().to_string();
    assert!(error.contains("a recursion of 1 terms"), "{error}");
    // Any byte may be another one: what decodes can be printed, and has its columns.
    for place in 0..bytes.len() {
        for value in [0, 1, 9, 127, 255] {
            let mut changed = bytes.clone();
            changed[place] = value;
            if let Ok(plan) = decode_fragment(&changed, &task()) {
                assert!(!shown(&plan).is_empty());
            }
        }
    }
}
