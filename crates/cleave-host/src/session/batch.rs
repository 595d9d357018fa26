//! Batches: the queries between BATCH BEGIN and BATCH END run several at once, so that one reading of a column serves
//! those that ask for it.
//!
//! ```text
//!  BATCH BEGIN ─▶ plan each ─▶ groups ─┬─ group on device a: its queries at once ─▶ rows in memory
//!                                      └─ group on device b, beside it
//!  each query  ─▶ its rows, in the order in which the queries are written
//!  BATCH END   ─▶ the first error, if there is one
//! ```
//!
//! 1. [`run`] checks and plans the queries one after the other, all on one snapshot. One that needs no plan is answered
//!    at once, while there is room for its rows. Plans are made ahead as far as they fit a share of the memory of
//!    queries. A query whose functions do something, or those of its views, is only run in its turn.
//! 2. [`groups`] puts queries together that share columns, and [`Course`] lets groups on different devices run beside
//!    each other. Within a group, scans [share what they evaluate](cleave_fragment::filter_history) because they are
//!    under way at the same time.
//! 3. The queries of a group begin as far as the memory of their devices goes ([`Gate`]), and their rows are kept in
//!    memory ([`Room`]). One with more rows is given up there, and runs again in its turn, streamed.
//! 4. [`next`] gives the rows of the next query, [`end`] the first error. A query that fails stops no other.
//!
//! Invariant: the rows of each query are those of it alone on the same snapshot. Nothing waits for the client while a
//! query holds memory of a device. Source: CORD, section V-D3.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};

use cleave_catalog::error::{Error, Fault, Position, Result};
use cleave_catalog::settings::{BatchLimits, Settings};
use cleave_engine::write::begun::byte_count;
use cleave_plan::batch::{BatchQuery, Course, groups};
use cleave_query::select::{
    LoggedQuery, QueryRequest, ReadView, has_effects, least_memory, run_logged,
};
use cleave_sql::statement::{Parameters, ParsedStatement, Statement};
use datafusion::sql::sqlparser::ast;
use futures::future::join_all;
use futures::stream::{FuturesUnordered, StreamExt};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::charge::{Charge, share_of};
use super::concerned::patiently;
use super::started::{self, ResultRows, Started, charged};
use super::{Outcome, Session, output, rights, search_path, under};
use crate::database::Database;

/// The command tag of a query that has failed. Its error comes at the end.
const FAILED: &str = "FAILED";
/// Most bytes of plans that wait for their group, and of rows that wait for their turn, whatever memory there is.
const BYTES_MAX: usize = 256 << 20;
/// Most groups that run at once.
const GROUPS_MAX: usize = 16;
/// Bytes of device memory that count as one.
const GRANULE_BYTES: u64 = 1 << 20;

/// A batch that has run, until its rows are given.
pub(super) struct Batch {
    /// The place of the next query.
    place: usize,
    answers: VecDeque<Answer>,
    failure: Option<Failure>,
}

/// What became of a query.
enum Answer {
    /// Its rows, in memory.
    Made(Started),
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

/// Runs the queries of a batch.
pub(super) async fn run(session: &mut Session, queries: Vec<ParsedStatement>) -> Result<Outcome> {
    let mut answers = Answers::of(queries.len());
    let bytes_max = share_of(&session.database).min(BYTES_MAX);
    let sides = Sides {
        database: Arc::clone(&session.database),
        runtime: session.runtime.clone().unwrap_or_else(Handle::current),
        room: Arc::new(Room { taken: AtomicUsize::new(0), bytes_max }),
    };
    let plans = Charge::named(&session.database, "the plans of a batch");
    let (mut planned, mut held, mut view) = (Vec::new(), 0, None);
    for (place, parsed) in queries.into_iter().enumerate() {
        let position = parsed.position;
        let known = (&mut view, &*sides.room);
        match Box::pin(ready(session, (place, parsed), known)).await {
            Ok(Ready::Made(outcome)) => {
                sides.room.give(&outcome);
                let made = charged(&session.database, outcome);
                answers.put(place, Ok(Answer::Made(made)));
            }
            Ok(Ready::InTurn(query)) => answers.put(place, Ok(Answer::InTurn(query))),
            Ok(Ready::Planned(asked)) => {
                let bytes = asked.plan.as_ref().map_or(0, LoggedQuery::held_bytes);
                if held + bytes > bytes_max || plans.set(held + bytes).is_err() {
                    let limits = session.in_force().limits.batches;
                    let full = std::mem::take(&mut planned);
                    Box::pin(run_planned(full, limits, &sides, &mut answers)).await;
                    held = 0;
                    drop(plans.set(bytes));
                }
                held += bytes;
                planned.push(*asked);
            }
            Err(error) => answers.put(place, Err(error.at(Some(position)))),
        }
    }
    let limits = session.in_force().limits.batches;
    Box::pin(run_planned(planned, limits, &sides, &mut answers)).await;
    *slot(session) = Some(answers.batch());
    Ok(Outcome::done("BATCH BEGIN"))
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
    Ok(begun.unwrap_or_else(|error| failed(session, place, error).into()))
}

/// All rows of the next query of the batch.
pub(super) async fn next_outcome(session: &mut Session) -> Result<Outcome> {
    let (place, started) = Box::pin(taken(session)).await?;
    let outcome = match started {
        Ok(started) => started.collect().await,
        Err(error) => Err(error),
    };
    Ok(outcome.unwrap_or_else(|error| failed(session, place, error)))
}

/// The place of the next query of the batch, and its rows.
async fn taken(session: &mut Session) -> Result<((usize, Option<Position>), Result<Started>)> {
    let database = Arc::clone(&session.database);
    let taken = slot(session).as_mut().and_then(|batch| {
        let answer = batch.answers.pop_front()?;
        batch.place += 1;
        Some((batch.place - 1, answer))
    });
    let Some((place, answer)) = taken else {
        let message = "there is no batch with another query";
        return Err(Error::Invalid {
            message: message.to_owned(),
            fault: Fault::State,
            position: None,
        });
    };
    Ok(match answer {
        Answer::Made(started) => ((place, None), Ok(started)),
        Answer::Failed => ((place, None), Ok(Outcome::done(FAILED).into())),
        Answer::Later(asked) => {
            let position = Some(asked.position);
            ((place, position), Box::pin(asked.start(&database)).await.map(Started::Rows))
        }
        Answer::InTurn(query) => {
            let position = Some(query.position);
            ((place, position), Box::pin(query.start(session)).await)
        }
    })
}

/// The answer of the query at this place, which has failed.
fn failed(
    session: &mut Session,
    (place, position): (usize, Option<Position>),
    error: Error,
) -> Outcome {
    if let Some(batch) = slot(session) {
        Failure::note(&mut batch.failure, place, error.at(position));
    }
    Outcome::done(FAILED)
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

/// Forgets what a batch has left that was broken off.
pub(super) fn forget(session: &mut Session) {
    *slot(session) = None;
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
    let ParsedStatement { statement, text, position, hints } = parsed;
    let Statement::Query(query) = statement else {
        return Err(Error::unsupported("a batch of anything but queries"));
    };
    output::check_hints(None, &hints)?;
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
    if room.is_full() || has_effects(query, &session.names()) {
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

/// Runs planned queries, in groups.
async fn run_planned(
    planned: Vec<Asked>,
    limits: BatchLimits,
    sides: &Sides,
    answers: &mut Answers,
) {
    let about = planned.iter().map(|asked| asked.plan.as_ref().map(LoggedQuery::about));
    let about: Vec<BatchQuery> = about.map(Option::unwrap_or_default).collect();
    let size_max = usize::try_from(limits.size_max).unwrap_or(usize::MAX);
    let made = groups(&about, u64::from(limits.reuse_min), size_max);
    let mut course = Course::of_groups(&made, &about);
    let mut planned: Vec<Option<Asked>> = planned.into_iter().map(Some).collect();
    let mut running = FuturesUnordered::new();
    loop {
        while running.len() < GROUPS_MAX
            && let Some(number) = course.begin()
        {
            let places = made.get(number).into_iter().flatten();
            let members = places.filter_map(|place| planned.get_mut(*place)?.take());
            running.push(run_group(number, members.collect(), sides.clone()));
        }
        let Some((number, done)) = running.next().await else { return };
        course.ended(number);
        done.into_iter().for_each(|(place, answer)| answers.put(place, answer));
    }
}

/// Runs the queries of the group `number` at once.
async fn run_group(
    number: usize,
    members: Vec<Asked>,
    sides: Sides,
) -> (usize, Vec<(usize, Result<Answer>)>) {
    let company = u32::try_from(members.len()).unwrap_or(u32::MAX);
    let devices: BTreeSet<u32> = members
        .iter()
        .filter_map(|asked| asked.plan.as_ref())
        .filter(|plan| plan.memory_asked(company) > 0)
        .flat_map(|plan| plan.about().devices)
        .collect();
    let gate = match company > 1 && !devices.is_empty() {
        true => least_memory(&sides.database, &devices).await.map(Gate::of),
        false => None,
    };
    let runs = members.into_iter().map(|asked| asked.run(company, gate.as_ref(), &sides));
    (number, join_all(runs).await)
}

impl Asked {
    /// Its rows, as one of `company` queries that run at once.
    async fn run(
        mut self,
        company: u32,
        gate: Option<&Gate>,
        sides: &Sides,
    ) -> (usize, Result<Answer>) {
        let (place, position) = (self.place, self.position);
        let fits = |plan: &LoggedQuery| plan.expected_bytes() <= sides.room.bytes_max as f64;
        let Some(plan) = self.plan.take_if(|plan| fits(plan)) else {
            return (place, Ok(Answer::Later(Box::new(self))));
        };
        let _begun = match gate {
            Some(gate) => gate.enter(plan.memory_asked(company)).await,
            None => None,
        };
        let answer = match Box::pin(collected(plan, company, sides)).await {
            Ok(Some(rows)) => Ok(Answer::Made(Started::Rows(rows))),
            Ok(None) => Ok(Answer::Later(Box::new(self))),
            Err(error) => Err(error.at(Some(position))),
        };
        (place, answer)
    }

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
        let Self { query, text, settings, .. } = self;
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

/// All rows of a query; None: they do not fit, and it begins anew later.
async fn collected(
    mut plan: LoggedQuery,
    company: u32,
    sides: &Sides,
) -> Result<Option<ResultRows>> {
    let again = plan.runs_again();
    let mut rows = ResultRows::running(plan.run(company).await?).on(&sides.runtime);
    let charge = Charge::named(&sides.database, "the rows of a batch");
    let mut share = Share { room: &sides.room, bytes: 0 };
    let mut batches = Vec::new();
    while let Some(batch) = rows.next().await? {
        let bytes = byte_count(&batch);
        if !share.take(bytes) || charge.grow(bytes).is_err() {
            // Before the rows are let go of.
            if let Some(again) = again {
                again.note();
            }
            return Ok(None);
        }
        batches.push(batch);
    }
    share.keep();
    Ok(Some(ResultRows::made(rows.schema(), batches, charge)))
}

impl Room {
    /// Takes what exists already, for good.
    fn give(&self, outcome: &Outcome) {
        if let Outcome::Rows { batches, .. } = outcome {
            let bytes = batches.iter().map(byte_count).sum::<usize>();
            self.taken.fetch_add(bytes, Relaxed);
        }
    }

    fn is_full(&self) -> bool {
        self.taken.load(Relaxed) >= self.bytes_max
    }
}

/// What the rows of one query take of the room, given back when it is dropped.
struct Share<'a> {
    room: &'a Room,
    bytes: usize,
}

impl Share<'_> {
    /// Takes `bytes` more; false: there are not so many.
    fn take(&mut self, bytes: usize) -> bool {
        let before = self.room.taken.fetch_add(bytes, Relaxed);
        self.bytes += bytes;
        before.saturating_add(bytes) <= self.room.bytes_max
    }

    /// Keeps them for good.
    fn keep(mut self) {
        self.bytes = 0;
    }
}

impl Drop for Share<'_> {
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
    all: Vec<Option<Answer>>,
    failure: Option<Failure>,
}

impl Answers {
    fn of(count: usize) -> Self {
        Self { all: (0..count).map(|_| None).collect(), failure: None }
    }

    fn put(&mut self, place: usize, answer: Result<Answer>) {
        let answer = answer.unwrap_or_else(|error| {
            Failure::note(&mut self.failure, place, error);
            Answer::Failed
        });
        if let Some(own) = self.all.get_mut(place) {
            *own = Some(answer);
        }
    }

    fn batch(self) -> Batch {
        let answers = self.all.into_iter().map(|answer| answer.unwrap_or(Answer::Failed));
        Batch { place: 0, answers: answers.collect(), failure: self.failure }
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
        let room = Room { taken: AtomicUsize::new(0), bytes_max: 100 };
        let share = || Share { room: &room, bytes: 0 };
        let (mut kept, mut other) = (share(), share());
        assert!(kept.take(40) && kept.take(30) && !other.take(40));
        drop(other);
        assert!(kept.take(30));
        kept.keep();
        assert!(!share().take(1));
        assert_eq!(room.taken.load(Relaxed), 100);
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
