//! The rows of the table `cleave.progress`: how far the running statements of a server's sessions are, one row each.
//!
//! Everybody may read it. As in `pg_stat_activity`, a statement is shown to those who may end its session; here others
//! have no row. What is counted stands at [`Progress`](cleave_fragment::progress::Progress).

use std::sync::Arc;

use cleave_catalog::backends::BackendStatus;
use cleave_catalog::error::Result;
use cleave_media::{Clock, SystemClock};
use datafusion::arrow::array::{
    ArrayRef, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray,
};

use super::pg_catalog;
use super::statement_context::StatementContext;

/// Name of the table.
pub(super) const TABLE: &str = "progress";

/// One row.
struct Listed {
    pid: i32,
    user: String,
    query: Arc<String>,
    elapsed_ms: f64,
    done: u64,
    /// 0: nothing is known.
    total: u64,
}

impl Listed {
    /// A session that runs a statement, at the wall time `now_us`; None: it runs none.
    fn of(session: BackendStatus, now_us: i64) -> Option<Self> {
        let began_us = session.doing.query_began.filter(|_| session.doing.rests.is_none())?;
        let (done, total) = session.progress;
        Some(Self {
            pid: session.number,
            user: session.user,
            query: session.doing.query,
            elapsed_ms: now_us.saturating_sub(began_us).max(0) as f64 / 1e3,
            done,
            total,
        })
    }

    /// A count, where anything is known.
    fn known(&self, count: u64) -> Option<i64> {
        (self.total > 0).then(|| i64::try_from(count).unwrap_or(i64::MAX))
    }

    fn percent(&self) -> Option<f64> {
        (self.total > 0).then(|| 100.0 * self.done as f64 / self.total as f64)
    }

    /// The time that is left if it goes on so. What is begun last is not done.
    fn left_ms(&self) -> Option<f64> {
        let left = self.total.saturating_sub(self.done) as f64;
        (self.done > 0).then(|| self.elapsed_ms * left / self.done as f64)
    }
}

/// The table's rows.
///
/// # Errors
/// None that a statement is to blame for.
pub(super) fn batch(context: &StatementContext) -> Result<RecordBatch> {
    let view = pg_catalog::view(context);
    let now_us = SystemClock.wall();
    let sessions = context.database().backends().seen().into_iter();
    let sessions = sessions.filter(|session| pg_catalog::may_stop(&view, session.role));
    let listed: Vec<Listed> = sessions.filter_map(|session| Listed::of(session, now_us)).collect();
    as_batch(&listed)
}

fn as_batch(listed: &[Listed]) -> Result<RecordBatch> {
    let texts = |of: fn(&Listed) -> &str| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(listed.iter().map(of)))
    };
    let counts = |of: fn(&Listed) -> Option<i64>| -> ArrayRef {
        Arc::new(listed.iter().map(of).collect::<Int64Array>())
    };
    let figures = |of: fn(&Listed) -> Option<f64>| -> ArrayRef {
        Arc::new(listed.iter().map(of).collect::<Float64Array>())
    };
    let pids = Int32Array::from_iter_values(listed.iter().map(|own| own.pid));
    let columns: [(&str, bool, ArrayRef); 8] = [
        ("pid", false, Arc::new(pids)),
        ("usename", false, texts(|own| own.user.as_str())),
        ("query", false, texts(|own| own.query.as_str())),
        ("elapsed_ms", false, figures(|own| Some(own.elapsed_ms))),
        ("done", true, counts(|own| own.known(own.done))),
        ("total", true, counts(|own| own.known(own.total))),
        ("percent", true, figures(Listed::percent)),
        ("left_ms", true, figures(Listed::left_ms)),
    ];
    let columns = columns.into_iter().map(|(name, nullable, values)| (name, values, nullable));
    Ok(RecordBatch::try_from_iter_with_nullable(columns)?)
}

#[cfg(test)]
mod tests {
    //! The share and the time that is left.

    use super::*;

    #[test]
    fn what_is_left_follows_from_what_is_done() {
        let listed = |done, total| Listed {
            pid: 1,
            user: "ada".to_owned(),
            query: Arc::new("SELECT".to_owned()),
            elapsed_ms: 300.0,
            done,
            total,
        };
        let shown = |done, total| {
            let own = listed(done, total);
            (own.known(done), own.percent(), own.left_ms())
        };
        assert_eq!(shown(0, 0), (None, None, None));
        assert_eq!(shown(0, 10), (Some(0), Some(0.0), None));
        assert_eq!(shown(3, 12), (Some(3), Some(25.0), Some(900.0)));
        assert_eq!(shown(12, 12), (Some(12), Some(100.0), Some(0.0)));
        assert_eq!(as_batch(&[listed(1, 2), listed(0, 0)]).unwrap().num_rows(), 2);
    }
}
