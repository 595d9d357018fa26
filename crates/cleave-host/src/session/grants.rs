//! GRANT and REVOKE of privileges, and ownership of objects.
//!
//! A grantor must own the object or have the grant option. A superuser, and a role that owns the object directly or
//! through membership, grants as the owner. A privilege that was granted by a grant option lasts as long as that
//! option: REVOKE refuses to take the option alone, or takes both (CASCADE).

use cleave_catalog::catalog::CatalogState;
use cleave_catalog::catalog::rights::{
    GrantItem, Object, ObjectKind, PUBLIC, Privilege, Privileges, Rights,
};
use cleave_catalog::catalog::sequence::Sequence;
use cleave_catalog::catalog::view::ViewState;
use cleave_catalog::error::{Error, Fault, NameKind, Result, RoleFault};
use cleave_sql::statement::roles::{Grant, GrantedOn, RoleName};
use cleave_store::TableSchema;

use super::later_privileges;
use super::roles::{Actor, invalid, refused};

/// An object with privileges.
pub(super) struct Known<'a> {
    /// Its identity.
    pub(super) object: Object,
    /// Of which kind.
    pub(super) kind: ObjectKind,
    /// Its name.
    pub(super) name: &'a str,
    /// Its columns, where it has any.
    pub(super) schema: Option<&'a TableSchema>,
    /// The view that it is.
    pub(super) view: Option<&'a ViewState>,
}

impl<'a> Known<'a> {
    /// A table.
    pub(super) fn of_table(schema: &'a TableSchema) -> Self {
        let object = Object::Relation(schema.table_id);
        let (name, schema) = (schema.name.as_str(), Some(schema));
        Self { object, kind: ObjectKind::Table, name, schema, view: None }
    }

    /// A view.
    pub(super) fn of_view(view: &'a ViewState) -> Self {
        Self { kind: ObjectKind::View, view: Some(view), ..Self::of_table(&view.schema) }
    }

    fn of_sequence(sequence: &'a Sequence) -> Self {
        let (object, name) = (Object::Relation(sequence.id), sequence.name.as_str());
        Self { object, kind: ObjectKind::Sequence, name, schema: None, view: None }
    }

    /// The schema or the database.
    fn of_all(object: Object, kind: ObjectKind, name: &'a str) -> Self {
        Self { object, kind, name, schema: None, view: None }
    }

    /// Its id, and the version of its definition.
    pub(super) fn version(&self) -> Option<(u32, u32)> {
        match self.object {
            Object::Relation(id) => Some((id, self.schema.map_or(0, |schema| schema.version))),
            Object::Schema | Object::Database => None,
        }
    }
}

/// The table, view or sequence called `name`, even if it is damaged.
pub(super) fn relation<'a>(state: &'a CatalogState, name: &str) -> Option<Known<'a>> {
    if let Some(table) = state.tables.get(name) {
        return Some(Known::of_table(&table.schema));
    }
    if let Some(view) = state.view(name) {
        return Some(Known::of_view(view));
    }
    if let Some(damaged) = state.damaged.get(name) {
        return Some(Known::of_table(&damaged.schema));
    }
    state.sequences.get(name).map(|sequence| Known::of_sequence(sequence))
}

/// All tables, views and sequences.
fn relations(state: &CatalogState) -> impl Iterator<Item = Known<'_>> {
    let tables = state.tables().map(|table| table.schema.name.as_str());
    let damaged = state.damaged_tables().map(|table| table.schema.name.as_str());
    let views = state.views().map(|view| view.schema.name.as_str());
    let sequences = state.sequences.keys().map(String::as_str);
    let names = tables.chain(damaged).chain(views).chain(sequences);
    names.filter_map(|name| relation(state, name))
}

/// What depends on the role `id`, so that it cannot be dropped.
pub(super) fn needs_of(state: &CatalogState, rights: &Rights, id: u32) -> Vec<String> {
    let schema = Known::of_all(Object::Schema, ObjectKind::Schema, "public");
    let database = Known::of_all(Object::Database, ObjectKind::Database, "");
    let mut needs = Vec::new();
    for known in relations(state).chain([schema, database]) {
        let what = format!("{} {}", known.kind.name(), known.name);
        if rights.owner(known.object) == id {
            needs.push(format!("owner of {what}"));
        }
        let grants = rights.grants(known.object);
        if grants.iter().any(|grant| grant.grantee == id || grant.grantor == id) {
            needs.push(format!("privileges for {what}"));
        }
    }
    needs.extend(later_privileges::needs_of(rights, id));
    needs
}

impl Actor<'_> {
    /// Runs GRANT and REVOKE of privileges.
    pub(super) fn grant(
        &self,
        state: &CatalogState,
        rights: &mut Rights,
        grant: &Grant,
    ) -> Result<()> {
        let grantees = self.grantees(rights, grant)?;
        for known in self.granted_on(state, &grant.on)? {
            let items = items(&known, grant)?;
            for (column, wanted) in items {
                self.grant_one(rights, &known, grant, (column, wanted, &grantees))?;
            }
        }
        Ok(())
    }

    /// The grantees, or those whose privileges are revoked.
    pub(super) fn grantees(&self, rights: &Rights, grant: &Grant) -> Result<Vec<u32>> {
        let grantees = grant.grantees.iter().map(|grantee| match grantee {
            RoleName::Public if grant.option && !grant.revokes => {
                let message = "grant options can only be granted to roles".to_owned();
                Err(invalid(message, Fault::Role(RoleFault::Grant)))
            }
            RoleName::Public => Ok(PUBLIC),
            grantee => self.role_id(rights, grantee),
        });
        grantees.collect()
    }

    fn grant_one(
        &self,
        rights: &mut Rights,
        known: &Known<'_>,
        grant: &Grant,
        (column, wanted, grantees): (u32, Privileges, &[u32]),
    ) -> Result<()> {
        let (actor, object) = (self.actor(), known.object);
        let granted = wanted.and(rights.options(actor, object, column));
        if granted.is_empty() {
            return Err(denied(known.kind, known.name));
        }
        let owner = rights.owner(object);
        let grantor = if rights.owns(actor, object) { owner } else { actor };
        let list = rights.grants_mut(object);
        for grantee in grantees.iter().copied().filter(|grantee| *grantee != owner) {
            if grant.revokes {
                let of_it = |item: &&mut GrantItem| {
                    (item.grantee, item.grantor) == (grantee, grantor)
                        && (column == 0 || item.column == column)
                };
                for item in list.iter_mut().filter(of_it) {
                    item.options = item.options.without(granted);
                    if !grant.option {
                        item.privileges = item.privileges.without(granted);
                    }
                }
                continue;
            }
            let options = if grant.option { granted } else { Privileges::default() };
            let same = |item: &&mut GrantItem| {
                (item.grantee, item.grantor, item.column) == (grantee, grantor, column)
            };
            match list.iter_mut().find(same) {
                Some(item) => {
                    item.privileges = item.privileges.or(granted);
                    item.options = item.options.or(options);
                }
                None => {
                    list.push(GrantItem { grantee, grantor, column, privileges: granted, options })
                }
            }
        }
        if grant.revokes {
            take_dependents(rights, object, grant.cascade)?;
        }
        Ok(())
    }

    fn granted_on<'a>(
        &'a self,
        state: &'a CatalogState,
        on: &'a GrantedOn,
    ) -> Result<Vec<Known<'a>>> {
        let find = |name: &String, is_sequence: bool| {
            let known = relation(state, name);
            let known = known.filter(|known| !is_sequence || known.kind == ObjectKind::Sequence);
            let known = known
                .ok_or_else(|| Error::unknown(NameKind::Relation, name, state.table_names()))?;
            match known.object {
                Object::Relation(id) if self.defined.is_temporary(id) => {
                    Err(Error::unsupported("GRANT on a temporary object"))
                }
                _ => Ok(known),
            }
        };
        let all = |is_sequence: bool| {
            let all = relations(state);
            let of_kind = all.filter(|known| (known.kind == ObjectKind::Sequence) == is_sequence);
            let is_own = |known: &Known<'_>| match known.object {
                Object::Relation(id) => !self.defined.is_temporary(id),
                _ => true,
            };
            of_kind.filter(is_own).collect()
        };
        match on {
            GrantedOn::Tables(names) => names.iter().map(|name| find(name, false)).collect(),
            GrantedOn::Sequences(names) => names.iter().map(|name| find(name, true)).collect(),
            GrantedOn::AllTables => Ok(all(false)),
            GrantedOn::AllSequences => Ok(all(true)),
            GrantedOn::Schema => {
                Ok(vec![Known::of_all(Object::Schema, ObjectKind::Schema, "public")])
            }
            GrantedOn::Database(names) => {
                let own = self.client.database.as_str();
                for name in names {
                    if ![own, "cleave"].contains(&name.as_str()) {
                        let message = format!("database \"{name}\" does not exist");
                        return Err(invalid(message, Fault::Role(RoleFault::Database)));
                    }
                }
                Ok(vec![Known::of_all(Object::Database, ObjectKind::Database, own)])
            }
        }
    }

    /// Runs ALTER … OWNER TO.
    pub(super) fn give_to(
        &self,
        state: &CatalogState,
        rights: &mut Rights,
        (name, if_exists): (&str, bool),
        to: &RoleName,
    ) -> Result<()> {
        let Some(known) = relation(state, name) else {
            return match if_exists {
                true => Ok(()),
                false => Err(Error::unknown(NameKind::Relation, name, state.table_names())),
            };
        };
        let (actor, to) = (self.actor(), self.role_id(rights, to)?);
        if !rights.owns(actor, known.object) {
            return Err(not_owner(known.kind, known.name));
        }
        if !rights.is_superuser(actor) {
            if !rights.is_member(actor, to) {
                let name = rights.name_of(to, self.client.first_name());
                return Err(refused(&format!("must be member of role \"{name}\"")));
            }
            if !rights.may(to, Object::Schema, Privilege::Create) {
                return Err(denied(ObjectKind::Schema, "public"));
            }
        }
        if let Object::Relation(id) = known.object {
            if self.defined.is_temporary(id) {
                return Err(Error::unsupported("ALTER ... OWNER TO of a temporary object"));
            }
            let own = state.sequences.values();
            let own = own.filter(|sequence| sequence.owner.is_some_and(|owner| owner.table == id));
            for id in own.map(|sequence| sequence.id).chain([id]) {
                put_owner(rights, id, to);
            }
        }
        Ok(())
    }

    /// Runs REASSIGN OWNED.
    pub(super) fn reassign(
        &self,
        state: &CatalogState,
        rights: &mut Rights,
        from: &[RoleName],
        to: &RoleName,
    ) -> Result<()> {
        let (actor, to) = (self.actor(), self.role_id(rights, to)?);
        rights.prune(state);
        for role in from {
            let role = self.role_id(rights, role)?;
            let is_in = |role| rights.is_superuser(actor) || rights.is_member(actor, role);
            if !is_in(role) || !is_in(to) {
                return Err(refused("permission denied to reassign objects"));
            }
            for id in rights.owned(role).collect::<Vec<_>>() {
                put_owner(rights, id, to);
            }
        }
        Ok(())
    }

    /// Runs DROP OWNED of roles that own nothing: it removes what was granted to them.
    pub(super) fn drop_owned(
        &self,
        state: &CatalogState,
        rights: &mut Rights,
        roles: &[RoleName],
    ) -> Result<()> {
        let actor = self.actor();
        rights.prune(state);
        for role in roles {
            let role = self.role_id(rights, role)?;
            if !rights.is_superuser(actor) && !rights.is_member(actor, role) {
                return Err(refused("permission denied to drop objects"));
            }
            if rights.owned(role).next().is_some() {
                return Err(Error::Unsupported {
                    what: "DROP OWNED of a role that owns tables, views or sequences".to_owned(),
                    hint: Some("drop them, or give them away by REASSIGN OWNED".to_owned()),
                    position: None,
                });
            }
            later_privileges::drop_of(rights, role);
            let objects = relations(state).map(|known| known.object);
            for object in objects.chain([Object::Schema, Object::Database]).collect::<Vec<_>>() {
                if rights.grants(object).iter().any(|item| item.grantee == role) {
                    rights.grants_mut(object).retain(|item| item.grantee != role);
                    take_dependents(rights, object, true)?;
                }
            }
        }
        Ok(())
    }
}

/// Gives an object to `to`; the new owner takes over what the old one has granted.
fn put_owner(rights: &mut Rights, id: u32, to: u32) {
    let object = Object::Relation(id);
    let before = rights.owner(object);
    rights.put_owner(id, to);
    if rights.has_grants(object) {
        let list = rights.grants_mut(object);
        list.retain(|item| item.grantee != to);
        list.iter_mut().filter(|item| item.grantor == before).for_each(|item| item.grantor = to);
    }
}

/// The privileges of a statement on `known`: by column, 0 for the whole object.
fn items(known: &Known<'_>, grant: &Grant) -> Result<Vec<(u32, Privileges)>> {
    let Some(listed) = &grant.privileges else { return Ok(vec![(0, known.kind.privileges())]) };
    let mut items: Vec<(u32, Privileges)> = Vec::new();
    let of_columns =
        [Privilege::Select, Privilege::Insert, Privilege::Update, Privilege::References];
    for (privilege, columns) in listed {
        let fits = match columns.as_slice() {
            [] => known.kind.privileges().has(*privilege),
            _ => known.schema.is_some() && of_columns.contains(privilege),
        };
        if !fits {
            let kind = if columns.is_empty() { known.kind.name() } else { "column" };
            let message = format!("invalid privilege type {} for {kind}", privilege.name());
            return Err(invalid(message, Fault::Role(RoleFault::Grant)));
        }
        let mut add = |column: u32| {
            let one = Privileges::of(&[*privilege]);
            match items.iter_mut().find(|(known, _)| *known == column) {
                Some((_, privileges)) => *privileges = privileges.or(one),
                None => items.push((column, one)),
            }
        };
        match (columns.as_slice(), known.schema) {
            (columns @ [_, ..], Some(schema)) => {
                for name in columns {
                    let found = schema.columns.iter().find(|column| column.name == *name);
                    let names = || schema.columns.iter().map(|column| column.name.as_str());
                    let found =
                        found.ok_or_else(|| Error::unknown(NameKind::Column, name, names()))?;
                    add(found.id);
                }
            }
            _ => add(0),
        }
    }
    Ok(items)
}

/// Removes grants whose grantors no longer have the grant option.
fn take_dependents(rights: &mut Rights, object: Object, cascade: bool) -> Result<()> {
    let known = rights.grants(object).to_vec();
    let lasting = lasting(rights, object, &known);
    let has_lost = known.iter().zip(&lasting).any(|(item, lasting)| item.privileges != *lasting);
    if has_lost && !cascade {
        let message = "dependent privileges exist: use CASCADE to revoke them too".to_owned();
        return Err(invalid(message, Fault::Dependent));
    }
    let list = rights.grants_mut(object);
    for (item, lasting) in list.iter_mut().zip(lasting) {
        item.privileges = item.privileges.and(lasting);
        item.options = item.options.and(lasting);
    }
    list.retain(|item| !item.privileges.is_empty());
    Ok(())
}

/// Those of `items` that follow, step by step, from the owner's grants: two roles that have granted only to each other
/// have nothing.
fn lasting(rights: &Rights, object: Object, items: &[GrantItem]) -> Vec<Privileges> {
    let mut lasting = vec![Privileges::default(); items.len()];
    loop {
        let next: Vec<Privileges> = items
            .iter()
            .map(|item| {
                if rights.owns(item.grantor, object) {
                    return item.privileges;
                }
                let options = items.iter().zip(&lasting).filter(|(other, _)| {
                    [0, item.column].contains(&other.column)
                        && rights.inherits(item.grantor, other.grantee)
                });
                let options = options.fold(Privileges::default(), |all, (other, lasting)| {
                    all.or(other.options.and(*lasting))
                });
                item.privileges.and(options)
            })
            .collect();
        if next == lasting {
            return lasting;
        }
        lasting = next;
    }
}

/// The error of a missing privilege.
pub(super) fn denied(kind: ObjectKind, name: &str) -> Error {
    refused(&format!("permission denied for {} {name}", kind.name()))
}

/// The error of what only the owner may do.
pub(super) fn not_owner(kind: ObjectKind, name: &str) -> Error {
    refused(&format!("must be owner of {} {name}", kind.name()))
}
