//! Roles, owners and grants as rows.

use std::collections::BTreeMap;

use cleave_catalog::catalog::rights::{FIRST, GrantItem, Later, Object, ObjectKind, PUBLIC, Role};
use cleave_sql::statement::catalog_tables::numbers::oid_of;
use cleave_sql::statement::catalog_tables::{Cell, Row};
use cleave_sql::statement::names::quoted;
use cleave_store::TableSchema;

use super::view::{View, number, table_oid};

/// A thing with rights.
pub(super) struct Owned<'a> {
    /// Which it is.
    pub(super) object: Object,
    /// Of which kind.
    pub(super) kind: ObjectKind,
    /// What it is called.
    pub(super) name: &'a str,
    /// Its columns, where it has any.
    pub(super) schema: Option<&'a TableSchema>,
}

impl<'a> Owned<'a> {
    fn of(schema: &'a TableSchema, kind: ObjectKind) -> Self {
        let object = Object::Relation(schema.table_id);
        Self { object, kind, name: &schema.name, schema: Some(schema) }
    }
}

impl View {
    /// Tables, views and sequences.
    pub(super) fn owned(&self) -> impl Iterator<Item = Owned<'_>> {
        let tables = self.tables().map(|table| Owned::of(&table.schema, ObjectKind::Table));
        let views = self.views().map(|view| Owned::of(&view.schema, ObjectKind::View));
        let sequences = self.sequences().map(|sequence| Owned {
            object: Object::Relation(sequence.id),
            kind: ObjectKind::Sequence,
            name: &sequence.name,
            schema: None,
        });
        tables.chain(views).chain(sequences)
    }

    /// The name of a role.
    pub(super) fn role_name(&self, role: u32) -> &str {
        self.state().rights.name_of(role, self.client.first_name())
    }

    /// The name of the owner of a table, view or sequence.
    pub(super) fn owner_name(&self, id: u32) -> &str {
        self.role_name(self.state().rights.owner(Object::Relation(id)))
    }

    /// The role as which the session acts.
    pub(super) fn actor(&self) -> u32 {
        self.client.acting.role.unwrap_or(FIRST)
    }

    /// The value of `relacl` and its like; NULL: only the default privileges.
    pub(super) fn access(&self, object: Object, kind: ObjectKind) -> Cell {
        let rights = &self.state().rights;
        // Everyone's USAGE of the schema is said where it stands, as PostgreSQL does since its version 15.
        if !rights.has_grants(object) && object != Object::Schema {
            return Cell::Null;
        }
        let owner = rights.owner(object);
        let all = kind.privileges();
        let own = GrantItem {
            grantee: owner,
            grantor: owner,
            column: 0,
            privileges: all,
            options: Default::default(),
        };
        let granted = rights.grants(object).iter().filter(|item| item.column == 0);
        Cell::Texts(
            std::iter::once(&own).chain(granted).map(|item| self.access_item(item)).collect(),
        )
    }

    /// What `attacl` says.
    pub(super) fn column_access(&self, table: u32, column: u32) -> Cell {
        let granted = self.state().rights.grants(Object::Relation(table)).iter();
        let granted: Vec<String> = granted
            .filter(|item| item.column == column)
            .map(|item| self.access_item(item))
            .collect();
        if granted.is_empty() { Cell::Null } else { Cell::Texts(granted) }
    }

    /// The default privileges of everyone and the owner for a thing of this kind, in the form of `acldefault`; None:
    /// there is no such kind.
    pub(super) fn access_at_first(&self, kind: &str, owner: u32) -> Option<Vec<String>> {
        let (everyone, own) = match kind {
            "c" => ("", ""),
            "r" => ("", "arwdDxt"),
            "s" | "L" => ("", if kind == "s" { "rwU" } else { "rw" }),
            "d" => ("Tc", "CTc"),
            "f" => ("X", "X"),
            "l" | "T" => ("U", "U"),
            "n" => ("", "UC"),
            "t" => ("", "C"),
            "F" | "S" => ("", "U"),
            "p" => ("", "sA"),
            _ => return None,
        };
        let owner = quoted(self.role_name(owner));
        let item = |(grantee, letters): (&str, &str)| {
            (!letters.is_empty()).then(|| format!("{grantee}={letters}/{owner}"))
        };
        Some([("", everyone), (owner.as_str(), own)].into_iter().filter_map(item).collect())
    }

    fn access_item(&self, item: &GrantItem) -> String {
        let grantee = match item.grantee {
            PUBLIC => String::new(),
            grantee => quoted(self.role_name(grantee)),
        };
        let letters = item.privileges.letters(item.options);
        format!("{grantee}={letters}/{}", quoted(self.role_name(item.grantor)))
    }
}

/// The rows of `pg_class`, with owners and what was granted.
pub(super) fn with_owners(view: &View, mut rows: Vec<Row>) -> Vec<Row> {
    let rights = &view.state().rights;
    if **rights == Default::default() {
        return rows;
    }
    let oid_of_row = |row: &Row| match row.first() {
        Some((_, Cell::Number(oid))) => *oid,
        _ => 0,
    };
    for row in &mut rows {
        let oid = oid_of_row(row);
        let known = view
            .owned()
            .find(|known| matches!(known.object, Object::Relation(id) if oid_of(id) == oid));
        let index = || {
            let index = view.index(oid)?;
            Some(Object::Relation(index.table.schema.table_id))
        };
        let (object, access) = match &known {
            Some(known) => (known.object, view.access(known.object, known.kind)),
            None => match index() {
                Some(object) => (object, Cell::Null),
                None => continue,
            },
        };
        row.retain(|(column, _)| *column != "relowner");
        row.push(("relowner", i64::from(rights.owner(object)).into()));
        row.push(("relacl", access));
    }
    rows
}

/// The rows of `pg_attribute`, with what was granted on columns.
pub(super) fn with_column_access(view: &View, mut rows: Vec<Row>) -> Vec<Row> {
    let has_any = |schema: &TableSchema| {
        let granted = view.state().rights.grants(Object::Relation(schema.table_id));
        granted.iter().any(|item| item.column != 0)
    };
    for schema in view.tables().map(|table| &table.schema).filter(|schema| has_any(schema)) {
        for column in &schema.columns {
            let access = view.column_access(schema.table_id, column.id);
            let is_it = |row: &&mut Row| {
                row.contains(&("attrelid", table_oid(schema).into()))
                    && row.contains(&("attname", column.name.as_str().into()))
            };
            if let Some(row) = rows.iter_mut().find(is_it) {
                row.push(("attacl", access));
            }
        }
    }
    rows
}

/// The rows of `pg_roles` and `pg_authid`.
pub(super) fn roles(view: &View, shows_passwords: bool) -> Vec<Row> {
    let first = Role {
        id: FIRST,
        name: view.client.first_name().to_owned(),
        superuser: true,
        inherit: true,
        create_role: true,
        create_db: true,
        login: true,
        connection_limit: -1,
        verifier: None,
        valid_until_us: None,
        settings: BTreeMap::new(),
    };
    let row = |role: &Role| -> Row {
        let password = match (&role.verifier, shows_passwords) {
            (verifier, true) => verifier.as_ref().map(|verifier| verifier.text()),
            (_, false) => Some("********".to_owned()),
        };
        vec![
            ("oid", i64::from(role.id).into()),
            ("rolname", role.name.as_str().into()),
            ("rolsuper", role.superuser.into()),
            ("rolinherit", role.inherit.into()),
            ("rolcreaterole", role.create_role.into()),
            ("rolcreatedb", role.create_db.into()),
            ("rolcanlogin", role.login.into()),
            ("rolreplication", false.into()),
            ("rolbypassrls", role.superuser.into()),
            ("rolconnlimit", i64::from(role.connection_limit).into()),
            ("rolpassword", password.into()),
            ("rolvaliduntil", role.valid_until_us.into()),
            ("rolconfig", configuration(role)),
        ]
    };
    std::iter::once(&first).chain(view.state().rights.roles()).map(row).collect()
}

/// The settings of a role, as PostgreSQL lists them.
fn configuration(role: &Role) -> Cell {
    let settings = role.settings.iter().map(|(name, value)| format!("{name}={value}"));
    match role.settings.is_empty() {
        true => Cell::Null,
        false => Cell::Texts(settings.collect()),
    }
}

/// The rows of `pg_db_role_setting`.
pub(super) fn settings(view: &View) -> Vec<Row> {
    let roles = view.state().rights.roles().filter(|role| !role.settings.is_empty());
    let row = |role: &Role| -> Row {
        vec![
            ("setdatabase", 0_i64.into()),
            ("setrole", i64::from(role.id).into()),
            ("setconfig", configuration(role)),
        ]
    };
    roles.map(row).collect()
}

/// The rows of `pg_user`.
pub(super) fn users(view: &View) -> Vec<Row> {
    let renamed = [
        ("rolname", "usename"),
        ("oid", "usesysid"),
        ("rolcreatedb", "usecreatedb"),
        ("rolsuper", "usesuper"),
        ("rolreplication", "userepl"),
        ("rolbypassrls", "usebypassrls"),
        ("rolpassword", "passwd"),
        ("rolvaliduntil", "valuntil"),
        ("rolconfig", "useconfig"),
    ];
    let may_connect = |row: &Row| row.contains(&("rolcanlogin", true.into()));
    let rows = roles(view, false).into_iter().filter(may_connect);
    let user = |row: Row| -> Row {
        let column = |(name, cell): (&'static str, Cell)| {
            let (_, new) = renamed.iter().find(|(old, _)| *old == name)?;
            Some((*new, cell))
        };
        row.into_iter().filter_map(column).collect()
    };
    rows.map(user).collect()
}

/// The rows of `pg_auth_members`.
pub(super) fn members(view: &View) -> Vec<Row> {
    let members = view.state().rights.memberships();
    let row =
        |(role, member, how): (u32, u32, cleave_catalog::catalog::rights::Membership)| -> Row {
            vec![
                ("roleid", i64::from(role).into()),
                ("member", i64::from(member).into()),
                ("grantor", i64::from(how.grantor).into()),
                ("admin_option", how.admin.into()),
            ]
        };
    members.map(row).collect()
}

/// The rows of `pg_default_acl`. What is said of all things shows what their owner has, too.
pub(super) fn later(view: &View) -> Vec<Row> {
    let row = |((of, items), place): ((Later, &[GrantItem]), i64)| -> Row {
        let kind = if of.is_sequence { ObjectKind::Sequence } else { ObjectKind::Table };
        let own = GrantItem {
            grantee: of.role,
            grantor: of.role,
            column: 0,
            privileges: kind.privileges(),
            options: Default::default(),
        };
        let own = (!of.in_schema).then_some(&own).into_iter();
        let items = own.chain(items).map(|item| view.access_item(item)).collect();
        vec![
            ("oid", (number::DEFAULT_ACL + place).into()),
            ("defaclrole", i64::from(of.role).into()),
            ("defaclnamespace", if of.in_schema { number::PUBLIC } else { 0 }.into()),
            ("defaclobjtype", if of.is_sequence { "S" } else { "r" }.into()),
            ("defaclacl", Cell::Texts(items)),
        ]
    };
    view.state().rights.later().zip(0..).map(row).collect()
}

/// The rows of `information_schema.applicable_roles`.
pub(super) fn applicable(view: &View) -> Vec<Row> {
    let rights = &view.state().rights;
    let reached = rights.reached(view.actor(), false);
    let members = rights.memberships().filter(|(_, member, _)| reached.contains(member));
    let row =
        |(role, member, how): (u32, u32, cleave_catalog::catalog::rights::Membership)| -> Row {
            vec![
                ("grantee", view.role_name(member).into()),
                ("role_name", view.role_name(role).into()),
                ("is_grantable", yes_or_no(how.admin).into()),
            ]
        };
    members.map(row).collect()
}

/// The rows of `information_schema.enabled_roles`.
pub(super) fn enabled(view: &View) -> Vec<Row> {
    let reached = view.state().rights.reached(view.actor(), false);
    reached.into_iter().map(|role| vec![("role_name", view.role_name(role).into())]).collect()
}

/// The rows of `information_schema.table_privileges`, or of `role_table_grants`, which leaves out what everyone has.
pub(super) fn table_privileges(view: &View, with_public: bool) -> Vec<Row> {
    let rights = &view.state().rights;
    let actor = view.actor();
    let sees = |role: u32| rights.is_superuser(actor) || rights.is_member(actor, role);
    let mut rows = Vec::new();
    for known in view.owned().filter(|known| known.kind != ObjectKind::Sequence) {
        let owner = rights.owner(known.object);
        let all = known.kind.privileges();
        let own =
            GrantItem { grantee: owner, grantor: owner, column: 0, privileges: all, options: all };
        let granted = rights.grants(known.object).iter().filter(|item| item.column == 0);
        for item in std::iter::once(&own).chain(granted) {
            let is_public = item.grantee == PUBLIC;
            let is_seen = match is_public {
                true => with_public,
                false => sees(item.grantee) || sees(item.grantor),
            };
            if !is_seen {
                continue;
            }
            let grantee = if is_public { "PUBLIC" } else { view.role_name(item.grantee) };
            for privilege in item.privileges.iter() {
                rows.push(vec![
                    ("grantor", view.role_name(item.grantor).into()),
                    ("grantee", grantee.into()),
                    ("table_catalog", view.client.database.as_str().into()),
                    ("table_schema", "public".into()),
                    ("table_name", known.name.into()),
                    ("privilege_type", privilege.name().into()),
                    ("is_grantable", yes_or_no(item.options.has(privilege)).into()),
                    ("with_hierarchy", "NO".into()),
                ]);
            }
        }
    }
    rows
}

fn yes_or_no(value: bool) -> &'static str {
    if value { "YES" } else { "NO" }
}
