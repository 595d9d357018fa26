//! Fragments as bytes: the plan by `datafusion-proto`, the leaves by a node of our own.
//!
//! [`encode_fragment`] writes a plan, [`decode_fragment`] reads one back and refuses every operator
//! that is not on the list of [`check_device_operator`]. `datafusion-proto` promises nothing across
//! versions, so fragments are exchanged only between sides of equal [`build_id`] (rule 2); pages and
//! commands have formats of their own.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use arrow::datatypes::{Schema, SchemaRef};
use cleave_store::page::ValueType;
use cleave_store::{ColumnRef, Projection};
use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_common::{DataFusionError, Result};
use datafusion_execution::TaskContext;
use datafusion_expr::{AggregateUDF, ScalarUDF};
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion_physical_expr_common::physical_expr::is_volatile;
use datafusion_physical_expr_common::physical_expr::proto_decode::PhysicalExprDecodeCtx;
use datafusion_physical_expr_common::physical_expr::proto_encode::PhysicalExprEncodeCtx;
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

use crate::expressions::key_set::KeySetExpr;
use crate::operators::table_scan_exec::{TableScan, TableScanExec};

/// Version of the engine whose plans the fragments are. A test compares it with the lock file.
const ENGINE_VERSION: &str = "55.2.0";
/// Version of [`ScanNode`] and of what surrounds it.
const CODEC_VERSION: u32 = 2;
/// Largest fragment that is decoded.
pub const FRAGMENT_BYTES_MAX: usize = 16 << 20;

/// Deepest expression that is decoded. What evaluates, prints and drops expressions recurses, and a
/// chain of a thousand terms would be a thousand deep, however flat it crossed the link.
pub const EXPRESSION_DEPTH_MAX: usize = 512;

/// Most expressions of one operator that are decoded. Each holds the schema of all, so memory grows with the square.
pub const EXPRESSION_COUNT_MAX: usize = 1024;

/// Operators of the engine that a device runs, by the name they give themselves.
const DEVICE_OPERATORS: [&str; 10] = [
    "TableScanExec",
    "FilterExec",
    "ProjectionExec",
    "AggregateExec",
    "SortExec",
    "SortExec(TopK)",
    "GlobalLimitExec",
    "LocalLimitExec",
    "CoalesceBatchesExec",
    "CooperativeExec",
];

/// Says why `node` alone, without its inputs, cannot run on a device; `None` if it can.
pub fn check_device_operator(node: &dyn ExecutionPlan) -> Option<String> {
    if !DEVICE_OPERATORS.contains(&node.name()) {
        return Some(format!("{} does not run on a device", node.name()));
    }
    let mut reason = None;
    let visited = node.apply_expressions(&mut |expression| {
        if is_volatile(expression) {
            reason = Some(format!("{expression} is volatile and stays on the host"));
        } else if expression.exists(|e| Ok(e.is::<ScalarSubqueryExpr>()))? {
            reason = Some(format!("{expression} needs a subquery's result, which the host has"));
        }
        Ok(TreeNodeRecursion::Continue)
    });
    match visited {
        Ok(_) => reason,
        Err(error) => Some(format!("{}: {error}", node.name())),
    }
}

/// The build whose fragments this side can exchange: engine, codec, functions, collation (rule 2).
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
            for function in engine.chain(crate::functions::scalar()) {
                for alias in function.aliases() {
                    scalar.insert(alias.clone(), Arc::clone(&function));
                }
                scalar.insert(function.name().to_owned(), function);
            }
            let mut aggregate = HashMap::new();
            let engine = datafusion_functions_aggregate::all_default_aggregate_functions();
            // Ours come last: they take the place of the engine's.
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
    Ok(physical_plan_to_bytes_with_proto_converter(Arc::clone(plan), &FragmentCodec, &converter)?
        .to_vec())
}

/// Reads a plan and checks that every operator in it is one that a device runs.
///
/// Nothing here is trusted: bytes that are no plan, a plan that names an unknown function, one too
/// deep to be walked and an operator off the list are errors, each naming what was wrong.
pub fn decode_fragment(bytes: &[u8], task: &TaskContext) -> Result<Arc<dyn ExecutionPlan>> {
    if bytes.len() > FRAGMENT_BYTES_MAX {
        return Err(DataFusionError::Plan(format!(
            "fragment of {} bytes is larger than the {FRAGMENT_BYTES_MAX} that are accepted",
            bytes.len()
        )));
    }
    // The engine trusts what it wrote, and panics at some messages that it never writes. Nothing that is left half
    // done is seen by anyone.
    let decode = || {
        let converter = BoundedDecoder::default();
        let plan =
            physical_plan_from_bytes_with_proto_converter(bytes, task, &FragmentCodec, &converter)?;
        // Errors quote expressions: what cannot be printed, as a decimal of 200 places, is no good either.
        let _ = write!(Nowhere, "{}", displayable(plan.as_ref()).indent(true));
        Ok(plan)
    };
    let plan = catch_unwind(AssertUnwindSafe(decode)).unwrap_or_else(|_| {
        Err(DataFusionError::Plan("fragment refused: no engine writes a plan like it".into()))
    })?;
    check_operators(&plan)?;
    Ok(plan)
}

fn check_operators(plan: &Arc<dyn ExecutionPlan>) -> Result<()> {
    if let Some(reason) = check_device_operator(plan.as_ref()) {
        return Err(DataFusionError::Plan(format!("fragment refused: {reason}")));
    }
    plan.children().into_iter().try_for_each(check_operators)
}

/// Refuses an operator that no device runs before it is decoded: some hold data, whose decoders trust lengths.
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
        // What is missing is the decoder's to tell.
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
            | PhysicalPlanType::Cooperative(_),
        ) => Ok(()),
        Some(other) => {
            let mut name = FirstWord(String::new());
            // Ends with an error where the word does.
            let _ = write!(name, "{other:?}");
            Err(DataFusionError::Plan(format!(
                "fragment refused: {}Exec does not run on a device",
                name.0
            )))
        }
    }
}

/// Takes text and keeps none.
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
    /// Expressions that have an identity, which several places of a plan share.
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
        let Some(id) = proto.expr_id else { return Ok(decoded) };
        let known = self.known.borrow().get(&id).map(Arc::clone);
        match known {
            // What the two share, as the state of a dynamic filter, is kept by deriving one of the other.
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
}

/// Encodes and decodes the nodes that are not the engine's own.
#[derive(Debug)]
struct FragmentCodec;

impl PhysicalExtensionCodec for FragmentCodec {
    fn try_decode_expr(
        &self,
        bytes: &[u8],
        inputs: &[Arc<dyn PhysicalExpr>],
        _context: &PhysicalExprDecodeCtx<'_>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        KeySetExpr::decode(bytes, inputs)
    }

    fn try_encode_expr(
        &self,
        node: &Arc<dyn PhysicalExpr>,
        bytes: &mut Vec<u8>,
        _context: &PhysicalExprEncodeCtx<'_>,
    ) -> Result<()> {
        match node.downcast_ref::<KeySetExpr>() {
            Some(set) => {
                set.encode(bytes);
                Ok(())
            }
            None => Err(DataFusionError::Plan(format!("{node} does not cross a link"))),
        }
    }

    fn try_decode(
        &self,
        bytes: &[u8],
        _inputs: &[Arc<dyn ExecutionPlan>],
        task: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let node =
            ScanNode::decode(bytes).map_err(|error| DataFusionError::External(Box::new(error)))?;
        let output = decode_projection("output", node.output_columns, node.output_schema.as_ref())?;
        let filter = decode_projection("filter", node.filter_columns, node.filter_schema.as_ref())?;
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
        };
        Ok(Arc::new(TableScanExec::new(scan, 1)))
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        bytes: &mut Vec<u8>,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        let Some(exec) = node.downcast_ref::<TableScanExec>() else {
            return Err(DataFusionError::Plan(format!("{} does not run on a device", node.name())));
        };
        let scan = exec.scan();
        let predicate = scan
            .predicate
            .as_ref()
            .map(|predicate| converter.physical_expr_to_proto(predicate, self))
            .transpose()?;
        let node = ScanNode {
            table: scan.table.clone(),
            table_id: scan.table_id,
            output_columns: user_columns(&scan.output)?,
            output_schema: Some(scan.output.schema.as_ref().try_into()?),
            filter_columns: user_columns(&scan.filter)?,
            filter_schema: Some(scan.filter.schema.as_ref().try_into()?),
            predicate,
            input: scan.input,
            fetch: scan.fetch.map(|fetch| fetch as u64),
        };
        bytes.extend(node.encode_to_vec());
        Ok(())
    }
}

fn user_columns(projection: &Projection) -> Result<Vec<u32>> {
    projection
        .columns
        .iter()
        .map(|column| match column {
            ColumnRef::User(id) => Ok(*id),
            other => Err(DataFusionError::Plan(format!("{other:?} does not travel with a scan"))),
        })
        .collect()
}

fn decode_projection(
    what: &str,
    ids: Vec<u32>,
    schema: Option<&protobuf::Schema>,
) -> Result<Projection> {
    let schema: Schema = schema
        .ok_or_else(|| DataFusionError::Plan(format!("a scan without its {what} schema")))?
        .try_into()?;
    if schema.fields().len() != ids.len() {
        return Err(DataFusionError::Plan(format!(
            "a scan names {} {what} columns and describes {}",
            ids.len(),
            schema.fields().len()
        )));
    }
    // A column that a page does not have is made of nulls, of whatever width its type says.
    if let Some(field) =
        schema.fields().iter().find(|field| ValueType::from_arrow(field.data_type()).is_none())
    {
        return Err(DataFusionError::Plan(format!(
            "a scan's {what} column \"{}\" has type {}, which no page has",
            field.name(),
            field.data_type()
        )));
    }
    let schema: SchemaRef = Arc::new(schema);
    Ok(Projection { schema, columns: ids.into_iter().map(ColumnRef::User).collect() })
}

#[cfg(test)]
mod tests;
