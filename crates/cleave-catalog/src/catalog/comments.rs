//! Comments of COMMENT ON, by the numbers of PostgreSQL's catalog: a class of objects, an object, and a column of it.
//!
//! The numbers follow from ids that are never reused (`pg_catalog`), so a comment on a dropped object belongs to no
//! other; the next COMMENT deletes it. [`CommentsChange`] is the change by one transaction block, by key, so that
//! concurrent blocks keep each other's changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::rights::{differences, put};

/// The subject of a comment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subject {
    /// The number of the table of PostgreSQL's catalog that lists such objects.
    pub class: i64,
    /// Its number there.
    pub object: i64,
    /// The id of its column, from 0; None: the whole object.
    pub column: Option<u32>,
}

/// Comments by subject.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Comments {
    by_subject: BTreeMap<Subject, String>,
}

/// Changes of comments; None: deleted.
#[derive(Debug, Clone, Default)]
pub struct CommentsChange(BTreeMap<Subject, Option<String>>);

/// A comment in a manifest.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Comment {
    /// [`Subject::class`]
    #[prost(int64, tag = "1")]
    pub class: i64,
    /// [`Subject::object`]
    #[prost(int64, tag = "2")]
    pub object: i64,
    /// [`Subject::column`]
    #[prost(uint32, optional, tag = "3")]
    pub column: Option<u32>,
    /// The text.
    #[prost(string, tag = "4")]
    pub text: String,
}

impl Comments {
    /// The comment on `subject`.
    #[must_use]
    pub fn get(&self, subject: &Subject) -> Option<&str> {
        self.by_subject.get(subject).map(String::as_str)
    }

    /// All comments, by subject.
    pub fn all(&self) -> impl Iterator<Item = (&Subject, &str)> {
        self.by_subject.iter().map(|(subject, text)| (subject, text.as_str()))
    }

    /// Sets the comment on `subject`; None: deletes it.
    pub fn say(&mut self, subject: Subject, text: Option<String>) {
        match text {
            Some(text) => drop(self.by_subject.insert(subject, text)),
            None => drop(self.by_subject.remove(&subject)),
        }
    }

    /// Deletes comments on subjects that do not exist.
    pub fn keep(&mut self, is_there: impl Fn(&Subject) -> bool) {
        self.by_subject.retain(|subject, _| is_there(subject));
    }

    /// The messages for a manifest.
    pub fn encode(&self) -> Vec<Comment> {
        let comment = |(subject, text): (&Subject, &String)| Comment {
            class: subject.class,
            object: subject.object,
            column: subject.column,
            text: text.clone(),
        };
        self.by_subject.iter().map(comment).collect()
    }

    /// Reads the messages of a manifest.
    pub fn decode(comments: Vec<Comment>) -> Self {
        let comment = |comment: Comment| {
            let Comment { class, object, column, text } = comment;
            (Subject { class, object, column }, text)
        };
        Self { by_subject: comments.into_iter().map(comment).collect() }
    }
}

impl CommentsChange {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Records the changes from `before` to `after`.
    pub fn note(&mut self, before: &Arc<Comments>, after: &Arc<Comments>) {
        if !Arc::ptr_eq(before, after) {
            self.0.extend(differences(&before.by_subject, &after.by_subject));
        }
    }

    /// Applies the changes to `comments`.
    pub fn put_into(&self, comments: &mut Arc<Comments>) {
        if !self.is_empty() {
            put(&mut Arc::make_mut(comments).by_subject, &self.0);
        }
    }
}
