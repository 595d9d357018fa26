//! Lists as text: `{1,NULL,"a b"}`, items of one dimension.
//!
//! Invariant: [`items`] reads back what [`text_of`] writes.
//!
//! Source: PostgreSQL's manual, "Array Input and Output Syntax".

use crate::value::error::Bad;

const EXPECTED: &str =
    "a list of one dimension such as {1,2,NULL}, its texts in double quotes where they need them";

/// The items of a list; None: NULL.
pub fn items(text: &str) -> Result<Vec<Option<String>>, Bad> {
    let malformed = || Bad::malformed(EXPECTED);
    let inner = text.trim().strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    let inner = inner.ok_or_else(malformed)?;
    let mut items = Vec::new();
    if inner.trim().is_empty() {
        return Ok(items);
    }
    let mut letters = inner.chars().peekable();
    loop {
        while letters.next_if(|letter| letter.is_ascii_whitespace()).is_some() {}
        let mut item = String::new();
        if letters.next_if_eq(&'"').is_some() {
            loop {
                match letters.next().ok_or_else(malformed)? {
                    '"' => break,
                    '\\' => item.push(letters.next().ok_or_else(malformed)?),
                    letter => item.push(letter),
                }
            }
            while letters.next_if(|letter| letter.is_ascii_whitespace()).is_some() {}
            items.push(Some(item));
        } else {
            let mut is_escaped = false;
            while let Some(letter) = letters.next_if(|letter| *letter != ',') {
                match letter {
                    '{' | '}' | '"' => return Err(malformed()),
                    '\\' => {
                        is_escaped = true;
                        item.push(letters.next().ok_or_else(malformed)?);
                    }
                    letter => item.push(letter),
                }
            }
            let item = item.trim_end();
            if item.is_empty() {
                return Err(malformed());
            }
            let is_null = !is_escaped && item.eq_ignore_ascii_case("null");
            items.push((!is_null).then(|| item.to_owned()));
        }
        match letters.next() {
            None => return Ok(items),
            Some(',') => {}
            Some(_) => return Err(malformed()),
        }
    }
}

/// A list as text.
pub fn text_of(items: &[Option<String>]) -> String {
    let mut text = String::from("{");
    for (place, item) in items.iter().enumerate() {
        if place > 0 {
            text.push(',');
        }
        match item {
            None => text.push_str("NULL"),
            Some(item) => {
                text.push('"');
                for letter in item.chars() {
                    if matches!(letter, '"' | '\\') {
                        text.push('\\');
                    }
                    text.push(letter);
                }
                text.push('"');
            }
        }
    }
    text.push('}');
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn some(items: &[&str]) -> Vec<Option<String>> {
        items.iter().map(|item| Some((*item).to_owned())).collect()
    }

    #[test]
    fn lists_are_read_as_postgresql_reads_them() {
        assert_eq!(items("{}"), Ok(vec![]));
        assert_eq!(items(" { 1 , 2 } "), Ok(some(&["1", "2"])));
        assert_eq!(
            items(r#"{"a b","NULL","q\"\\",x y}"#),
            Ok(some(&["a b", "NULL", "q\"\\", "x y"]))
        );
        assert_eq!(items("{NULL,null}"), Ok(vec![None, None]));
        for malformed in
            ["", "1", "{1", "{1,}", "{{1},{2}}", "{\"a}", "{\"a\"b}", "{a\"b}", "[1:1]={1}"]
        {
            assert!(items(malformed).is_err(), "{malformed}");
        }
    }

    proptest! {
        #[test]
        fn every_list_comes_back(list in prop::collection::vec(prop::option::of(".{0,6}"), 0..5)) {
            prop_assert_eq!(items(&text_of(&list)), Ok(list));
        }

        #[test]
        fn no_text_brings_it_down(text in ".{0,20}") {
            drop(items(&text));
        }
    }
}
