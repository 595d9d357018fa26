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
        /// What is said of it.
        options: RoleOptions,
    },
    /// ALTER ROLE, USER, GROUP.
    Alter {
        /// The role.
        role: RoleName,
        /// What is said of it.
        options: RoleOptions,
    },
    /// ALTER ROLE … RENAME TO.
    Rename {
        /// The role.
        role: RoleName,
        /// What it shall be called.
        to: String,
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
        /// What is given.
        roles: Vec<RoleName>,
        /// Who gets it.
        members: Vec<RoleName>,
        /// WITH ADMIN OPTION, ADMIN OPTION FOR.
        admin: bool,
    },
    /// GRANT privileges ON objects TO roles, REVOKE … FROM.
    Grant(Grant),
    /// ALTER DEFAULT PRIVILEGES.
    Later {
        /// Who makes what the grant is on; none: who says it.
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
        /// How long it holds.
        scope: Scope,
    },
    /// SET SESSION AUTHORIZATION, RESET SESSION AUTHORIZATION.
    SetSession {
        /// The role; None: DEFAULT.
        role: Option<RoleName>,
        /// It was a RESET.
        resets: bool,
        /// How long it holds.
        scope: Scope,
    },
    /// ALTER TABLE, VIEW, SEQUENCE, SCHEMA … OWNER TO.
    Owner {
        /// What it is said to be: `TABLE`, `VIEW`, `SEQUENCE` or `SCHEMA`.
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
        /// Whose things.
        from: Vec<RoleName>,
        /// Who gets them.
        to: RoleName,
    },
    /// DROP OWNED.
    DropOwned {
        /// Whose things.
        roles: Vec<RoleName>,
        /// What needs them goes too.
        cascade: bool,
    },
}

/// GRANT or REVOKE of privileges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// REVOKE.
    pub revokes: bool,
    /// The privileges, each with the columns that it is about (none: the whole); None: ALL.
    pub privileges: Option<Vec<(Privilege, Vec<String>)>>,
    /// On what.
    pub on: GrantedOn,
    /// To or from whom.
    pub grantees: Vec<RoleName>,
    /// WITH GRANT OPTION, GRANT OPTION FOR.
    pub option: bool,
    /// What others have given because of it goes too.
    pub cascade: bool,
}

/// What privileges are on.
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

/// How a statement calls a role.
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

/// What CREATE and ALTER ROLE say; None: nothing.
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
    /// ADMIN: these too, and may pass it on.
    pub admins: Vec<RoleName>,
}

/// A password as a statement has it, which is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(pub String);

impl fmt::Debug for Password {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Password(…)")
    }
}
