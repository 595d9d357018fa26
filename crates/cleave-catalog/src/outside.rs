//! What the program of a session hands to its statements. Nothing of it is of the database, and the catalog does not
//! know its type: the layer that reads it does.

use std::any::Any;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Something from outside the database, or nothing.
#[derive(Clone, Default)]
pub struct Outside(Option<Arc<dyn Any + Send + Sync>>);

impl Outside {
    /// Holds `thing`.
    pub fn of<T: Any + Send + Sync>(thing: T) -> Self {
        Self(Some(Arc::new(thing)))
    }

    /// What it holds, if that is a `T`.
    #[must_use]
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.as_deref()?.downcast_ref()
    }
}

/// Equal is only what is the same: two things may say different things of one name.
impl PartialEq for Outside {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (None, None) => true,
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

impl Eq for Outside {}

impl Hash for Outside {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.is_some().hash(state);
    }
}

impl fmt::Debug for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Outside").field(&self.0.is_some()).finish()
    }
}
