//! Statements about roles and rights, token by token: the crate reads few of them as PostgreSQL does.
//!
//! Invariant: no error shows a string of theirs, which may be a password.

use cleave_catalog::catalog::rights::Privilege;
use cleave_catalog::error::{Error, Fault, Result, RoleFault};
use cleave_catalog::value::parse::timestamp_tz;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::{Reader, Scope, Statement};
use crate::statement::names::{SCHEMA, fold, table_name};
use crate::statement::roles::{Grant, GrantedOn, Password, RoleName, RoleOptions, RoleStatement};

/// Bytes of a role's name, as PostgreSQL has it.
const NAME_BYTES_MAX: usize = 63;

impl Reader<'_> {
    /// A statement about roles, rights or owners that begins with `word`, if it is one.
    pub(super) fn role_statement(&mut self, word: &str) -> Result<Option<Statement>> {
        let second = self.word_at(1);
        let is_role = |word: &str| matches!(word, "role" | "user" | "group");
        let is_about_roles = match word {
            "create" | "drop" | "alter" if is_role(&second) => true,
            "grant" | "revoke" | "reassign" => true,
            "drop" => second == "owned",
            "alter" => second == "default" && self.word_at(2) == "privileges" || self.is_owner(),
            "set" | "reset" => self.is_set_role(&second),
            _ => false,
        };
        if !is_about_roles {
            return Ok(None);
        }
        let read = self.read_role_statement(word).map_err(without_strings)?;
        Ok(Some(Statement::Role(Box::new(read))))
    }

    fn read_role_statement(&mut self, word: &str) -> Result<RoleStatement> {
        self.parser.advance_token();
        match word {
            "create" => {
                let is_user = self.word_at(0) == "user";
                self.parser.advance_token();
                if self.word_at(0) == "mapping" {
                    return Err(Error::unsupported("CREATE USER MAPPING"));
                }
                let name = self.new_role_name()?;
                let mut options = self.role_options()?;
                options.login = options.login.or(is_user.then_some(true));
                Ok(RoleStatement::Create { name, options })
            }
            "alter" => self.alter_role(),
            "drop" if self.take("owned") => {
                self.must_take("by")?;
                let roles = self.role_names()?;
                let cascade = self.cascade();
                Ok(RoleStatement::DropOwned { roles, cascade })
            }
            "drop" => {
                self.parser.advance_token();
                let if_exists = self.if_exists()?;
                Ok(RoleStatement::Drop { if_exists, roles: self.role_names()? })
            }
            "reassign" => {
                self.must_take("owned")?;
                self.must_take("by")?;
                let from = self.role_names()?;
                self.must_take("to")?;
                Ok(RoleStatement::Reassign { from, to: self.role_name()? })
            }
            "set" | "reset" => self.set_role(word == "reset"),
            _ => self.grant(word == "revoke", Self::granted_on),
        }
    }

    /// The unquoted word `place` tokens ahead, in lower case; empty: there is none.
    pub(super) fn word_at(&self, place: usize) -> String {
        match self.parser.peek_nth_token(place).token {
            Token::Word(word) if word.quote_style.is_none() => word.value.to_ascii_lowercase(),
            _ => String::new(),
        }
    }

    /// Whether the statement is ALTER … name OWNER TO.
    fn is_owner(&self) -> bool {
        let known = ["table", "view", "sequence", "schema", "database", "index"];
        if !known.contains(&self.word_at(1).as_str()) {
            return false;
        }
        (2..12).any(|place| self.word_at(place) == "owner" && self.word_at(place + 1) == "to")
            && !(2..12).any(|place| {
                matches!(self.parser.peek_nth_token(place).token, Token::Comma | Token::LParen)
            })
    }

    fn is_set_role(&self, second: &str) -> bool {
        let place = usize::from(matches!(second, "session" | "local"));
        let word = self.word_at(1 + place);
        word == "role"
            || second == "session" && word == "authorization"
            || place == 1 && self.word_at(2) == "session" && self.word_at(3) == "authorization"
    }

    pub(super) fn must_take(&mut self, word: &str) -> Result<()> {
        match self.take(word) {
            true => Ok(()),
            false => Err(self.expected(&word.to_uppercase())),
        }
    }

    pub(super) fn if_exists(&mut self) -> Result<bool> {
        let found = self.take("if");
        if found {
            self.must_take("exists")?;
        }
        Ok(found)
    }

    pub(super) fn cascade(&mut self) -> bool {
        self.take("cascade") || {
            let _ = self.take("restrict");
            false
        }
    }

    fn alter_role(&mut self) -> Result<RoleStatement> {
        let kind = self.word_at(0);
        self.parser.advance_token();
        let kind = match kind.as_str() {
            "default" => return self.default_privileges(),
            "table" => "TABLE",
            "view" => "VIEW",
            "sequence" => "SEQUENCE",
            "schema" => "SCHEMA",
            "database" | "index" => {
                let what = format!("ALTER {} ... OWNER TO", kind.to_uppercase());
                return Err(Error::unsupported(what));
            }
            _ => {
                if self.take("all") {
                    return Err(Error::unsupported("ALTER ROLE ALL"));
                }
                let role = self.role_name()?;
                if self.take("rename") {
                    self.must_take("to")?;
                    return Ok(RoleStatement::Rename { role, to: self.new_role_name()? });
                }
                // There is one database.
                if self.take("in") {
                    self.must_take("database")?;
                    self.parser.parse_identifier().map_err(|error| self.syntax(error))?;
                }
                let setting = match self.word_at(0).as_str() {
                    "set" => Some(self.set()?),
                    "reset" => Some(self.reset()?),
                    _ => None,
                };
                match setting {
                    Some(Statement::Set { name, value, scope: Scope::Session }) => {
                        return Ok(RoleStatement::Settings { role, name: Some(name), value });
                    }
                    Some(Statement::ResetAll) => {
                        return Ok(RoleStatement::Settings { role, name: None, value: None });
                    }
                    Some(_) => return Err(Error::unsupported("ALTER ROLE ... SET of this kind")),
                    None => {}
                }
                for (word, revokes) in [("add", false), ("drop", true)] {
                    if kind == "group" && self.take(word) {
                        self.must_take("user")?;
                        let members = self.role_names()?;
                        let roles = vec![role];
                        return Ok(RoleStatement::Membership {
                            revokes,
                            roles,
                            members,
                            admin: false,
                        });
                    }
                }
                let options = self.role_options()?;
                return Ok(RoleStatement::Alter { role, options });
            }
        };
        let if_exists = self.if_exists()?;
        let _ = self.take("only");
        let name = self.parser.parse_object_name(false).map_err(|error| self.syntax(error))?;
        let name = table_name(&name)?;
        self.must_take("owner")?;
        self.must_take("to")?;
        Ok(RoleStatement::Owner { kind, if_exists, name, to: self.role_name()? })
    }

    fn set_role(&mut self, resets: bool) -> Result<RoleStatement> {
        let scope = match self.take("local") {
            true => Scope::Transaction,
            false => Scope::Session,
        };
        // SET SESSION SESSION AUTHORIZATION is one, too.
        let _ = self.take("session");
        let _ = self.take("session");
        if self.take("authorization") {
            let role = match resets || self.take("default") {
                true => None,
                false => Some(self.role_or_string()?),
            };
            return Ok(RoleStatement::SetSession { role, resets, scope });
        }
        self.must_take("role")?;
        if !resets {
            let _ = self.parser.consume_token(&Token::Eq) || self.take("to");
        }
        let role = match resets || self.take("none") || self.take("default") {
            true => None,
            false => Some(self.role_or_string()?),
        };
        Ok(RoleStatement::SetRole { role, resets, scope })
    }

    /// A role, also in single quotes.
    fn role_or_string(&mut self) -> Result<RoleName> {
        match self.parser.peek_token().token {
            Token::SingleQuotedString(name) => {
                self.parser.advance_token();
                Ok(RoleName::Named(name))
            }
            _ => self.role_name(),
        }
    }

    fn role_names(&mut self) -> Result<Vec<RoleName>> {
        let mut names = vec![self.role_name()?];
        while self.parser.consume_token(&Token::Comma) {
            names.push(self.role_name()?);
        }
        Ok(names)
    }

    pub(super) fn role_name(&mut self) -> Result<RoleName> {
        let known = match self.word_at(0).as_str() {
            "current_user" | "current_role" => Some(RoleName::Current),
            "session_user" => Some(RoleName::Session),
            "public" => Some(RoleName::Public),
            _ => None,
        };
        if let Some(known) = known {
            self.parser.advance_token();
            return Ok(known);
        }
        if !matches!(self.parser.peek_token().token, Token::Word(_)) {
            return Err(self.expected("the name of a role"));
        }
        let name = self.parser.parse_identifier().map_err(|error| self.syntax(error))?;
        match fold(&name).as_str() {
            "public" => Ok(RoleName::Public),
            name => Ok(RoleName::Named(name.to_owned())),
        }
    }

    fn new_role_name(&mut self) -> Result<String> {
        match self.role_name()? {
            RoleName::Named(name) if name == "none" || name.starts_with("pg_") => Err(refused(
                format!("role name \"{name}\" is reserved"),
                Fault::Role(RoleFault::ReservedName),
            )),
            RoleName::Named(name) if name.is_empty() || name.len() > NAME_BYTES_MAX => {
                let message = format!("a role's name has 1 to {NAME_BYTES_MAX} bytes");
                Err(refused(message, Fault::TooLong))
            }
            RoleName::Named(name) => Ok(name),
            _ => Err(refused(
                "this role name is reserved for built-in roles".to_owned(),
                Fault::Role(RoleFault::ReservedName),
            )),
        }
    }

    fn role_options(&mut self) -> Result<RoleOptions> {
        let mut options = RoleOptions::default();
        let _ = self.take("with");
        while !matches!(self.parser.peek_token().token, Token::EOF | Token::SemiColon) {
            self.role_option(&mut options)?;
        }
        Ok(options)
    }

    fn role_option(&mut self, options: &mut RoleOptions) -> Result<()> {
        let word = self.word_at(0);
        if word.is_empty() {
            return Err(self.expected("an option of a role"));
        }
        self.parser.advance_token();
        let (flag, value) = match word.strip_prefix("no") {
            Some(flag) if !word.starts_with("none") => (flag, false),
            _ => (word.as_str(), true),
        };
        let place = match flag {
            "superuser" => Some(&mut options.superuser),
            "createdb" => Some(&mut options.create_db),
            "createrole" => Some(&mut options.create_role),
            "inherit" => Some(&mut options.inherit),
            "login" => Some(&mut options.login),
            _ => None,
        };
        if let Some(place) = place {
            if place.replace(value).is_some() {
                let message = "conflicting or redundant options".to_owned();
                return Err(refused(message, Fault::Options));
            }
            return Ok(());
        }
        match word.as_str() {
            // Options for features that do not exist here, where their value agrees with that.
            "noreplication" | "nobypassrls" => {}
            "replication" | "bypassrls" => {
                let what = format!("{} of a role", word.to_uppercase());
                return Err(Error::unsupported(what));
            }
            "connection" => {
                self.must_take("limit")?;
                let minus = self.parser.consume_token(&Token::Minus);
                let number = self.option_value()?.parse::<i32>().ok();
                let limit = number.map(|number| if minus { -number } else { number });
                let Some(limit) = limit.filter(|limit| *limit >= -1) else {
                    let message = "invalid connection limit: a whole number from -1".to_owned();
                    return Err(refused(message, Fault::Parameter));
                };
                options.connection_limit = Some(limit);
            }
            "encrypted" => {
                self.must_take("password")?;
                options.password = Some(Some(Password(self.string("a password")?)));
            }
            "unencrypted" => {
                return Err(Error::unsupported("UNENCRYPTED PASSWORD"));
            }
            "password" => {
                options.password = Some(match self.take("null") {
                    true => None,
                    false => Some(Password(self.string("a password")?)),
                });
            }
            "valid" => {
                self.must_take("until")?;
                let text = self.string("a time")?;
                let until = match text.as_str() {
                    "infinity" => None,
                    text => Some(timestamp_tz(text).map_err(|_| {
                        let message = "VALID UNTIL takes a time, as '2030-01-31 12:00:00+00'";
                        refused(message.to_owned(), Fault::Parameter)
                    })?),
                };
                options.valid_until_us = Some(until);
            }
            "in" => {
                if !self.take("role") && !self.take("group") {
                    return Err(self.expected("ROLE"));
                }
                options.in_roles.extend(self.role_names()?);
            }
            "role" | "user" => options.members.extend(self.role_names()?),
            "admin" => options.admins.extend(self.role_names()?),
            "sysid" => drop(self.option_value()?),
            _ => {
                self.parser.prev_token();
                return Err(self.expected("an option of a role"));
            }
        }
        Ok(())
    }

    /// What follows ALTER DEFAULT.
    fn default_privileges(&mut self) -> Result<RoleStatement> {
        self.must_take("privileges")?;
        let (mut roles, mut in_schema) = (Vec::new(), false);
        loop {
            if self.take("for") {
                if !self.take("role") {
                    self.must_take("user")?;
                }
                roles.extend(self.role_names()?);
            } else if self.take("in") {
                self.must_take("schema")?;
                self.schemas()?;
                in_schema = true;
            } else {
                break;
            }
        }
        let revokes = self.take("revoke");
        if !revokes {
            self.must_take("grant")?;
        }
        match self.grant(revokes, Self::granted_later)? {
            RoleStatement::Grant(grant) => Ok(RoleStatement::Later { roles, in_schema, grant }),
            _ => Err(self.expected("ON")),
        }
    }

    /// The kinds of objects of default privileges.
    fn granted_later(&mut self) -> Result<GrantedOn> {
        let kind = self.word_at(0);
        self.parser.advance_token();
        match kind.as_str() {
            "tables" => Ok(GrantedOn::AllTables),
            "sequences" => Ok(GrantedOn::AllSequences),
            "functions" | "routines" | "types" | "schemas" => {
                let what = format!("ALTER DEFAULT PRIVILEGES ON {}", kind.to_uppercase());
                Err(Error::unsupported(what))
            }
            _ => {
                self.parser.prev_token();
                Err(self.expected("TABLES or SEQUENCES"))
            }
        }
    }

    /// What follows GRANT or REVOKE.
    fn grant(
        &mut self,
        revokes: bool,
        granted_on: impl FnOnce(&mut Self) -> Result<GrantedOn>,
    ) -> Result<RoleStatement> {
        let mut option = false;
        let mut admin = false;
        if revokes
            && matches!(self.word_at(0).as_str(), "grant" | "admin")
            && self.word_at(1) == "option"
        {
            admin = self.word_at(0) == "admin";
            option = !admin;
            (0..2).for_each(|_| self.parser.advance_token());
            self.must_take("for")?;
        }
        let to_or_from = if revokes { "from" } else { "to" };
        let privileges = match self.take("all") {
            true => {
                let _ = self.take("privileges");
                if matches!(self.parser.peek_token().token, Token::LParen) {
                    let what = "ALL PRIVILEGES on some columns";
                    return Err(Error::unsupported(what));
                }
                None
            }
            false => {
                let listed = self.words_until(to_or_from)?;
                if self.word_at(0) == to_or_from {
                    self.parser.advance_token();
                    return self.membership(revokes, listed, admin);
                }
                let mut privileges = Vec::with_capacity(listed.len());
                for (name, columns) in listed {
                    let word = match &name {
                        RoleName::Named(word) => word.as_str(),
                        _ => "",
                    };
                    let privilege = Privilege::named(word).ok_or_else(|| {
                        let message = format!("unrecognized privilege type \"{word}\"");
                        refused(message, Fault::Statement)
                    })?;
                    privileges.push((privilege, columns));
                }
                Some(privileges)
            }
        };
        self.must_take("on")?;
        let on = granted_on(self)?;
        self.must_take(to_or_from)?;
        let mut grantees = Vec::new();
        loop {
            let _ = self.take("group");
            grantees.push(self.role_name()?);
            if !self.parser.consume_token(&Token::Comma) {
                break;
            }
        }
        if !revokes && self.take("with") {
            self.must_take("grant")?;
            self.must_take("option")?;
            option = true;
        }
        self.granted_by()?;
        let cascade = revokes && self.cascade();
        Ok(RoleStatement::Grant(Grant { revokes, privileges, on, grantees, option, cascade }))
    }

    fn membership(
        &mut self,
        revokes: bool,
        listed: Vec<(RoleName, Vec<String>)>,
        mut admin: bool,
    ) -> Result<RoleStatement> {
        let roles = listed.into_iter().map(|(role, _)| role).collect();
        let members = self.role_names()?;
        if !revokes && self.take("with") {
            self.must_take("admin")?;
            self.must_take("option")?;
            admin = true;
        }
        self.granted_by()?;
        if revokes {
            let _ = self.cascade();
        }
        Ok(RoleStatement::Membership { revokes, roles, members, admin })
    }

    fn granted_by(&mut self) -> Result<()> {
        if self.take("granted") {
            self.must_take("by")?;
            if !matches!(self.role_name()?, RoleName::Current) {
                return Err(Error::unsupported("GRANTED BY of another role"));
            }
        }
        Ok(())
    }

    /// Names, each with columns in parentheses behind it, up to ON or `end`.
    fn words_until(&mut self, end: &str) -> Result<Vec<(RoleName, Vec<String>)>> {
        let mut words = Vec::new();
        loop {
            let name = self.role_name()?;
            let mut columns = Vec::new();
            if self.parser.consume_token(&Token::LParen) {
                loop {
                    let column = self.parser.parse_identifier();
                    columns.push(fold(&column.map_err(|error| self.syntax(error))?));
                    if self.parser.consume_token(&Token::RParen) {
                        break;
                    }
                    if !self.parser.consume_token(&Token::Comma) {
                        return Err(self.expected("a comma or a closing parenthesis"));
                    }
                }
            }
            words.push((name, columns));
            if !self.parser.consume_token(&Token::Comma) {
                break;
            }
        }
        let next = self.word_at(0);
        if next != "on" && next != end {
            return Err(self.expected(&format!("ON or {}", end.to_uppercase())));
        }
        Ok(words)
    }

    fn granted_on(&mut self) -> Result<GrantedOn> {
        if self.take("all") {
            let kind = self.word_at(0);
            self.parser.advance_token();
            let on = match kind.as_str() {
                "tables" => GrantedOn::AllTables,
                "sequences" => GrantedOn::AllSequences,
                _ => {
                    let what = format!("GRANT and REVOKE ON ALL {}", kind.to_uppercase());
                    return Err(Error::unsupported(what));
                }
            };
            self.must_take("in")?;
            self.must_take("schema")?;
            self.schemas()?;
            return Ok(on);
        }
        let kind = self.word_at(0);
        let is_kind = !matches!(
            self.parser.peek_nth_token(1).token,
            Token::Comma | Token::Period | Token::EOF | Token::SemiColon
        ) && !matches!(self.word_at(1).as_str(), "to" | "from");
        if !is_kind {
            return Ok(GrantedOn::Tables(self.relations()?));
        }
        match kind.as_str() {
            "table" | "sequence" | "schema" | "database" => self.parser.advance_token(),
            _ => {
                let what = format!("GRANT and REVOKE ON {}", kind.to_uppercase());
                return Err(Error::unsupported(what));
            }
        }
        Ok(match kind.as_str() {
            "sequence" => GrantedOn::Sequences(self.relations()?),
            "schema" => {
                self.schemas()?;
                GrantedOn::Schema
            }
            "database" => {
                let mut names = Vec::new();
                loop {
                    let name = self.parser.parse_identifier();
                    names.push(fold(&name.map_err(|error| self.syntax(error))?));
                    if !self.parser.consume_token(&Token::Comma) {
                        break;
                    }
                }
                GrantedOn::Database(names)
            }
            _ => GrantedOn::Tables(self.relations()?),
        })
    }

    fn relations(&mut self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        loop {
            let name = self.parser.parse_object_name(false);
            names.push(table_name(&name.map_err(|error| self.syntax(error))?)?);
            if !self.parser.consume_token(&Token::Comma) {
                return Ok(names);
            }
        }
    }

    /// Names of schemas, of which there is one.
    fn schemas(&mut self) -> Result<()> {
        loop {
            let name = self.parser.parse_identifier().map_err(|error| self.syntax(error))?;
            let name = fold(&name);
            if name != SCHEMA {
                return Err(Error::unknown(
                    cleave_catalog::error::NameKind::Schema,
                    &name,
                    [SCHEMA],
                ));
            }
            if !self.parser.consume_token(&Token::Comma) {
                return Ok(());
            }
        }
    }
}

fn refused(message: String, fault: Fault) -> Error {
    Error::Invalid { message, fault, position: None }
}

/// An error that shows no token in quotes: it may be a password.
fn without_strings(error: Error) -> Error {
    match error {
        Error::Syntax { message, near: Some(near), position }
            if near.contains(['\'', '$', '"']) =>
        {
            let message = match message.contains(&near) {
                true => "expected something else".to_owned(),
                false => message,
            };
            Error::Syntax { message, near: None, position }
        }
        other => other,
    }
}

/// What an error may show of a script that cannot be cut into tokens.
pub(super) fn not_a_password(script: &str, near: Option<String>) -> Option<String> {
    near.filter(|_| !script.to_ascii_lowercase().contains("password"))
}
