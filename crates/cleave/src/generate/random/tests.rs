//! Tests of the streams and distributions.

use super::*;

#[test]
fn scatter_is_a_bijection_with_an_inverse() {
    for n in [1, 2, 3, 10, 97, 1000] {
        let scatter = Scatter::new(n, 7);
        let mut seen = vec![false; n as usize];
        for x in 0..n {
            let y = scatter.apply(x);
            assert!(!std::mem::replace(&mut seen[y as usize], true));
            assert_eq!(scatter.invert(y), x);
        }
    }
}

#[test]
fn poisson_and_normal_have_their_means() {
    let mut draw = Draw::new(1, 2);
    for mean in [0.1, 3.0, 40.0] {
        let sum: u32 = (0..20_000).map(|_| draw.poisson(mean)).sum();
        let got = f64::from(sum) / 20_000.0;
        assert!((got - mean).abs() < 0.05 * mean + 0.01, "{got} for {mean}");
    }
    let sum: f64 = (0..20_000).map(|_| draw.normal()).sum();
    assert!((sum / 20_000.0).abs() < 0.03);
}

#[test]
fn weights_are_followed() {
    let weighted = Weighted::new([1.0, 0.0, 3.0]);
    assert_eq!(weighted.at(0.0), 0);
    assert_eq!(weighted.at(0.24), 0);
    assert_eq!(weighted.at(0.26), 2);
    assert_eq!(weighted.at(0.999_999), 2);
}
