//! Encodes fragments to bytes and back: the plan by `datafusion-proto`, the leaves by a node of our own.
//!
//! [`encode_fragment`] writes a plan. [`decode_fragment`] reads one and refuses every operator that is not on the list
//! of [`check_device_operator`]. `datafusion-proto` promises no compatibility between versions, so fragments are
//! exchanged only between sides of equal [`build_id`] (rule 2). Pages and commands have formats of their own.

use crate::walk::Walk;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use arrow::datatypes::{Schema, SchemaRef};
use cleave_store::SegmentRef;
use datafusion_common::tree_node::TreeNodeRecursion;
use datafusion_common::{DataFusionError, Result};
use datafusion_execution::TaskContext;
use datafusion_execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion_expr::{AggregateUDF, Operator, ScalarUDF};
use datafusion_physical_expr::expressions::BinaryExpr;
use datafusion_physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion_physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion_physical_expr_common::physical_expr::is_volatile;
use datafusion_physical_expr_common::physical_expr::proto_decode::PhysicalExprDecodeCtx;
use datafusion_physical_expr_common::physical_expr::proto_encode::PhysicalExprEncodeCtx;
use datafusion_physical_plan::aggregates::AggregateExec;
use datafusion_physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion_physical_plan::{ExecutionPlan, displayable};
use datafusion_proto::bytes::{
    physical_plan_from_bytes_with_proto_converter, physical_plan_to_bytes_with_proto_converter,
};
use datafusion_proto::physical_plan::{
    DeduplicatingProtoConverter, PhysicalExtensionCodec, PhysicalPlanDecodeContext,
    PhysicalProtoConverterExtension,
};
use datafusion_proto::protobuf;
use datafusion_proto::protobuf::physical_expr_node::ExprType;
use datafusion_proto::protobuf::physical_plan_node::PhysicalPlanType;
use prost::Message;

use crate::broadcast::unsendable;
use crate::expressions::key_filter::KeyFilterExpr;
use crate::expressions::key_set::KeySetExpr;
use crate::field_count::count_fields;
use crate::functions::bounded::{HOST_ONLY, bounded};
use crate::functions::{delimiter, knowing_infinite, string_agg, within_domains};
use crate::operators::broadcast_exec::BroadcastExec;
use crate::operators::change_pages_exec::ChangePagesExec;
use crate::operators::dense_aggregate_exec::DenseAggregateExec;
use crate::operators::fetch_columns_exec::{FetchColumnsExec, FetchedColumns};
use crate::operators::insert_pages_exec::InsertPagesExec;
use crate::operators::lock_rows_exec::LockRowsExec;
use crate::operators::merge_runs_exec::MergeRunsExec;
use crate::operators::peer_rows::PeerRowsExec;
use crate::operators::recursion_exec::{RecursionExec, WorkingTableExec, open_reference};
use crate::operators::sort_keys_exec::SortKeysExec;
use crate::operators::table_scan_exec::{References, TableScan, TableScanExec};
use crate::operators::write_rows_exec::WriteRowsExec;
use crate::operators::write_run_exec::WriteRunExec;

/// Version of DataFusion whose plans the fragments are. A test compares it with the lock file.
const ENGINE_VERSION: &str = "55.2.0";
/// Version of [`FragmentNode`] and of what surrounds it.
const CODEC_VERSION: u32 = 12;
/// Largest fragment that is decoded.
pub const FRAGMENT_BYTES_MAX: usize = 16 << 20;

/// Most fields of a fragment's message that are decoded: each may become a structure in memory.
pub const FRAGMENT_FIELD_COUNT_MAX: usize = 64 << 10;
/// Approximate bytes of a field's structure, in the message and in the plan.
const FIELD_BYTES: usize = 512;
/// Approximate bytes that one byte of a message becomes, for a repeated number.
const NUMBER_BYTES: usize = 8;
/// Plans below this size are not charged: a run costs the device about as much besides.
const PLAN_BYTES_FREE: usize = 64 << 10;

/// Deepest expression that is decoded. Evaluating, printing and dropping expressions recurses, and a chain of a
/// thousand terms would be a thousand deep, however flat it crossed the link.
pub const EXPRESSION_DEPTH_MAX: usize = 512;

/// Most expressions of one operator that are decoded. Each holds the schema of all, so memory grows with the square.
pub const EXPRESSION_COUNT_MAX: usize = 1024;

/// Longest delimiter of a `string_agg` on a device: a batch grows by as many as it has rows.
const DELIMITER_BYTES_MAX: usize = 1024;

/// Operators of DataFusion that a device runs, by the name they give themselves.
const DEVICE_OPERATORS: [&str; 26] = [
    "TableScanExec",
    "BroadcastExec",
    "PeerRowsExec",
    "FetchColumnsExec",
    "MergeRunsExec",
    "WriteRunExec",
    "SortKeysExec",
    "WriteRowsExec",
    "ChangePagesExec",
    "InsertPagesExec",
    "LockRowsExec",
    "DenseAggregateExec",
    "RecursionExec",
    "WorkingTableExec",
    "FilterExec",
    "ProjectionExec",
    "AggregateExec",
    "SortExec",
    "SortExec(TopK)",
    "GlobalLimitExec",
    "LocalLimitExec",
    "CoalesceBatchesExec",
    "CooperativeExec",
    "HashJoinExec",
    "NestedLoopJoinExec",
    "CrossJoinExec",
];

/// Says why `node` alone, without its inputs, cannot run on a device; `None` if it can.
pub fn check_device_operator(node: &dyn ExecutionPlan) -> Option<String> {
    if !DEVICE_OPERATORS.contains(&node.name()) {
        return Some(format!("{} does not run on a device", node.name()));
    }
    let mut reason = aggregate_of_the_host(node).or_else(|| join_of_the_host(node));
    let visited = node.apply_expressions(&mut |expression| {
        if is_volatile(expression) {
            reason = Some(format!("{expression} is volatile and stays on the host"));
        } else if expression.exists(|e| Ok(e.is::<ScalarSubqueryExpr>()))? {
            reason = Some(format!("{expression} needs a subquery's result, which the host has"));
        } else if expression.exists(|e| Ok(is_unknown(e)))? {
            reason = Some(format!("{expression} is made on the host"));
        } else if expression.exists(|e| Ok(is_of_the_host(e)))? {
            reason =
                Some(format!("{expression} may take any amount of memory and stays on the host"));
        }
        Ok(TreeNodeRecursion::Continue)
    });
    match visited {
        Ok(_) => reason,
        Err(error) => Some(format!("{}: {error}", node.name())),
    }
}

/// Why an aggregate of `node` stays on the host: it grows by much more than its input before it asks for memory.
fn aggregate_of_the_host(node: &dyn ExecutionPlan) -> Option<String> {
    let aggregate = node.downcast_ref::<AggregateExec>()?;
    // The form in which plans travel has no sets without keys.
    if aggregate.group_expr().is_empty() && !aggregate.group_expr().is_true_no_grouping() {
        return Some("grouping sets without keys stay on the host".to_owned());
    }
    let long = aggregate.aggr_expr().iter().find(|function| {
        function.fun().name() == string_agg().name()
            && delimiter(&function.expressions()).len() > DELIMITER_BYTES_MAX
    })?;
    Some(format!("the delimiter of {} is long, it stays on the host", long.fun().name()))
}

/// Why a join of `node` stays on the host: a device must collect one side of a join once for all partitions.
fn join_of_the_host(node: &dyn ExecutionPlan) -> Option<String> {
    let join = node.downcast_ref::<HashJoinExec>()?;
    let mode = join.partition_mode();
    (*mode != PartitionMode::CollectLeft)
        .then(|| format!("a hash join of mode {mode:?} does not run on a device"))
}

fn is_of_the_host(expr: &Arc<dyn PhysicalExpr>) -> bool {
    // The host sends a function in place of this operator, which is not bounded.
    let joins = |binary: &BinaryExpr| *binary.op() == Operator::StringConcat;
    if expr.downcast_ref::<BinaryExpr>().is_some_and(joins) {
        return true;
    }
    expr.downcast_ref::<ScalarFunctionExpr>()
        .is_some_and(|function| HOST_ONLY.contains(&function.fun().name()))
}

/// Whether only the host has a function.
fn is_unknown(expr: &Arc<dyn PhysicalExpr>) -> bool {
    let known = &FragmentFunctions::get().scalar;
    expr.downcast_ref::<ScalarFunctionExpr>()
        .is_some_and(|function| !known.contains_key(function.fun().name()))
}

/// The build whose fragments this side can exchange: DataFusion, codec, functions, collation (rule 2).
pub fn build_id() -> String {
    static BUILD_ID: OnceLock<String> = OnceLock::new();
    BUILD_ID
        .get_or_init(|| {
            let functions = FragmentFunctions::get();
            let mut names: Vec<&str> = functions
                .scalar
                .keys()
                .chain(functions.aggregate.keys())
                .map(String::as_str)
                .collect();
            names.sort_unstable();
            format!(
                "cleave {} engine {ENGINE_VERSION} codec {CODEC_VERSION} functions {:08x} collation C",
                env!("CARGO_PKG_VERSION"),
                crc32c::crc32c(names.join(",").as_bytes()),
            )
        })
        .clone()
}

/// The functions that a fragment may call, by name and alias.
#[derive(Debug)]
pub(crate) struct FragmentFunctions {
    pub(crate) scalar: HashMap<String, Arc<ScalarUDF>>,
    pub(crate) aggregate: HashMap<String, Arc<AggregateUDF>>,
}

impl FragmentFunctions {
    pub(crate) fn get() -> &'static Self {
        static FUNCTIONS: OnceLock<FragmentFunctions> = OnceLock::new();
        FUNCTIONS.get_or_init(|| {
            let mut scalar = HashMap::new();
            let nested = datafusion_functions_nested::all_default_nested_functions();
            let engine = datafusion_functions::all_default_functions().into_iter().chain(nested);
            let engine: Vec<_> = engine.filter(|f| !ABSENT_FUNCTIONS.contains(&f.name())).collect();
            let bounded = bounded(engine.iter().map(Arc::clone));
            let within_domains = within_domains(engine.iter().map(Arc::clone));
            let knowing_infinite = knowing_infinite(engine.iter().map(Arc::clone));
            let engine = engine.into_iter().chain(bounded).chain(within_domains);
            let engine = engine.chain(knowing_infinite);
            // Ours come last: they take the place of DataFusion's.
            for function in engine.chain(crate::functions::scalar()) {
                for alias in function.aliases() {
                    scalar.insert(alias.clone(), Arc::clone(&function));
                }
                scalar.insert(function.name().to_owned(), function);
            }
            let mut aggregate = HashMap::new();
            let engine = datafusion_functions_aggregate::all_default_aggregate_functions();
            for function in engine.into_iter().chain(crate::functions::aggregate()) {
                for alias in function.aliases() {
                    aggregate.insert(alias.clone(), Arc::clone(&function));
                }
                aggregate.insert(function.name().to_owned(), function);
            }
            Self { scalar, aggregate }
        })
    }
}

/// Writes `plan` as bytes. A node that has no wire form is an error that names it.
pub fn encode_fragment(plan: &Arc<dyn ExecutionPlan>) -> Result<Vec<u8>> {
    let converter = DeduplicatingProtoConverter {};
    let codec = FragmentCodec::default();
    Ok(physical_plan_to_bytes_with_proto_converter(Arc::clone(plan), &codec, &converter)?.to_vec())
}

/// Reserves from the pool of `task` the memory that the plan in `bytes` may take, before it is decoded; to be kept as
/// long as the plan is.
pub fn reserve_plan(bytes: &[u8], task: &TaskContext) -> Result<MemoryReservation> {
    let plan_bytes = check_size(bytes)?
        .saturating_mul(FIELD_BYTES)
        .saturating_add(bytes.len().saturating_mul(NUMBER_BYTES));
    let memory = MemoryConsumer::new("the fragment's plan").register(task.memory_pool());
    if plan_bytes > PLAN_BYTES_FREE {
        memory.try_grow(plan_bytes)?;
    }
    Ok(memory)
}

/// The number of fields in the fragment `bytes`; an error where they, or the bytes, are too many.
fn check_size(bytes: &[u8]) -> Result<usize> {
    if bytes.len() > FRAGMENT_BYTES_MAX {
        return Err(DataFusionError::Plan(format!(
            "fragment of {} bytes is larger than the {FRAGMENT_BYTES_MAX} that are accepted",
            bytes.len()
        )));
    }
    let field_count = count_fields(bytes);
    if field_count > FRAGMENT_FIELD_COUNT_MAX {
        return Err(DataFusionError::Plan(format!(
            "fragment of {field_count} fields, where at most {FRAGMENT_FIELD_COUNT_MAX} are accepted"
        )));
    }
    Ok(field_count)
}

/// Reads a plan and checks that every operator in it is one that a device runs.
///
/// Nothing here is trusted. Malformed bytes, a plan with too many parts, an unknown function, a plan too deep to be
/// walked and an operator off the list are errors, each naming what was wrong.
pub fn decode_fragment(bytes: &[u8], task: &TaskContext) -> Result<Arc<dyn ExecutionPlan>> {
    check_size(bytes)?;
    // DataFusion trusts its own messages, and panics at some that it never writes. Half-done results are dropped
    // unseen.
    let decode = || {
        let converter = BoundedDecoder::default();
        let codec = FragmentCodec::over(task);
        let plan = physical_plan_from_bytes_with_proto_converter(bytes, task, &codec, &converter)?;
        // Errors quote expressions, so a plan must be printable, unlike a decimal of 200 places.
        let _ = write!(Nowhere, "{}", displayable(plan.as_ref()).indent(true));
        Ok(plan)
    };
    let plan = catch_unwind(AssertUnwindSafe(decode)).unwrap_or_else(|_| {
        Err(DataFusionError::Plan("fragment refused: no engine writes a plan like it".into()))
    })?;
    check_operators(&plan)?;
    if let Some(name) = open_reference(&plan) {
        let message = format!(
            "fragment refused: it reads the rows of recursion \"{name}\", which it has not"
        );
        return Err(DataFusionError::Plan(message));
    }
    plan.children().into_iter().try_for_each(check_writes_nothing)?;
    Ok(plan)
}

/// Only the root of a fragment may write: its description of the pages reaches the host unchanged.
fn check_writes_nothing(plan: &Arc<dyn ExecutionPlan>) -> Result<()> {
    let writes = plan.is::<WriteRunExec>()
        || plan.is::<WriteRowsExec>()
        || plan.downcast_ref::<ChangePagesExec>().is_some_and(ChangePagesExec::writes_pages)
        || plan.is::<InsertPagesExec>();
    if writes {
        let name = plan.name();
        let message = format!("fragment refused: {name} writes pages and is not the root");
        return Err(DataFusionError::Plan(message));
    }
    plan.children().into_iter().try_for_each(check_writes_nothing)
}

fn check_operators(plan: &Arc<dyn ExecutionPlan>) -> Result<()> {
    // DataFusion allocates as many groups as the limit says, and more, before it has seen one.
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>()
        && aggregate.limit_options().is_some()
        && !aggregate.is_unordered_unfiltered_group_by_distinct()
    {
        let message = "fragment refused: an aggregate of the first groups does not run on a device";
        return Err(DataFusionError::Plan(message.into()));
    }
    if let Some(reason) = check_device_operator(plan.as_ref()) {
        return Err(DataFusionError::Plan(format!("fragment refused: {reason}")));
    }
    plan.children().into_iter().try_for_each(check_operators)
}

/// Refuses an operator that no device runs before it is decoded: some hold data, and their decoders trust lengths.
fn check_plan_type(plan_type: Option<&PhysicalPlanType>) -> Result<()> {
    let expression_count = match plan_type {
        Some(PhysicalPlanType::Aggregate(node)) => {
            node.aggr_expr.len().max(node.group_expr.len()).max(node.groups.len())
        }
        Some(PhysicalPlanType::Projection(node)) => node.expr.len(),
        Some(PhysicalPlanType::Sort(node)) => node.expr.len(),
        _ => 0,
    };
    if expression_count > EXPRESSION_COUNT_MAX {
        return Err(DataFusionError::Plan(format!(
            "fragment refused: an operator has more than {EXPRESSION_COUNT_MAX} expressions"
        )));
    }
    match plan_type {
        // The decoder reports what is missing.
        None
        | Some(
            PhysicalPlanType::Extension(_)
            | PhysicalPlanType::Filter(_)
            | PhysicalPlanType::Projection(_)
            | PhysicalPlanType::Aggregate(_)
            | PhysicalPlanType::Sort(_)
            | PhysicalPlanType::GlobalLimit(_)
            | PhysicalPlanType::LocalLimit(_)
            | PhysicalPlanType::CoalesceBatches(_)
            | PhysicalPlanType::Cooperative(_)
            | PhysicalPlanType::HashJoin(_)
            | PhysicalPlanType::NestedLoopJoin(_)
            | PhysicalPlanType::CrossJoin(_),
        ) => Ok(()),
        Some(other) => {
            let mut name = FirstWord(String::new());
            // Ends with an error where the word ends.
            let _ = write!(name, "{other:?}");
            Err(DataFusionError::Plan(format!(
                "fragment refused: {}Exec does not run on a device",
                name.0
            )))
        }
    }
}

/// Discards text.
struct Nowhere;

impl fmt::Write for Nowhere {
    fn write_str(&mut self, _text: &str) -> fmt::Result {
        Ok(())
    }
}

/// Takes text up to its first parenthesis.
struct FirstWord(String);

impl fmt::Write for FirstWord {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let (word, behind) = text.split_once('(').map_or((text, None), |(w, b)| (w, Some(b)));
        self.0.push_str(word);
        if behind.is_some() { Err(fmt::Error) } else { Ok(()) }
    }
}

/// Decodes as [`DeduplicatingProtoConverter`] encodes, and no expression deeper than
/// [`EXPRESSION_DEPTH_MAX`].
///
/// Protobuf's own limit does not help: a chain of one operator crosses as a flat list of operands, and
/// becomes as deep as the list is long.
#[derive(Default)]
struct BoundedDecoder {
    depth: Cell<usize>,
    /// Expressions with an identity, which several places of a plan share.
    known: RefCell<HashMap<u64, Arc<dyn PhysicalExpr>>>,
}

impl PhysicalProtoConverterExtension for BoundedDecoder {
    fn proto_to_execution_plan(
        &self,
        proto: &protobuf::PhysicalPlanNode,
        context: &PhysicalPlanDecodeContext<'_>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        check_plan_type(proto.physical_plan_type.as_ref())?;
        self.default_proto_to_execution_plan(proto, context)
    }

    fn execution_plan_to_proto(
        &self,
        _plan: &Arc<dyn ExecutionPlan>,
        _codec: &dyn PhysicalExtensionCodec,
    ) -> Result<protobuf::PhysicalPlanNode> {
        Err(DataFusionError::Internal("a decoder does not encode plans".into()))
    }

    fn proto_to_physical_expr(
        &self,
        proto: &protobuf::PhysicalExprNode,
        schema: &Schema,
        context: &PhysicalPlanDecodeContext<'_>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        check_literal(proto.expr_type.as_ref())?;
        let above = self.depth.get();
        let own = match &proto.expr_type {
            Some(ExprType::BinaryExpr(binary)) => binary.operands.len().max(1),
            _ => 1,
        };
        let depth = above.saturating_add(own);
        if depth > EXPRESSION_DEPTH_MAX {
            return Err(DataFusionError::Plan(format!(
                "fragment refused: an expression is more than {EXPRESSION_DEPTH_MAX} deep"
            )));
        }
        self.depth.set(depth);
        let decoded = self.default_proto_to_physical_expr(proto, schema, context);
        self.depth.set(above);
        let decoded = decoded?;
        type_made_of(&decoded).as_ref().map_or(Ok(()), check_width)?;
        let Some(id) = proto.expr_id else { return Ok(decoded) };
        let known = self.known.borrow().get(&id).map(Arc::clone);
        match known {
            // Shared parts, such as the state of a dynamic filter, stay shared by deriving one from the other.
            Some(known) => {
                let children: Vec<_> = decoded.children().into_iter().map(Arc::clone).collect();
                if children.len() != known.children().len() {
                    let message = format!("fragment refused: expression {id} is two of them");
                    return Err(DataFusionError::Plan(message));
                }
                known.with_new_children(children)
            }
            None => {
                self.known.borrow_mut().insert(id, Arc::clone(&decoded));
                Ok(decoded)
            }
        }
    }

    fn physical_expr_to_proto(
        &self,
        _expr: &Arc<dyn PhysicalExpr>,
        _codec: &dyn PhysicalExtensionCodec,
    ) -> Result<protobuf::PhysicalExprNode> {
        Err(DataFusionError::Internal("a decoder does not encode expressions".into()))
    }
}

/// Wire form of an expression that is not DataFusion's own. DataFusion encodes its operands.
#[derive(Clone, PartialEq, Message)]
struct ExpressionNode {
    #[prost(oneof = "Keys", tags = "1, 2")]
    keys: Option<Keys>,
}

/// Keys, in the form that their expression reads.
#[derive(Clone, PartialEq, prost::Oneof)]
enum Keys {
    #[prost(bytes = "vec", tag = "1")]
    Set(Vec<u8>),
    #[prost(bytes = "vec", tag = "2")]
    Filter(Vec<u8>),
}

/// Wire form of an operator that is not DataFusion's own. DataFusion encodes its input, if it has one.
#[derive(Clone, PartialEq, Message)]
struct FragmentNode {
    #[prost(oneof = "OperatorNode", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 20, 30, 31, 40, 50")]
    operator: Option<OperatorNode>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum OperatorNode {
    #[prost(message, tag = "1")]
    Scan(Box<ScanNode>),
    #[prost(message, tag = "2")]
    MergeRuns(MergeRunsNode),
    #[prost(message, tag = "3")]
    WriteRun(WriteRunNode),
    #[prost(message, tag = "4")]
    DenseAggregate(DenseAggregateNode),
    #[prost(message, tag = "5")]
    Broadcast(BroadcastNode),
    #[prost(message, tag = "6")]
    FetchColumns(Box<FetchColumnsNode>),
    #[prost(message, tag = "7")]
    WriteRows(WriteRowsNode),
    #[prost(message, tag = "8")]
    ChangePages(Box<ChangePagesNode>),
    #[prost(message, tag = "9")]
    InsertPages(Box<InsertPagesNode>),
    #[prost(message, tag = "20")]
    LockRows(LockRowsNode),
    #[prost(message, tag = "30")]
    Recursion(RecursionNode),
    #[prost(message, tag = "31")]
    WorkingTable(WorkingTableNode),
    #[prost(message, tag = "40")]
    SortKeys(SortKeysNode),
    #[prost(message, tag = "50")]
    PeerRows(PeerRowsNode),
}

/// Wire form of a [`BroadcastExec`].
#[derive(Clone, PartialEq, Message)]
struct BroadcastNode {
    #[prost(uint32, tag = "1")]
    input: u32,
    #[prost(message, optional, tag = "2")]
    schema: Option<protobuf::Schema>,
}

/// Wire form of a [`FetchColumnsExec`].
#[derive(Clone, PartialEq, Message)]
struct FetchColumnsNode {
    #[prost(string, tag = "1")]
    table: String,
    #[prost(uint32, tag = "2")]
    input: u32,
    #[prost(uint32, repeated, tag = "3")]
    columns: Vec<u32>,
    #[prost(message, optional, tag = "4")]
    columns_schema: Option<protobuf::Schema>,
    #[prost(uint32, tag = "5")]
    reference: u32,
    #[prost(message, optional, tag = "6")]
    schema: Option<protobuf::Schema>,
    #[prost(uint32, repeated, tag = "7")]
    places: Vec<u32>,
    #[prost(message, repeated, tag = "8")]
    absent: Vec<AbsentNode>,
}

/// Wire form of a [`DenseAggregateExec`], which its input describes fully.
#[derive(Clone, Copy, PartialEq, Message)]
struct DenseAggregateNode {}

/// Wire form of a [`MergeRunsExec`].
#[derive(Clone, PartialEq, Message)]
struct MergeRunsNode {
    #[prost(uint32, tag = "1")]
    input: u32,
    #[prost(uint32, tag = "2")]
    table_id: u32,
    #[prost(bool, tag = "3")]
    newest: bool,
    #[prost(uint64, repeated, tag = "4")]
    gone: Vec<u64>,
}

/// Wire form of a [`WriteRunExec`].
#[derive(Clone, PartialEq, Message)]
struct WriteRunNode {
    #[prost(message, optional, tag = "1")]
    segment: Option<cleave_store::proto::SegmentRef>,
    #[prost(bool, tag = "2")]
    unique: bool,
}

/// Wire form of a [`TableScan`].
#[derive(Clone, PartialEq, Message)]
struct ScanNode {
    #[prost(string, tag = "1")]
    table: String,
    #[prost(uint32, tag = "2")]
    table_id: u32,
    #[prost(uint32, repeated, tag = "3")]
    output_columns: Vec<u32>,
    #[prost(message, optional, tag = "4")]
    output_schema: Option<protobuf::Schema>,
    #[prost(uint32, repeated, tag = "5")]
    filter_columns: Vec<u32>,
    #[prost(message, optional, tag = "6")]
    filter_schema: Option<protobuf::Schema>,
    #[prost(message, optional, tag = "7")]
    predicate: Option<protobuf::PhysicalExprNode>,
    #[prost(uint32, tag = "8")]
    input: u32,
    #[prost(uint64, optional, tag = "9")]
    fetch: Option<u64>,
    /// [`References`], by number.
    #[prost(uint32, tag = "10")]
    references: u32,
    /// Default values of columns of output and filter that a page lacks.
    #[prost(message, repeated, tag = "11")]
    absent: Vec<AbsentNode>,
}

/// Encodes and decodes the nodes that are not DataFusion's own.
#[derive(Debug, Default)]
struct FragmentCodec {
    /// The memory that decoded sets and filters of keys are charged to, as long as any of them exists.
    memory: Option<Arc<MemoryReservation>>,
}

impl FragmentCodec {
    /// A codec for plans that are to run in `task`.
    fn over(task: &TaskContext) -> Self {
        let memory = MemoryConsumer::new("the fragment's keys").register(task.memory_pool());
        Self { memory: Some(Arc::new(memory)) }
    }
}

impl PhysicalExtensionCodec for FragmentCodec {
    fn try_decode_expr(
        &self,
        bytes: &[u8],
        inputs: &[Arc<dyn PhysicalExpr>],
        _context: &PhysicalExprDecodeCtx<'_>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let node = ExpressionNode::decode(bytes)
            .map_err(|error| DataFusionError::External(Box::new(error)))?;
        match node.keys {
            Some(Keys::Set(keys)) => KeySetExpr::decode(&keys, inputs, self.memory.as_ref()),
            Some(Keys::Filter(bits)) => KeyFilterExpr::decode(&bits, inputs, self.memory.as_ref()),
            None => Err(DataFusionError::Plan("an expression without a kind".into())),
        }
    }

    fn try_encode_expr(
        &self,
        node: &Arc<dyn PhysicalExpr>,
        bytes: &mut Vec<u8>,
        _context: &PhysicalExprEncodeCtx<'_>,
    ) -> Result<()> {
        let keys = if let Some(set) = node.downcast_ref::<KeySetExpr>() {
            Keys::Set(set.encode())
        } else if let Some(filter) = node.downcast_ref::<KeyFilterExpr>() {
            Keys::Filter(filter.encode())
        } else {
            return Err(DataFusionError::Plan(format!("{node} does not cross a link")));
        };
        bytes.extend(ExpressionNode { keys: Some(keys) }.encode_to_vec());
        Ok(())
    }

    fn try_decode(
        &self,
        bytes: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        task: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let node = FragmentNode::decode(bytes)
            .map_err(|error| DataFusionError::External(Box::new(error)))?;
        let node = match node.operator {
            Some(OperatorNode::Scan(node)) => *node,
            Some(OperatorNode::MergeRuns(node)) => {
                let merge = MergeRunsExec::new(node.input, node.table_id);
                let merge = merge.without(written_rows::gone_of_steps(&node.gone)?)?;
                return Ok(Arc::new(if node.newest { merge.of_newest() } else { merge }));
            }
            Some(OperatorNode::WriteRun(node)) => return decode_write_run(node, inputs),
            Some(OperatorNode::WriteRows(node)) => return written_rows::decode(node, inputs),
            Some(OperatorNode::ChangePages(node)) => return changed_pages::decode(*node, inputs),
            Some(OperatorNode::InsertPages(node)) => return inserted_rows::decode(*node, inputs),
            Some(OperatorNode::LockRows(node)) => return locked_rows::decode(node, inputs),
            Some(OperatorNode::Recursion(node)) => return recursions::decode(node, inputs),
            Some(OperatorNode::WorkingTable(node)) => return recursions::decode_leaf(node),
            Some(OperatorNode::SortKeys(node)) => return sorted_keys::decode(node, inputs),
            Some(OperatorNode::DenseAggregate(_)) => return decode_dense_aggregate(inputs),
            Some(OperatorNode::Broadcast(node)) => return decode_broadcast(node),
            Some(OperatorNode::PeerRows(node)) => return peer_rows::decode(node),
            Some(OperatorNode::FetchColumns(node)) => return decode_fetch_columns(*node, inputs),
            None => return Err(DataFusionError::Plan("an operator without a kind".into())),
        };
        let absent = decode_absent(node.absent);
        let (columns, schema) = (node.output_columns, node.output_schema.as_ref());
        let output = decode_projection("output", columns, schema, &absent)?;
        let (columns, schema) = (node.filter_columns, node.filter_schema.as_ref());
        let filter = decode_projection("filter", columns, schema, &absent)?;
        let context = PhysicalPlanDecodeContext::new(task, self);
        let predicate = node
            .predicate
            .map(|predicate| converter.proto_to_physical_expr(&predicate, &filter.schema, &context))
            .transpose()?;
        let fetch = node.fetch.map(usize::try_from).transpose().map_err(|_| {
            DataFusionError::Plan("a scan's row limit does not fit this machine".into())
        })?;
        let scan = TableScan {
            table: node.table,
            table_id: node.table_id,
            output,
            filter,
            predicate,
            input: node.input,
            fetch,
            references: References::of_number(node.references)?,
        };
        Ok(Arc::new(TableScanExec::new(scan, 1)))
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        bytes: &mut Vec<u8>,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        let operator = if let Some(exec) = node.downcast_ref::<TableScanExec>() {
            OperatorNode::Scan(Box::new(self.encode_scan(exec.scan(), converter)?))
        } else if let Some(exec) = node.downcast_ref::<MergeRunsExec>() {
            let (input, table_id) = (exec.input(), exec.table_id());
            let (newest, gone) = (exec.is_of_newest(), written_rows::steps_of_gone(exec.gone()));
            OperatorNode::MergeRuns(MergeRunsNode { input, table_id, newest, gone })
        } else if let Some(exec) = node.downcast_ref::<WriteRunExec>() {
            let segment = Some((&exec.segment()).into());
            OperatorNode::WriteRun(WriteRunNode { segment, unique: exec.is_unique() })
        } else if let Some(exec) = node.downcast_ref::<SortKeysExec>() {
            OperatorNode::SortKeys(sorted_keys::encode(exec))
        } else if let Some(exec) = node.downcast_ref::<WriteRowsExec>() {
            OperatorNode::WriteRows(written_rows::encode(exec))
        } else if let Some(exec) = node.downcast_ref::<ChangePagesExec>() {
            OperatorNode::ChangePages(Box::new(changed_pages::encode(exec)?))
        } else if let Some(exec) = node.downcast_ref::<InsertPagesExec>() {
            OperatorNode::InsertPages(Box::new(inserted_rows::encode(exec)?))
        } else if let Some(exec) = node.downcast_ref::<LockRowsExec>() {
            OperatorNode::LockRows(locked_rows::encode(exec)?)
        } else if let Some(exec) = node.downcast_ref::<RecursionExec>() {
            OperatorNode::Recursion(recursions::encode(exec)?)
        } else if let Some(exec) = node.downcast_ref::<WorkingTableExec>() {
            OperatorNode::WorkingTable(recursions::encode_leaf(exec)?)
        } else if let Some(exec) = node.downcast_ref::<BroadcastExec>() {
            let schema = Some(exec.schema().as_ref().try_into()?);
            OperatorNode::Broadcast(BroadcastNode { input: exec.input(), schema })
        } else if let Some(exec) = node.downcast_ref::<PeerRowsExec>() {
            OperatorNode::PeerRows(peer_rows::encode(exec)?)
        } else if node.is::<DenseAggregateExec>() {
            OperatorNode::DenseAggregate(DenseAggregateNode {})
        } else if let Some(exec) = node.downcast_ref::<FetchColumnsExec>() {
            OperatorNode::FetchColumns(Box::new(encode_fetch_columns(exec.fetched())?))
        } else {
            return Err(DataFusionError::Plan(format!("{} does not run on a device", node.name())));
        };
        bytes.extend(FragmentNode { operator: Some(operator) }.encode_to_vec());
        Ok(())
    }
}

impl FragmentCodec {
    fn encode_scan(
        &self,
        scan: &TableScan,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<ScanNode> {
        let predicate = scan
            .predicate
            .as_ref()
            .map(|predicate| converter.physical_expr_to_proto(predicate, self))
            .transpose()?;
        Ok(ScanNode {
            table: scan.table.clone(),
            table_id: scan.table_id,
            output_columns: named_columns(&scan.output)?,
            output_schema: Some(scan.output.schema.as_ref().try_into()?),
            filter_columns: named_columns(&scan.filter)?,
            filter_schema: Some(scan.filter.schema.as_ref().try_into()?),
            predicate,
            input: scan.input,
            fetch: scan.fetch.map(|fetch| fetch as u64),
            references: scan.references as u32,
            absent: encode_absent(&[&scan.output, &scan.filter]),
        })
    }
}

fn decode_write_run(
    node: WriteRunNode,
    inputs: &[Arc<dyn ExecutionPlan>],
) -> Result<Arc<dyn ExecutionPlan>> {
    let segment = node.segment.map(SegmentRef::from);
    match (segment, inputs) {
        (Some(segment), [entries]) => {
            Ok(Arc::new(WriteRunExec::new(Arc::clone(entries), segment, node.unique)?))
        }
        _ => Err(DataFusionError::Plan("a run to be written without name or entries".into())),
    }
}

fn decode_broadcast(node: BroadcastNode) -> Result<Arc<dyn ExecutionPlan>> {
    let schema = node.schema.as_ref().ok_or_else(|| {
        DataFusionError::Plan("fragment refused: a broadcast without its schema".into())
    })?;
    let schema: SchemaRef = Arc::new(schema.try_into()?);
    match unsendable(&schema) {
        Some(reason) => {
            Err(DataFusionError::Plan(format!("fragment refused: a broadcast whose {reason}")))
        }
        None => Ok(Arc::new(BroadcastExec::new(node.input, schema))),
    }
}

fn decode_dense_aggregate(inputs: &[Arc<dyn ExecutionPlan>]) -> Result<Arc<dyn ExecutionPlan>> {
    let dense = if let [input] = inputs { DenseAggregateExec::over(input) } else { None };
    let message = "fragment refused: a dense aggregate over what it cannot help";
    Ok(Arc::new(dense.ok_or_else(|| DataFusionError::Plan(message.into()))?))
}

fn encode_fetch_columns(fetched: &FetchedColumns) -> Result<FetchColumnsNode> {
    let number = |place: &usize| {
        u32::try_from(*place).map_err(|_| DataFusionError::Plan("a column beyond 2^32".into()))
    };
    Ok(FetchColumnsNode {
        table: fetched.table.clone(),
        input: fetched.input,
        columns: named_columns(&fetched.columns)?,
        columns_schema: Some(fetched.columns.schema.as_ref().try_into()?),
        reference: number(&fetched.reference)?,
        schema: Some(fetched.schema.as_ref().try_into()?),
        places: fetched.places.iter().map(number).collect::<Result<_>>()?,
        absent: encode_absent(&[&fetched.columns]),
    })
}

fn decode_fetch_columns(
    node: FetchColumnsNode,
    inputs: &[Arc<dyn ExecutionPlan>],
) -> Result<Arc<dyn ExecutionPlan>> {
    let bad = |what: &str| DataFusionError::Plan(format!("columns to be fetched {what}"));
    let [rows] = inputs else { return Err(bad("for no rows")) };
    let schema: Schema = node.schema.as_ref().ok_or_else(|| bad("without a schema"))?.try_into()?;
    let place = |place: u32| usize::try_from(place).unwrap_or(usize::MAX);
    let fetched = FetchedColumns {
        table: node.table,
        input: node.input,
        columns: decode_projection(
            "fetched",
            node.columns,
            node.columns_schema.as_ref(),
            &decode_absent(node.absent),
        )?,
        reference: place(node.reference),
        schema: Arc::new(schema),
        places: node.places.into_iter().map(place).collect(),
    };
    Ok(Arc::new(FetchColumnsExec::new(Arc::clone(rows), fetched)?))
}

mod absent_functions;
mod changed_pages;
mod inserted_rows;
mod literals;
mod locked_rows;
mod peer_rows;
mod projections;
mod recursions;
mod sorted_keys;
mod written_rows;

pub use absent_functions::ABSENT_FUNCTIONS;
use changed_pages::ChangePagesNode;
use inserted_rows::InsertPagesNode;
pub(crate) use literals::has_sound_width;
use literals::{check_literal, check_width, type_made_of};
use locked_rows::LockRowsNode;
use peer_rows::PeerRowsNode;
use projections::{AbsentNode, decode_absent, decode_projection, encode_absent, named_columns};
use recursions::{RecursionNode, WorkingTableNode};
use sorted_keys::SortKeysNode;
use written_rows::WriteRowsNode;

#[cfg(test)]
mod tests;
