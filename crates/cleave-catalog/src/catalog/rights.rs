//! Roles and their rights: part of every catalog version, so of every snapshot, block, manifest and backup.
//!
//! ```text
//!  Role ─ Membership ─▶ Role          a role inherits the rights of the roles that it is a member of
//!    ▲ owner      ▲ grantee, grantor
//!  Object ◀── Grant (privileges, options, column)
//! ```
//!
//! 1. [`Rights`] is the whole, immutable in a catalog version: equal addresses mean that nothing has changed.
//! 2. [`Rights::may`] answers for a role and an object. Superusers may do everything; owners everything with their
//!    objects.
//! 3. [`RightsChange`] is the change by one transaction block, by key, so that concurrent blocks keep each other's
//!    changes.
//!
//! [`FIRST`] is the role that every database begins with: a superuser with the name of the user who asks. It is not
//! stored, and owns all objects without another owner.
//!
//! Source: PostgreSQL's manual, "Database Roles" and "Privileges"; `docs/design/server-and-security.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::CatalogState;
use crate::login_secret::LoginSecret;
use crate::password::Verifier;

pub mod proto;
mod stored;

/// The role that always exists.
pub const FIRST: u32 = 10;
/// In place of a role: everyone.
pub const PUBLIC: u32 = 0;
/// The number of the first created role.
const FIRST_MADE: u32 = 16_384;

/// Privileges that can be granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Privilege {
    /// Add rows.
    Insert,
    /// Read.
    Select,
    /// Change rows, set sequences.
    Update,
    /// Remove rows.
    Delete,
    /// Remove all rows.
    Truncate,
    /// Refer to it in a foreign key.
    References,
    /// Make a trigger; triggers do not exist here.
    Trigger,
    /// Use a schema or a sequence.
    Usage,
    /// Create objects in it.
    Create,
    /// Create temporary objects.
    Temporary,
    /// Connect to it.
    Connect,
}

impl Privilege {
    /// All of them, as PostgreSQL lists them, with the letter of each.
    const ALL: [(Self, char, &'static str); 11] = [
        (Self::Insert, 'a', "INSERT"),
        (Self::Select, 'r', "SELECT"),
        (Self::Update, 'w', "UPDATE"),
        (Self::Delete, 'd', "DELETE"),
        (Self::Truncate, 'D', "TRUNCATE"),
        (Self::References, 'x', "REFERENCES"),
        (Self::Trigger, 't', "TRIGGER"),
        (Self::Usage, 'U', "USAGE"),
        (Self::Create, 'C', "CREATE"),
        (Self::Temporary, 'T', "TEMPORARY"),
        (Self::Connect, 'c', "CONNECT"),
    ];

    /// The privilege of this name, in any case.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        if name.eq_ignore_ascii_case("temp") {
            return Some(Self::Temporary);
        }
        let mut all = Self::ALL.into_iter();
        all.find(|(_, _, known)| known.eq_ignore_ascii_case(name)).map(|(privilege, ..)| privilege)
    }

    /// Its name in SQL.
    #[must_use]
    pub fn name(self) -> &'static str {
        let mut all = Self::ALL.into_iter();
        all.find(|(known, ..)| *known == self).map_or("", |(_, _, name)| name)
    }
}

/// A set of privileges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Privileges(pub u32);

impl Privileges {
    /// The set of these privileges.
    #[must_use]
    pub fn of(privileges: &[Privilege]) -> Self {
        Self(privileges.iter().fold(0, |bits, privilege| bits | 1 << *privilege as u32))
    }

    /// Whether it contains `privilege`.
    #[must_use]
    pub fn has(self, privilege: Privilege) -> bool {
        self.0 & (1 << privilege as u32) != 0
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The intersection.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The union.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The difference: those that are not in `other`.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Its privileges, one by one.
    pub fn iter(self) -> impl Iterator<Item = Privilege> {
        Privilege::ALL
            .into_iter()
            .map(|(privilege, ..)| privilege)
            .filter(move |one| self.has(*one))
    }

    /// The form of `relacl`: a letter each, followed by a star for those in `options`.
    #[must_use]
    pub fn letters(self, options: Self) -> String {
        let mut letters = String::new();
        for (privilege, letter, _) in Privilege::ALL {
            if self.has(privilege) {
                letters.push(letter);
                if options.has(privilege) {
                    letters.push('*');
                }
            }
        }
        letters
    }
}

/// The object of privileges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Object {
    /// A table, view or sequence.
    Relation(u32),
    /// The schema `public`.
    Schema,
    /// The database.
    Database,
}

/// The kind of an object: decides what can be granted on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectKind {
    /// A table.
    Table,
    /// A view.
    View,
    /// A sequence.
    Sequence,
    /// The schema.
    Schema,
    /// The database.
    Database,
}

impl ObjectKind {
    /// All privileges on such an object.
    #[must_use]
    pub fn privileges(self) -> Privileges {
        use Privilege::{
            Connect, Create, Delete, Insert, References, Select, Temporary, Trigger, Truncate,
            Update, Usage,
        };
        Privileges::of(match self {
            Self::Table | Self::View => {
                &[Insert, Select, Update, Delete, Truncate, References, Trigger]
            }
            Self::Sequence => &[Select, Update, Usage],
            Self::Schema => &[Usage, Create],
            Self::Database => &[Create, Temporary, Connect],
        })
    }

    /// Its name in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::View => "view",
            Self::Sequence => "sequence",
            Self::Schema => "schema",
            Self::Database => "database",
        }
    }
}

/// A role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Role {
    /// Its number.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// It may do everything.
    pub superuser: bool,
    /// It inherits the rights of the roles that it is a member of.
    pub inherit: bool,
    /// It may make roles.
    pub create_role: bool,
    /// It may create databases, which no role can here.
    pub create_db: bool,
    /// It may connect.
    pub login: bool,
    /// Most connections; -1: no limit.
    pub connection_limit: i32,
    /// The data with which a server checks its password; None: it has none.
    pub verifier: Option<Verifier>,
    /// Expiry of the password, in microseconds since 1970.
    pub valid_until_us: Option<i64>,
    /// The settings that its sessions begin with, by name.
    pub settings: BTreeMap<String, String>,
}

/// The membership of a role in another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Membership {
    /// The role that granted it.
    pub grantor: u32,
    /// The member may grant it to others.
    pub admin: bool,
}

/// One grant on an object, or on a column of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrantItem {
    /// Who may; [`PUBLIC`]: everyone.
    pub grantee: u32,
    /// The role that granted it.
    pub grantor: u32,
    /// The column's id; 0: all of it.
    pub column: u32,
    /// The privileges.
    pub privileges: Privileges,
    /// Those of them that the grantee may grant to others.
    pub options: Privileges,
}

/// Key of default privileges: the creating role, the kind of object, and whether they are of the schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Later {
    /// The role that creates the objects.
    pub role: u32,
    /// Sequences; otherwise tables and views.
    pub is_sequence: bool,
    /// They apply to the schema, otherwise to all schemas. Both kinds of grants add up.
    pub in_schema: bool,
}

/// Roles, memberships, owners and grants. See the module's description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rights {
    next_role: u32,
    roles: BTreeMap<u32, Role>,
    /// By role and member.
    members: BTreeMap<(u32, u32), Membership>,
    /// Owners of tables, views and sequences, except those of the first role.
    owners: BTreeMap<u32, u32>,
    grants: BTreeMap<Object, Vec<GrantItem>>,
    /// None of the lists is empty.
    later: BTreeMap<Later, Vec<GrantItem>>,
    /// Some: a role or a user of the server has had a password. It is never removed again.
    login_secret: Option<LoginSecret>,
}

impl Default for Rights {
    fn default() -> Self {
        Self {
            next_role: FIRST_MADE,
            roles: BTreeMap::new(),
            members: BTreeMap::new(),
            owners: BTreeMap::new(),
            grants: BTreeMap::new(),
            later: BTreeMap::new(),
            login_secret: None,
        }
    }
}

impl Rights {
    /// The role with this number, unless it is the first.
    #[must_use]
    pub fn role(&self, id: u32) -> Option<&Role> {
        self.roles.get(&id)
    }

    /// The role with this name.
    #[must_use]
    pub fn role_named(&self, name: &str) -> Option<&Role> {
        self.roles.values().find(|role| role.name == name)
    }

    /// All roles but the first.
    pub fn roles(&self) -> impl Iterator<Item = &Role> {
        self.roles.values()
    }

    /// Role, member, and kind of membership.
    pub fn memberships(&self) -> impl Iterator<Item = (u32, u32, Membership)> {
        self.members.iter().map(|((role, member), membership)| (*role, *member, *membership))
    }

    /// The direct membership of `member` in `role`.
    #[must_use]
    pub fn membership(&self, role: u32, member: u32) -> Option<Membership> {
        self.members.get(&(role, member)).copied()
    }

    /// Whether a role can connect with a password of its own.
    #[must_use]
    pub fn has_passwords(&self) -> bool {
        self.roles.values().any(|role| role.login && role.verifier.is_some())
    }

    /// Some from the first password on: connecting then requires a password, even after all were removed.
    #[must_use]
    pub fn login_secret(&self) -> Option<&LoginSecret> {
        self.login_secret.as_ref()
    }

    /// Makes passwords necessary from now on.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn ask_for_passwords(&mut self) -> Result<(), cleave_media::MediaError> {
        if self.login_secret.is_none() {
            self.login_secret = Some(LoginSecret::draw()?);
        }
        Ok(())
    }

    /// Whether `role` may do everything.
    #[must_use]
    pub fn is_superuser(&self, role: u32) -> bool {
        role == FIRST || self.roles.get(&role).is_some_and(|role| role.superuser)
    }

    /// Whether `member` is in `role`, directly or indirectly.
    #[must_use]
    pub fn is_member(&self, member: u32, role: u32) -> bool {
        member == role || self.reached(member, false).contains(&role)
    }

    /// Whether `member` inherits the rights of `role`.
    #[must_use]
    pub fn inherits(&self, member: u32, role: u32) -> bool {
        member == role || !self.members.is_empty() && self.reached(member, true).contains(&role)
    }

    /// Roles that `member` is in, including itself; if `by_inheritance`, only those whose rights it inherits.
    #[must_use]
    pub fn reached(&self, member: u32, by_inheritance: bool) -> BTreeSet<u32> {
        let mut reached = BTreeSet::from([member]);
        let mut open = vec![member];
        while let Some(member) = open.pop() {
            if by_inheritance && self.roles.get(&member).is_some_and(|role| !role.inherit) {
                continue;
            }
            let above = self.members.keys().filter(|(_, known)| *known == member);
            for (role, _) in above {
                if reached.insert(*role) {
                    open.push(*role);
                }
            }
        }
        reached
    }

    /// The owner of `object`.
    #[must_use]
    pub fn owner(&self, object: Object) -> u32 {
        match object {
            Object::Relation(id) => self.owners.get(&id).copied().unwrap_or(FIRST),
            Object::Schema | Object::Database => FIRST,
        }
    }

    /// Whether any object belongs to another than the first role.
    #[must_use]
    pub fn has_owners(&self) -> bool {
        !self.owners.is_empty()
    }

    /// Objects that `role` owns.
    pub fn owned(&self, role: u32) -> impl Iterator<Item = u32> {
        self.owners.iter().filter(move |(_, owner)| **owner == role).map(|(object, _)| *object)
    }

    /// Whether `role` has the owner's rights on `object`.
    #[must_use]
    pub fn owns(&self, role: u32, object: Object) -> bool {
        self.is_superuser(role) || self.inherits(role, self.owner(object))
    }

    /// The grants on `object`, except those to its owner.
    #[must_use]
    pub fn grants(&self, object: Object) -> &[GrantItem] {
        match (self.grants.get(&object), object) {
            (Some(grants), _) => grants,
            (None, Object::Relation(_)) => &[],
            (None, Object::Schema) => OF_SCHEMA,
            (None, Object::Database) => OF_DATABASE,
        }
    }

    /// Whether any privilege on `object` was granted or revoked.
    #[must_use]
    pub fn has_grants(&self, object: Object) -> bool {
        self.grants.contains_key(&object)
    }

    /// Whether `role` has `privilege` on all of `object`.
    #[must_use]
    pub fn may(&self, role: u32, object: Object, privilege: Privilege) -> bool {
        self.granted(role, object, privilege, |grant| grant.column == 0)
    }

    /// Whether `role` has `privilege` on the column `column` of `object`.
    #[must_use]
    pub fn may_column(&self, role: u32, object: Object, privilege: Privilege, column: u32) -> bool {
        self.granted(role, object, privilege, |grant| [0, column].contains(&grant.column))
    }

    /// Whether `role` has `privilege` on any part of `object`.
    #[must_use]
    pub fn may_some(&self, role: u32, object: Object, privilege: Privilege) -> bool {
        self.granted(role, object, privilege, |_| true)
    }

    fn granted(
        &self,
        role: u32,
        object: Object,
        privilege: Privilege,
        is_meant: impl Fn(&GrantItem) -> bool,
    ) -> bool {
        let has = |grant: &&GrantItem| {
            grant.privileges.has(privilege)
                && is_meant(grant)
                && (grant.grantee == PUBLIC || self.inherits(role, grant.grantee))
        };
        self.owns(role, object) || self.grants(object).iter().any(|grant| has(&grant))
    }

    /// The privileges that `role` may grant on `object`, or on a column of it (0: on all of it).
    #[must_use]
    pub fn options(&self, role: u32, object: Object, column: u32) -> Privileges {
        if self.owns(role, object) {
            return Privileges(u32::MAX);
        }
        let own = self.grants(object).iter().filter(|grant| [0, column].contains(&grant.column));
        let own = own.filter(|grant| self.inherits(role, grant.grantee));
        own.fold(Privileges::default(), |all, grant| all.or(grant.options))
    }

    /// Returns the number of a new role.
    pub fn new_role(&mut self) -> u32 {
        let id = self.next_role;
        self.next_role = id.saturating_add(1);
        id
    }

    /// Adds a role, or replaces the one with this number.
    pub fn put_role(&mut self, role: Role) {
        self.roles.insert(role.id, role);
    }

    /// Removes a role and its memberships.
    pub fn drop_role(&mut self, id: u32) {
        self.roles.remove(&id);
        self.members.retain(|(role, member), _| *role != id && *member != id);
    }

    /// Makes `member` a member of `role`; None: removes it.
    pub fn put_member(&mut self, role: u32, member: u32, how: Option<Membership>) {
        match how {
            Some(how) => drop(self.members.insert((role, member), how)),
            None => drop(self.members.remove(&(role, member))),
        }
    }

    /// Makes `role` the owner of a table, view or sequence.
    pub fn put_owner(&mut self, object: u32, role: u32) {
        match role {
            FIRST => drop(self.owners.remove(&object)),
            role => drop(self.owners.insert(object, role)),
        }
    }

    /// The grants on `object`, mutable.
    pub fn grants_mut(&mut self, object: Object) -> &mut Vec<GrantItem> {
        let known = self.grants(object).to_vec();
        self.grants.entry(object).or_insert(known)
    }

    /// Default privileges for objects that are created later.
    pub fn later(&self) -> impl Iterator<Item = (Later, &[GrantItem])> {
        self.later.iter().map(|(of, items)| (*of, items.as_slice()))
    }

    /// Replaces the default privileges of `of` by `items`.
    pub fn put_later(&mut self, of: Later, items: Vec<GrantItem>) {
        match items.is_empty() {
            true => drop(self.later.remove(&of)),
            false => drop(self.later.insert(of, items)),
        }
    }

    /// Sets the owner of a new table, view or sequence, with the default privileges.
    pub fn begin(&mut self, id: u32, is_sequence: bool, role: u32) {
        self.put_owner(id, role);
        let mut granted: Vec<GrantItem> = Vec::new();
        for in_schema in [false, true] {
            let items = self.later.get(&Later { role, is_sequence, in_schema });
            for item in items.into_iter().flatten() {
                match granted.iter_mut().find(|known| known.grantee == item.grantee) {
                    Some(known) => {
                        known.privileges = known.privileges.or(item.privileges);
                        known.options = known.options.or(item.options);
                    }
                    None => granted.push(*item),
                }
            }
        }
        if !granted.is_empty() {
            self.grants.insert(Object::Relation(id), granted);
        }
    }

    /// Transfers owner and grants of `from` to `to`, which replaces it.
    pub fn pass_on(&mut self, from: u32, to: u32) {
        self.put_owner(to, self.owner(Object::Relation(from)));
        if let Some(granted) = self.grants.get(&Object::Relation(from)).cloned() {
            self.grants.insert(Object::Relation(to), granted);
        }
    }

    /// Removes owners and grants of objects that are not in `state`.
    pub fn prune(&mut self, state: &CatalogState) {
        let tables = state.tables().map(|table| table.schema.table_id);
        let damaged = state.damaged_tables().map(|table| table.schema.table_id);
        let views = state.views().map(|view| view.schema.table_id);
        let sequences = state.sequences.values().map(|sequence| sequence.id);
        let ids: BTreeSet<u32> = tables.chain(damaged).chain(views).chain(sequences).collect();
        self.owners.retain(|id, _| ids.contains(id));
        self.grants.retain(|object, _| match object {
            Object::Relation(id) => ids.contains(id),
            Object::Schema | Object::Database => true,
        });
    }

    /// The name of a role; `first` is that of the first role.
    #[must_use]
    pub fn name_of<'a>(&'a self, role: u32, first: &'a str) -> &'a str {
        match role {
            FIRST => first,
            role => self.roles.get(&role).map_or("unknown", |role| &role.name),
        }
    }
}

/// Default rights of everyone on the schema: use it, and create nothing there.
const OF_SCHEMA: &[GrantItem] = &[GrantItem {
    grantee: PUBLIC,
    grantor: FIRST,
    column: 0,
    privileges: Privileges(1 << Privilege::Usage as u32),
    options: Privileges(0),
}];

/// Default rights of everyone on the database: connect, and make temporary tables.
const OF_DATABASE: &[GrantItem] = &[GrantItem {
    grantee: PUBLIC,
    grantor: FIRST,
    column: 0,
    privileges: Privileges(1 << Privilege::Temporary as u32 | 1 << Privilege::Connect as u32),
    options: Privileges(0),
}];

/// Changes of the rights by a block, by key; None: removed.
#[derive(Debug, Clone, Default)]
pub struct RightsChange {
    next_role: u32,
    roles: BTreeMap<u32, Option<Role>>,
    members: BTreeMap<(u32, u32), Option<Membership>>,
    owners: BTreeMap<u32, Option<u32>>,
    grants: BTreeMap<Object, Option<Vec<GrantItem>>>,
    later: BTreeMap<Later, Option<Vec<GrantItem>>>,
    login_secret: Option<LoginSecret>,
}

impl RightsChange {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.roles.is_empty()
            && self.members.is_empty()
            && self.owners.is_empty()
            && self.grants.is_empty()
            && self.later.is_empty()
            && self.login_secret.is_none()
    }

    /// Records the changes from `before` to `after`.
    pub fn note(&mut self, before: &Arc<Rights>, after: &Arc<Rights>) {
        if Arc::ptr_eq(before, after) {
            return;
        }
        self.next_role = self.next_role.max(after.next_role);
        self.roles.extend(differences(&before.roles, &after.roles));
        self.members.extend(differences(&before.members, &after.members));
        self.owners.extend(differences(&before.owners, &after.owners));
        self.grants.extend(differences(&before.grants, &after.grants));
        self.later.extend(differences(&before.later, &after.later));
        if before.login_secret.is_none() {
            self.login_secret.clone_from(&after.login_secret);
        }
    }

    /// Applies the changes to `rights`.
    pub fn put_into(&self, rights: &mut Arc<Rights>) {
        if self.is_empty() {
            return;
        }
        let rights = Arc::make_mut(rights);
        rights.next_role = rights.next_role.max(self.next_role);
        put(&mut rights.roles, &self.roles);
        put(&mut rights.members, &self.members);
        put(&mut rights.owners, &self.owners);
        put(&mut rights.grants, &self.grants);
        put(&mut rights.later, &self.later);
        if rights.login_secret.is_none() {
            rights.login_secret.clone_from(&self.login_secret);
        }
    }

    /// The same changes without those of objects that `is_gone` names.
    pub fn without(mut self, is_gone: impl Fn(u32) -> bool) -> Self {
        self.owners.retain(|id, _| !is_gone(*id));
        self.grants.retain(|object, _| !matches!(object, Object::Relation(id) if is_gone(*id)));
        self
    }
}

/// Entries that differ between `before` and `after`; None: removed.
pub fn differences<K: Ord + Clone, V: Clone + PartialEq>(
    before: &BTreeMap<K, V>,
    after: &BTreeMap<K, V>,
) -> BTreeMap<K, Option<V>> {
    let gone = before.keys().filter(|key| !after.contains_key(key));
    let new = after.iter().filter(|(key, value)| before.get(key) != Some(value));
    gone.map(|key| (key.clone(), None))
        .chain(new.map(|(key, value)| (key.clone(), Some(value.clone()))))
        .collect()
}

/// Applies `change` to `known`.
pub fn put<K: Ord + Clone, V: Clone>(known: &mut BTreeMap<K, V>, change: &BTreeMap<K, Option<V>>) {
    for (key, value) in change {
        match value {
            Some(value) => drop(known.insert(key.clone(), value.clone())),
            None => drop(known.remove(key)),
        }
    }
}

#[cfg(test)]
mod tests;
