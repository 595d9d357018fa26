//! What `pg_prepared_statements` and `pg_cursors` show: the session writes it, its statements read it.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The prepared statements and the cursors of one session.
#[derive(Debug, Clone, Default)]
pub struct SessionObjects(Arc<Mutex<Shown>>);

#[derive(Debug, Default)]
struct Shown {
    statements: BTreeMap<String, ShownStatement>,
    cursors: BTreeMap<String, ShownCursor>,
}

/// A prepared statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownStatement {
    /// Its text.
    pub text: String,
    /// When it was prepared, in microseconds since the epoch.
    pub made_us: i64,
    /// The SQL names of the types of its parameters.
    pub types: Vec<String>,
    /// PREPARE has made it, and no message.
    pub is_of_sql: bool,
}

/// A cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownCursor {
    /// The text of its DECLARE.
    pub text: String,
    /// When it was declared, in microseconds since the epoch.
    pub made_us: i64,
    /// WITH HOLD.
    pub is_held: bool,
}

/// Settings are compared by what they say of statements.
impl PartialEq for SessionObjects {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Eq for SessionObjects {}

impl Hash for SessionObjects {
    fn hash<H: Hasher>(&self, _state: &mut H) {}
}

impl SessionObjects {
    /// Shows the prepared statement `name`.
    pub fn put_statement(&self, name: &str, statement: ShownStatement) {
        self.shown().statements.insert(name.to_owned(), statement);
    }

    /// Shows the prepared statement `name` no longer; None: none of them.
    pub fn remove_statement(&self, name: Option<&str>) {
        match name {
            Some(name) => drop(self.shown().statements.remove(name)),
            None => self.shown().statements.clear(),
        }
    }

    /// Shows the cursor `name`.
    pub fn put_cursor(&self, name: &str, cursor: ShownCursor) {
        self.shown().cursors.insert(name.to_owned(), cursor);
    }

    /// Shows only the cursors that `is_left` by their names.
    pub fn keep_cursors(&self, is_left: impl Fn(&str) -> bool) {
        self.shown().cursors.retain(|name, _| is_left(name));
    }

    /// The prepared statements, by name.
    pub fn statements(&self) -> BTreeMap<String, ShownStatement> {
        self.shown().statements.clone()
    }

    /// The cursors, by name.
    pub fn cursors(&self) -> BTreeMap<String, ShownCursor> {
        self.shown().cursors.clone()
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
