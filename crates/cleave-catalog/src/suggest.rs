//! "Did you mean": a name that does not exist in, the nearest name that does out.
//!
//! The measure is the optimal string alignment distance (insert, delete, replace, swap two neighbours), ignoring case.
//! A name further away than a third of its length is not suggested: a wrong hint is worse than none. Ties go to the
//! first candidate, so equal inputs give equal hints.

/// The candidate nearest to `name`, None if none is near enough.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let name = folded(name);
    let distance_max = (name.len() / 3).max(1);
    let mut best: Option<(usize, &str)> = None;
    for candidate in candidates {
        let folded_candidate = folded(candidate);
        if folded_candidate.len().abs_diff(name.len()) > distance_max {
            continue;
        }
        let distance = distance(&name, &folded_candidate);
        // A name of one or two letters is near to every other: there only case or a swap counts.
        let near = distance <= distance_max && distance < folded_candidate.len().max(name.len());
        if near && best.is_none_or(|(nearest, _)| distance < nearest) {
            best = Some((distance, candidate));
        }
    }
    best.map(|(_, candidate)| candidate.to_owned())
}

fn folded(name: &str) -> Vec<char> {
    name.chars().flat_map(char::to_lowercase).collect()
}

/// Optimal string alignment distance, in time and rows of memory of the product of the two lengths.
fn distance(left: &[char], right: &[char]) -> usize {
    let mut two_above: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=right.len()).collect();
    for (row, left_char) in left.iter().enumerate() {
        let mut current = Vec::with_capacity(right.len() + 1);
        current.push(row + 1);
        for (column, right_char) in right.iter().enumerate() {
            let replaced = above[column] + usize::from(left_char != right_char);
            let mut cost = replaced.min(above[column + 1] + 1).min(current[column] + 1);
            let swapped = row > 0
                && column > 0
                && *left_char == right[column - 1]
                && left[row - 1] == *right_char;
            if swapped {
                cost = cost.min(two_above[column - 1] + 1);
            }
            current.push(cost);
        }
        two_above = std::mem::replace(&mut above, current);
    }
    above.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn typing_errors_find_the_name() {
        let tables = ["title", "movie_info", "movie_info_idx", "cast_info", "name"];
        assert_eq!(nearest("titel", tables).as_deref(), Some("title"));
        assert_eq!(nearest("movie_inof", tables).as_deref(), Some("movie_info"));
        assert_eq!(nearest("TITLE", tables).as_deref(), Some("title"));
        assert_eq!(nearest("castinfo", tables).as_deref(), Some("cast_info"));
        assert_eq!(nearest("movie_infoidx", tables).as_deref(), Some("movie_info_idx"));
    }

    #[test]
    fn far_names_give_no_hint() {
        assert_eq!(nearest("orders", ["title", "name"]), None);
        assert_eq!(nearest("a", ["b", "c"]), None);
        assert_eq!(nearest("", ["b"]), None);
        assert_eq!(nearest("x", []), None);
    }

    #[test]
    fn ties_go_to_the_first() {
        assert_eq!(nearest("col", ["cola", "colb"]).as_deref(), Some("cola"));
    }
}
