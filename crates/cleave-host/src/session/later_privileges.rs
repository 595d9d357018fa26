//! ALTER DEFAULT PRIVILEGES: privileges granted on tables and sequences that are created later.
//!
//! The creator of an object grants these privileges as its owner, so each entry belongs to a role, and the statement
//! needs membership in that role. Entries for the schema add to those for all schemas, as in PostgreSQL, although there
//! is only one schema.
//!
//! Deliberately absent: revoking an owner's own privileges, which no statement can do.
//!
//! Source: PostgreSQL's manual, "ALTER DEFAULT PRIVILEGES".

use cleave_catalog::catalog::rights::{GrantItem, Later, ObjectKind, Privileges, Rights};
use cleave_catalog::error::{Fault, Result, RoleFault};
use cleave_sql::statement::roles::{Grant, GrantedOn, RoleName};

use super::roles::{Actor, invalid, refused};

impl Actor<'_> {
    /// Runs ALTER DEFAULT PRIVILEGES.
    pub(super) fn grant_later(
        &self,
        rights: &mut Rights,
        (roles, in_schema): (&[RoleName], bool),
        grant: &Grant,
    ) -> Result<()> {
        let actor = self.actor();
        let is_sequence = grant.on == GrantedOn::AllSequences;
        let privileges = privileges(grant, is_sequence)?;
        let grantees = self.grantees(rights, grant)?;
        let roles = match roles {
            [] => vec![actor],
            roles => {
                roles.iter().map(|role| self.role_id(rights, role)).collect::<Result<Vec<_>>>()?
            }
        };
        for role in roles {
            if !rights.is_superuser(actor) && !rights.is_member(actor, role) {
                let name = rights.name_of(role, self.client.first_name());
                return Err(refused(&format!("must be member of role \"{name}\"")));
            }
            let of = Later { role, is_sequence, in_schema };
            let mut items = items_of(rights, of);
            for grantee in grantees.iter().copied().filter(|grantee| *grantee != role) {
                change(&mut items, (role, grantee), privileges, grant);
            }
            items.retain(|item| !item.privileges.is_empty());
            rights.put_later(of, items);
        }
        Ok(())
    }
}

fn items_of(rights: &Rights, of: Later) -> Vec<GrantItem> {
    let known = rights.later().find(|(known, _)| *known == of);
    known.map(|(_, items)| items.to_vec()).unwrap_or_default()
}

fn change(
    items: &mut Vec<GrantItem>,
    (grantor, grantee): (u32, u32),
    privileges: Privileges,
    grant: &Grant,
) {
    let known = items.iter_mut().find(|item| item.grantee == grantee);
    let options = if grant.option { privileges } else { Privileges::default() };
    match (known, grant.revokes) {
        (Some(item), true) => {
            item.options = item.options.without(privileges);
            if !grant.option {
                item.privileges = item.privileges.without(privileges);
            }
        }
        (None, true) => {}
        (Some(item), false) => {
            item.privileges = item.privileges.or(privileges);
            item.options = item.options.or(options);
        }
        (None, false) => {
            items.push(GrantItem { grantee, grantor, column: 0, privileges, options });
        }
    }
}

fn privileges(grant: &Grant, is_sequence: bool) -> Result<Privileges> {
    let kind = if is_sequence { ObjectKind::Sequence } else { ObjectKind::Table };
    let Some(listed) = &grant.privileges else { return Ok(kind.privileges()) };
    let fault = Fault::Role(RoleFault::Grant);
    let mut all = Privileges::default();
    for (privilege, columns) in listed {
        if !columns.is_empty() {
            let message = "default privileges cannot be set for columns".to_owned();
            return Err(invalid(message, fault));
        }
        if !kind.privileges().has(*privilege) {
            let name = if is_sequence { "sequence" } else { "relation" };
            let message = format!("invalid privilege type {} for {name}", privilege.name());
            return Err(invalid(message, fault));
        }
        all = all.or(Privileges::of(&[*privilege]));
    }
    Ok(all)
}

/// The entries that depend on the role `id`.
pub(super) fn needs_of(rights: &Rights, id: u32) -> Vec<String> {
    let mut needs = Vec::new();
    for (of, items) in rights.later() {
        let kind = if of.is_sequence { "sequences" } else { "relations" };
        if of.role == id {
            needs.push(format!("owner of default privileges on new {kind}"));
        }
        if items.iter().any(|item| item.grantee == id) {
            needs.push(format!("default privileges on new {kind}"));
        }
    }
    needs
}

/// Removes the default privileges that the role `id` grants or is granted.
pub(super) fn drop_of(rights: &mut Rights, id: u32) {
    let known: Vec<(Later, Vec<GrantItem>)> =
        rights.later().map(|(of, items)| (of, items.to_vec())).collect();
    for (of, mut items) in known {
        items.retain(|item| of.role != id && item.grantee != id);
        rights.put_later(of, items);
    }
}
