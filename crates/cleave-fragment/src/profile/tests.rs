//! Figures by name.

use super::{FIGURE_COUNT, Figure, LinkProfile, Origin, SideProfile};

#[test]
fn figures_stand_at_their_place_and_have_names_of_their_own() {
    let names: std::collections::BTreeSet<_> = Figure::ALL.iter().map(|f| f.name()).collect();
    assert_eq!(names.len(), FIGURE_COUNT);
    for (place, figure) in Figure::ALL.into_iter().enumerate() {
        assert_eq!(figure as usize, place);
    }
}

#[test]
fn links_are_read_as_they_were_written() {
    let measured = LinkProfile { handshakes: vec![(4096, 1e-4)], ..LinkProfile::assumed() };
    for link in [LinkProfile::embedded(), LinkProfile::assumed(), measured] {
        assert_eq!(LinkProfile::from_bytes(&link.to_bytes()).unwrap(), link);
    }
    for bytes_per_second in [f64::INFINITY, f64::NAN, 0.0] {
        let link = LinkProfile { bytes_per_second, ..LinkProfile::assumed() };
        assert!(LinkProfile::from_bytes(&link.to_bytes()).is_err());
    }
}

#[test]
fn what_was_not_measured_is_assumed() {
    let mut side = SideProfile::unknown(Origin::Measured, 2, 0);
    assert_eq!(side.figure(Figure::Sort), None);
    assert_eq!(side.rate(Figure::Sort), SideProfile::assumed(1, 0).rate(Figure::Sort));
    side.set(Figure::Sort, 5.0);
    assert_eq!(side.rate(Figure::Sort), 5.0);
    side.set(Figure::Sort, f64::NAN);
    assert_eq!(side.figure(Figure::Sort), None);
}

#[test]
fn a_weaker_side_has_weaker_cores_and_the_same_media() {
    let (weak, usual) = (SideProfile::scaled(0.1, 1, 0), SideProfile::assumed(1, 0));
    assert_eq!(weak.rate(Figure::Sort), usual.rate(Figure::Sort) * 0.1);
    let media = Figure::MediaReadSequential;
    assert_eq!(weak.rate(media), usual.rate(media));
}
