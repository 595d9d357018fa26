//! Statements about roles: roles, their memberships, and the role that a session acts as. Privileges are handled by
//! [`super::grants`].
//!
//! Roles and rights are definitions like tables ([`super::definitions`]): a block sees its own changes to them, others
//! see them once it commits. Statements of two blocks wait for each other by a lock on a reserved name.

use std::collections::BTreeMap;
use std::path::Path;

use cleave_catalog::acting::Acting;
use cleave_catalog::catalog::CatalogState;
use cleave_catalog::catalog::rights::{FIRST, Membership, Object, Privilege, Rights, Role};
use cleave_catalog::error::{Error, Fault, NameKind, Result, RoleFault};
use cleave_catalog::password::Verifier;
use cleave_catalog::settings::Client;
use cleave_catalog::settings::Settings;
use cleave_sql::statement::names::SCHEMA;
use cleave_sql::statement::parse::Scope;
use cleave_sql::statement::roles::{Password, RoleName, RoleOptions, RoleStatement};

use super::definitions::Defined;
use super::{Outcome, Session, definitions};

/// The lock name of changes to rights: a name that SQL cannot write.
const RIGHTS: &str = "\0rights";

/// The role whose statement changes roles and rights, and what these need of its session.
pub(super) struct Actor<'a> {
    /// The role that the session acts as, and its name for the database.
    pub(super) client: &'a Client,
    /// The session's temporary objects, on which nobody is granted anything.
    pub(super) defined: &'a Defined,
}

/// Runs a statement about roles, rights or owners, whose command tag is `tag`.
pub(super) async fn run(
    session: &mut Session,
    statement: RoleStatement,
    tag: &'static str,
) -> Result<Outcome> {
    match &statement {
        RoleStatement::SetRole { role, scope, .. } => {
            set_role(session, role.as_ref(), *scope)?;
            return Ok(Outcome::done(tag));
        }
        RoleStatement::SetSession { role, scope, .. } => {
            set_session_role(session, role.as_ref(), *scope)?;
            return Ok(Outcome::done(tag));
        }
        _ => {}
    }
    let mut definition = definitions::begin_definition(session, tag, &[], &[RIGHTS]).await?;
    let mut rights = Rights::clone(&definition.edit.next.rights);
    Actor::of(session).change_rights(&definition.edit.next, &mut rights, statement)?;
    definition.edit.next.rights = rights.into();
    definitions::end_definition(session, definition).await?;
    Ok(Outcome::done(tag))
}

/// Sets what sessions of a role begin with: `name`, or all settings.
fn set_for_role(
    rights: &mut Rights,
    id: u32,
    name: Option<&str>,
    value: Option<String>,
) -> Result<()> {
    let Some(mut role) = rights.role(id).cloned() else { return Ok(()) };
    match (name, value) {
        (None, _) => role.settings.clear(),
        (Some(name), value) => {
            let listed = Settings::listed_name(name)?;
            match value {
                Some(value) => {
                    // What SET would refuse is refused now.
                    Settings::default().set(name, &value)?;
                    role.settings.insert(listed, value)
                }
                None => role.settings.remove(&listed),
            };
        }
    }
    rights.put_role(role);
    Ok(())
}

impl<'a> Actor<'a> {
    fn of(session: &'a Session) -> Self {
        Self { client: &session.settings.client, defined: session.defined() }
    }
}

impl Actor<'_> {
    /// Changes `rights`, which are those of `state`, as `statement` says.
    fn change_rights(
        &self,
        state: &CatalogState,
        rights: &mut Rights,
        statement: RoleStatement,
    ) -> Result<()> {
        match statement {
            RoleStatement::Create { name, options } => self.create_role(rights, name, options),
            RoleStatement::Alter { role, options } => self.alter_role(rights, &role, options),
            RoleStatement::Rename { role, to } => {
                let id = self.made_role(rights, &role)?;
                self.check_not_own(id, "renamed", RoleFault::OwnRole)?;
                self.check_rules_over(rights, id)?;
                self.check_new_name(rights, &to)?;
                if let Some(role) = rights.role(id) {
                    let renamed = Role { name: to, ..role.clone() };
                    rights.put_role(renamed);
                }
                Ok(())
            }
            RoleStatement::Settings { role, name, value } => {
                let id = self.made_role(rights, &role)?;
                if id != self.actor() {
                    self.check_rules_over(rights, id)?;
                }
                set_for_role(rights, id, name.as_deref(), value)
            }
            RoleStatement::Drop { if_exists, roles } => {
                for role in roles {
                    match self.made_role(rights, &role) {
                        Ok(id) => self.drop_role(state, rights, id)?,
                        Err(Error::UnknownName { .. }) if if_exists => {}
                        Err(error) => return Err(error),
                    }
                }
                Ok(())
            }
            RoleStatement::Membership { revokes, roles, members, admin } => {
                for role in &roles {
                    let role = self.role_id(rights, role)?;
                    for member in &members {
                        let member = self.role_id(rights, member)?;
                        match revokes {
                            false => self.add_member(rights, role, member, admin)?,
                            true => self.remove_member(rights, role, member, admin)?,
                        }
                    }
                }
                Ok(())
            }
            RoleStatement::Grant(grant) => self.grant(state, rights, &grant),
            RoleStatement::Later { roles, in_schema, grant } => {
                self.grant_later(rights, (&roles, in_schema), &grant)
            }
            RoleStatement::Owner { kind: "SCHEMA", name, to, .. } => {
                self.keep_schema_owner(rights, &name, &to)
            }
            RoleStatement::Owner { kind: _, if_exists, name, to } => {
                self.give_to(state, rights, (&name, if_exists), &to)
            }
            RoleStatement::Reassign { from, to } => self.reassign(state, rights, &from, &to),
            RoleStatement::DropOwned { roles, cascade: _ } => {
                self.drop_owned(state, rights, &roles)
            }
            // They change nothing that others see.
            RoleStatement::SetRole { .. } | RoleStatement::SetSession { .. } => Ok(()),
        }
    }

    /// ALTER SCHEMA public OWNER TO, as `pg_dump` writes it: the schema always belongs to the first superuser.
    fn keep_schema_owner(&self, rights: &Rights, name: &str, to: &RoleName) -> Result<()> {
        if name != SCHEMA {
            return Err(Error::unknown(NameKind::Schema, name, [SCHEMA]));
        }
        let owner = self.role_id(rights, to)?;
        if !rights.is_superuser(self.actor()) {
            return Err(refused(&format!("must be owner of schema {SCHEMA}")));
        }
        match owner {
            FIRST => Ok(()),
            _ => Err(Error::unsupported("ALTER SCHEMA ... OWNER TO another role")),
        }
    }

    /// The role whose rights count.
    pub(super) fn actor(&self) -> u32 {
        self.client.acting.role.unwrap_or(FIRST)
    }

    /// The id of a role.
    ///
    /// # Errors
    /// [`Error::UnknownName`]; PUBLIC is none.
    pub(super) fn role_id(&self, rights: &Rights, name: &RoleName) -> Result<u32> {
        let client = self.client;
        match name {
            RoleName::Current => Ok(self.actor()),
            RoleName::Session => Ok(client.acting.session_role.unwrap_or(FIRST)),
            RoleName::Public => Err(unknown(rights, "public")),
            RoleName::Named(name) => match rights.role_named(name) {
                Some(role) => Ok(role.id),
                None if name == client.first_name() => Ok(FIRST),
                None => Err(unknown(rights, name)),
            },
        }
    }

    /// The id of a role created by a statement.
    fn made_role(&self, rights: &Rights, name: &RoleName) -> Result<u32> {
        match self.role_id(rights, name)? {
            FIRST => Err(Error::Unsupported {
                what: "changing the first role of the database".to_owned(),
                hint: Some("`cleave user add` gives a user of the server a password".to_owned()),
                position: None,
            }),
            id => Ok(id),
        }
    }

    fn check_new_name(&self, rights: &Rights, name: &str) -> Result<()> {
        // A role of the same name would receive its rights, and no others, from then on.
        if rights.role_named(name).is_some() || name == self.client.first_name() {
            return Err(Error::NameTaken { kind: NameKind::Role, name: name.to_owned() });
        }
        Ok(())
    }

    /// Whether the session may make and change roles.
    fn makes_roles(&self, rights: &Rights) -> bool {
        let actor = self.actor();
        rights.is_superuser(actor) || rights.role(actor).is_some_and(|role| role.create_role)
    }

    /// Refuses a session that may not change the role `id`.
    fn check_rules_over(&self, rights: &Rights, id: u32) -> Result<()> {
        if rights.is_superuser(id) && !rights.is_superuser(self.actor()) {
            return Err(refused("must be superuser to alter superuser roles"));
        }
        match self.makes_roles(rights) {
            true => Ok(()),
            false => Err(refused("permission denied to change a role: it needs CREATEROLE")),
        }
    }

    fn create_role(&self, rights: &mut Rights, name: String, options: RoleOptions) -> Result<()> {
        if !self.makes_roles(rights) {
            return Err(refused("permission denied to create role"));
        }
        if options.superuser == Some(true) && !rights.is_superuser(self.actor()) {
            return Err(refused("must be superuser to create superusers"));
        }
        self.check_new_name(rights, &name)?;
        let id = rights.new_role();
        rights.put_role(Role {
            id,
            name,
            superuser: false,
            inherit: true,
            create_role: false,
            create_db: false,
            login: false,
            connection_limit: -1,
            verifier: None,
            valid_until_us: None,
            settings: BTreeMap::new(),
        });
        self.set_options(rights, id, options)
    }

    fn alter_role(&self, rights: &mut Rights, role: &RoleName, options: RoleOptions) -> Result<()> {
        let id = self.made_role(rights, role)?;
        let says_password_only = {
            let password = options.password.clone();
            options == RoleOptions { password, ..RoleOptions::default() }
        };
        if id != self.actor() || !says_password_only {
            self.check_rules_over(rights, id)?;
        }
        if options.superuser.is_some() && !rights.is_superuser(self.actor()) {
            return Err(refused("must be superuser to alter superuser attribute"));
        }
        self.set_options(rights, id, options)
    }

    fn set_options(&self, rights: &mut Rights, id: u32, options: RoleOptions) -> Result<()> {
        let Some(known) = rights.role(id).cloned() else { return Ok(()) };
        let verifier = match options.password {
            None => known.verifier,
            Some(None) => None,
            Some(Some(password)) => verifier(&password)?,
        };
        if verifier.is_some() {
            ask_for_passwords(rights)?;
        }
        rights.put_role(Role {
            superuser: options.superuser.unwrap_or(known.superuser),
            inherit: options.inherit.unwrap_or(known.inherit),
            create_role: options.create_role.unwrap_or(known.create_role),
            create_db: options.create_db.unwrap_or(known.create_db),
            login: options.login.unwrap_or(known.login),
            connection_limit: options.connection_limit.unwrap_or(known.connection_limit),
            valid_until_us: options.valid_until_us.unwrap_or(known.valid_until_us),
            verifier,
            ..known
        });
        for role in &options.in_roles {
            let role = self.role_id(rights, role)?;
            self.add_member(rights, role, id, false)?;
        }
        for (members, admin) in [(&options.members, false), (&options.admins, true)] {
            for member in members {
                let member = self.role_id(rights, member)?;
                self.add_member(rights, id, member, admin)?;
            }
        }
        Ok(())
    }

    fn drop_role(&self, state: &CatalogState, rights: &mut Rights, id: u32) -> Result<()> {
        self.check_rules_over(rights, id)?;
        self.check_not_own(id, "dropped", RoleFault::InUse)?;
        rights.prune(state);
        let needs = super::grants::needs_of(state, rights, id);
        if !needs.is_empty() {
            let name = rights.name_of(id, "").to_owned();
            let list = needs.join(", ");
            let message = format!(
                "role \"{name}\" cannot be dropped because some objects depend on it: {list}"
            );
            return Err(invalid(message, Fault::Dependent));
        }
        rights.drop_role(id);
        Ok(())
    }

    /// Refuses to remove the role that the session itself has.
    fn check_not_own(&self, id: u32, how: &str, fault: RoleFault) -> Result<()> {
        let acting = &self.client.acting;
        let mut own = [(acting.role, "current"), (acting.session_role, "session")];
        if fault == RoleFault::OwnRole {
            // In the order of PostgreSQL's checks.
            own.reverse();
        }
        for (role, who) in own {
            if role == Some(id) {
                return Err(invalid(format!("{who} user cannot be {how}"), Fault::Role(fault)));
            }
        }
        Ok(())
    }

    /// Refuses a session that may not change the members of `role`.
    fn check_admin(&self, rights: &Rights, role: u32) -> Result<()> {
        let actor = self.actor();
        if rights.is_superuser(actor) {
            return Ok(());
        }
        if rights.is_superuser(role) {
            return Err(refused("must be superuser to alter superuser roles"));
        }
        let reached = rights.reached(actor, true);
        let is_admin = |member: &u32| rights.membership(role, *member).is_some_and(|m| m.admin);
        if self.makes_roles(rights) || reached.iter().any(is_admin) {
            return Ok(());
        }
        let name = rights.name_of(role, self.client.first_name());
        Err(refused(&format!("must have admin option on role \"{name}\"")))
    }

    fn add_member(&self, rights: &mut Rights, role: u32, member: u32, admin: bool) -> Result<()> {
        self.check_admin(rights, role)?;
        if rights.is_member(role, member) {
            let first = self.client.first_name();
            let (role, member) = (rights.name_of(role, first), rights.name_of(member, first));
            let message = format!("role \"{role}\" is a member of role \"{member}\"");
            return Err(invalid(message, Fault::Role(RoleFault::Grant)));
        }
        let known = rights.membership(role, member);
        let admin = admin || known.is_some_and(|known| known.admin);
        let grantor = known.map_or(self.actor(), |known| known.grantor);
        rights.put_member(role, member, Some(Membership { grantor, admin }));
        Ok(())
    }

    fn remove_member(
        &self,
        rights: &mut Rights,
        role: u32,
        member: u32,
        only_admin: bool,
    ) -> Result<()> {
        self.check_admin(rights, role)?;
        // PostgreSQL warns if there is none, and continues.
        let known = rights.membership(role, member).filter(|_| only_admin);
        rights.put_member(role, member, known.map(|known| Membership { admin: false, ..known }));
        Ok(())
    }
}

/// Runs SET ROLE; None: NONE.
fn set_role(session: &mut Session, role: Option<&RoleName>, scope: Scope) -> Result<()> {
    let state = session.names();
    let rights = &state.rights;
    let session_role = session.settings.client.acting.session_role;
    let Some(role) = role else {
        return act_as(session, (session_role, None), scope);
    };
    let id = Actor::of(session).role_id(rights, role)?;
    let own = session_role.unwrap_or(FIRST);
    let name = rights.name_of(id, session.settings.client.first_name()).to_owned();
    if !rights.is_superuser(own) && !rights.is_member(own, id) {
        return Err(refused(&format!("permission denied to set role \"{name}\"")));
    }
    act_as(session, (Some(id), Some(name)), scope)
}

fn act_as(
    session: &mut Session,
    as_whom: (Option<u32>, Option<String>),
    scope: Scope,
) -> Result<()> {
    session.change_settings(scope, |settings| {
        let acting = &mut settings.client.acting;
        (acting.role, acting.current) = as_whom.clone();
        Ok(())
    })
}

/// Runs SET SESSION AUTHORIZATION; None: DEFAULT.
pub(super) fn set_session_role(
    session: &mut Session,
    role: Option<&RoleName>,
    scope: Scope,
) -> Result<()> {
    let state = session.names();
    let rights = &state.rights;
    let client = &session.settings.client;
    let (name, connected) = client.connected();
    let connected = (name.to_owned(), connected);
    let (name, id) = match role {
        None => connected.clone(),
        Some(role) => {
            let id = Actor::of(session).role_id(rights, role)?;
            let name = rights.name_of(id, client.first_name()).to_owned();
            (name, Some(id).filter(|id| *id != FIRST))
        }
    };
    if name != connected.0 && !rights.is_superuser(connected.1.unwrap_or(FIRST)) {
        return Err(refused("permission denied to set session authorization"));
    }
    let connected = Some(connected);
    let acting = Acting { role: id, current: None, session_role: id, connected };
    session.change_settings(scope, |settings| {
        settings.client.user.clone_from(&name);
        settings.client.acting = acting.clone();
        Ok(())
    })
}

impl Session {
    /// Makes the session that of `user`, with the rights of the role of this name.
    ///
    /// # Errors
    /// If there is no such role, or it may not connect.
    pub fn log_in(&mut self, user: &str) -> Result<()> {
        let state = self.names();
        let rights = &state.rights;
        let Some(role) = rights.role_named(user) else {
            let message = format!("role \"{user}\" does not exist");
            return Err(invalid(message, Fault::Role(RoleFault::Authorization)));
        };
        if !role.login {
            let message = format!("role \"{user}\" is not permitted to log in");
            return Err(invalid(message, Fault::Role(RoleFault::Authorization)));
        }
        if !rights.may(role.id, Object::Database, Privilege::Connect) {
            let database = &self.settings.client.database;
            return Err(refused(&format!("permission denied for database {database}")));
        }
        let role = Some(role.id);
        let client = &mut self.settings.client;
        user.clone_into(&mut client.user);
        client.acting = Acting { role, session_role: role, ..Acting::default() };
        Ok(())
    }

    /// Makes the session that of `user` with all rights: the server's operator decides this, and not the catalog.
    pub fn log_in_as_superuser(&mut self, user: &str) {
        let client = &mut self.settings.client;
        user.clone_into(&mut client.user);
        client.acting = Acting::default();
    }

    /// See [`Database::ask_for_passwords`](crate::database::Database::ask_for_passwords).
    pub(crate) async fn ask_for_passwords(&mut self) -> Result<()> {
        let mut definition =
            definitions::begin_definition(self, "CREATE ROLE", &[], &[RIGHTS]).await?;
        let mut rights = Rights::clone(&definition.edit.next.rights);
        ask_for_passwords(&mut rights)?;
        definition.edit.next.rights = rights.into();
        definitions::end_definition(self, definition).await
    }
}

/// The role whose rights count.
pub(super) fn actor(settings: &Settings) -> u32 {
    settings.client.acting.role.unwrap_or(FIRST)
}

fn ask_for_passwords(rights: &mut Rights) -> Result<()> {
    let asked = rights.ask_for_passwords();
    asked.map_err(|error| {
        Error::io("draw", Path::new("a secret of log-ins"), std::io::Error::other(error))
    })
}

/// Refuses to act as a role that was dropped since the session began: it has no rights any more.
pub(super) fn check_there(rights: &Rights, role: u32) -> Result<()> {
    match role == FIRST || rights.role(role).is_some() {
        true => Ok(()),
        false => {
            let message = format!("role with OID {role} was concurrently dropped");
            Err(invalid(message, Fault::Role(RoleFault::Gone)))
        }
    }
}

/// The verifier to store for `password`, which may be one already; None: it is empty, which no client can send.
fn verifier(password: &Password) -> Result<Option<Verifier>> {
    let text = password.0.as_str();
    if text.is_empty() {
        return Ok(None);
    }
    if let Some(verifier) = Verifier::read(text) {
        return Ok(Some(verifier));
    }
    if text.len() == 35 && text.starts_with("md5") {
        return Err(Error::Unsupported {
            what: "a password as MD5".to_owned(),
            hint: Some("give it as text, or as SCRAM-SHA-256$…".to_owned()),
            position: None,
        });
    }
    let verifier = Verifier::new(text);
    verifier.map(Some).map_err(|error| invalid(error.to_string(), Fault::Parameter))
}

fn unknown(rights: &Rights, name: &str) -> Error {
    Error::unknown(NameKind::Role, name, rights.roles().map(|role| role.name.as_str()))
}

/// A lack of rights.
pub(super) fn refused(message: &str) -> Error {
    invalid(message.to_owned(), Fault::Role(RoleFault::Rights))
}

pub(super) fn invalid(message: String, fault: Fault) -> Error {
    Error::Invalid { message, fault, position: None }
}
