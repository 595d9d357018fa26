//! Plausibility of the figures measured on this machine, as far as that can be tested on any.

use tokio::runtime::Handle;

use super::measure;
use crate::profile::{Figure, Origin, SideProfile};

#[tokio::test]
async fn every_kernel_runs_and_only_media_are_left_out() {
    let side = measure(&Handle::current(), 2, 1 << 20).await;
    assert_eq!(side.remarks, Vec::<String>::new());
    assert_eq!(side.origin, Origin::Measured);
    for figure in Figure::ALL {
        assert_eq!(side.figure(figure).is_some(), !figure.is_of_media(), "{}", figure.name());
    }
    assert!((1.0..=2.0).contains(&side.cores_together), "{}", side.cores_together);
    // Adding two numbers is faster than sorting a row, on any machine.
    assert!(side.rate(Figure::Arithmetic) > side.rate(Figure::Sort));
    assert!(side.rate(Figure::Copy) > side.rate(Figure::SlotEncode));
}

#[test]
fn a_profile_comes_back_as_it_was_and_lies_are_errors() {
    let mut side = SideProfile::assumed(3, 1 << 20).with(Figure::Sort, 0.0);
    side.remarks.push("sorting: no".to_owned());
    assert_eq!(SideProfile::from_bytes(&side.to_bytes()).unwrap(), side);
    for together in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let lying = SideProfile { cores_together: together, ..side.clone() };
        assert!(SideProfile::from_bytes(&lying.to_bytes()).is_err(), "{together}");
    }
    let long = SideProfile { remarks: vec!["x".repeat(2000)], ..side };
    assert!(SideProfile::from_bytes(&long.to_bytes()).is_err());
}
