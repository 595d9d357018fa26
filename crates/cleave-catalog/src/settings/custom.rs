//! Settings with a point in their names: nobody but the user gives them a meaning, as in PostgreSQL.
//!
//! Invariant: a session has at most [`NAMES_MAX`] of them, with at most [`BYTES_MAX`] bytes each.
//!
//! Source: PostgreSQL's documentation, "Customized Options".

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::{Error, Fault, Result};

const NAMES_MAX: usize = 100;
const BYTES_MAX: usize = 8192;

/// Their values, by lower-case name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CustomSettings(Arc<BTreeMap<String, String>>);

impl CustomSettings {
    /// Whether `name` is that of such a setting: identifiers with points between them.
    pub(super) fn is_name(name: &str) -> bool {
        let is_part = |part: &str| {
            let mut letters = part.chars();
            let first = letters.next();
            first.is_some_and(|first| first.is_alphabetic() || first == '_')
                && letters.all(|letter| letter.is_alphanumeric() || matches!(letter, '_' | '$'))
        };
        name.contains('.') && name.split('.').all(is_part)
    }

    /// Bytes of their names and values.
    pub(super) fn byte_count(&self) -> usize {
        self.0.iter().map(|(name, value)| name.len() + value.len()).sum()
    }

    pub(super) fn get(&self, name: &str) -> Option<&String> {
        self.0.get(&name.to_ascii_lowercase())
    }

    pub(super) fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let is_new = self.get(name).is_none();
        let is_long = value.len() > BYTES_MAX || name.len() > BYTES_MAX;
        if is_long || is_new && self.0.len() >= NAMES_MAX {
            let message = format!(
                "too many settings of your own: a session has at most {NAMES_MAX}, each with at most {BYTES_MAX} bytes"
            );
            // One that was reset makes room.
            let unused = self.0.iter().find(|(_, value)| value.is_empty());
            let Some(unused) = unused.map(|(name, _)| name.clone()).filter(|_| !is_long) else {
                return Err(Error::Invalid { message, fault: Fault::TooLong, position: None });
            };
            Arc::make_mut(&mut self.0).remove(&unused);
        }
        Arc::make_mut(&mut self.0).insert(name.to_ascii_lowercase(), value.to_owned());
        Ok(())
    }

    /// Also knows the names of `others`, as empty ones: what is set back to a time before its first SET stays known.
    pub fn keep_names_of(&mut self, others: &Self) {
        for name in others.0.keys().filter(|name| name.contains('.')) {
            if !self.0.contains_key(name) && self.0.len() < NAMES_MAX {
                Arc::make_mut(&mut self.0).insert(name.clone(), String::new());
            }
        }
    }

    /// Removes an idle setting: it has its default again.
    pub(super) fn forget(&mut self, name: &str) {
        if self.get(name).is_some() {
            Arc::make_mut(&mut self.0).remove(&name.to_ascii_lowercase());
        }
    }

    /// Makes the value of one, or of all, empty: they stay known.
    pub(super) fn reset(&mut self, name: Option<&str>) {
        let name = name.map(str::to_ascii_lowercase);
        let all = Arc::make_mut(&mut self.0);
        all.retain(|known, _| known.contains('.'));
        for (known, value) in all.iter_mut() {
            if name.as_ref().is_none_or(|name| name == known) {
                value.clear();
            }
        }
    }
}
