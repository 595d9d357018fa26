//! A join of rows that lie on several devices, or groups of them, made by these devices: two fragments in, or the one
//! that has partial groups, whose rows go from device to device by a hash of the join's or the groups' keys; the rows
//! of the join or the groups out, and of what follows on the devices.
//!
//! ```text
//!   host    ExchangeExec ◀═ rows of all consumers as they come
//!   b, c      consumers: HashJoinExec over PeerRowsExec 0 and 1, one on each device
//!   b, c      producers: the left fragment over b's morsels, over c's; the right one likewise
//! ```
//!
//! 1. On the first poll each part of the fragments begins, as a producer with one output for each consumer; then the
//!    consumers are let in where the producers are ([`Device::grant`]), and begin. Meanwhile no other exchange begins
//!    on these devices, so that no two wait for memory that the other one has (`exchange_turns`).
//! 2. The host takes the rows of all consumers as they come, so that none holds another up, and keeps the streams of
//!    the producers until the consumers have ended.
//! 3. Where a device refuses, or a run is lost, all runs are ended, and the same rows come by way of the host
//!    (rule 13): the plan that the exchange replaces. Rows that were given out by then are left out ([`GivenRows`]).
//!    Partial aggregates differ from run to run, so that their rows are kept until all have come, up to 16 MiB.
//! 4. A consumer that is expected to hold more than its memory begins with space to spill ([`RunRows`]). Where another
//!    one lacks memory and no row was given out, all runs end, and begin once more with space for the consumers.
//!
//! Partial results of a fragment are gathered in the same way ([`ExchangeExec::gathering`]): each run has one output,
//! and the consumer of its node takes it.
//!
//! Invariants: rows come in no order, each once. No morsel is taken of a producer, and no run is begun again in the
//! place of another, while others go on: its rows come once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cleave_catalog::catalog::DeviceId;
use cleave_engine::device::{Device, DeviceGrant};
use cleave_fragment::command::{
    DeviceErrorCause, Execute, Outputs, Peer, PeerRows, PeerStream, PeerWay, RunReport,
};
use cleave_fragment::link::{AttachMode, Link, LinkError};
use cleave_fragment::waiting::timeout;
use cleave_fragment::{BroadcastInputs, GraceExec, Passes};
use cleave_media::Stopwatch;
use cleave_plan::split::{FragmentPlan, row_bytes};
use datafusion::arrow::array::RecordBatch;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, reset_plan_states};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning,
    PlanProperties, execute_stream,
};
use futures::StreamExt;
use futures::future::{join_all, try_join_all};
use futures::stream::{BoxStream, SelectAll, select_all, unfold};

use super::figures::FragmentFigures;
use super::followed::Followed;
use super::fragment_exec::{
    FragmentExec, FragmentPart, KEY_FILTER_SHARE, expression_fault, external, known_of_rows,
    may_be_redone,
};
use super::gathering::{Gatherer, described};
use super::given_rows::{GivenRows, has_same_rows};
use super::held_rows::{HeldMax, HeldRows};
use super::ongoing_run::OngoingRun;
use super::peers::{PeerGrants, is_of_one_node};
use super::prepared_fragment::PreparedFragment;
use super::run_rows::{RunRows, Space};
use super::sent_rows::SentRows;
use super::shown_wait::ShownWait;
use crate::exchange_turns::Turns;
use crate::select::StatementContext;

/// Most of the rows that are kept until all consumers have ended.
const HELD_MAX: HeldMax = HeldMax { rows: usize::MAX, bytes: 16 << 20 };
/// Largest slot between devices: a consumer has one ring's memory for each side, beside its own.
const SLOT_BYTES_MAX: u32 = 256 << 10;
/// Parts of a device's memory for fragments that a consumer may have; a producer of each side may have one.
const CONSUMER_PARTS: u64 = 2;
/// A consumer holds so many times the bytes of the rows that it collects or groups: beside them, a table of their keys.
const HELD_TIMES: f64 = 2.0;
/// How long the ends of producers are waited for whose rows are not wanted any more. Their figures are lost else.
const END_LIMIT: Duration = Duration::from_secs(1);
/// How long an exchange waits for others to begin: as long as a device lets a run wait for memory.
const TURN_LIMIT: Duration = Duration::from_secs(5);

/// Runs a join, or an aggregate, on the devices that have its rows; see the [module](self).
#[derive(Clone)]
pub struct ExchangeExec {
    /// What each device runs over the rows that it is sent; it has one part for each, without pages.
    consumer: FragmentExec,
    /// Of a join two, else one.
    sides: Vec<ExchangedSide>,
    /// The consumers in their order, if each takes the rows of its node.
    gatherers: Vec<Gatherer>,
    /// The plan that it replaces, whose fragments are the producers, one for each side.
    by_host: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
    passes: Arc<Passes>,
    /// By pass: an operator that reads its input again gets other runs.
    begun: Arc<Mutex<BTreeMap<usize, Arc<Pass>>>>,
    metrics: ExecutionPlanMetricsSet,
}

/// How the rows of one side go to the consumers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExchangedSide {
    /// The number by which the consumers name them, of all those of the statement.
    pub input: u32,
    /// Places of the columns by whose hash they are divided; none where they are gathered.
    pub columns: Vec<u32>,
}

/// One reading of the node's rows, which its partitions share.
struct Pass {
    number: usize,
    rows: tokio::sync::Mutex<Rows>,
}

enum Rows {
    /// Nobody has asked yet, or what had begun is to begin again, with space for consumers.
    Unasked { takes_space: bool },
    /// The consumers make them.
    Coming(Box<Coming>),
    /// The host does.
    ByHost(SendableRecordBatchStream),
    /// All were given out, or it failed.
    Over,
}

/// Why there are no rows by exchange.
enum Trouble {
    /// A device refuses or is lost: they come by way of the host.
    Refused(String),
    /// The statement fails.
    Fails(DataFusionError),
}

impl From<DataFusionError> for Trouble {
    fn from(error: DataFusionError) -> Self {
        Self::Fails(error)
    }
}

/// A run on a device.
struct Run {
    device: Arc<Device>,
    link: Arc<dyn Link>,
    figures: FragmentFigures,
    /// Of a consumer.
    shown: ShownWait,
}

struct Producer {
    origin: Origin,
    run: Run,
    /// Brings no rows.
    stream: RunRows,
    /// Counts what it has begun.
    followed: Option<Followed>,
    _homes: PeerGrants,
}

/// Where consumers find the rows of a producer.
#[derive(Clone)]
struct Origin {
    /// Its place among the sides.
    side: usize,
    device: Arc<Device>,
    /// The number of the run.
    number: u64,
}

/// What comes of a consumer.
enum Event {
    /// With the bytes of slots that have come by then.
    Rows(usize, RecordBatch, u64),
    Ended(usize, Option<Box<RunReport>>, Duration),
    Failed(usize, LinkError),
}

/// The runs of an exchange. Dropped in this order: consumers, producers, and what lets the ones in at the others.
struct Coming {
    events: SelectAll<BoxStream<'static, Event>>,
    consumers: Vec<Run>,
    producers: Vec<Producer>,
    _grants: Vec<DeviceGrant>,
    /// What was given out, if the rows can be made again without it.
    given: Option<GivenRows>,
    /// Rows that are kept until all have come; None: rows are given out as they come.
    held: Option<HeldRows>,
    /// Whether rows were given out before all had come.
    has_given: bool,
    /// Whether the consumers were to have space.
    takes_space: bool,
}

impl ExchangeExec {
    /// The node, the statement's fragment `number`, for `plan` on each of `devices`, over what `by_host` has of
    /// fragments: the `sides` in their order. `plan` makes the rows of `by_host`, all devices together, or those of
    /// them that are wanted.
    pub fn new(
        number: usize,
        plan: Arc<dyn ExecutionPlan>,
        sides: Vec<ExchangedSide>,
        devices: &[Arc<Device>],
        by_host: Arc<dyn ExecutionPlan>,
        context: Arc<StatementContext>,
    ) -> Self {
        let partition_count = by_host.output_partitioning().partition_count();
        let fragments = fragments_of(&by_host);
        let slot_bytes = fragments.iter().filter_map(|node| {
            let producer = node.downcast_ref::<FragmentExec>()?;
            Some(producer.fragment.slot_bytes.min(SLOT_BYTES_MAX))
        });
        let fragment = FragmentPlan {
            plan,
            scans: Vec::new(),
            partition_count,
            may_run_as_partitions: true,
            fetch: None,
            on_device: vec![true; devices.len()],
            slot_bytes: slot_bytes.max().unwrap_or(SLOT_BYTES_MAX),
            broadcasts: Vec::new(),
            row_estimate: None,
            sharing: None,
            recall: None,
            revisit: None,
        };
        let parts = devices.iter().map(|device| FragmentPart {
            device: Arc::clone(device),
            inputs: Vec::new(),
            on_device: true,
        });
        let properties = PlanProperties::new(
            known_of_rows(&by_host)
                .unwrap_or_else(|_| EquivalenceProperties::new(by_host.schema())),
            Partitioning::UnknownPartitioning(partition_count),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self {
            consumer: FragmentExec::new(number, fragment, parts.collect(), context),
            sides,
            gatherers: Vec::new(),
            by_host,
            properties: Arc::new(properties),
            passes: Arc::default(),
            begun: Arc::default(),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    /// The node, the statement's fragment `number`, for `merging` at each of the `gatherers`, over the rows of
    /// `by_host`, a fragment: the number by which `merging` names them comes with it. It makes rows of the same kind.
    pub fn gathering(
        number: usize,
        (merging, input): (Arc<dyn ExecutionPlan>, u32),
        gatherers: Vec<Gatherer>,
        by_host: Arc<dyn ExecutionPlan>,
        context: Arc<StatementContext>,
    ) -> Self {
        let devices: Vec<Arc<Device>> =
            gatherers.iter().map(|own| Arc::clone(&own.device)).collect();
        let sides = vec![ExchangedSide { input, columns: Vec::new() }];
        let mut gather = Self::new(number, merging, sides, &devices, by_host, context);
        // Several partitions would merge what each of them has taken.
        gather.consumer.fragment.may_run_as_partitions = false;
        gather.gatherers = gatherers;
        gather
    }

    /// Who runs what the consumers run, in words: devices, or nodes.
    pub fn runs_on(&self) -> String {
        let nodes: Vec<&str> = self.gatherers.iter().map(|own| own.node.as_str()).collect();
        match nodes.is_empty() {
            true => self.consumer.device_names(),
            false => format!("node={}", nodes.join(", ")),
        }
    }

    /// What each of the devices runs over the rows that it is sent.
    pub fn consumer(&self) -> &FragmentExec {
        &self.consumer
    }

    /// The fragments whose rows are exchanged, each with the number by which the consumers name them.
    pub fn producers(&self) -> Vec<(u32, Arc<dyn ExecutionPlan>)> {
        let inputs = self.sides.iter().map(|side| side.input);
        inputs.zip(fragments_of(&self.by_host)).collect()
    }

    /// The names of the columns by whose hash the rows of the first side are divided.
    fn keys(&self) -> String {
        let nodes = fragments_of(&self.by_host);
        let Some(schema) = nodes.first().map(|node| node.schema()) else { return String::new() };
        let Some(first) = self.sides.first() else { return String::new() };
        let places = first.columns.iter().filter_map(|place| usize::try_from(*place).ok());
        let names = places.filter_map(|place| Some(schema.fields().get(place)?.name().as_str()));
        names.collect::<Vec<_>>().join(", ")
    }

    fn context(&self) -> &Arc<StatementContext> {
        &self.consumer.context
    }

    fn pass(&self, number: usize) -> Arc<Pass> {
        let unasked = Rows::Unasked { takes_space: false };
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        let pass = begun
            .entry(number)
            .or_insert_with(|| Arc::new(Pass { number, rows: tokio::sync::Mutex::new(unasked) }));
        Arc::clone(pass)
    }

    /// The next batch, whichever partition asks.
    async fn next_batch(
        &self,
        pass: &Pass,
        task: &Arc<TaskContext>,
    ) -> Result<Option<RecordBatch>> {
        let mut rows = pass.rows.lock().await;
        let next = self.advance(pass.number, &mut rows, task).await;
        if !matches!(next, Ok(Some(_))) {
            *rows = Rows::Over;
        }
        next
    }

    async fn advance(
        &self,
        pass: usize,
        rows: &mut Rows,
        task: &Arc<TaskContext>,
    ) -> Result<Option<RecordBatch>> {
        loop {
            let (why, given) = match rows {
                Rows::Over => return Ok(None),
                Rows::ByHost(stream) => return stream.next().await.transpose(),
                Rows::Unasked { takes_space } => {
                    match Box::pin(self.begin(*takes_space, task)).await {
                        Ok(coming) => {
                            *rows = Rows::Coming(Box::new(coming));
                            continue;
                        }
                        Err(Trouble::Refused(why)) => (why, None),
                        Err(Trouble::Fails(error)) => return Err(error),
                    }
                }
                Rows::Coming(coming) => match coming.next().await {
                    Ok(Some(batch)) => return Ok(Some(batch)),
                    Ok(None) => {
                        self.file(coming).await;
                        return Ok(None);
                    }
                    Err((_, error)) if coming.may_begin_again(&error) && self.space().is_some() => {
                        // The memory of the old runs is released before as much is asked for.
                        *rows = Rows::Unasked { takes_space: true };
                        continue;
                    }
                    Err((place, error)) => coming.give_up(place, error).await?,
                },
            };
            // The runs end with what is replaced.
            *rows = Rows::ByHost(self.begin_by_host(pass, why, given, task)?);
        }
    }

    /// The rows by way of the host, without those that were given out.
    fn begin_by_host(
        &self,
        pass: usize,
        why: String,
        given: Option<GivenRows>,
        task: &Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let names = self.consumer.device_names();
        let figures = self.figures(&self.consumer, (names, self.tables()), 0);
        self.context().figures().add(FragmentFigures { refused: Some(why), ..figures });
        let plan = match pass {
            0 => Arc::clone(&self.by_host),
            // A join keeps what it has collected.
            _ => reset_plan_states(Arc::clone(&self.by_host))?,
        };
        let rows = execute_stream(plan, Arc::clone(task))?;
        Ok(match given {
            Some(given) => given.left_of(rows),
            None => rows,
        })
    }

    fn tables(&self) -> String {
        let nodes = fragments_of(&self.by_host);
        let producers = nodes.iter().filter_map(|node| node.downcast_ref::<FragmentExec>());
        producers.map(|producer| producer.fragment.tables()).collect::<Vec<_>>().join(", ")
    }

    /// The figures of a run of `node` on `device` that is going to begin.
    fn figures(
        &self,
        node: &FragmentExec,
        (device, table): (String, String),
        fragment_bytes: usize,
    ) -> FragmentFigures {
        let mode = node.parts.first().map(|part| part.device.mode());
        let at = (device, mode.unwrap_or(AttachMode::Remote));
        let sizes = (fragment_bytes, self.consumer.fragment.slot_bytes);
        FragmentFigures::of_new_run(node.number, at, table, sizes)
    }

    /// Begins all runs, the consumers with space if they are to have some.
    async fn begin(&self, takes_space: bool, task: &Arc<TaskContext>) -> Result<Coming, Trouble> {
        let nodes = fragments_of(&self.by_host);
        let nodes: Vec<&FragmentExec> =
            nodes.iter().filter_map(|node| node.downcast_ref::<FragmentExec>()).collect();
        let mut prepared = Vec::with_capacity(nodes.len());
        for node in &nodes {
            prepared.push(prepared_of(node, task).await?);
        }
        // Not before: what is broadcast may come by other exchanges.
        let turns = self.turns(&nodes).await?;
        let mut beginning = Vec::new();
        for (side, (node, prepared)) in nodes.iter().zip(&prepared).enumerate() {
            for (place, part) in node.parts.iter().enumerate() {
                beginning.push(self.begin_producer(side, (*node, prepared), (place, part), task));
            }
        }
        let producers = try_join_all(beginning).await?;
        let producers: Vec<Producer> = producers.into_iter().flatten().collect();
        let rows = SentRows { inputs: BroadcastInputs::new(), sent: Ok(Vec::new()), byte_count: 0 };
        let own = PreparedFragment::new(&self.consumer.fragment, Arc::new(rows), 0)?;
        let origins: Vec<Origin> =
            producers.iter().map(|producer| producer.origin.clone()).collect();
        let places = 0..self.consumer.parts.len();
        let own = (&own, takes_space);
        let beginning = places.map(|place| self.begin_consumer(place, own, &origins, task));
        let begun = try_join_all(beginning).await?;
        drop(turns);
        let (mut events, mut consumers, mut grants) = (Vec::new(), Vec::new(), Vec::new());
        for (place, (run, stream, given)) in begun.into_iter().enumerate() {
            events.push(events_of(place, stream));
            consumers.push(run);
            grants.extend(given);
        }
        // What the producers have made anew must be the same too.
        let are_same = nodes.iter().all(|node| has_same_rows(&*node.fragment.plan));
        let given = GivenRows::of_run(&*self.consumer.fragment.plan).filter(|_| are_same);
        let held = given.is_none().then(|| HeldRows::new(HELD_MAX, task.memory_pool()));
        Ok(Coming {
            events: select_all(events),
            consumers,
            producers,
            _grants: grants,
            held,
            given,
            has_given: false,
            takes_space,
        })
    }

    /// The right to begin the runs of `nodes` and of the consumers, while no other exchange does on their devices.
    async fn turns(&self, nodes: &[&FragmentExec]) -> Result<Turns, Trouble> {
        let parts = nodes.iter().copied().chain([&self.consumer]).flat_map(|node| &*node.parts);
        let devices: BTreeSet<DeviceId> = parts.map(|part| part.device.id()).collect();
        let turns = self.context().database().exchange_turns.take(&devices, TURN_LIMIT).await;
        turns.ok_or_else(|| {
            let seconds = TURN_LIMIT.as_secs();
            Trouble::Refused(format!("other exchanges began on its devices for {seconds} s"))
        })
    }

    /// Begins the run of `node`, a fragment of one side, over `part`; None: it would have no rows.
    async fn begin_producer(
        &self,
        side: usize,
        (node, prepared): (&FragmentExec, &PreparedFragment),
        (place, part): (usize, &FragmentPart),
        task: &Arc<TaskContext>,
    ) -> Result<Option<Producer>, Trouble> {
        let inputs = prepared.inputs(part)?;
        let pages_left: usize = inputs.iter().map(|(_, input)| input.input.pages_left()).sum();
        if pages_left == 0 && place > 0 {
            return Ok(None);
        }
        let page_count: usize = inputs.iter().map(|(_, input)| input.input.page_count).sum();
        let morsels = inputs.iter().map(|(_, input)| input.input.morsels()).collect();
        let device = &part.device;
        let mut request = node.request(prepared, device, (&inputs, morsels), task).await?;
        let columns = self.sides.get(side).map(|side| side.columns.clone()).unwrap_or_default();
        let count = u32::try_from(self.consumer.parts.len()).unwrap_or(u32::MAX);
        request.outputs = match self.gatherers.is_empty() {
            true => Outputs::ByHash { columns, count },
            false => Outputs::Copies(1),
        };
        self.as_one_of_several(device, &mut request, 1).await?;
        let homes = PeerGrants::give(self.context(), device, &inputs, &mut request).await;
        let origin = Origin { side, device: Arc::clone(device), number: request.header.run };
        let named = (device.name().to_owned(), node.fragment.tables());
        let figures = FragmentFigures {
            pages: (page_count, pages_left),
            is_for_devices: true,
            key_filters: prepared.key_filters,
            ..self.figures(node, named, prepared.bytes.len())
        };
        let (header, clock) = (request.header, Stopwatch::start());
        let streamed = request.inputs.last().map(|(input, morsels)| (*input, morsels.len()));
        let (run, stream) = begun(device, (request, None), node.device_plan(), figures).await?;
        let ongoing = streamed.map(|streamed| {
            let progress = self.context().settings().client.progress.clone();
            OngoingRun::new((&run.device, &run.link), header, streamed, Some(progress), clock)
        });
        self.note_begun(&run, ongoing.clone());
        let followed = ongoing.map(Followed::of_begun);
        Ok(Some(Producer { origin, run, stream, followed, _homes: homes }))
    }

    /// Begins the consumer at `place`, which takes that output of all producers, the `origins`, and what lets it in
    /// there. It has space if it is to have some, or is expected to need it.
    async fn begin_consumer(
        &self,
        place: usize,
        (prepared, takes_space): (&PreparedFragment, bool),
        origins: &[Origin],
        task: &Arc<TaskContext>,
    ) -> Result<(Run, RunRows, Vec<DeviceGrant>), Trouble> {
        let part = self.consumer.parts.get(place);
        let device = part.map(|part| &part.device).ok_or_else(no_consumer)?;
        let (output, origins): (u32, Vec<&Origin>) = match self.gatherers.get(place) {
            None => (u32::try_from(place).unwrap_or(u32::MAX), origins.iter().collect()),
            Some(own) => {
                let sends = |origin: &&Origin| own.engines.contains(&origin.device.id());
                (0, origins.iter().filter(sends).collect())
            }
        };
        let mut request = self.consumer.request(prepared, device, (&[], Vec::new()), task).await?;
        self.as_one_of_several(device, &mut request, CONSUMER_PARTS).await?;
        let homes: BTreeMap<DeviceId, &Arc<Device>> =
            origins.iter().map(|origin| (origin.device.id(), &origin.device)).collect();
        let granting = homes.into_values().map(|home| {
            let own = origins.iter().filter(|origin| origin.device.id() == home.id());
            let outputs: Vec<(u64, u32)> = own.map(|origin| (origin.number, output)).collect();
            async move {
                if home.id() == device.id() || is_of_one_node(home, device).await {
                    return Ok(None);
                }
                let given = home.grant(device, Vec::new(), outputs).await;
                let given = given.map_err(|error| Trouble::Refused(error.to_string()))?;
                let Some((address, grant)) = given else {
                    return Err(Trouble::Refused(format!(
                        "device \"{}\" cannot reach device \"{}\"",
                        device.name(),
                        home.name()
                    )));
                };
                let way = PeerWay::Link(address);
                Ok::<_, Trouble>(Some((Peer { device: home.entry().identity, way }, grant)))
            }
        });
        let granted = try_join_all(granting).await?.into_iter().flatten();
        let (peers, grants): (Vec<Peer>, Vec<DeviceGrant>) = granted.unzip();
        request.peers = peers;
        let of_side = |(number, side): (usize, &ExchangedSide)| {
            let own = origins.iter().filter(|origin| origin.side == number);
            let streams = own.map(|origin| PeerStream {
                device: origin.device.entry().identity,
                run: origin.number,
                output,
            });
            PeerRows { input: side.input, streams: streams.collect() }
        };
        request.peer_rows = self.sides.iter().enumerate().map(of_side).collect();
        let named = (device.name().to_owned(), format!("rows of {}", self.tables()));
        let figures = self.figures(&self.consumer, named, prepared.bytes.len());
        let plan = self.consumer.device_plan();
        let takes_space = takes_space || self.bytes_held() > request.memory_bytes as f64;
        let space = self.space().filter(|_| takes_space);
        let (run, stream) = begun(device, (request, space), plan, figures).await?;
        // Nothing of its own streams through it.
        self.note_begun(&run, None);
        Ok((run, stream, grants))
    }

    /// Notes that `run` has begun, for those who look on.
    fn note_begun(&self, run: &Run, ongoing: Option<OngoingRun>) {
        self.context().figures().begin(&run.figures, run.shown.timeline(), ongoing);
    }

    /// Bytes that a consumer is expected to hold of the first side, which a join collects; none where nothing was
    /// priced.
    fn bytes_held(&self) -> f64 {
        let nodes = fragments_of(&self.by_host);
        let first = nodes.first().and_then(|node| node.downcast_ref::<FragmentExec>());
        let bytes =
            first.and_then(|first| Some(first.row_estimate()? * row_bytes(&first.schema())));
        bytes.unwrap_or(0.0) * HELD_TIMES / self.consumer.parts.len().max(1) as f64
    }

    /// The space that a consumer may have; None: none would help it.
    fn space(&self) -> Option<Space> {
        let bytes = self.context().settings().device_spill_bytes;
        Space::up_to(bytes).filter(|_| GraceExec::helps(self.consumer.device_plan()))
    }

    /// Makes `request` one of the runs of the exchange on `device`, up to one for each side and a consumer, with so
    /// many parts of its memory. Nobody takes morsels of it, and no filters are fed to it.
    async fn as_one_of_several(
        &self,
        device: &Device,
        request: &mut Execute,
        parts: u64,
    ) -> Result<(), Trouble> {
        request.slot_bytes = self.consumer.fragment.slot_bytes;
        request.lends = false;
        request.fed = Vec::new();
        let identity = device.identity().await.map_err(external)?;
        let ring_bytes = u64::from(request.slot_count) * u64::from(request.slot_bytes);
        let producers = self.sides.len() as u64;
        let room = identity.fragment_memory_bytes.saturating_sub((producers + 1) * ring_bytes);
        let part = room / (producers + CONSUMER_PARTS);
        request.memory_bytes = request.memory_bytes.min(part * parts);
        Ok(())
    }

    /// Keeps the figures of all runs, whose consumers have ended.
    async fn file(&self, coming: &mut Coming) {
        let nodes = fragments_of(&self.by_host);
        for consumer in coming.consumers.drain(..) {
            self.consumer.file(&consumer.figures);
        }
        let ending = coming.producers.drain(..).map(|mut producer| async move {
            let ends = async { while let Ok(Some(_)) = producer.stream.next().await {} };
            // It may have more rows than were wanted.
            let is_over = timeout(END_LIMIT, ends).await.is_some();
            let report = producer.stream.report().filter(|_| is_over).cloned();
            if let (Some(followed), Some(report)) = (&producer.followed, &report) {
                followed.ended(report.kept);
            }
            producer.run.figures.report = report;
            producer
        });
        for producer in join_all(ending).await {
            let node = nodes.get(producer.origin.side);
            if let Some(node) = node.and_then(|node| node.downcast_ref::<FragmentExec>()) {
                node.file(&producer.run.figures);
            }
        }
    }
}

impl Coming {
    /// Whether consumers with space may get further than these have, of which one has ended with `error`.
    fn may_begin_again(&self, error: &LinkError) -> bool {
        let lacks_memory =
            error.device_error().is_some_and(|error| error.cause == DeviceErrorCause::OutOfMemory);
        lacks_memory && !self.takes_space && !self.has_given
    }

    /// The next rows; an error with the place of the consumer that it is of.
    async fn next(&mut self) -> Result<Option<RecordBatch>, (usize, LinkError)> {
        loop {
            if let Some(batch) = self.held.as_mut().and_then(HeldRows::next) {
                return Ok(Some(batch));
            }
            let producers = self.producers.iter_mut();
            let followed = producers.filter_map(|producer| producer.followed.as_mut()).collect();
            self.consumers.iter_mut().for_each(|run| run.shown.waits());
            let event = Followed::all_beside(followed, self.events.next()).await;
            self.consumers.iter().for_each(|run| run.shown.has_waited());
            match event {
                None => match self.held.as_mut().filter(|held| !held.is_released()) {
                    Some(held) => held.release(),
                    None => return Ok(None),
                },
                Some(Event::Rows(place, batch, slot_bytes)) => {
                    if let Some(run) = self.consumers.get_mut(place) {
                        run.figures.rows += batch.num_rows() as u64;
                        run.shown.came(batch.num_rows(), slot_bytes);
                    }
                    if let Some(given) = &mut self.given {
                        given.note(&batch);
                    }
                    let Some(held) = &mut self.held else {
                        self.has_given = true;
                        return Ok(Some(batch));
                    };
                    held.push(batch);
                    self.has_given |= held.is_released();
                }
                Some(Event::Ended(place, report, waited)) => {
                    if let Some(run) = self.consumers.get_mut(place) {
                        run.figures.report = report.map(|report| *report);
                        run.figures.waited = waited;
                        run.figures.timeline = run.shown.ended();
                    }
                }
                Some(Event::Failed(place, error)) => return Err((place, error)),
            }
        }
    }

    /// Why the rows come by way of the host, and what to leave out of them, after `error` of the consumer at `place`.
    async fn give_up(
        &mut self,
        place: usize,
        error: LinkError,
    ) -> Result<(String, Option<GivenRows>)> {
        let run = self.consumers.get(place).ok_or_else(no_consumer)?;
        let may_be_redone = may_redo(&run.device, &run.link, &error).await?;
        let given = self.given.take().filter(|given| given.known_count().is_some());
        match given {
            _ if may_be_redone && !self.has_given => Ok((error.to_string(), None)),
            Some(given) if may_be_redone => Ok((format!("{error}, after {given}"), Some(given))),
            _ => Err(external(run.device.fault("work on rows of other devices", error))),
        }
    }
}

/// Begins `request`, whose rows are those of `plan`.
async fn begun(
    device: &Arc<Device>,
    (request, space): (Execute, Option<Space>),
    plan: &Arc<dyn ExecutionPlan>,
    figures: FragmentFigures,
) -> Result<(Run, RunRows), Trouble> {
    let link = device.link().await.map_err(external)?;
    let shown = ShownWait::begin();
    let error = match RunRows::begin(device, &link, request, (plan.schema(), space)).await {
        Ok(stream) => {
            return Ok((Run { device: Arc::clone(device), link, figures, shown }, stream));
        }
        Err(error) => error,
    };
    Err(match may_redo(device, &link, &error).await? {
        true => Trouble::Refused(error.to_string()),
        false => Trouble::Fails(external(device.fault("run a fragment", error))),
    })
}

/// Whether the rows may come by way of the host, after `error` over `link`.
///
/// # Errors
/// The statement's, where an expression is at fault.
async fn may_redo(device: &Device, link: &Arc<dyn Link>, error: &LinkError) -> Result<bool> {
    if let Some(fault) = error.device_error().and_then(expression_fault) {
        return Err(fault);
    }
    device.note_run_failure(error);
    device.forget_if_useless(link, error).await;
    Ok(may_be_redone(device, error) || error.is_unreachable())
}

/// `node` as it is sent.
async fn prepared_of(
    node: &FragmentExec,
    task: &Arc<TaskContext>,
) -> Result<PreparedFragment, Trouble> {
    let rows = node.rows_to_send(&node.pass(0), task).await?;
    if let Err(why) = &rows.sent {
        return Err(Trouble::Refused(why.clone()));
    }
    let bytes_max = node.context.settings().device_memory_bytes / KEY_FILTER_SHARE;
    let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
    Ok(PreparedFragment::new(&node.fragment, rows, bytes_max)?)
}

/// What comes over `stream`, the consumer's at `place`.
fn events_of(place: usize, stream: RunRows) -> BoxStream<'static, Event> {
    let next = move |stream: Option<RunRows>| async move {
        let mut stream = stream?;
        match stream.next().await {
            Ok(Some(batch)) => {
                let slot_bytes = stream.slot_bytes();
                Some((Event::Rows(place, batch, slot_bytes), Some(stream)))
            }
            Ok(None) => {
                let (report, waited) = (stream.report().cloned().map(Box::new), stream.waited());
                Some((Event::Ended(place, report, waited), None))
            }
            Err(error) => Some((Event::Failed(place, error), None)),
        }
    };
    unfold(Some(stream), next).boxed()
}

/// The fragments of `plan` in their order.
fn fragments_of(plan: &Arc<dyn ExecutionPlan>) -> Vec<Arc<dyn ExecutionPlan>> {
    if plan.is::<FragmentExec>() {
        return vec![Arc::clone(plan)];
    }
    plan.children().into_iter().flat_map(fragments_of).collect()
}

fn no_consumer() -> DataFusionError {
    DataFusionError::Internal("an exchange without this consumer".to_owned())
}

impl fmt::Debug for ExchangeExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExchangeExec")
            .field("consumer", &self.consumer)
            .field("sides", &self.sides)
            .field("by_host", &self.by_host)
            .finish_non_exhaustive()
    }
}

impl DisplayAs for ExchangeExec {
    fn fmt_as(&self, _kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.gatherers.is_empty() {
            return write!(f, "GatherExec: {}", described(&self.gatherers));
        }
        let (names, keys) = (self.consumer.device_names(), self.keys());
        write!(f, "ExchangeExec: devices={names}, by hash of ({keys})")
    }
}

impl ExecutionPlan for ExchangeExec {
    fn name(&self) -> &'static str {
        if self.gatherers.is_empty() { "ExchangeExec" } else { "GatherExec" }
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    /// What runs instead where the devices cannot.
    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.by_host]
    }

    fn apply_expressions(
        &self,
        _visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut changed = Self::clone(&self);
        if let Some(plan) = children.into_iter().next() {
            changed.by_host = plan;
        }
        Arc::new(changed).reset_state()
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        let mut fresh = Self::clone(&self);
        fresh.passes = Arc::default();
        fresh.begun = Arc::default();
        fresh.metrics = ExecutionPlanMetricsSet::new();
        Ok(Arc::new(fresh))
    }

    fn execute(
        &self,
        partition: usize,
        task: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let pass = self.pass(self.passes.begin(partition));
        let taker = (self.clone(), pass, task, metrics);
        let batches = unfold(taker, |taker| async {
            let (this, pass, task, metrics) = &taker;
            let batch = this.next_batch(pass, task).await.transpose()?;
            if let Ok(batch) = &batch {
                metrics.record_output(batch.num_rows());
            }
            Some((batch, taker))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
