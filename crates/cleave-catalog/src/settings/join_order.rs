//! The setting `join_order`: a text in, [`JoinOrder`] out, and back.
//!
//! Names of tables are those of SQL: unquoted ones fold to lower case, quoted ones stay as they are.

use std::fmt;

use super::JoinOrder;

/// Most names: the maximum number of inputs of one tree of joins.
const NAME_COUNT_MAX: usize = 64;
/// Most bytes of a name.
const NAME_BYTES_MAX: usize = 63;

/// The order in `text`; None if it is invalid.
pub(super) fn parse(text: &str) -> Option<JoinOrder> {
    let text = text.trim();
    if text.eq_ignore_ascii_case("auto") {
        return Some(JoinOrder::Auto);
    }
    if text.eq_ignore_ascii_case("written") {
        return Some(JoinOrder::Written);
    }
    let mut names: Vec<String> = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches(|c: char| c == ',' || c.is_whitespace());
        if rest.is_empty() {
            break;
        }
        let name = match rest.strip_prefix('"') {
            Some(quoted) => {
                let (name, after) = quoted.split_once('"')?;
                rest = after;
                name.to_owned()
            }
            None => {
                let end = rest.find(|c: char| c == ',' || c.is_whitespace());
                let (name, after) = rest.split_at(end.unwrap_or(rest.len()));
                rest = after;
                let is_plain = name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '$');
                is_plain.then(|| name.to_ascii_lowercase())?
            }
        };
        if name.is_empty() || name.len() > NAME_BYTES_MAX || names.contains(&name) {
            return None;
        }
        names.push(name);
    }
    let is_list = (1..=NAME_COUNT_MAX).contains(&names.len());
    is_list.then_some(JoinOrder::Leading(names))
}

impl fmt::Display for JoinOrder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = match self {
            Self::Auto => return formatter.write_str("auto"),
            Self::Written => return formatter.write_str("written"),
            Self::Leading(names) => names,
        };
        // A table may have one of the words as its name.
        let is_word = names.len() == 1 && ["auto", "written"].contains(&names[0].as_str());
        for (place, name) in names.iter().enumerate() {
            let separator = if place > 0 { " " } else { "" };
            let folds = name
                .chars()
                .all(|c| (c.is_alphanumeric() && !c.is_ascii_uppercase()) || c == '_' || c == '$');
            match folds && !is_word {
                true => write!(formatter, "{separator}{name}")?,
                false => write!(formatter, "{separator}\"{name}\"")?,
            }
        }
        Ok(())
    }
}
