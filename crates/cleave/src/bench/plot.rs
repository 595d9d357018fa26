//! Draws what was measured: throughput over time, and the latencies of each kind of operation.
//!
//! Latencies have a logarithmic axis: a dot for half of the operations, a square for 95 of a hundred, and the line ends
//! at 99.

use std::time::Duration;

use cleave_pictures::text::{elided, text_width};
use cleave_pictures::{Area, LINE, Picture, Scale};

use super::driver::{Course, Figures};

const MARGIN: f64 = 20.0;
/// For ticks on the left, and names of operations.
const LEFT: f64 = 150.0;
const WIDTH: f64 = 560.0;
const THROUGHPUT_HEIGHT: f64 = 180.0;
/// Columns of an operation's name.
const NAME_COLUMNS_MAX: usize = 17;
/// From one kind of operation to the next.
const KIND: f64 = 22.0;
/// Steps that are drawn; more are put together.
const POINTS_MAX: usize = 600;

/// The picture of the workload's figures and, second, of those of the analytic queries beside it.
pub(super) fn picture(
    title: &str,
    course: &Course,
    (workload, analytic): (&[Figures], &[Figures]),
) -> String {
    let mut picture = Picture::default();
    picture.text((MARGIN, 26.0), "bold", title);
    let mut y = 66.0;
    y = throughput(&mut picture, y, course, ("Operations a second", workload, "one"));
    if !analytic.is_empty() {
        y = throughput(&mut picture, y, course, ("Analytic queries a second", analytic, "two"));
    }
    y = latencies(&mut picture, y, workload, analytic);
    picture.finish((LEFT + WIDTH + 2.0 * MARGIN, y), title)
}

/// Draws from `y` on; returns where the next picture begins.
fn throughput(
    picture: &mut Picture,
    y: f64,
    course: &Course,
    (title, figures, class): (&str, &[Figures], &str),
) -> f64 {
    let area = Area { x: LEFT, y, width: WIDTH, height: THROUGHPUT_HEIGHT };
    let mut all = Figures::default();
    figures.iter().for_each(|one| all.merge(one));
    let rates = rates(&all, course);
    let highest = rates.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    let upwards = Scale::linear(highest, (area.bottom(), area.y));
    let along = Scale::up_to(course.measured.as_secs_f64(), (area.x, area.right()));
    upwards.draw_left(picture, area, title);
    along.draw_below(picture, area, "seconds since the warm-up");
    let places = rates.iter().map(|(time, rate)| (along.place(*time), upwards.place(*rate)));
    let places: Vec<(f64, f64)> = places.collect();
    match places.as_slice() {
        [only] => picture.dot(*only, 3.0, class),
        several => picture.line(several, &format!("curve-{class}")),
    }
    area.bottom() + 76.0
}

/// The middle of each step in seconds, and the operations a second in it. A step that was not measured to its end is
/// left out.
fn rates(figures: &Figures, course: &Course) -> Vec<(f64, f64)> {
    let steps = course.measured.as_nanos() / course.step().as_nanos().max(1);
    let steps = usize::try_from(steps).unwrap_or(usize::MAX);
    // Steps without an operation count too.
    let count = |step: usize| figures.ended.get(step).copied().unwrap_or_default();
    let together = steps.div_ceil(POINTS_MAX).max(1);
    let seconds = |steps: usize| course.step().as_secs_f64() * steps as f64;
    let firsts = (0..steps).step_by(together).filter(|first| first + together <= steps);
    let rates = firsts.map(|first| {
        let sum: u64 = (first..first + together).map(count).sum();
        (seconds(first) + seconds(together) / 2.0, sum as f64 / seconds(together))
    });
    rates.collect()
}

fn latencies(picture: &mut Picture, y: f64, workload: &[Figures], analytic: &[Figures]) -> f64 {
    let figures = || {
        let workload = workload.iter().map(|one| (one, "one"));
        let all = workload.chain(analytic.iter().map(|one| (one, "two")));
        all.filter(|(one, _)| one.latencies.count() > 0)
    };
    let height = figures().count() as f64 * KIND + 8.0;
    let area = Area { x: LEFT, y: y + LINE, width: WIDTH, height };
    let quantile = |one: &Figures, share: u64| milliseconds(one.latencies.quantile(share));
    let least = figures().map(|(one, _)| quantile(one, 500)).fold(f64::INFINITY, f64::min);
    let most = figures().map(|(one, _)| quantile(one, 990)).fold(0.0, f64::max);
    let scale = Scale::logarithmic((least, most), (area.x, area.right()));
    let title = "Latency: dots p50 and p95, line to p99";
    picture.text((MARGIN, y), "", title);
    if !analytic.is_empty() {
        legend(picture, MARGIN + text_width(title) + 24.0, y);
    }
    scale.draw_below(picture, area, "milliseconds, by powers of ten");
    for (place, (one, class)) in figures().enumerate() {
        let y = area.y + 8.0 + (place as f64 + 0.5) * KIND - 4.0;
        let [p50, p95, p99] = [500, 950, 990].map(|share| quantile(one, share));
        let shown = format!("{}: p50 {p50:.3} ms, p95 {p95:.3} ms, p99 {p99:.3} ms", one.name);
        picture.explained(&shown, |picture| {
            let name = elided(one.name, NAME_COLUMNS_MAX);
            picture.text((area.x - 8.0, y + 4.0), "end", &name);
            let [p50, p95, p99] = [p50, p95, p99].map(|value| scale.place(value));
            picture.line(&[(p50, y), (p99, y)], &format!("curve-{class}"));
            picture.line(&[(p99, y - 5.0), (p99, y + 5.0)], &format!("curve-{class}"));
            // Where the two lie together, both are seen.
            picture.rect(Area { x: p95 - 3.5, y: y - 3.5, width: 7.0, height: 7.0 }, class);
            picture.dot((p50, y), 4.5, "paper");
            picture.dot((p50, y), 3.5, class);
        });
    }
    area.bottom() + 60.0
}

/// Whose colour is which, on the line `y` from `x` on.
fn legend(picture: &mut Picture, mut x: f64, y: f64) {
    for (class, text) in [("one", "workload"), ("two", "analytic queries")] {
        picture.rect(Area { x, y: y - 10.0, width: 12.0, height: 12.0 }, class);
        picture.text((x + 18.0, y), "", text);
        x += text_width(text) + 42.0;
    }
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn course(seconds: u64) -> Course {
        Course { seed: 1, warmup: Duration::ZERO, measured: Duration::from_secs(seconds) }
    }

    fn figures(name: &'static str, ended: Vec<u64>) -> Figures {
        let mut figures = Figures { name, ended, ..Figures::default() };
        (1..=100).for_each(|ms| figures.latencies.add(Duration::from_millis(ms)));
        figures
    }

    #[test]
    fn steps_become_rates() {
        // The last step was not measured to its end, and one had no operation.
        let one = figures("read", vec![1, 0, 3, 9]);
        let found = rates(&one, &Course { measured: Duration::from_millis(350), ..course(0) });
        let expected = [(0.05, 10.0), (0.15, 0.0), (0.25, 30.0)];
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!((found.0 - expected.0).abs() < 1e-9, "{found:?}");
            assert!((found.1 - expected.1).abs() < 1e-9, "{found:?}");
        }
        let long = rates(&figures("read", vec![2; 3000]), &course(3000));
        assert!(long.len() <= POINTS_MAX && long.iter().all(|(_, rate)| *rate == 2.0), "{long:?}");
    }

    #[test]
    fn every_kind_that_ran_is_drawn() {
        let ran = [figures("read", vec![5; 20]), figures("<update>", vec![7; 20])];
        let unused = [Figures { name: "scan", ..Figures::default() }];
        let found = picture("ycsb-a", &course(20), (&ran, &unused));
        for text in [">ycsb-a<", ">read<", ">&lt;update&gt;<", ">Operations a second<"] {
            assert!(found.contains(text), "{text} in {found}");
        }
        assert!(!found.contains(">scan<"), "{found}");
        assert_eq!(found.matches(">analytic queries<").count(), 1, "the legend: {found}");
        assert!(found.contains("p50 50."), "{found}");
        let points = found.lines().find(|line| line.contains("class=\"curve-one\"")).unwrap();
        assert_eq!(points.matches(',').count(), 20, "{points}");
        // Nothing ran, as with an analyst that never came to an end.
        let none = picture("ch", &course(1), (&[], &[]));
        assert!(
            none.contains("</svg>") && !none.contains("NaN") && !none.contains("inf"),
            "{none}"
        );
    }
}
