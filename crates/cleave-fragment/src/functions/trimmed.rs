//! `btrim`, `ltrim` and `rtrim`: DataFusion's look at each character of the set for each character that they remove.
//!
//! Source: PostgreSQL's `dotrim`.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringBuilder};
use arrow::datatypes::DataType;
use datafusion_common::Result;
use datafusion_expr::ScalarUDF;

use super::row_function::row_function;
use crate::wanted;

/// `btrim`, `ltrim` and `rtrim`.
pub(super) fn trimmed() -> [Arc<ScalarUDF>; 3] {
    let gives = |_: &[DataType]| DataType::Utf8;
    [
        row_function("btrim", texts, gives, |args| {
            each(args, |text, set| set.at_start(set.at_end(text)))
        }),
        row_function("ltrim", texts, gives, |args| each(args, |text, set| set.at_start(text))),
        row_function("rtrim", texts, gives, |args| each(args, |text, set| set.at_end(text))),
    ]
}

fn texts(given: &[DataType]) -> Option<Vec<DataType>> {
    let are_texts = given.iter().all(|given| given.is_string() || given.is_null());
    (are_texts && matches!(given.len(), 1 | 2)).then(|| vec![DataType::Utf8; given.len()])
}

fn each(args: &[ArrayRef], trim: for<'a> fn(&'a str, &Set) -> &'a str) -> Result<ArrayRef> {
    let Some((texts, sets)) = args.split_first() else {
        return datafusion_common::exec_err!("there is no text to trim");
    };
    let texts = texts.as_string::<i32>();
    let sets = sets.first().map(|sets| sets.as_string::<i32>());
    let mut known = (" ", Set::of(" "));
    let mut trimmed = StringBuilder::with_capacity(texts.len(), texts.values().len());
    for row in 0..texts.len() {
        wanted::check()?;
        if texts.is_null(row) || sets.is_some_and(|sets| sets.is_null(row)) {
            trimmed.append_null();
            continue;
        }
        if let Some(sets) = sets
            && sets.value(row) != known.0
        {
            known = (sets.value(row), Set::of(sets.value(row)));
        }
        trimmed.append_value(trim(texts.value(row), &known.1));
    }
    Ok(Arc::new(trimmed.finish()))
}

/// The characters to remove.
struct Set {
    ascii: u128,
    /// In order, each once.
    others: Vec<char>,
}

impl Set {
    fn of(characters: &str) -> Self {
        let (mut ascii, mut others) = (0, Vec::new());
        for character in characters.chars() {
            match character.is_ascii() {
                true => ascii |= 1 << u32::from(character),
                false => others.push(character),
            }
        }
        others.sort_unstable();
        others.dedup();
        Self { ascii, others }
    }

    fn has(&self, character: char) -> bool {
        match character.is_ascii() {
            true => self.ascii >> u32::from(character) & 1 == 1,
            false => self.others.binary_search(&character).is_ok(),
        }
    }

    fn at_start<'a>(&self, text: &'a str) -> &'a str {
        text.trim_start_matches(|character| self.has(character))
    }

    fn at_end<'a>(&self, text: &'a str) -> &'a str {
        text.trim_end_matches(|character| self.has(character))
    }
}

#[cfg(test)]
mod tests {
    use super::Set;

    #[test]
    fn characters_of_the_set_are_removed_from_the_ends_alone() {
        let set = Set::of("xéyé\u{7f}");
        assert_eq!(set.at_start(set.at_end("éx\u{7f}yaéxzyy")), "aéxz");
        assert_eq!(set.at_start("xxé"), "");
        assert_eq!(Set::of("").at_end("a "), "a ");
    }
}
