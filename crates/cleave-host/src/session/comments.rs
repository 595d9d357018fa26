//! COMMENT ON: texts about objects, kept in the catalog and transactional like the objects.

use std::sync::Arc;

use cleave_catalog::catalog::CatalogState;
use cleave_catalog::catalog::comments::Comments;
use cleave_catalog::catalog::rights::Object;
use cleave_catalog::error::Result;
use cleave_query::select::pg_catalog;
use cleave_sql::statement::parse::{CommentOn, CommentSubject};

use super::{Session, catalog_room, definitions, roles};
use crate::session::roles::refused;

/// The lock name of COMMENT statements: a name that SQL cannot write.
const COMMENTS: &str = "\0comments";

/// Runs COMMENT ON.
pub(super) async fn run(session: &mut Session, comment: CommentOn) -> Result<()> {
    catalog_room::check_comment(comment.text.as_deref())?;
    let mut definition =
        definitions::begin_definition(session, "COMMENT", &[], &[COMMENTS]).await?;
    let next = &mut definition.edit.next;
    let found = pg_catalog::comment_subject(next, &session.settings.client, &comment.subject);
    let (subject, owned) = found.map_err(|error| error.at(comment.position))?;
    let role = roles::actor(&session.settings);
    let may = match (owned, &comment.subject) {
        (Some(id), _) => next.rights.owns(role, Object::Relation(id)),
        (None, _) => next.rights.is_superuser(role),
    };
    if !may {
        let what = match &comment.subject {
            CommentSubject::Relation(kind, name) => format!("{kind} {name}"),
            CommentSubject::Column(of, _) | CommentSubject::Constraint(of, _) => {
                format!("relation {of}")
            }
            CommentSubject::Database(name) => format!("database {name}"),
            CommentSubject::Role(name) => format!("role {name}"),
            CommentSubject::Schema => "schema public".to_owned(),
        };
        return Err(refused(&format!("must be owner of {what}")));
    }
    Arc::make_mut(&mut next.comments).say(subject, comment.text);
    definitions::end_definition(session, definition).await
}

/// Removes the comments of objects that are no longer in `next`: their ids may be given to others.
pub(super) fn forget(next: &mut CatalogState) {
    if *next.comments == Comments::default() {
        return;
    }
    let mut comments = Comments::clone(&next.comments);
    comments.keep(pg_catalog::known_subjects(next));
    if comments != *next.comments {
        next.comments = Arc::new(comments);
    }
}
