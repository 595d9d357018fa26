//! What EXPLAIN says of the statistics that a plan was made with.

use cleave_media::{Clock, SystemClock};

use crate::select::statement_context::StatementContext;

/// For each table, what the estimates come from.
pub(super) fn lines(context: &StatementContext) -> Vec<(String, String)> {
    let mut lines: Vec<(String, String)> = Vec::new();
    for input in context.inputs() {
        let table = &input.input.table;
        let name = &table.schema.name;
        if lines.iter().any(|(known, _)| known == name) {
            continue;
        }
        let text = match context.statistics(table) {
            Some(_) if context.is_stage(table) => {
                "rows, NULLs and ends of columns counted by its device".to_owned()
            }
            Some(known) => {
                let changed = context.database().changed_since_analyze(table);
                let (then, now) = (known.row_count, table.row_count());
                let age = match known.analyzed_us {
                    // By an earlier build, which did not note it.
                    0 => String::new(),
                    then => format!(" {} ago,", age(SystemClock.wall().saturating_sub(then))),
                };
                let pages = match (known.sampled_page_count, known.page_count) {
                    (0, _) => String::new(),
                    (read, all) => format!(" from {read} of {all} pages"),
                };
                format!(
                    "analyzed{age} at {then} rows{pages}; {now} by now, {changed} changes since"
                )
            }
            None if !context.settings().use_statistics => {
                "not used, as the settings ask".to_owned()
            }
            None => "none; ANALYZE gathers them".to_owned(),
        };
        lines.push((name.clone(), text));
    }
    lines
}

/// A time span of so many microseconds, in its largest unit.
fn age(microseconds: i64) -> String {
    let seconds = microseconds.max(0) / 1_000_000;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}
