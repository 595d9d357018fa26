//! Lists as text: `{1,NULL,"a b"}`, or of several dimensions: `{{1,2},{3,4}}`.
//!
//! Invariant: [`items`] reads back what [`text_of`] writes.
//!
//! Source: PostgreSQL's manual, "Array Input and Output Syntax".

use crate::value::error::Bad;

const EXPECTED: &str =
    "a list of one dimension such as {1,2,NULL}, its texts in double quotes where they need them";

/// Dimensions of a list, at most.
const DIMENSIONS_MAX: usize = 6;

/// An item of a list of several dimensions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// NULL.
    Null,
    /// A text without its quotes.
    Text(String),
    /// A list of one dimension less.
    List(Vec<Self>),
}

/// The items of a list of one dimension; None: NULL.
pub fn items(text: &str) -> Result<Vec<Option<String>>, Bad> {
    let one = |item| match item {
        Item::Null => Ok(None),
        Item::Text(text) => Ok(Some(text)),
        Item::List(_) => Err(Bad::malformed(EXPECTED)),
    };
    nested(text)?.into_iter().map(one).collect()
}

/// The items of a list of any dimensions, all lists of one dimension having one length. A list of empty lists is empty.
pub fn nested(text: &str) -> Result<Vec<Item>, Bad> {
    let malformed = || Bad::malformed(EXPECTED);
    let mut letters = text.trim().chars().peekable();
    letters.next_if_eq(&'{').ok_or_else(malformed)?;
    let items = items_of(&mut letters, DIMENSIONS_MAX).ok_or_else(malformed)?;
    if letters.next().is_some() {
        return Err(malformed());
    }
    match dimensions(&items).ok_or_else(malformed)?.is_empty() {
        true => Ok(Vec::new()),
        false => Ok(items),
    }
}

/// The lengths of the dimensions; None if lists of one dimension differ.
fn dimensions(items: &[Item]) -> Option<Vec<usize>> {
    let mut inner: Option<Vec<usize>> = None;
    for item in items {
        let own = match item {
            Item::Null | Item::Text(_) => vec![],
            Item::List(items) => Some(dimensions(items)?).filter(|own| !own.is_empty())?,
        };
        if inner.as_ref().is_some_and(|inner| *inner != own) {
            return None;
        }
        inner = Some(own);
    }
    match inner {
        None => Some(Vec::new()),
        Some(inner) => Some([vec![items.len()], inner].concat()),
    }
}

/// The items behind an opened brace, which is closed; None: they are malformed.
fn items_of(
    letters: &mut std::iter::Peekable<std::str::Chars<'_>>,
    dimensions: usize,
) -> Option<Vec<Item>> {
    let blanks = |letters: &mut std::iter::Peekable<std::str::Chars<'_>>| {
        while letters.next_if(|letter| letter.is_ascii_whitespace()).is_some() {}
    };
    let mut items = Vec::new();
    blanks(letters);
    if letters.next_if_eq(&'}').is_some() {
        return (dimensions > 0).then_some(items);
    }
    loop {
        blanks(letters);
        if letters.next_if_eq(&'{').is_some() {
            items.push(Item::List(items_of(letters, dimensions.checked_sub(1)?)?));
            blanks(letters);
        } else if letters.next_if_eq(&'"').is_some() {
            let mut item = String::new();
            loop {
                match letters.next()? {
                    '"' => break,
                    '\\' => item.push(letters.next()?),
                    letter => item.push(letter),
                }
            }
            blanks(letters);
            items.push(Item::Text(item));
        } else {
            items.push(bare_item(letters)?);
        }
        match letters.next()? {
            '}' => return (dimensions > 0).then_some(items),
            ',' => {}
            _ => return None,
        }
    }
}

/// An item without quotes.
fn bare_item(letters: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<Item> {
    let (mut item, mut is_escaped) = (String::new(), false);
    while let Some(letter) = letters.next_if(|letter| !matches!(letter, ',' | '}')) {
        match letter {
            '{' | '"' => return None,
            '\\' => {
                is_escaped = true;
                item.push(letters.next()?);
            }
            letter => item.push(letter),
        }
    }
    let item = item.trim_end();
    match item.is_empty() {
        true => None,
        false if !is_escaped && item.eq_ignore_ascii_case("null") => Some(Item::Null),
        false => Some(Item::Text(item.to_owned())),
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

    #[test]
    fn lists_of_several_dimensions_have_one_length_in_each() {
        let item = |text: &str| Item::Text(text.to_owned());
        assert_eq!(
            nested("{{1, NULL},{\"}\",x y}}"),
            Ok(vec![
                Item::List(vec![item("1"), Item::Null]),
                Item::List(vec![item("}"), item("x y")])
            ])
        );
        for malformed in
            ["{{1},{2,3}}", "{1,{2}}", "{{1},2}", "{{1}", "{{1}}}", "{{},{1}}", "{{1}{2}}"]
        {
            assert!(nested(malformed).is_err(), "{malformed}");
        }
        let deep = |depth: usize| format!("{}1{}", "{".repeat(depth), "}".repeat(depth));
        assert!(nested(&deep(6)).is_ok() && nested(&deep(7)).is_err());
    }

    proptest! {
        #[test]
        fn every_list_comes_back(list in prop::collection::vec(prop::option::of(".{0,6}"), 0..5)) {
            prop_assert_eq!(items(&text_of(&list)), Ok(list));
        }

        #[test]
        fn no_text_brings_it_down(text in ".{0,20}") {
            drop(nested(&text));
        }
    }
}
