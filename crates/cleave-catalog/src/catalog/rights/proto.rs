//! The messages of roles and rights in a manifest.

use std::collections::BTreeMap;

/// Roles, memberships, owners and grants.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Rights {
    /// The number of the next role.
    #[prost(uint32, tag = "1")]
    pub next_role: u32,
    /// Roles.
    #[prost(message, repeated, tag = "2")]
    pub roles: Vec<Role>,
    /// Memberships.
    #[prost(message, repeated, tag = "3")]
    pub members: Vec<Member>,
    /// Owners, except those of the first role's objects.
    #[prost(message, repeated, tag = "4")]
    pub owners: Vec<Owner>,
    /// Grants.
    #[prost(message, repeated, tag = "5")]
    pub grants: Vec<Grants>,
    /// Default privileges for objects that are created later.
    #[prost(message, repeated, tag = "6")]
    pub later: Vec<Later>,
    /// The secret of log-ins: 32 bytes once a password existed, empty before; absent: written by an earlier build
    /// without this field.
    #[prost(bytes = "vec", optional, tag = "7")]
    pub login_secret: Option<Vec<u8>>,
}

/// A role.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Role {
    /// Number.
    #[prost(uint32, tag = "1")]
    pub id: u32,
    /// Name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// SUPERUSER 1, INHERIT 2, CREATEROLE 4, CREATEDB 8, LOGIN 16.
    #[prost(uint32, tag = "3")]
    pub flags: u32,
    /// Most connections; -1: no limit.
    #[prost(sint32, tag = "4")]
    pub connection_limit: i32,
    /// The data with which a server checks its password.
    #[prost(string, optional, tag = "5")]
    pub verifier: Option<String>,
    /// Expiry of the password, in microseconds since 1970.
    #[prost(sint64, optional, tag = "6")]
    pub valid_until_us: Option<i64>,
    /// The settings that its sessions begin with.
    #[prost(btree_map = "string, string", tag = "7")]
    pub settings: BTreeMap<String, String>,
}

/// A membership.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Member {
    /// The role.
    #[prost(uint32, tag = "1")]
    pub role: u32,
    /// The member.
    #[prost(uint32, tag = "2")]
    pub member: u32,
    /// The role that granted it.
    #[prost(uint32, tag = "3")]
    pub grantor: u32,
    /// The member may grant it to others.
    #[prost(bool, tag = "4")]
    pub admin: bool,
}

/// An owner.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Owner {
    /// Number of the table, view or sequence.
    #[prost(uint32, tag = "1")]
    pub object: u32,
    /// The role.
    #[prost(uint32, tag = "2")]
    pub role: u32,
}

/// Grants on one object.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Grants {
    /// A table, view or sequence: 0; the schema: 1; the database: 2.
    #[prost(uint32, tag = "1")]
    pub kind: u32,
    /// Its number.
    #[prost(uint32, tag = "2")]
    pub object: u32,
    /// The grants.
    #[prost(message, repeated, tag = "3")]
    pub grants: Vec<Grant>,
}

/// Default privileges for objects that are created later.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Later {
    /// The role that creates the objects.
    #[prost(uint32, tag = "1")]
    pub role: u32,
    /// Tables and views: 0; sequences: 1.
    #[prost(uint32, tag = "2")]
    pub kind: u32,
    /// They apply to the schema.
    #[prost(bool, tag = "3")]
    pub in_schema: bool,
    /// The grants.
    #[prost(message, repeated, tag = "4")]
    pub grants: Vec<Grant>,
}

/// One grant.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Grant {
    /// The grantee; 0: everyone.
    #[prost(uint32, tag = "1")]
    pub grantee: u32,
    /// The role that granted it.
    #[prost(uint32, tag = "2")]
    pub grantor: u32,
    /// Number of the column; 0: all of it.
    #[prost(uint32, tag = "3")]
    pub column: u32,
    /// The privileges, as bits of `Privileges`.
    #[prost(uint32, tag = "4")]
    pub privileges: u32,
    /// Those of them that the grantee may grant to others.
    #[prost(uint32, tag = "5")]
    pub options: u32,
}
