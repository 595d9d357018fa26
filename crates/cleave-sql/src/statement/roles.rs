//! Statements about roles and rights, as [`parse`](super::parse) reads them.
//!
//! Source: PostgreSQL's manual, "CREATE ROLE", "GRANT", "REVOKE", "ALTER DEFAULT PRIVILEGES", "SET ROLE", "REASSIGN
//! OWNED", "DROP OWNED".

use std::fmt;

use cleave_catalog::catalog::rights::Privilege;

use crate::statement::parse::Scope;

/// A statement about roles, rights and owners.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RoleStatement {
    /// CREATE ROLE, USER, GROUP.
    Create {
        /// Its name.
        name: String,
        /// Its options.
        options: RoleOptions,
    },
    /// ALTER ROLE, USER, GROUP.
    Alter {
        /// The role.
        role: RoleName,
        /// The options to change.
        options: RoleOptions,
    },
    /// ALTER ROLE … RENAME TO.
    Rename {
        /// The role.
        role: RoleName,
        /// The new name.
        to: String,
    },
    /// ALTER ROLE … SET, ALTER ROLE … RESET.
    Settings {
        /// The role.
        role: RoleName,
        /// The setting, as written; None: all of them.
        name: Option<String>,
        /// Its value for sessions that begin; None: the default.
        value: Option<String>,
    },
    /// DROP ROLE, USER, GROUP.
    Drop {
        /// One that does not exist is no error.
        if_exists: bool,
        /// The roles.
        roles: Vec<RoleName>,
    },
    /// GRANT role TO role, REVOKE role FROM role.
    Membership {
        /// REVOKE.
        revokes: bool,
        /// The granted roles.
        roles: Vec<RoleName>,
        /// The members.
        members: Vec<RoleName>,
        /// WITH ADMIN OPTION, ADMIN OPTION FOR.
        admin: bool,
    },
    /// GRANT privileges ON objects TO roles, REVOKE … FROM.
    Grant(Grant),
    /// ALTER DEFAULT PRIVILEGES.
    Later {
        /// FOR ROLE: the creators of the objects; none: the current role.
        roles: Vec<RoleName>,
        /// IN SCHEMA.
        in_schema: bool,
        /// On all tables, or all sequences.
        grant: Grant,
    },
    /// SET ROLE, RESET ROLE.
    SetRole {
        /// The role; None: NONE.
        role: Option<RoleName>,
        /// It was a RESET.
        resets: bool,
        /// SET or SET LOCAL.
        scope: Scope,
    },
    /// SET SESSION AUTHORIZATION, RESET SESSION AUTHORIZATION.
    SetSession {
        /// The role; None: DEFAULT.
        role: Option<RoleName>,
        /// It was a RESET.
        resets: bool,
        /// SET or SET LOCAL.
        scope: Scope,
    },
    /// ALTER TABLE, VIEW, SEQUENCE, SCHEMA … OWNER TO.
    Owner {
        /// The written kind: `TABLE`, `VIEW`, `SEQUENCE` or `SCHEMA`.
        kind: &'static str,
        /// One that does not exist is no error.
        if_exists: bool,
        /// Its name.
        name: String,
        /// The new owner.
        to: RoleName,
    },
    /// REASSIGN OWNED.
    Reassign {
        /// The old owners.
        from: Vec<RoleName>,
        /// The new owner.
        to: RoleName,
    },
    /// DROP OWNED.
    DropOwned {
        /// The owners.
        roles: Vec<RoleName>,
        /// CASCADE: dependent objects are dropped too.
        cascade: bool,
    },
}

/// GRANT or REVOKE of privileges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// REVOKE.
    pub revokes: bool,
    /// The privileges, each with its columns (none: the whole object); None: ALL.
    pub privileges: Option<Vec<(Privilege, Vec<String>)>>,
    /// The objects.
    pub on: GrantedOn,
    /// To or from whom.
    pub grantees: Vec<RoleName>,
    /// WITH GRANT OPTION, GRANT OPTION FOR.
    pub option: bool,
    /// CASCADE: grants that depend on these are revoked too.
    pub cascade: bool,
}

/// Objects of privileges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GrantedOn {
    /// Tables and views, or sequences called by TABLE.
    Tables(Vec<String>),
    /// All tables and views.
    AllTables,
    /// Sequences.
    Sequences(Vec<String>),
    /// All sequences.
    AllSequences,
    /// The schema.
    Schema,
    /// The database, as called.
    Database(Vec<String>),
}

/// A role as a statement names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RoleName {
    /// By its name.
    Named(String),
    /// CURRENT_USER, CURRENT_ROLE.
    Current,
    /// SESSION_USER.
    Session,
    /// PUBLIC: everyone.
    Public,
}

/// Options of CREATE and ALTER ROLE; None: not given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RoleOptions {
    /// SUPERUSER.
    pub superuser: Option<bool>,
    /// CREATEDB.
    pub create_db: Option<bool>,
    /// CREATEROLE.
    pub create_role: Option<bool>,
    /// INHERIT.
    pub inherit: Option<bool>,
    /// LOGIN.
    pub login: Option<bool>,
    /// CONNECTION LIMIT; -1: none.
    pub connection_limit: Option<i32>,
    /// PASSWORD; None within: NULL.
    pub password: Option<Option<Password>>,
    /// VALID UNTIL, in microseconds since 1970; None within: for ever.
    pub valid_until_us: Option<Option<i64>>,
    /// IN ROLE: roles that it becomes a member of.
    pub in_roles: Vec<RoleName>,
    /// ROLE: roles that become members of it.
    pub members: Vec<RoleName>,
    /// ADMIN: these too, with the admin option.
    pub admins: Vec<RoleName>,
}

/// A password in a statement, which is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(pub String);

impl fmt::Debug for Password {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Password(…)")
    }
}
