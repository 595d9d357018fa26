//! Where the time of a statement went: its parts, which add up to the whole.
//!
//! ```text
//!  planning   execution
//!             operators of the host + waiting for devices + writing rows + other − what overlaps
//! ```
//!
//! Operators measure their own time on each thread, and waits are summed over fragments. Where they ran side by side,
//! their sum is more than the time that has passed; the difference is a part of its own.

use std::time::Duration;

use super::plan_nodes::PlanNode;
use super::time;
use crate::cooperative::figures::QueryFigures;

/// The parts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Spent {
    pub(super) planning: Duration,
    pub(super) execution: Duration,
    /// Of all operators of the host, on all threads.
    host_operators: Duration,
    /// For rows of fragments, summed over them.
    host_waited: Duration,
    /// From admission to the last slot, summed over the runs of fragments.
    devices: Duration,
    devices_stalled: Duration,
    /// While no rows were asked for, the reader's time.
    between: Duration,
    /// Of a statement that writes the rows of its query, the time for that.
    pub(super) writing: Option<Duration>,
}

impl Spent {
    /// Those of a statement with these operators and figures.
    pub(super) fn of(nodes: &[PlanNode], figures: &QueryFigures) -> Self {
        let of_host = nodes.iter().filter(|node| node.device.is_none());
        let reports = figures.fragments.iter().filter_map(|fragment| fragment.report.as_ref());
        Self {
            planning: figures.planning,
            execution: figures.elapsed,
            host_operators: of_host.filter_map(|node| node.time).sum(),
            host_waited: figures.host_waited,
            devices: reports.map(|report| report.wall).sum(),
            devices_stalled: figures.device_stalled,
            between: figures.elapsed.saturating_sub(figures.asked),
            writing: None,
        }
    }

    /// The same of a statement that writes the rows of this query, and took `whole`.
    pub(super) fn with_writing(self, whole: Duration) -> Self {
        let execution = whole.saturating_sub(self.planning).max(self.execution);
        let writing = self.between + (execution - self.execution);
        Self { execution, writing: Some(writing), ..self }
    }

    /// A line for each part.
    pub(super) fn lines(&self) -> Vec<(String, String)> {
        let line = |name: &str, value: String| (name.to_owned(), value);
        let writing = self.writing.unwrap_or_default();
        let known = self.host_operators + self.host_waited + writing;
        let rest = match self.execution.checked_sub(known) {
            Some(other) => {
                line("other", format!("{} (reading pages, starting, passing rows on)", time(other)))
            }
            None => line(
                "at the same time",
                format!("-{} (several threads or fragments)", time(known - self.execution)),
            ),
        };
        let mut lines = vec![
            line("planning", time(self.planning)),
            line("operators of the host", time(self.host_operators)),
        ];
        if !self.devices.is_zero() || !self.host_waited.is_zero() {
            let stalled = match self.devices_stalled.is_zero() {
                true => String::new(),
                false => format!(", of it {} stalled", time(self.devices_stalled)),
            };
            let devices =
                format!("meanwhile devices were busy for {}{stalled}", time(self.devices));
            let waited = format!("{}; {devices}", time(self.host_waited));
            lines.push(line("waiting for devices and the link", waited));
        }
        if self.writing.is_some() {
            let writing = format!("{} (with locks, checks, the log and the commit)", time(writing));
            lines.push(line("writing rows", writing));
        }
        lines.push(rest);
        let (planning, execution) = (time(self.planning), time(self.execution));
        let all = time(self.planning + self.execution);
        lines.push(line("in all", format!("{all}: planning {planning}, execution {execution}")));
        lines
    }
}

#[cfg(test)]
mod tests {
    //! The parts add up, whether they overlap or not.

    use super::*;

    #[test]
    fn parts_add_up_to_the_whole() {
        let ms = Duration::from_millis;
        let spent = Spent {
            planning: ms(1),
            execution: ms(9),
            host_operators: ms(2),
            host_waited: ms(3),
            devices: ms(5),
            devices_stalled: ms(0),
            ..Spent::default()
        };
        let line = |lines: Vec<(String, String)>, place: usize| lines[place].1.clone();
        assert!(line(spent.lines(), 3).starts_with("4.000 ms"), "{:?}", spent.lines());
        assert_eq!(spent.lines().len(), 5);
        let overlapping = Spent { host_operators: ms(8), ..spent };
        assert!(line(overlapping.lines(), 3).starts_with("-2.000 ms"), "{:?}", overlapping.lines());
        // A change takes what passes between batches, and all that its query does not.
        let changing = Spent { between: ms(1), ..spent }.with_writing(ms(30));
        assert_eq!((changing.execution, changing.writing), (ms(29), Some(ms(21))));
        let lines = changing.lines();
        assert!(lines[3].0 == "writing rows" && lines[3].1.starts_with("21.0 ms"), "{lines:?}");
        assert!(
            lines[4].1.starts_with("3.000 ms") && lines[5].1.starts_with("30.0 ms"),
            "{lines:?}"
        );
        let alone = Spent { execution: ms(2), ..Spent::default() };
        assert_eq!(alone.lines().len(), 4, "{:?}", alone.lines());
    }
}
