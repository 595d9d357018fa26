//! The query log: finished queries in, the table `cleave.query_log` out. The prediction for a query stands beside its
//! cost, so that they can be compared.
//!
//! 1. [`QueryLog::begin`] opens a record when a query arrives; [`OpenRecord::planned`] adds what its plan says.
//! 2. [`OpenRecord::end`] adds what was measured, and dropping the record enters it. So an abandoned query is entered
//!    too, with SQLSTATE 57014, unless it [begins anew](RunsAgain).
//! 3. [`QueryLog::batch`] returns the records as rows, the oldest first.
//!
//! Invariants: at most [`RECORD_COUNT_MAX`] records and [`TEXT_BYTES_TOTAL_MAX`] bytes of text, the oldest go first. No
//! device is asked for it. Deliberately absent: a file. The log is empty when the database is opened.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arrow::array::{
    ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use cleave_catalog::error::Result;
use cleave_catalog::settings::Settings;
use cleave_catalog::statement_cost::StatementCost;
use cleave_media::{Clock, SystemClock};
use cleave_plan::cost::CostStrategy;
use cleave_plan::split::{PastErrors, PricedSplit, Split};

use crate::cooperative::figures::QueryFigures;
use crate::select::PlannedQuery;

/// Name of the table.
pub const TABLE: &str = "query_log";

/// Most records that are kept.
pub const RECORD_COUNT_MAX: usize = 1000;
/// Bytes of a statement's text that are kept; a longer one is cut, and ends in `…`.
pub const TEXT_BYTES_MAX: usize = 16 << 10;
/// Bytes of text that are kept in all.
pub const TEXT_BYTES_TOTAL_MAX: usize = 1 << 20;

/// SQLSTATE of a statement that was stopped before its end.
const CANCELLED: &str = "57014";

/// The last queries of a database.
#[derive(Debug, Default)]
pub struct QueryLog {
    kept: Mutex<Kept>,
    past_errors: Mutex<PastErrors>,
}

#[derive(Debug, Default)]
struct Kept {
    records: VecDeque<QueryRecord>,
    text_bytes: usize,
}

/// One query: its prediction and its outcome. Times in milliseconds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct QueryRecord {
    /// When it arrived, in microseconds since 1970-01-01T00:00:00Z.
    pub began_us: i64,
    /// Its text, cut to [`TEXT_BYTES_MAX`].
    pub text: String,
    /// The setting `split`.
    pub split_asked: String,
    /// The split of its plan; `None`: there was no plan.
    pub split_taken: Option<String>,
    /// How splits were compared.
    pub cost_strategy: String,
    /// Expected of the split that was chosen; `None` where splits were not priced.
    pub predicted_ms: Option<f64>,
    /// Expected of the host alone; `None` where splits were not priced.
    pub predicted_host_ms: Option<f64>,
    /// From its arrival to its plan.
    pub planning_ms: Option<f64>,
    /// What it cost; `None`: it did not begin to run.
    pub outcome: Option<QueryOutcome>,
    /// SQLSTATE of its failure; `None`: it did not fail.
    pub sqlstate: Option<String>,
}

/// What a query cost.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct QueryOutcome {
    /// From the plan to the last row, in milliseconds.
    pub execution_ms: f64,
    /// Rows of the result, up to its end.
    pub rows: u64,
    /// Bytes that crossed links, in either direction.
    pub link_bytes: u64,
    /// Bytes that fragments read at the media. What devices read to serve pages is among the bytes of the link.
    pub media_bytes: u64,
    /// CPU time of this process meanwhile, fragments of an embedded device excepted, in milliseconds.
    pub host_cpu_ms: f64,
    /// CPU time of the fragments, in milliseconds.
    pub device_cpu_ms: f64,
    /// Fragments that were to run on a device and that the host ran.
    pub refused_count: u64,
}

/// The record of a running query.
#[derive(Debug)]
pub struct OpenRecord {
    log: Arc<QueryLog>,
    record: QueryRecord,
    /// Seconds that the cost model predicted of the plan.
    predicted_s: Option<f64>,
    /// Whether it is left out; None: nobody may say so.
    runs_again: Option<RunsAgain>,
    /// That of its statement.
    cost: StatementCost,
}

/// Says of a query under way that it begins anew later: what it has done is not entered, so that the log has it once.
#[derive(Debug, Clone, Default)]
pub struct RunsAgain(Arc<AtomicBool>);

impl RunsAgain {
    /// It does. Before it is dropped.
    pub fn note(&self) {
        self.0.store(true, Ordering::Release);
    }
}

impl QueryLog {
    /// Opens the record of the query `text`; `None` where the settings want none.
    pub fn begin(self: &Arc<Self>, settings: &Settings, text: &str) -> Option<OpenRecord> {
        settings.query_log.then(|| OpenRecord {
            log: Arc::clone(self),
            record: QueryRecord {
                began_us: SystemClock.wall(),
                text: cut(text),
                split_asked: settings.split.to_string(),
                cost_strategy: settings.cost_strategy.to_string(),
                sqlstate: Some(CANCELLED.to_owned()),
                ..QueryRecord::default()
            },
            predicted_s: None,
            runs_again: None,
            cost: settings.client.cost.clone(),
        })
    }

    /// The present records, the oldest first.
    pub fn records(&self) -> Vec<QueryRecord> {
        self.kept().records.iter().cloned().collect()
    }

    /// The same as rows of [`schema`].
    ///
    /// # Errors
    /// None that the records can bring about.
    pub fn batch(&self) -> Result<RecordBatch> {
        let records = self.records();
        let outcomes: Vec<Option<&QueryOutcome>> =
            records.iter().map(|record| record.outcome.as_ref()).collect();
        let texts = |of: fn(&QueryRecord) -> Option<&str>| -> ArrayRef {
            Arc::new(records.iter().map(of).collect::<StringArray>())
        };
        let numbers = |of: fn(&QueryRecord) -> Option<f64>| -> ArrayRef {
            Arc::new(records.iter().map(of).collect::<Float64Array>())
        };
        let times = |of: fn(&QueryOutcome) -> f64| -> ArrayRef {
            Arc::new(outcomes.iter().map(|outcome| outcome.map(of)).collect::<Float64Array>())
        };
        let counts = |of: fn(&QueryOutcome) -> u64| -> ArrayRef {
            let count = |outcome: &Option<&QueryOutcome>| {
                outcome.map(|outcome| i64::try_from(of(outcome)).unwrap_or(i64::MAX))
            };
            Arc::new(outcomes.iter().map(count).collect::<Int64Array>())
        };
        let began: TimestampMicrosecondArray =
            records.iter().map(|record| Some(record.began_us)).collect();
        let columns: Vec<ArrayRef> = vec![
            Arc::new(began.with_timezone("UTC")),
            texts(|record| Some(&record.text)),
            texts(|record| Some(&record.split_asked)),
            texts(|record| record.split_taken.as_deref()),
            texts(|record| Some(&record.cost_strategy)),
            numbers(|record| record.predicted_ms),
            numbers(|record| record.predicted_host_ms),
            numbers(|record| record.planning_ms),
            times(|outcome| outcome.execution_ms),
            counts(|outcome| outcome.rows),
            counts(|outcome| outcome.link_bytes),
            counts(|outcome| outcome.media_bytes),
            times(|outcome| outcome.host_cpu_ms),
            times(|outcome| outcome.device_cpu_ms),
            counts(|outcome| outcome.refused_count),
            texts(|record| record.sqlstate.as_deref()),
        ];
        Ok(RecordBatch::try_new(schema(), columns)?)
    }

    fn enter(&self, record: QueryRecord) {
        let mut kept = self.kept();
        kept.text_bytes += record.text.len();
        kept.records.push_back(record);
        while kept.records.len() > RECORD_COUNT_MAX || kept.text_bytes > TEXT_BYTES_TOTAL_MAX {
            let Some(oldest) = kept.records.pop_front() else { break };
            kept.text_bytes -= oldest.text.len();
        }
    }

    /// How far the predictions of queries that came to their end were off.
    pub fn past_errors(&self) -> PastErrors {
        *self.errors()
    }

    fn errors(&self) -> MutexGuard<'_, PastErrors> {
        self.past_errors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Columns of the table.
pub fn schema() -> SchemaRef {
    let began = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let column = |name: &str, data_type: DataType| Field::new(name, data_type, true);
    let text = |name: &str| column(name, DataType::Utf8);
    let ms = |name: &str| column(name, DataType::Float64);
    let count = |name: &str| column(name, DataType::Int64);
    Arc::new(Schema::new(vec![
        column("began", began),
        text("text"),
        text("split_asked"),
        text("split_taken"),
        text("cost_strategy"),
        ms("predicted_ms"),
        ms("predicted_host_ms"),
        ms("planning_ms"),
        ms("execution_ms"),
        count("rows"),
        count("link_bytes"),
        count("media_bytes"),
        ms("host_cpu_ms"),
        ms("device_cpu_ms"),
        count("refused"),
        text("sqlstate"),
    ]))
}

impl OpenRecord {
    /// Adds what the plan says.
    pub fn planned(&mut self, planned: &PlannedQuery) {
        let finish_ms = |is_wanted: fn(&PricedSplit) -> bool| {
            let found = planned.cuts.priced.iter().find(|priced| is_wanted(priced));
            found.map(|priced| priced.prediction.finish * 1e3)
        };
        let split = planned.split_taken().to_string();
        self.cost.add(|cost| cost.split = cost.split.take().or_else(|| Some(split.clone())));
        self.record.split_taken = Some(split);
        self.record.predicted_ms = finish_ms(|priced| priced.is_chosen);
        self.record.predicted_host_ms = finish_ms(|priced| priced.split == Split::Host);
        self.record.planning_ms = Some(milliseconds(planned.planning));
        let is_makespan = planned.context.settings().cost_strategy == CostStrategy::Makespan;
        // What is predicted of a plan without stages says nothing of one with them.
        let is_of_run = is_makespan && !planned.is_staged();
        self.predicted_s = self.record.predicted_ms.filter(|_| is_of_run).map(|ms| ms / 1e3);
    }

    /// What is told if the query begins anew later.
    pub fn runs_again(&mut self) -> RunsAgain {
        self.runs_again.get_or_insert_default().clone()
    }

    /// The query failed with `sqlstate` before it ran.
    pub fn fail(mut self, sqlstate: &str) {
        self.record.sqlstate = Some(sqlstate.to_owned());
    }

    /// The query, which ran, came to `end` and had cost `figures` by then.
    pub fn end(mut self, figures: &QueryFigures, end: QueryEnd) {
        self.record.sqlstate = match end {
            QueryEnd::Done => None,
            QueryEnd::Failed(sqlstate) => Some(sqlstate),
            QueryEnd::Dropped => Some(CANCELLED.to_owned()),
        };
        let refused = figures
            .fragments
            .iter()
            .filter(|fragment| fragment.refused.is_some() && !fragment.is_planned_here);
        let refused_count = refused.count() as u64;
        let is_as_planned = refused_count == 0
            && figures.fragments.iter().all(|fragment| fragment.begun_again.is_none());
        // What ran otherwise than planned, or not to its end, says nothing of the prediction.
        if let Some(predicted_s) = self
            .predicted_s
            .filter(|_| figures.has_link && is_as_planned && self.record.sqlstate.is_none())
        {
            let has_cut = figures.fragments.iter().any(|fragment| !fragment.is_planned_here);
            self.log.errors().add(has_cut, predicted_s, figures.elapsed.as_secs_f64());
        }
        let outcome = QueryOutcome {
            execution_ms: milliseconds(figures.elapsed),
            rows: figures.rows,
            link_bytes: figures.link_bytes_received + figures.link_bytes_sent,
            media_bytes: figures.media_bytes,
            host_cpu_ms: milliseconds(figures.host_cpu),
            device_cpu_ms: milliseconds(figures.device_cpu),
            refused_count,
        };
        self.cost.add(|cost| {
            cost.link_bytes += outcome.link_bytes;
            cost.media_bytes += outcome.media_bytes;
            cost.host_cpu_ms += outcome.host_cpu_ms;
            cost.device_cpu_ms += outcome.device_cpu_ms;
            cost.refused += outcome.refused_count;
        });
        self.record.outcome = Some(outcome);
    }
}

impl Drop for OpenRecord {
    fn drop(&mut self) {
        let is_void = |again: &RunsAgain| again.0.load(Ordering::Acquire);
        if !self.runs_again.as_ref().is_some_and(is_void) {
            self.log.enter(std::mem::take(&mut self.record));
        }
    }
}

/// How a query that ran came to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueryEnd {
    /// After its last row.
    Done,
    /// With this SQLSTATE.
    Failed(String),
    /// It was abandoned.
    Dropped,
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// `text` within [`TEXT_BYTES_MAX`].
fn cut(text: &str) -> String {
    if text.len() <= TEXT_BYTES_MAX {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(TEXT_BYTES_MAX - '…'.len_utf8());
    format!("{}…", &text[..end])
}

#[cfg(test)]
mod tests {
    //! Which records are kept, and which are dropped.

    use super::*;

    fn enter(log: &Arc<QueryLog>, text: &str) {
        drop(log.begin(&Settings::default(), text));
    }

    #[test]
    fn the_oldest_records_go_first() {
        let log = Arc::new(QueryLog::default());
        for number in 0..RECORD_COUNT_MAX + 5 {
            enter(&log, &format!("SELECT {number}"));
        }
        let records = log.records();
        assert_eq!(records.len(), RECORD_COUNT_MAX);
        assert_eq!(records[0].text, "SELECT 5");
        assert_eq!(records[RECORD_COUNT_MAX - 1].text, format!("SELECT {}", RECORD_COUNT_MAX + 4));
        assert_eq!(log.batch().unwrap().num_rows(), RECORD_COUNT_MAX);
    }

    #[test]
    fn texts_are_cut_and_bounded_together() {
        let log = Arc::new(QueryLog::default());
        let long = "ß".repeat(TEXT_BYTES_MAX);
        for _ in 0..200 {
            enter(&log, &long);
        }
        let records = log.records();
        let bytes: usize = records.iter().map(|record| record.text.len()).sum();
        assert!(bytes <= TEXT_BYTES_TOTAL_MAX && bytes > TEXT_BYTES_TOTAL_MAX / 2, "{bytes}");
        assert!(records.iter().all(|record| record.text.ends_with("ß…")));
        assert_eq!(log.kept().text_bytes, bytes);
        enter(&log, "SELECT 1");
        assert_eq!(log.records().last().unwrap().text, "SELECT 1");
    }

    #[test]
    fn off_means_off_and_what_was_given_up_says_so() {
        let log = Arc::new(QueryLog::default());
        assert!(log.begin(&Settings { query_log: false, ..Settings::default() }, "a").is_none());
        enter(&log, "b");
        let [record] = log.records().try_into().unwrap();
        assert_eq!((record.text.as_str(), record.sqlstate.as_deref()), ("b", Some(CANCELLED)));
        assert_eq!((record.outcome, record.split_taken), (None, None));
    }

    #[test]
    fn only_what_ran_as_planned_tells_of_predictions() {
        let log = Arc::new(QueryLog::default());
        let ran = |figures: &QueryFigures, end: QueryEnd, predicted_s: Option<f64>| {
            let mut record = log.begin(&Settings::default(), "q").unwrap();
            record.predicted_s = predicted_s;
            record.end(figures, end);
            std::mem::take(&mut *log.errors()) != PastErrors::default()
        };
        let elapsed = Duration::from_millis(20);
        let figures = QueryFigures { elapsed, has_link: true, ..QueryFigures::default() };
        assert!(ran(&figures, QueryEnd::Done, Some(0.01)));
        assert!(!ran(&figures, QueryEnd::Done, None));
        assert!(!ran(&figures, QueryEnd::Dropped, Some(0.01)));
        assert!(!ran(&figures, QueryEnd::Failed("22012".to_owned()), Some(0.01)));
        // Over an embedded device nothing is chosen.
        let embedded = QueryFigures { has_link: false, ..figures };
        assert!(!ran(&embedded, QueryEnd::Done, Some(0.01)));
    }
}
