//! What COMMENT ON says of things, by the numbers that PostgreSQL's catalog gives them: a class of things, one of them,
//! and a column of it.
//!
//! Numbers follow from ids that are never given twice (`pg_catalog`), so what
//! is said of something that is gone is nobody else's; the next COMMENT forgets it. [`CommentsChange`] is what a block
//! made of them, by key, so that blocks side by side keep each other's.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::rights::{differences, put};

/// What is commented on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subject {
    /// The number of the table of PostgreSQL's catalog that lists such things.
    pub class: i64,
    /// Its number there.
    pub object: i64,
    /// The id of its column that is meant; None: all of it. Ids begin at 0.
    pub column: Option<u32>,
}

/// Comments by what they are on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Comments {
    by_subject: BTreeMap<Subject, String>,
}

/// What has become of comments; None: it is gone.
#[derive(Debug, Clone, Default)]
pub struct CommentsChange(BTreeMap<Subject, Option<String>>);

/// A comment, as a manifest says it.
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
    /// What it says.
    #[prost(string, tag = "4")]
    pub text: String,
}

impl Comments {
    /// What is said of `subject`.
    #[must_use]
    pub fn get(&self, subject: &Subject) -> Option<&str> {
        self.by_subject.get(subject).map(String::as_str)
    }

    /// All, by what they are on.
    pub fn all(&self) -> impl Iterator<Item = (&Subject, &str)> {
        self.by_subject.iter().map(|(subject, text)| (subject, text.as_str()))
    }

    /// Says `text` of `subject`; None: nothing any more.
    pub fn say(&mut self, subject: Subject, text: Option<String>) {
        match text {
            Some(text) => drop(self.by_subject.insert(subject, text)),
            None => drop(self.by_subject.remove(&subject)),
        }
    }

    /// Forgets what is on something that is not there.
    pub fn keep(&mut self, is_there: impl Fn(&Subject) -> bool) {
        self.by_subject.retain(|subject, _| is_there(subject));
    }

    /// As a manifest says it.
    pub fn encode(&self) -> Vec<Comment> {
        let comment = |(subject, text): (&Subject, &String)| Comment {
            class: subject.class,
            object: subject.object,
            column: subject.column,
            text: text.clone(),
        };
        self.by_subject.iter().map(comment).collect()
    }

    /// As a manifest says it.
    pub fn decode(comments: Vec<Comment>) -> Self {
        let comment = |comment: Comment| {
            let Comment { class, object, column, text } = comment;
            (Subject { class, object, column }, text)
        };
        Self { by_subject: comments.into_iter().map(comment).collect() }
    }
}

impl CommentsChange {
    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Notes what has become of `before`.
    pub fn note(&mut self, before: &Arc<Comments>, after: &Arc<Comments>) {
        if !Arc::ptr_eq(before, after) {
            self.0.extend(differences(&before.by_subject, &after.by_subject));
        }
    }

    /// Makes it part of `comments`.
    pub fn put_into(&self, comments: &mut Arc<Comments>) {
        if !self.is_empty() {
            put(&mut Arc::make_mut(comments).by_subject, &self.0);
        }
    }
}
