//! Converts rights to their manifest message, and back.

use super::{FIRST_MADE, GrantItem, Later, Membership, Object, Privileges, Rights, Role, proto};
use crate::login_secret::LoginSecret;
use crate::password::Verifier;

const SUPERUSER: u32 = 1;
const INHERIT: u32 = 2;
const CREATE_ROLE: u32 = 4;
const CREATE_DB: u32 = 8;
const LOGIN: u32 = 16;

impl Rights {
    /// The message for a manifest; None: only defaults.
    pub fn encode(&self) -> Option<proto::Rights> {
        if *self == Self::default() {
            return None;
        }
        let members = self.memberships().map(|(role, member, how)| proto::Member {
            role,
            member,
            grantor: how.grantor,
            admin: how.admin,
        });
        let owners = self.owners.iter();
        let owners = owners.map(|(object, role)| proto::Owner { object: *object, role: *role });
        Some(proto::Rights {
            next_role: self.next_role,
            roles: self.roles.values().map(encode_role).collect(),
            members: members.collect(),
            owners: owners.collect(),
            grants: self.grants.iter().map(encode_grants).collect(),
            later: self.later().map(encode_later).collect(),
            login_secret: Some(
                self.login_secret.as_ref().map_or_else(Vec::new, |secret| secret.bytes().to_vec()),
            ),
        })
    }

    /// Reads the message of a manifest.
    ///
    /// # Errors
    /// What is invalid in it.
    pub fn decode(message: Option<proto::Rights>) -> Result<Self, String> {
        let Some(message) = message else { return Ok(Self::default()) };
        let mut rights = Self { next_role: message.next_role.max(FIRST_MADE), ..Self::default() };
        for role in message.roles {
            let role = decode_role(role)?;
            if rights.role_named(&role.name).is_some() || role.id >= rights.next_role {
                return Err(format!("role \"{}\" is there twice", role.name));
            }
            rights.put_role(role);
        }
        for member in message.members {
            let how = Membership { grantor: member.grantor, admin: member.admin };
            rights.put_member(member.role, member.member, Some(how));
        }
        for owner in message.owners {
            rights.put_owner(owner.object, owner.role);
        }
        for grants in message.grants {
            let object = match grants.kind {
                0 => Object::Relation(grants.object),
                1 => Object::Schema,
                2 => Object::Database,
                kind => return Err(format!("rights on a thing of kind {kind}")),
            };
            rights.grants.insert(object, decode_items(grants.grants));
        }
        for later in message.later {
            let is_sequence = match later.kind {
                0 => false,
                1 => true,
                kind => return Err(format!("rights on later things of kind {kind}")),
            };
            let of = Later { role: later.role, is_sequence, in_schema: later.in_schema };
            rights.put_later(of, decode_items(later.grants));
        }
        match message.login_secret {
            Some(bytes) if bytes.is_empty() => {}
            Some(bytes) => {
                let secret = LoginSecret::read(&bytes).ok_or("the secret of log-ins")?;
                rights.login_secret = Some(secret);
            }
            // An earlier build forgot removed passwords: if there ever was a role, one may have had one.
            None if rights.next_role > FIRST_MADE => {
                rights.ask_for_passwords().map_err(|error| error.to_string())?;
            }
            None => {}
        }
        Ok(rights)
    }
}

fn encode_role(role: &Role) -> proto::Role {
    let flags = [
        (role.superuser, SUPERUSER),
        (role.inherit, INHERIT),
        (role.create_role, CREATE_ROLE),
        (role.create_db, CREATE_DB),
        (role.login, LOGIN),
    ];
    proto::Role {
        id: role.id,
        name: role.name.clone(),
        flags: flags.into_iter().filter(|(set, _)| *set).map(|(_, flag)| flag).sum(),
        connection_limit: role.connection_limit,
        verifier: role.verifier.as_ref().map(Verifier::text),
        valid_until_us: role.valid_until_us,
        settings: role.settings.clone(),
    }
}

fn decode_role(role: proto::Role) -> Result<Role, String> {
    let verifier = match role.verifier {
        None => None,
        Some(text) => match Verifier::read(&text) {
            Some(verifier) => Some(verifier),
            None => return Err(format!("the password of role \"{}\"", role.name)),
        },
    };
    let is = |flag| role.flags & flag != 0;
    Ok(Role {
        id: role.id,
        superuser: is(SUPERUSER),
        inherit: is(INHERIT),
        create_role: is(CREATE_ROLE),
        create_db: is(CREATE_DB),
        login: is(LOGIN),
        connection_limit: role.connection_limit,
        verifier,
        valid_until_us: role.valid_until_us,
        settings: role.settings,
        name: role.name,
    })
}

fn encode_grants((object, items): (&Object, &Vec<GrantItem>)) -> proto::Grants {
    let (kind, object) = match object {
        Object::Relation(id) => (0, *id),
        Object::Schema => (1, 0),
        Object::Database => (2, 0),
    };
    proto::Grants { kind, object, grants: encode_items(items) }
}

fn encode_later((of, items): (Later, &[GrantItem])) -> proto::Later {
    let Later { role, is_sequence, in_schema } = of;
    proto::Later { role, kind: u32::from(is_sequence), in_schema, grants: encode_items(items) }
}

fn encode_items(items: &[GrantItem]) -> Vec<proto::Grant> {
    let item = |item: &GrantItem| proto::Grant {
        grantee: item.grantee,
        grantor: item.grantor,
        column: item.column,
        privileges: item.privileges.0,
        options: item.options.0,
    };
    items.iter().map(item).collect()
}

fn decode_items(grants: Vec<proto::Grant>) -> Vec<GrantItem> {
    let item = |grant: proto::Grant| GrantItem {
        grantee: grant.grantee,
        grantor: grant.grantor,
        column: grant.column,
        privileges: Privileges(grant.privileges),
        options: Privileges(grant.options),
    };
    grants.into_iter().map(item).collect()
}
