//! Places of values on an axis, with round ticks: 1, 2 or 5 times a power of ten, or powers of ten.

use crate::picture::{Area, Picture};
use crate::text::grouped;

/// About so many ticks are shown.
const TICKS: f64 = 5.0;
/// More are never shown.
const TICKS_MAX: u32 = 20;

/// From values to pixels.
#[derive(Debug, Clone)]
pub struct Scale {
    /// The pixels of its ends.
    pixels: (f64, f64),
    /// The values there: the first and the last tick, unless the axis ends behind that.
    ends: (f64, f64),
    ticks: Vec<f64>,
    /// By powers of ten.
    is_logarithmic: bool,
}

impl Scale {
    /// From 0 to a tick that is no smaller than `max`.
    #[must_use]
    pub fn linear(max: f64, pixels: (f64, f64)) -> Self {
        let max = if max.is_finite() && max > 0.0 { max } else { 1.0 };
        let rough = max / TICKS;
        let power = 10_f64.powf(rough.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|times| times * power);
        // Rounding must not make a step too small for a maximum that is round itself.
        let step = steps.into_iter().find(|step| *step >= rough * 0.999_999).unwrap_or(max);
        let mut ticks = vec![0.0];
        for number in 1..=TICKS_MAX {
            let tick = f64::from(number) * step;
            ticks.push(tick);
            if tick >= max * 0.999_999 {
                break;
            }
        }
        let ends = ends_of(&ticks);
        Self { pixels, ends, ticks, is_logarithmic: false }
    }

    /// From 0 to `max` itself, as of time, of which nothing lies behind its end.
    #[must_use]
    pub fn up_to(max: f64, pixels: (f64, f64)) -> Self {
        let mut scale = Self::linear(max, pixels);
        if max.is_finite() && max > 0.0 {
            scale.ticks.retain(|tick| *tick <= max * 1.000_001);
            scale.ends = (0.0, max);
        }
        scale
    }

    /// From the power of ten below `min` to the one above `max`.
    #[must_use]
    pub fn logarithmic((min, max): (f64, f64), pixels: (f64, f64)) -> Self {
        let sane = |value: f64| if value.is_finite() && value > 1e-9 { value } else { 1e-3 };
        let first = sane(min).log10().floor();
        let last = sane(max).log10().ceil().max(first + 1.0);
        let powers = (0..=TICKS_MAX).map(|number| first + f64::from(number));
        let ticks = powers.take_while(|power| *power <= last).map(|power| 10_f64.powf(power));
        let ticks: Vec<f64> = ticks.collect();
        Self { pixels, ends: ends_of(&ticks), ticks, is_logarithmic: true }
    }

    /// The pixel of a value; one beyond an end has that of the end.
    #[must_use]
    pub fn place(&self, value: f64) -> f64 {
        let (first, last) = self.ends;
        let share = match self.is_logarithmic {
            true => (value.max(1e-12) / first).log10() / (last / first).log10(),
            false => (value - first) / (last - first),
        };
        let (from, to) = self.pixels;
        from + (to - from) * share.clamp(0.0, 1.0)
    }

    /// Ticks with their labels.
    pub fn ticks(&self) -> impl Iterator<Item = (f64, String)> {
        let between = self.ticks.windows(2).filter_map(|pair| Some(pair.last()? - pair.first()?));
        let step = between.fold(f64::INFINITY, f64::min);
        self.ticks.iter().map(move |tick| {
            let least = if self.is_logarithmic { *tick } else { step };
            (*tick, label(*tick, least))
        })
    }

    /// Draws it below `area`, with lines through it.
    pub fn draw_below(&self, picture: &mut Picture, area: Area, title: &str) {
        for (tick, label) in self.ticks() {
            let x = self.place(tick);
            picture.line(&[(x, area.y), (x, area.bottom())], "rule");
            picture.text((x, area.bottom() + 16.0), "faint middle", &label);
        }
        picture.text((area.center(), area.bottom() + 34.0), "middle", title);
    }

    /// Draws it on the left of `area`, with lines through it; the title stands above.
    pub fn draw_left(&self, picture: &mut Picture, area: Area, title: &str) {
        for (tick, label) in self.ticks() {
            let y = self.place(tick);
            picture.line(&[(area.x, y), (area.right(), y)], "rule");
            picture.text((area.x - 8.0, y + 4.0), "faint end", &label);
        }
        picture.text((area.x, area.y - 10.0), "", title);
    }
}

/// The first and the last of `ticks`.
fn ends_of(ticks: &[f64]) -> (f64, f64) {
    (ticks.first().copied().unwrap_or(0.0), ticks.last().copied().unwrap_or(1.0))
}

/// `value` with as many decimals as ticks `step` apart need.
fn label(value: f64, step: f64) -> String {
    let (mut decimals, mut scaled) = (0, step);
    while scaled < 0.999 && decimals < 9 {
        scaled *= 10.0;
        decimals += 1;
    }
    if decimals == 0 { grouped(value) } else { format!("{value:.decimals$}") }
}
