//! The margin of `auto`: how far past predictions of a database were off in, the gain that a split must promise out.
//!
//! A prediction's error is the logarithm of actual over predicted time. [`PastErrors`] keeps its mean and its spread
//! for queries that the host ran alone and for queries with a cut. A split is chosen against the host, so what matters
//! is the difference of both errors. Its standard deviation is multiplied by a number that the setting
//! `split_gain_min` stands for: under the errors that were [assumed](SPREAD_ASSUMED), the margin is the setting. Where
//! cuts ran longer than predicted by more than the host did, the difference of the means is added.
//!
//! What is assumed counts as much as [`RUNS_ASSUMED`] runs, so a few runs move little. Errors are bounded, old ones
//! fade, and the margin stays between bounds: a client that reads its rows slowly, or a busy hour, is an error too.

/// The spread of an error that is assumed: predictions of recorded runs were off by 1.6 to 1.9 times.
const SPREAD_ASSUMED: f64 = 0.5;
/// The runs that the assumption counts for.
const RUNS_ASSUMED: f64 = 20.0;
/// Runs of either kind before which the setting holds as it is.
const RUNS_MIN: f64 = 16.0;
/// Runs that are remembered, about: each fades by so much with the next one.
const RUNS_REMEMBERED: f64 = 200.0;
/// The largest error of one run that counts: 8 times.
const ERROR_MAX: f64 = 2.08;
/// Shares of the host's time that a split may be predicted at: never less, never more.
const SHARE_MIN: f64 = 0.25;
const SHARE_MAX: f64 = 0.9;
/// Predictions below this are mostly of fixed costs, in seconds.
const PREDICTED_S_MIN: f64 = 1e-3;

/// How far past predictions were off.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PastErrors {
    host: Errors,
    cut: Errors,
}

/// Errors of predictions of one kind, each weighed by its age.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Errors {
    runs: f64,
    sum: f64,
    squares: f64,
}

/// What a split must save.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Margin {
    /// The share of the host's time that it may be predicted at.
    pub share_max: f64,
    /// Runs on the host alone and runs with a cut that it was derived from; None: from the setting alone.
    pub runs: Option<(u64, u64)>,
}

impl PastErrors {
    /// Adds a run that was predicted to take `predicted` seconds and took `actual`, with a cut or without.
    pub fn add(&mut self, has_cut: bool, predicted: f64, actual: f64) {
        if !(predicted >= PREDICTED_S_MIN && predicted.is_finite() && actual > 0.0) {
            return;
        }
        let errors = if has_cut { &mut self.cut } else { &mut self.host };
        errors.add((actual / predicted).ln().clamp(-ERROR_MAX, ERROR_MAX));
    }

    /// The margin, where the setting says that a split must save `gain` (a share) of the host's time. Without a gain
    /// there is no margin to derive.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not negative, and bounded by what is remembered"
    )]
    pub fn margin(&self, gain: f64) -> Margin {
        let share_max = 1.0 - gain.clamp(0.0, 0.99);
        if gain <= 0.0 || self.host.runs < RUNS_MIN || self.cut.runs < RUNS_MIN {
            return Margin { share_max, runs: None };
        }
        let ((host_mean, host_variance), (cut_mean, cut_variance)) =
            (self.host.expected(), self.cut.expected());
        let deviations = -share_max.ln() / (2.0 * SPREAD_ASSUMED.powi(2)).sqrt();
        let spread = (host_variance + cut_variance).sqrt();
        let share = (-(deviations * spread) - (cut_mean - host_mean)).exp();
        let least = share_max.min(SHARE_MIN);
        Margin {
            share_max: share.clamp(least, share_max.max(SHARE_MAX)),
            runs: Some((self.host.runs.round() as u64, self.cut.runs.round() as u64)),
        }
    }
}

impl Errors {
    fn add(&mut self, error: f64) {
        let kept = 1.0 - 1.0 / RUNS_REMEMBERED;
        self.runs = self.runs * kept + 1.0;
        self.sum = self.sum * kept + error;
        self.squares = self.squares * kept + error * error;
    }

    /// Mean and variance, as if [`RUNS_ASSUMED`] runs without a mean error and with the assumed spread had gone before.
    fn expected(&self) -> (f64, f64) {
        let runs = self.runs + RUNS_ASSUMED;
        let mean = self.sum / runs;
        let squares = self.squares + RUNS_ASSUMED * SPREAD_ASSUMED.powi(2);
        (mean, (squares / runs - mean * mean).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    //! Which runs widen the margin, which narrow it, and its bounds.

    use super::*;

    /// `count` runs of either kind, of which every second one took longer, and every other one less.
    fn past(count: usize, host: f64, cut: f64, bias: f64) -> PastErrors {
        let mut past = PastErrors::default();
        for run in 0..count {
            let sign = if run % 2 == 0 { 1.0 } else { -1.0 };
            past.add(false, 0.1, 0.1 * (sign * host).exp());
            past.add(true, 0.1, 0.1 * (bias + sign * cut).exp());
        }
        past
    }

    fn share(past: &PastErrors) -> f64 {
        past.margin(0.43).share_max
    }

    #[test]
    fn the_setting_holds_until_there_are_runs_of_both_kinds() {
        let is_setting = |past: &PastErrors, gain: f64| {
            let margin = past.margin(gain);
            assert_eq!(margin, Margin { share_max: 1.0 - gain, runs: None });
        };
        is_setting(&PastErrors::default(), 0.43);
        is_setting(&past(10, 0.1, 0.1, 0.0), 0.43);
        let mut of_host = past(10, 0.1, 0.1, 0.0);
        (0..1000).for_each(|_| of_host.add(false, 0.1, 0.1));
        is_setting(&of_host, 0.43);
        // Where every gain is to be taken, errors change nothing.
        is_setting(&past(100, 2.0, 2.0, 1.0), 0.0);
    }

    #[test]
    fn errors_as_assumed_give_the_setting_and_others_move_it() {
        let assumed = share(&past(100, SPREAD_ASSUMED, SPREAD_ASSUMED, 0.0));
        assert!((assumed - 0.57).abs() < 1e-4, "{assumed}");
        let good = share(&past(100, 0.1, 0.1, 0.0));
        assert!((0.7..0.8).contains(&good), "{good}");
        let bad = share(&past(100, 1.0, 1.0, 0.0));
        assert!((0.3..0.4).contains(&bad), "{bad}");
        // The host's errors alone count as well.
        assert!(share(&past(100, 1.0, 0.5, 0.0)) < assumed);
    }

    #[test]
    fn cuts_that_run_longer_than_predicted_must_promise_more() {
        let late = share(&past(200, 0.3, 0.3, 0.6));
        assert!(late < share(&past(200, 0.3, 0.3, 0.0)) * 0.65, "{late}");
        let early = share(&past(200, 0.3, 0.3, -0.6));
        assert!(early > share(&past(200, 0.3, 0.3, 0.0)), "{early}");
        // All twice as slow as predicted: a busy machine is no reason.
        let mut slow = PastErrors::default();
        for _ in 0..100 {
            slow.add(false, 0.1, 0.2);
            slow.add(true, 0.1, 0.2);
        }
        assert!(share(&slow) > 0.57, "{}", share(&slow));
    }

    #[test]
    fn the_margin_is_bounded_and_old_runs_fade() {
        assert_eq!(share(&past(1000, 0.0, 0.0, -2.0)), SHARE_MAX);
        assert_eq!(share(&past(1000, 2.0, 2.0, 2.0)), SHARE_MIN);
        // A stricter setting is no less strict than its own bound allows.
        assert!(past(1000, 2.0, 2.0, 2.0).margin(0.9).share_max <= 0.1);
        let mut faded = past(100, 2.0, 2.0, 2.0);
        for _ in 0..2000 {
            faded.add(false, 0.1, 0.1);
            faded.add(true, 0.1, 0.1);
        }
        assert!(share(&faded) > 0.7, "{}", share(&faded));
        // Nothing that cannot be, or that tells nothing, counts.
        let mut odd = PastErrors::default();
        for (predicted, actual) in
            [(0.0, 1.0), (f64::NAN, 1.0), (f64::INFINITY, 1.0), (1.0, 0.0), (1e-4, 1.0)]
        {
            odd.add(true, predicted, actual);
        }
        assert_eq!(odd, PastErrors::default());
    }
}
