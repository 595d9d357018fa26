//! Rights: roles inherit, and a manifest returns what was written.

use super::*;

fn role(rights: &mut Rights, name: &str, inherit: bool) -> u32 {
    let id = rights.new_role();
    rights.put_role(Role {
        id,
        name: name.to_owned(),
        superuser: false,
        inherit,
        create_role: false,
        create_db: false,
        login: true,
        connection_limit: -1,
        verifier: Some(Verifier::new("pencil").unwrap()),
        valid_until_us: None,
        settings: BTreeMap::from([("split".to_owned(), "h0".to_owned())]),
    });
    id
}

fn grant(rights: &mut Rights, object: Object, grantee: u32, privilege: Privilege, column: u32) {
    rights.grants_mut(object).push(GrantItem {
        grantee,
        grantor: FIRST,
        column,
        privileges: Privileges::of(&[privilege]),
        options: Privileges::default(),
    });
}

#[test]
fn rights_come_by_membership_ownership_and_public() {
    let mut rights = Rights::default();
    let (ada, staff, all) = {
        let ada = role(&mut rights, "ada", true);
        let staff = role(&mut rights, "staff", true);
        (ada, staff, role(&mut rights, "all", true))
    };
    let stranger = role(&mut rights, "stranger", false);
    let how = Membership { grantor: FIRST, admin: false };
    rights.put_member(staff, ada, Some(how));
    rights.put_member(all, staff, Some(how));
    rights.put_member(staff, stranger, Some(how));
    let table = Object::Relation(1);
    grant(&mut rights, table, all, Privilege::Select, 0);
    assert!(rights.may(ada, table, Privilege::Select));
    assert!(!rights.may(ada, table, Privilege::Insert));
    // It is a member, and has none of its rights before SET ROLE.
    assert!(!rights.may(stranger, table, Privilege::Select));
    assert!(rights.is_member(stranger, all));
    rights.put_owner(1, staff);
    assert!(rights.may(ada, table, Privilege::Insert));
    let column = Object::Relation(2);
    grant(&mut rights, column, PUBLIC, Privilege::Update, 3);
    assert!(!rights.may(stranger, column, Privilege::Update));
    assert!(rights.may_column(stranger, column, Privilege::Update, 3));
    assert!(!rights.may_column(stranger, column, Privilege::Update, 4));
    assert!(rights.may(stranger, Object::Schema, Privilege::Usage));
    assert!(!rights.may(stranger, Object::Schema, Privilege::Create));
    assert!(rights.may(FIRST, Object::Schema, Privilege::Create));
    rights.drop_role(all);
    assert!(!rights.is_member(ada, all));
}

#[test]
fn rights_come_back_from_their_message() {
    let mut rights = Rights::default();
    assert_eq!(rights.encode(), None);
    let ada = role(&mut rights, "ada", true);
    let bob = role(&mut rights, "bob", false);
    rights.put_member(ada, bob, Some(Membership { grantor: FIRST, admin: true }));
    rights.put_owner(7, bob);
    grant(&mut rights, Object::Relation(8), ada, Privilege::Delete, 0);
    grant(&mut rights, Object::Schema, bob, Privilege::Create, 0);
    let message = rights.encode();
    assert_eq!(Rights::decode(message.clone()).unwrap(), rights);
    // An earlier build did not store whether passwords had existed: if there were roles, one may have had one.
    let mut earlier = message.clone().unwrap();
    assert_eq!(earlier.login_secret, Some(Vec::new()));
    earlier.login_secret = None;
    assert!(Rights::decode(Some(earlier.clone())).unwrap().login_secret().is_some());
    (earlier.next_role, earlier.roles, earlier.members) = (0, Vec::new(), Vec::new());
    assert!(Rights::decode(Some(earlier)).unwrap().login_secret().is_none());
    rights.ask_for_passwords().unwrap();
    assert_eq!(Rights::decode(rights.encode()).unwrap(), rights);
    let mut twice = message.unwrap();
    twice.roles.push(twice.roles[0].clone());
    assert!(Rights::decode(Some(twice)).unwrap_err().contains("ada"));
}

#[test]
fn changes_of_two_blocks_are_both_kept() {
    let base = Arc::new(Rights::default());
    let change = |name: &str, object: u32| {
        let mut next = Rights::clone(&base);
        let id = role(&mut next, name, true);
        next.put_owner(object, id);
        let mut change = RightsChange::default();
        change.note(&base, &Arc::new(next));
        (change, id)
    };
    let (owner, id) = change("ada", 1);
    let mut grants = Rights::clone(&base);
    grant(&mut grants, Object::Relation(2), PUBLIC, Privilege::Select, 0);
    let mut other = RightsChange::default();
    other.note(&base, &Arc::new(grants));
    let mut rights = Arc::clone(&base);
    owner.put_into(&mut rights);
    other.put_into(&mut rights);
    assert_eq!(rights.owner(Object::Relation(1)), id);
    assert!(rights.may(id, Object::Relation(2), Privilege::Select));
    let without = owner.without(|id| id == 1);
    let mut rights = base;
    without.put_into(&mut rights);
    assert_eq!(rights.owner(Object::Relation(1)), FIRST);
}
