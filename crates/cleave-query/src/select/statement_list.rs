//! The rows of the table `cleave.statements`: [what statements have cost](crate::statements), one row for each text
//! without constants and each role.
//!
//! Everybody may read it. As in `pg_stat_activity`, the text of a statement is shown to those who may end the sessions
//! of its role; and so is what identifies the text, by which others could check what they guess.

use std::sync::Arc;

use cleave_catalog::error::Result;
use datafusion::arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};

use super::pg_catalog;
use super::statement_context::StatementContext;
use crate::statements::{Figures, Shape};

/// Name of the table.
pub(super) const TABLE: &str = "statements";
/// Stands for a statement that the asker may not see.
const HIDDEN: &str = "<insufficient privilege>";

/// One row.
struct Listed {
    /// None: a superuser that the catalog does not know.
    role: Option<String>,
    /// Whether the asker may see the text.
    is_shown: bool,
    shape: Shape,
    figures: Figures,
}

impl Listed {
    /// The text, as the asker may see it.
    fn text(&self) -> &str {
        if self.is_shown { self.shape.text() } else { HIDDEN }
    }
}

/// The table's rows.
///
/// # Errors
/// None that a statement is to blame for.
pub(super) fn batch(context: &StatementContext) -> Result<RecordBatch> {
    let view = pg_catalog::view(context);
    let newest = context.database().catalog();
    let listed = context.database().statements().listed().into_iter();
    let listed = listed.map(|(role, shape, figures)| {
        let is_shown = pg_catalog::may_stop(&view, role);
        let role = role.map(|id| match newest.rights.role(id) {
            Some(role) => role.name.clone(),
            None => id.to_string(),
        });
        Listed { role, is_shown, shape, figures }
    });
    as_batch(&listed.collect::<Vec<_>>())
}

fn as_batch(statements: &[Listed]) -> Result<RecordBatch> {
    let texts = |of: fn(&Listed) -> Option<&str>| -> ArrayRef {
        Arc::new(statements.iter().map(of).collect::<StringArray>())
    };
    let counts = |of: fn(&Figures) -> u64| -> ArrayRef {
        let counts =
            statements.iter().map(|listed| i64::try_from(of(&listed.figures)).unwrap_or(i64::MAX));
        Arc::new(Int64Array::from_iter_values(counts))
    };
    let times = |of: fn(&Figures) -> f64| -> ArrayRef {
        let times = statements.iter().map(|listed| of(&listed.figures));
        Arc::new(Float64Array::from_iter_values(times))
    };
    let ids = statements
        .iter()
        .map(|listed| listed.is_shown.then(|| listed.shape.hash().cast_signed()))
        .collect::<Int64Array>();
    let columns = [
        ("role", true, texts(|listed| listed.role.as_deref())),
        ("statement_id", true, Arc::new(ids) as ArrayRef),
        ("kind", false, texts(|listed| Some(listed.shape.kind().name()))),
        ("text", false, texts(|listed| Some(listed.text()))),
        ("calls", false, counts(|figures| figures.calls)),
        ("failures", false, counts(|figures| figures.failures)),
        ("total_ms", false, times(|figures| figures.total_ms)),
        ("min_ms", false, times(|figures| figures.min_ms)),
        ("max_ms", false, times(|figures| figures.max_ms)),
        ("mean_ms", false, times(|figures| figures.total_ms / figures.calls.max(1) as f64)),
        ("rows", false, counts(|figures| figures.rows)),
        ("split", true, texts(|listed| listed.figures.split())),
        ("host_cpu_ms", false, times(|figures| figures.cost.host_cpu_ms)),
        ("device_cpu_ms", false, times(|figures| figures.cost.device_cpu_ms)),
        ("link_bytes", false, counts(|figures| figures.cost.link_bytes)),
        ("media_bytes", false, counts(|figures| figures.cost.media_bytes)),
        ("refused", false, counts(|figures| figures.cost.refused)),
    ];
    let columns = columns.into_iter().map(|(name, nullable, values)| (name, values, nullable));
    Ok(RecordBatch::try_from_iter_with_nullable(columns)?)
}
