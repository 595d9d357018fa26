//! The timeline of EXPLAIN ANALYZE: when each side worked on a fragment, and when it waited. Strips in, one line each
//! out.
//!
//! ```text
//!   host waited     |█████▓▒░ ░   |
//!   device worked   |▒████████████|   16 columns of 4 ms
//!   device stalled  |             |
//!   link            | ░▒▓█▓▓▒▒▒▒▒░|   at most 41.2 MB/s
//! ```
//!
//! Time begins when the fragment is sent. The device's clock begins when it gets the request, which is half a round
//! trip later. The darkness of a column is the share of its time spent so; for the link, its bytes relative to the
//! fullest column.

use std::time::Duration;

use cleave_fragment::strip::Strip;

use super::time;
use crate::cooperative::figures::FragmentFigures;

const SHADES: [char; 5] = [' ', '░', '▒', '▓', '█'];

/// Names and drawings of what was measured; nothing where the device ran nothing.
pub(super) fn lines(fragment: &FragmentFigures) -> Vec<(String, String)> {
    let Some(report) = &fragment.report else { return Vec::new() };
    let strips =
        [&fragment.timeline.waited, &report.worked, &report.stalled, &fragment.timeline.arrived];
    let width = strips.iter().map(|strip| strip.width()).max().unwrap_or_default();
    let strips = strips.map(|strip| strip.clone().widened(width));
    let count = strips.iter().map(|strip| strip.amounts().len()).max().unwrap_or(0);
    let [waited, worked, stalled, arrived] = strips;
    let width_ns = width.as_nanos() as f64;
    let partitions_ns = width_ns * f64::from(report.partitions.max(1));
    let fullest = arrived.amounts().iter().copied().max().unwrap_or(0) as f64;
    let rate = fullest / width.as_secs_f64().max(f64::MIN_POSITIVE) / 1e6;
    let line = |name: &str, strip: &Strip, full: f64, remark: String| {
        (name.to_owned(), format!("|{}|{remark}", drawing(strip, count, full)))
    };
    vec![
        line("timeline, host waited", &waited, width_ns, columns(count, width)),
        line("timeline, device worked", &worked, partitions_ns, String::new()),
        line("timeline, device stalled", &stalled, width_ns, String::new()),
        line("timeline, link", &arrived, fullest, format!(" at most {rate:.1} MB/s")),
    ]
}

fn columns(count: usize, width: Duration) -> String {
    format!(" {count} columns of {}", time(width))
}

/// `count` columns, of which one with `full` is black.
fn drawing(strip: &Strip, count: usize, full: f64) -> String {
    let shade = |column: usize| {
        let amount = strip.amounts().get(column).copied().unwrap_or(0) as f64;
        let share = if full > 0.0 { amount / full } else { 0.0 };
        // Anything at all is seen.
        let steps = SHADES.len() - 1;
        let place = (1..=steps).find(|step| share <= *step as f64 / steps as f64);
        let place = if amount > 0.0 && full > 0.0 { place.unwrap_or(steps) } else { 0 };
        SHADES.get(place).copied().unwrap_or(' ')
    };
    (0..count).map(shade).collect()
}

#[cfg(test)]
mod tests {
    //! The darkness of a column follows its fill.

    use super::*;

    #[test]
    fn a_column_is_as_dark_as_it_is_full() {
        let width = Duration::from_nanos(100);
        let strip = Strip::new(width, vec![0, 1, 25, 50, 75, 100, 300]).unwrap();
        assert_eq!(drawing(&strip, 8, 100.0), " ░░▒▓██ ");
        assert_eq!(drawing(&strip, 2, 0.0), "  ");
    }
}
