//! Comments: the objects of COMMENT ON as `pg_description` keys, and the functions that psql calls.

use cleave_catalog::catalog::CatalogState;
use cleave_catalog::catalog::comments::Subject;
use cleave_catalog::catalog::rights::FIRST;
use cleave_catalog::error::{Error, Fault, NameKind, Result, RoleFault};
use cleave_catalog::settings::Client;
use cleave_sql::statement::catalog_tables::Row;
use cleave_sql::statement::catalog_tables::numbers::PER_TABLE;
use cleave_sql::statement::catalog_tables::numbers::oid_of;
use cleave_sql::statement::names::in_quotes;
use cleave_sql::statement::parse::CommentSubject;

use super::view::{View, number, table_oid};

/// `pg_class`
const CLASS: i64 = 1259;
/// `pg_authid`
const ROLE: i64 = 1260;
/// `pg_database`
const DATABASE: i64 = 1262;
/// `pg_constraint`
const CONSTRAINT: i64 = 2606;
/// `pg_namespace`
const NAMESPACE: i64 = 2615;

/// The subject that `named` names in `state`, and the id of the table, view or sequence that it belongs to.
///
/// # Errors
/// [`Error::UnknownName`]; [`Error::Invalid`] for something of another kind.
pub fn comment_subject(
    state: &CatalogState,
    client: &Client,
    named: &CommentSubject,
) -> Result<(Subject, Option<u32>)> {
    let view = View::of(state, client);
    let all = |class, object| Subject { class, object, column: None };
    match named {
        CommentSubject::Relation(kind, name) => {
            let table = view.tables().find(|table| table.schema.name == *name);
            let shown = state.view(name);
            let index = view.indexes().find(|index| index.definition.name == *name);
            let sequence = state.sequences.get(name);
            let is_materialized = table.is_some_and(|table| table.materialized.is_some());
            let found = match *kind {
                "table" | "materialized view" if is_materialized != (*kind != "table") => None,
                "table" | "materialized view" => {
                    table.map(|table| (table_oid(&table.schema), table.schema.table_id))
                }
                "view" => shown.map(|shown| (table_oid(&shown.schema), shown.schema.table_id)),
                "index" => index.map(|index| (index.oid(), index.table.schema.table_id)),
                _ => sequence.map(|sequence| (oid_of(sequence.id), sequence.id)),
            };
            match found {
                Some((oid, id)) => Ok((all(CLASS, oid), Some(id))),
                None if view.relation(&in_quotes(name)).is_some() => Err(Error::Invalid {
                    message: format!("\"{name}\" is not of the kind {kind}"),
                    fault: Fault::ObjectKind,
                    position: None,
                }),
                None => Err(Error::unknown(NameKind::Relation, name, state.table_names())),
            }
        }
        CommentSubject::Column(of, name) => {
            let table = state.table(of).map(|table| &table.schema);
            let schema = table.or_else(|| state.view(of).map(|shown| &shown.schema));
            let names = || state.table_names();
            let schema = schema.ok_or_else(|| Error::unknown(NameKind::Relation, of, names()))?;
            let columns = schema.columns.iter();
            let column = schema.column(name).ok_or_else(|| {
                Error::unknown_column(of, name, columns.map(|column| column.name.as_str()))
            })?;
            let subject =
                Subject { class: CLASS, object: table_oid(schema), column: Some(column.id) };
            Ok((subject, Some(schema.table_id)))
        }
        CommentSubject::Constraint(of, name) => {
            let table = state.find_table(of)?;
            let id = table.schema.table_id;
            let index = view
                .indexes()
                .find(|index| index.table.schema.table_id == id && index.definition.name == *name);
            let rules = || view.rules().find(|rule| rule.is_of(id) && rule.name() == *name);
            let oid = index.and_then(|index| index.constraint_oid());
            let oid = oid.or_else(|| rules().map(|rule| rule.oid()));
            let oid = oid.ok_or_else(|| Error::unknown(NameKind::Constraint, name, []))?;
            Ok((all(CONSTRAINT, oid), Some(id)))
        }
        CommentSubject::Database(name) if *name == client.database => {
            Ok((all(DATABASE, number::DATABASE), None))
        }
        CommentSubject::Database(name) => Err(Error::Invalid {
            message: format!("database \"{name}\" does not exist"),
            fault: Fault::Role(RoleFault::Database),
            position: None,
        }),
        CommentSubject::Role(name) => {
            let names = || state.rights.roles().map(|role| role.name.as_str());
            let role = state.rights.role_named(name).map(|role| role.id);
            let first = || (name == client.first_name()).then_some(FIRST);
            let role = role.or_else(first);
            let role = role.ok_or_else(|| Error::unknown(NameKind::Role, name, names()))?;
            Ok((all(ROLE, i64::from(role)), None))
        }
        CommentSubject::Schema => Ok((all(NAMESPACE, number::PUBLIC), None)),
    }
}

/// Tells whether a subject is there in `state`, or may be where a table cannot be used.
pub fn known_subjects(state: &CatalogState) -> impl Fn(&Subject) -> bool + use<> {
    let view = View::of(state, &Client::default());
    let unusable = state.damaged_tables().map(|table| table_oid(&table.schema));
    let held = state.tables.values().filter(|table| state.table(&table.schema.name).is_none());
    let held = held.map(|table| table_oid(&table.schema));
    let unusable: Vec<i64> = unusable.chain(held).collect();
    move |subject| {
        let object = subject.object;
        let is_of = |oid: &i64| (*oid..oid + PER_TABLE).contains(&object);
        if unusable.iter().any(is_of) {
            return true;
        }
        match subject.class {
            CONSTRAINT => {
                view.constraint(object).is_some() || view.rules().any(|rule| rule.oid() == object)
            }
            CLASS => match subject.column {
                None => view.relation_name(object).is_some(),
                Some(_) => place_of(&view, subject).is_some(),
            },
            ROLE => {
                let mut roles = view.state().rights.roles();
                object == i64::from(FIRST) || roles.any(|role| i64::from(role.id) == object)
            }
            _ => true,
        }
    }
}

/// The rows of `pg_description`, or of `pg_shdescription`, which is about what all databases share.
pub(super) fn rows(view: &View, are_shared: bool) -> Vec<Row> {
    let is_shared = |class: i64| class == ROLE || class == DATABASE;
    let comments = view.state().comments.all();
    let wanted = comments.filter(|(subject, _)| is_shared(subject.class) == are_shared);
    let row = |(subject, text): (&Subject, &str)| -> Option<Row> {
        Some(vec![
            ("objoid", subject.object.into()),
            ("classoid", subject.class.into()),
            ("objsubid", place_of(view, subject)?.into()),
            ("description", text.into()),
        ])
    };
    wanted.filter_map(row).collect()
}

/// What is said of an object of a class (None: of any), or of its column at a place from 1.
pub(super) fn text(view: &View, object: i64, class: Option<&str>, place: i64) -> Option<String> {
    let class = class.map(|name| match name.rsplit('.').next().unwrap_or(name) {
        "pg_class" => CLASS,
        "pg_constraint" => CONSTRAINT,
        "pg_database" => DATABASE,
        "pg_authid" | "pg_roles" => ROLE,
        "pg_namespace" => NAMESPACE,
        _ => 0,
    });
    let is_meant = |subject: &Subject| {
        subject.object == object
            && class.is_none_or(|class| subject.class == class)
            && place_of(view, subject) == Some(place)
    };
    let mut comments = view.state().comments.all();
    comments.find(|(subject, _)| is_meant(subject)).map(|(_, text)| text.to_owned())
}

/// The place of a subject's column, from 1; 0: it is about all of it. None: the column is gone.
fn place_of(view: &View, subject: &Subject) -> Option<i64> {
    let Some(column) = subject.column else { return Some(0) };
    let table = view.table(subject.object).map(|table| &table.schema);
    let shown = || view.views().find(|view| table_oid(&view.schema) == subject.object);
    let schema = table.or_else(|| shown().map(|shown| &shown.schema))?;
    let place = schema.columns.iter().position(|known| known.id == column)?;
    i64::try_from(place + 1).ok()
}
