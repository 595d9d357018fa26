//! Batches: the queries between BATCH BEGIN and BATCH END run several at once, so that one reading of a column serves
//! those that ask for it.
//!
//! ```text
//!  BATCH BEGIN ─▶ plan each ─▶ groups, in the background ─┬─ group on device a: its queries at once ─▶ rows in memory
//!                                                         └─ group on device b, beside it
//!  each query  ─▶ waits for its own rows, in the order in which the queries are written
//!  BATCH END   ─▶ the first error, if there is one
//! ```
//!
//! 1. [`run`] checks and plans the queries one after the other, all on one snapshot. One that needs no plan is answered
//!    at once, while there is room for its rows. Plans are made ahead as far as they fit a share of the memory of
//!    queries; if they do not fit, those so far run before the next are planned. A query whose functions do something,
//!    or those of its views, is only run in its turn.
//! 2. A task of the batch runs what is planned, and ends with the batch. [`groups`] puts queries together that share
//!    columns, and [`Course`] lets groups on different devices run beside each other. Within a group, scans
//!    [share what they evaluate](cleave_fragment::filter_history) because they are under way at the same time.
//! 3. The queries of a group begin as far as the memory of their devices goes ([`Gate`]), and their rows are kept in
//!    memory ([`Room`]). One with more rows streams the rest of them if its turn is there. Else it is given up, and
//!    runs again in its turn, streamed, while no group runs.
//! 4. [`next`] begins the turn of the next query, and gives its rows once it has an answer; [`end`] gives the first
//!    error. A query that fails stops no other.
//!
//! Invariants:
//!
//! - The rows of each query are those of it alone on the same snapshot.
//! - Nothing waits for the client while a query holds memory of a device, but the query whose turn it is, where its
//!   rows do not fit: it streams them, as any statement does, and its group lasts until the next turn.
//! - Only the query whose turn it is waits for the client. So all groups end while it waits for them to end.
//!
//! Source: CORD, section V-D3.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use cleave_catalog::error::{Error, Fault, Position, Result};
use cleave_catalog::settings::{BatchLimits, Settings};
use cleave_catalog::tasks;
use cleave_engine::storage_engine::patience::with_patience;
use cleave_engine::write::begun::byte_count;
use cleave_fragment::{Stop, StopOnDrop, wanted};
use cleave_plan::batch::{BatchQuery, Course, groups};
use cleave_query::select::{
    LoggedQuery, QueryRequest, ReadView, has_effects, least_memory, run_logged,
};
use cleave_sql::statement::{Parameters, ParsedStatement, Statement};
use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::ast;
use futures::future::join_all;
use futures::stream::{FuturesUnordered, StreamExt};
use tokio::runtime::Handle;
use tokio::sync::{OwnedRwLockWriteGuard, RwLock, Semaphore, SemaphorePermit, oneshot, watch};
use tokio::task::JoinSet;

use super::charge::{Charge, share_of};
use super::concerned::patiently;
use super::started::{self, ResultRows, Started, charged};
use super::{Outcome, Session, output, rights, search_path, under};
use crate::database::Database;

/// The command tag of a query that has failed. Its error comes at the end.
const FAILED: &str = "FAILED";
/// The SQLSTATE of a query that was ended from outside, which ends the script.
const CANCELLED: &str = "57014";
/// Most bytes of plans that wait for their group, and of rows that wait for their turn, whatever memory there is.
const BYTES_MAX: usize = 256 << 20;
/// Most groups that run at once.
const GROUPS_MAX: usize = 16;
/// Bytes of device memory that count as one.
const GRANULE_BYTES: u64 = 1 << 20;

/// A batch under way, until its rows are given.
pub(super) struct Batch {
    /// The place of the next query.
    place: usize,
    answers: VecDeque<Coming>,
    failure: Option<Failure>,
    /// When the time of BATCH BEGIN and of all its queries is over, by the system's clock; None: never.
    ends_at: Option<Duration>,
    /// How many queries have had their turn, or have it.
    turns: watch::Sender<usize>,
    /// A query that runs alone has it for writing, each group for reading.
    alone: Arc<RwLock<()>>,
    /// The query whose turn it is runs alone.
    held: Option<OwnedRwLockWriteGuard<()>>,
    /// Stops functions that keep the threads which are to drop the groups.
    _stop: StopOnDrop,
    /// Runs the groups; ends when it is dropped.
    groups: JoinSet<()>,
}

/// The answer to a query.
enum Coming {
    Here(Answer),
    /// It is planned, and runs or will run in its group.
    Begun(oneshot::Receiver<Result<Answer>>),
}

/// What became of a query.
enum Answer {
    /// Its rows, with what those in memory take of the room until its turn.
    Made(Started, Option<Share>),
    /// It has more rows than fit, and runs in its turn.
    Later(Box<Asked>),
    /// Nothing of it was done ahead.
    InTurn(Box<Unplanned>),
    Failed,
}

/// The first query that failed, by its place, and how many did.
struct Failure {
    place: usize,
    count: usize,
    error: Error,
}

/// A planned query.
struct Asked {
    place: usize,
    position: Position,
    query: Box<ast::Query>,
    text: String,
    settings: Settings,
    view: ReadView,
    /// None: it has begun to run once.
    plan: Option<LoggedQuery>,
}

/// A planned query of a group, and where its answer goes.
struct Member {
    asked: Asked,
    answer: oneshot::Sender<Result<Answer>>,
}

/// A query that is planned in its turn.
struct Unplanned {
    position: Position,
    query: Box<ast::Query>,
    text: String,
    settings: Settings,
}

/// What a query needs.
enum Ready {
    /// No plan.
    Made(Outcome),
    Planned(Box<Asked>),
    /// Its turn.
    InTurn(Box<Unplanned>),
}

/// What the groups of a batch have in common.
#[derive(Clone)]
struct Sides {
    database: Arc<Database>,
    /// Computes the rows.
    runtime: Handle,
    room: Arc<Room>,
    /// How many queries have had their turn, or have it.
    turns: watch::Receiver<usize>,
    alone: Arc<RwLock<()>>,
    /// Raised when the batch ends.
    stop: Stop,
}

/// The memory for rows that wait for their turn.
struct Room {
    taken: AtomicUsize,
    bytes_max: usize,
}

/// Lets queries begin whose fragments fit their device's memory together: a fragment that waits there for long is
/// refused.
struct Gate {
    granules: Semaphore,
    total: u32,
}

/// Plans the queries of a batch, and begins to run them.
pub(super) async fn run(session: &mut Session, queries: Vec<ParsedStatement>) -> Result<Outcome> {
    let mut answers = Answers::of(queries.len());
    let bytes_max = share_of(&session.database).min(BYTES_MAX);
    let (turns, known_turns) = watch::channel(0);
    let sides = Sides {
        database: Arc::clone(&session.database),
        runtime: session.runtime.clone().unwrap_or_else(Handle::current),
        room: Arc::new(Room { taken: AtomicUsize::new(0), bytes_max }),
        turns: known_turns,
        alone: Arc::default(),
        stop: Stop::default(),
    };
    let plans = Charge::named(&session.database, "the plans of a batch");
    let (mut planned, mut held, mut view) = (Vec::new(), 0, None);
    for (place, parsed) in queries.into_iter().enumerate() {
        let position = parsed.position;
        let known = (&mut view, &*sides.room);
        match Box::pin(ready(session, (place, parsed), known)).await {
            Ok(Ready::Made(outcome)) => {
                let share = Share::of(&sides.room, &outcome);
                let made = charged(&session.database, outcome);
                answers.put(place, Coming::Here(Answer::Made(made, Some(share))));
            }
            Ok(Ready::InTurn(query)) => answers.put(place, Coming::Here(Answer::InTurn(query))),
            Ok(Ready::Planned(asked)) => {
                let bytes = asked.plan.as_ref().map_or(0, LoggedQuery::held_bytes);
                if held + bytes > bytes_max || plans.set(held + bytes).is_err() {
                    let limits = session.in_force().limits.batches;
                    let full = std::mem::take(&mut planned);
                    // No turn has begun: none of these waits for the client.
                    Box::pin(run_planned(full, limits, sides.clone())).await;
                    held = 0;
                    drop(plans.set(bytes));
                }
                held += bytes;
                let (answer, coming) = oneshot::channel();
                answers.put(place, Coming::Begun(coming));
                planned.push(Member { asked: *asked, answer });
            }
            Err(error) => answers.fail(place, error.at(Some(position))),
        }
    }
    if let Some(front) = answers.front() {
        // Its turn is the next that waits for anything, so it need not be given up.
        turns.send_modify(|turns| *turns = front + 1);
    }
    let (stop, alone) = (StopOnDrop::from(&sides.stop), Arc::clone(&sides.alone));
    let groups = begun(planned, session.in_force().limits.batches, sides, plans);
    let Answers { all, failure } = answers;
    *slot(session) = Some(Batch {
        place: 0,
        answers: all.into_iter().map(|coming| coming.unwrap_or_else(Coming::failed)).collect(),
        failure,
        ends_at: None,
        turns,
        alone,
        held: None,
        _stop: stop,
        groups,
    });
    Ok(Outcome::done("BATCH BEGIN"))
}

/// The task that runs planned queries, whose memory is charged to `plans`, until it is dropped.
fn begun(planned: Vec<Member>, limits: BatchLimits, sides: Sides, plans: Charge) -> JoinSet<()> {
    let mut groups = JoinSet::new();
    if planned.is_empty() {
        return groups;
    }
    let (runtime, patience) = (sides.runtime.clone(), sides.database.patience());
    let running = async move {
        Box::pin(run_planned(planned, limits, sides)).await;
        drop(plans);
    };
    let running = with_patience(Some(patience), Box::pin(running));
    // It is cancelled or late when BATCH BEGIN would be.
    groups.spawn_on(wanted::carried(Box::pin(running)), &runtime);
    groups
}

/// The rows of the next query of the batch, once it has the first of them: until then, its failure stops no other.
pub(super) async fn next(session: &mut Session) -> Result<Started> {
    let (place, started) = Box::pin(taken(session)).await?;
    let begun = match started {
        Ok(Started::Rows(rows)) => {
            let runtime = session.runtime.clone().unwrap_or_else(Handle::current);
            rows.on(&runtime).begun().await.map(Started::Rows)
        }
        other => other,
    };
    begun.or_else(|error| failed(session, place, error).map(Started::from))
}

/// All rows of the next query of the batch.
pub(super) async fn next_outcome(session: &mut Session) -> Result<Outcome> {
    let (place, started) = Box::pin(taken(session)).await?;
    let outcome = match started {
        Ok(started) => started.collect().await,
        Err(error) => Err(error),
    };
    outcome.or_else(|error| failed(session, place, error))
}

/// The place of the next query of the batch, and its rows.
async fn taken(session: &mut Session) -> Result<((usize, Option<Position>), Result<Started>)> {
    let database = Arc::clone(&session.database);
    let taken = match slot(session) {
        Some(batch) => Box::pin(batch.next()).await?,
        None => None,
    };
    let Some((place, answer)) = taken else {
        let message = "there is no batch with another query";
        return Err(Error::Invalid {
            message: message.to_owned(),
            fault: Fault::State,
            position: None,
        });
    };
    Ok(match answer {
        Ok(Answer::Made(started, share)) => {
            // Its rows no longer wait for their turn; what they are charged stays.
            drop(share);
            ((place, None), Ok(started))
        }
        Ok(Answer::Failed) => ((place, None), Ok(Outcome::done(FAILED).into())),
        Ok(Answer::Later(asked)) => {
            let position = Some(asked.position);
            ((place, position), Box::pin(asked.start(&database)).await.map(Started::Rows))
        }
        Ok(Answer::InTurn(query)) => {
            let position = Some(query.position);
            ((place, position), Box::pin(query.start(session)).await)
        }
        Err(error) => ((place, None), Err(error)),
    })
}

/// The answer of the query at this place, which has failed.
///
/// # Errors
/// `error`, if the query was ended from outside: its script ends with it.
fn failed(
    session: &mut Session,
    (place, position): (usize, Option<Position>),
    error: Error,
) -> Result<Outcome> {
    if error.sqlstate() == CANCELLED {
        return Err(error);
    }
    if let Some(batch) = slot(session) {
        Failure::note(&mut batch.failure, place, error.at(position));
    }
    Ok(Outcome::done(FAILED))
}

/// The end of the batch.
///
/// # Errors
/// [`Error::InBatch`].
pub(super) fn end(session: &mut Session) -> Result<Outcome> {
    match slot(session).take().and_then(|batch| batch.failure) {
        None => Ok(Outcome::done("BATCH END")),
        Some(Failure { place, count, error }) => Err(Error::InBatch {
            number: place + 1,
            others: count.saturating_sub(1),
            source: Box::new(error),
        }),
    }
}

/// Forgets what a batch has left that was broken off, and ends what runs of it.
pub(super) fn forget(session: &mut Session) {
    *slot(session) = None;
}

/// When the time of the batch is over, by the system's clock; None: never.
pub(super) fn ends_at(session: &mut Session) -> Option<Duration> {
    slot(session).as_ref().and_then(|batch| batch.ends_at)
}

/// Sets when the time of the batch is over, if there is one.
pub(super) fn set_end(session: &mut Session, ends_at: Option<Duration>) {
    if let Some(batch) = slot(session) {
        batch.ends_at = ends_at;
    }
}

impl Session {
    /// Whether the next query of a batch has no answer yet, so that there is time to send what was given before.
    pub fn awaits_batch(&mut self) -> bool {
        let next = slot(self).as_ref().and_then(|batch| batch.answers.front());
        next.is_some_and(Coming::is_awaited)
    }
}

fn slot(session: &mut Session) -> &mut Option<Batch> {
    session.batch.get_mut().unwrap_or_else(PoisonError::into_inner)
}

/// Checks the query at `place`, and plans it on the snapshot of the batch, which the first one takes; a query of the
/// past has another one. A query that needs no plan runs.
async fn ready(
    session: &mut Session,
    (place, parsed): (usize, ParsedStatement),
    known: (&mut Option<(String, ReadView)>, &Room),
) -> Result<Ready> {
    let ParsedStatement { statement, mut text, position, hints } = parsed;
    let Statement::Query(query) = statement else {
        return Err(Error::unsupported("a batch of anything but queries"));
    };
    output::check_hints(None, &hints)?;
    let query = session.query_with_exact_names(query, &mut text)?;
    let outer = session.hinted.clone();
    if let Some(own) = under(session.in_force(), &hints)? {
        session.hinted = Some(own);
    }
    let planned = Box::pin(planned(session, &query, &text, known)).await;
    let settings = session.in_force().clone();
    session.hinted = outer;
    Ok(match planned? {
        Planned::Made(outcome) => Ready::Made(outcome),
        Planned::Query(plan, view) => {
            let plan = Some(*plan);
            Ready::Planned(Box::new(Asked { place, position, query, text, settings, view, plan }))
        }
        Planned::InTurn => Ready::InTurn(Box::new(Unplanned { position, query, text, settings })),
    })
}

/// The rows of a query, or its plan and what it reads.
enum Planned {
    Made(Outcome),
    Query(Box<LoggedQuery>, ReadView),
    InTurn,
}

async fn planned(
    session: &mut Session,
    query: &ast::Query,
    text: &str,
    (view, room): (&mut Option<(String, ReadView)>, &Room),
) -> Result<Planned> {
    search_path::check_path(session, text)?;
    rights::check_rights(session, || Statement::Query(Box::new(query.clone()))).await?;
    started::set_configs(session, query, &Parameters::default())?;
    // One whose names mean other tables has a snapshot of its own.
    if room.is_full() || session.defined().is_exact() || has_effects(query, &session.names()) {
        return Ok(Planned::InTurn);
    }
    if let Some(outcome) = Box::pin(started::without_plan(session, query, text)).await? {
        return Ok(Planned::Made(outcome));
    }
    let as_of = session.in_force().as_of.clone();
    let known = view.as_ref().filter(|(of, _)| *of == as_of).map(|(_, view)| view.clone());
    let read = match known {
        Some(known) => {
            rights::check_on(session, &known.state)?;
            known
        }
        None => {
            let read = session.view().await?;
            *view = Some((as_of, read.clone()));
            read
        }
    };
    let parameters = &Parameters::default();
    let asked = QueryRequest { query, parameters, view: Some(&read) };
    let plan = LoggedQuery::plan(&session.database, session.in_force(), asked, text);
    let plan = Box::new(Box::pin(plan).await?);
    Ok(Planned::Query(plan, read))
}

/// Runs planned queries, in groups, and answers them.
async fn run_planned(planned: Vec<Member>, limits: BatchLimits, sides: Sides) {
    let about = planned.iter().map(|member| member.asked.plan.as_ref().map(LoggedQuery::about));
    let about: Vec<BatchQuery> = about.map(Option::unwrap_or_default).collect();
    let size_max = usize::try_from(limits.size_max).unwrap_or(usize::MAX);
    let made = groups(&about, u64::from(limits.reuse_min), size_max);
    let mut course = Course::of_groups(&made, &about);
    let mut planned: Vec<Option<Member>> = planned.into_iter().map(Some).collect();
    let mut running = FuturesUnordered::new();
    loop {
        while running.len() < GROUPS_MAX
            && let Some(number) = course.begin()
        {
            let places = made.get(number).into_iter().flatten();
            let members = places.filter_map(|place| planned.get_mut(*place)?.take());
            running.push(run_group(number, members.collect(), sides.clone()));
        }
        let Some(number) = running.next().await else { return };
        course.ended(number);
    }
}

/// Runs the queries of the group `number` at once.
async fn run_group(number: usize, members: Vec<Member>, sides: Sides) -> usize {
    let _beside = sides.alone.read().await;
    let company = u32::try_from(members.len()).unwrap_or(u32::MAX);
    let devices: BTreeSet<u32> = members
        .iter()
        .filter_map(|member| member.asked.plan.as_ref())
        .filter(|plan| plan.memory_asked(company) > 0)
        .flat_map(|plan| plan.about().devices)
        .collect();
    let gate = match company > 1 && !devices.is_empty() {
        true => least_memory(&sides.database, &devices).await.map(Gate::of),
        false => None,
    };
    let runs = members.into_iter().map(|member| member.run(company, gate.as_ref(), &sides));
    join_all(runs).await;
    number
}

impl Batch {
    /// Begins the turn of the next query, and gives its place and its answer once it has one; None: there is none. One
    /// that runs in its turn waits until no group runs.
    async fn next(&mut self) -> Result<Option<(usize, Result<Answer>)>> {
        let Some(coming) = self.answers.pop_front() else { return Ok(None) };
        let place = self.place;
        self.place += 1;
        drop(self.held.take());
        let count = self.place;
        self.turns.send_modify(|turns| *turns = count.max(*turns));
        let answer = match coming {
            Coming::Here(answer) => Ok(answer),
            Coming::Begun(coming) => match coming.await {
                Ok(answer) => answer,
                Err(_) => return Err(self.broken_off().await),
            },
        };
        if matches!(answer, Ok(Answer::Later(_) | Answer::InTurn(_))) {
            self.held = Some(Arc::clone(&self.alone).write_owned().await);
        }
        Ok(Some((place, answer)))
    }

    /// Why the groups have ended before they answered.
    async fn broken_off(&mut self) -> Error {
        match self.groups.join_next().await.map(tasks::joined) {
            Some(Err(error)) => error,
            Some(Ok(())) | None => {
                DataFusionError::Internal("a query of a batch has no answer".to_owned()).into()
            }
        }
    }
}

impl Coming {
    fn failed() -> Self {
        Self::Here(Answer::Failed)
    }

    fn is_awaited(&self) -> bool {
        match self {
            Self::Here(answer) => matches!(answer, Answer::Later(_) | Answer::InTurn(_)),
            Self::Begun(coming) => coming.is_empty(),
        }
    }
}

impl Sides {
    /// Whether the turn of the query at `place` has begun.
    fn has_turn(&self, place: usize) -> bool {
        *self.turns.borrow() > place
    }

    /// Waits until the turn of the query at `place` is over.
    async fn passed(&self, place: usize) {
        let mut turns = self.turns.clone();
        // Without a sender, there is no batch any more.
        drop(turns.wait_for(|turns| *turns > place.saturating_add(1)).await);
    }
}

/// The rows of a query of a group.
enum Collected {
    /// All of them, with what they take of the room.
    Whole(ResultRows, Share),
    /// The query still runs: those of it that are left come as they are computed.
    Begun(ResultRows),
    /// They do not fit, and it begins anew later.
    TooMany,
}

impl Member {
    /// Answers it, as one of `company` queries that run at once. If it streams its rows, it ends when its turn does.
    async fn run(self, company: u32, gate: Option<&Gate>, sides: &Sides) {
        let Self { mut asked, answer } = self;
        let (place, position) = (asked.place, asked.position);
        let begins = |plan: &LoggedQuery| sides.room.may_hold(plan) || sides.has_turn(place);
        let Some(plan) = asked.plan.take_if(|plan| begins(plan)) else {
            drop(answer.send(Ok(Answer::Later(Box::new(asked)))));
            return;
        };
        let _begun = match gate {
            Some(gate) => gate.enter(plan.memory_asked(company)).await,
            None => None,
        };
        let is_given = Arc::new(AtomicBool::new(false));
        let (stop, given) = (sides.stop.clone(), Arc::clone(&is_given));
        // Rows that were given are those of their taker, whatever becomes of the batch.
        let is_over = move || stop.is_raised() && !given.load(Relaxed);
        let collecting = Box::pin(collected(plan, (place, company), sides));
        let (answered, streams) = match wanted::until(is_over, collecting).await {
            Ok(Collected::Whole(rows, share)) => {
                (Ok(Answer::Made(Started::Rows(rows), Some(share))), false)
            }
            Ok(Collected::Begun(rows)) => (Ok(Answer::Made(Started::Rows(rows), None)), true),
            Ok(Collected::TooMany) => (Ok(Answer::Later(Box::new(asked))), false),
            Err(error) => (Err(error.at(Some(position))), false),
        };
        is_given.store(true, Relaxed);
        // Nobody may want it.
        let is_taken = answer.send(answered).is_ok();
        if is_taken && streams {
            sides.passed(place).await;
        }
    }
}

impl Asked {
    /// Its rows, as they come.
    async fn start(self, database: &Arc<Database>) -> Result<ResultRows> {
        let Self { query, text, settings, view, plan, .. } = self;
        let running = match plan {
            Some(plan) => plan.run(1).await?,
            None => {
                // What it reads was noted when it was planned first.
                let view = ReadView { reads: None, ..view };
                let parameters = &Parameters::default();
                let asked = QueryRequest { query: &query, parameters, view: Some(&view) };
                Box::pin(run_logged(database, &settings, asked, &text)).await?
            }
        };
        Ok(ResultRows::running(running))
    }
}

impl Unplanned {
    /// Its rows, as those of a statement that begins now.
    async fn start(self, session: &mut Session) -> Result<Started> {
        let Self { query, mut text, settings, .. } = self;
        let query = session.query_with_exact_names(query, &mut text)?;
        let outer = session.hinted.replace(settings);
        let (database, tables) = (Arc::clone(&session.database), session.concerned_by(&query));
        let started = async {
            search_path::check_path(session, &text)?;
            rights::check_rights(session, || Statement::Query(query.clone())).await?;
            started::start_query(session, &query, &text).await
        };
        let started = patiently(&database, tables, Box::pin(started)).await;
        session.hinted = outer;
        started
    }
}

/// The rows of the query at `place`, one of `company` that run at once. All are collected as long as they fit, also in
/// its turn: it may fail as long as none was given, and stop no other.
async fn collected(
    mut plan: LoggedQuery,
    (place, company): (usize, u32),
    sides: &Sides,
) -> Result<Collected> {
    let (may_hold, again) = (sides.room.may_hold(&plan), plan.runs_again());
    let mut rows = ResultRows::running(plan.run(company).await?).on(&sides.runtime);
    if !may_hold {
        // Only one whose turn it is begins then.
        return Ok(Collected::Begun(rows));
    }
    let charge = Charge::named(&sides.database, "the rows of a batch");
    let mut share = Share { room: Arc::clone(&sides.room), bytes: 0 };
    let mut batches = Vec::new();
    while let Some(batch) = rows.next().await? {
        let bytes = byte_count(&batch);
        let fits = share.take(bytes) && charge.grow(bytes).is_ok();
        batches.push(batch);
        if fits {
            continue;
        }
        if sides.has_turn(place) {
            return Ok(Collected::Begun(rows.behind(batches, charge)));
        }
        // Before the rows are let go of.
        if let Some(again) = again {
            again.note();
        }
        return Ok(Collected::TooMany);
    }
    Ok(Collected::Whole(ResultRows::made(rows.schema(), batches, charge), share))
}

impl Room {
    fn is_full(&self) -> bool {
        self.taken.load(Relaxed) >= self.bytes_max
    }

    /// Whether as many rows as are expected of `plan` would fit.
    fn may_hold(&self, plan: &LoggedQuery) -> bool {
        plan.expected_bytes() <= self.bytes_max as f64
    }
}

/// What the rows of one query take of the room, given back when it is dropped.
struct Share {
    room: Arc<Room>,
    bytes: usize,
}

impl Share {
    /// That of rows that exist already.
    fn of(room: &Arc<Room>, outcome: &Outcome) -> Self {
        let mut share = Self { room: Arc::clone(room), bytes: 0 };
        if let Outcome::Rows { batches, .. } = outcome {
            share.take(batches.iter().map(byte_count).sum());
        }
        share
    }

    /// Takes `bytes` more; false: there are not so many.
    fn take(&mut self, bytes: usize) -> bool {
        let before = self.room.taken.fetch_add(bytes, Relaxed);
        self.bytes += bytes;
        before.saturating_add(bytes) <= self.room.bytes_max
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.room.taken.fetch_sub(self.bytes, Relaxed);
    }
}

impl Gate {
    /// For devices with `bytes` for fragments.
    fn of(bytes: u64) -> Self {
        let total = u32::try_from(bytes / GRANULE_BYTES).unwrap_or(u32::MAX);
        Self { granules: Semaphore::new(usize::try_from(total).unwrap_or(0)), total }
    }

    /// Waits until there is room for `bytes`, or for nothing but these.
    async fn enter(&self, bytes: u64) -> Option<SemaphorePermit<'_>> {
        let granules = u32::try_from(bytes.div_ceil(GRANULE_BYTES)).unwrap_or(u32::MAX);
        self.granules.acquire_many(granules.min(self.total)).await.ok()
    }
}

/// The answers of a batch so far, by place.
struct Answers {
    all: Vec<Option<Coming>>,
    failure: Option<Failure>,
}

impl Answers {
    fn of(count: usize) -> Self {
        Self { all: (0..count).map(|_| None).collect(), failure: None }
    }

    fn put(&mut self, place: usize, answer: Coming) {
        if let Some(own) = self.all.get_mut(place) {
            *own = Some(answer);
        }
    }

    fn fail(&mut self, place: usize, error: Error) {
        Failure::note(&mut self.failure, place, error);
        self.put(place, Coming::failed());
    }

    /// The place of the first query without an answer, unless one before it runs in its turn.
    fn front(&self) -> Option<usize> {
        let is_there = |coming: &Option<Coming>| {
            matches!(coming, Some(Coming::Here(Answer::Made(..) | Answer::Failed)))
        };
        let place = self.all.iter().position(|coming| !is_there(coming))?;
        let first = self.all.get(place)?.as_ref()?;
        matches!(first, Coming::Begun(_)).then_some(place)
    }
}

impl Failure {
    /// Notes that the query at `place` failed, beside those in `noted`.
    fn note(noted: &mut Option<Self>, place: usize, error: Error) {
        match noted {
            None => *noted = Some(Self { place, count: 1, error }),
            Some(first) => {
                first.count += 1;
                if place < first.place {
                    (first.place, first.error) = (place, error);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    //! Which error a batch ends with; how much room rows take.

    use super::*;

    #[test]
    fn the_first_of_several_failures_is_told_with_their_number() {
        let mut noted = None;
        for (place, name) in [(7, "seven"), (2, "two"), (5, "five")] {
            Failure::note(&mut noted, place, Error::unsupported(name));
        }
        let Failure { place, count, error } = noted.unwrap();
        assert_eq!((place, count, error.to_string().as_str()), (2, 3, "two is not supported"));
        let told = Error::InBatch { number: place + 1, others: count - 1, source: Box::new(error) };
        assert_eq!(told.to_string(), "query 3 of the batch (and 2 others): two is not supported");
        assert_eq!(told.sqlstate(), "0A000");
    }

    #[test]
    fn rows_that_do_not_fit_leave_their_room_to_others() {
        let room = Arc::new(Room { taken: AtomicUsize::new(0), bytes_max: 100 });
        let share = || Share { room: Arc::clone(&room), bytes: 0 };
        let (mut kept, mut other) = (share(), share());
        assert!(kept.take(40) && kept.take(30) && !other.take(40));
        drop(other);
        assert!(kept.take(30));
        assert!(!share().take(1) && room.is_full());
        drop(kept);
        assert_eq!(room.taken.load(Relaxed), 0);
    }

    #[tokio::test]
    async fn a_gate_lets_in_what_fits() {
        let gate = Gate::of(8 << 20);
        let first = gate.enter(5 << 20).await.unwrap();
        let second = gate.enter(3 << 20).await.unwrap();
        assert_eq!(gate.granules.available_permits(), 0);
        drop((first, second));
        // More than there is has all of it.
        let all = gate.enter(1 << 40).await.unwrap();
        assert_eq!(gate.granules.available_permits(), 0);
        drop(all);
        assert!(gate.enter(0).await.is_some());
    }
}
