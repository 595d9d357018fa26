//! Inputs are repeatable, and differ from their seeds.

use super::{Shape, input};

#[test]
fn a_number_names_one_input() {
    let seeds = vec![vec![1; 100], vec![2; 50], vec![10, 4, 8, 1, 16, 2]];
    for shape in [Shape::Flat, Shape::Message, Shape::BareMessage] {
        for (number, seed) in (0..).zip(&seeds) {
            assert_eq!(input(&seeds, shape, number), *seed, "the first inputs are the seeds");
        }
        let mut changed = 0;
        for number in 3..1000 {
            let bytes = input(&seeds, shape, number);
            assert_eq!(bytes, input(&seeds, shape, number));
            changed += usize::from(!seeds.contains(&bytes));
        }
        assert!(changed > 800, "{shape:?}: {changed} of 997 inputs are new");
    }
}
