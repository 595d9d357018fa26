//! Starts a connection: TLS, startup and authentication, until it may run statements.
//!
//! 1. [`open`] answers what comes before a session: requests for TLS and GSS, a cancel request, a startup message.
//! 2. [`authenticate`] asks for a proof of the password ([`scram`]), if there are users.
//! 3. [`settings`] takes the settings that the client begins with.
//!
//! Invariant: before a client is authenticated, it gets no session, limited time, and memory for messages of at most 10
//! kB, whose length is checked before any of their bytes; and the answers do not depend on which users exist.

use std::collections::BTreeMap;

use bytes::{BufMut, Bytes};
use cleave_host::Session;
use cleave_host::login::Login;
use cleave_host::password::Verifier;

use super::complaint::{Complaint, Severity};
use super::interrupt::Stop;
use super::message::{Opening, opening};
use super::reply;
use super::scram::{self, Exchange, Refused};
use super::wire::{Stream, Wire};
use crate::serve::Server;
use crate::serve::users::Users;

/// Bytes of an application name that are kept.
const APPLICATION_NAME_BYTES: usize = 63;

/// What a client says to get a session that only reads, which no statement changes.
const ONLY_READS: &str = "cleave.only_reads";

/// A client's startup message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Startup {
    /// The user.
    pub(crate) user: String,
    /// The requested database.
    database: Option<String>,
    /// Settings, in the order in which they were given.
    settings: Vec<(String, String)>,
    /// Unknown protocol options.
    unknown: Vec<String>,
    minor: u16,
    /// Whether it asks for a session that only reads.
    pub(crate) only_reads: bool,
}

/// Answers a new connection until it asks for a session; None if it asked for something else, and is done.
pub(crate) async fn open(
    server: &Server,
    stream: Box<dyn Stream>,
) -> Result<Option<(Wire, Startup)>, Stop> {
    let mut wire = Wire::new(stream);
    let (mut is_secure, mut was_tls_asked, mut was_gss_asked) = (false, false, false);
    loop {
        let opened = match wire.opening().await {
            Ok(body) => {
                opening(&body).map_err(|error| Complaint::fatal("08P01", error.to_string()))
            }
            Err(error) => match Stop::from(error) {
                Stop::Failed(complaint) => Err(complaint),
                Stop::Lost => return Ok(None),
            },
        };
        let refused = match opened {
            // Each may be asked for once: otherwise there is no end.
            Ok(Opening::Tls) if was_tls_asked => unknown_protocol(1234, 5679),
            Ok(Opening::Gss) if was_gss_asked => unknown_protocol(1234, 5680),
            Ok(Opening::Tls) => match &server.tls {
                Some(tls) => {
                    was_tls_asked = true;
                    wire.output.put_u8(b'S');
                    wire.flush().await?;
                    // Bytes before the handshake could be anybody's.
                    let Some(plain) = wire.into_stream() else { return Ok(None) };
                    let Ok(secure) = tls.accept(plain).await else { return Ok(None) };
                    wire = Wire::new(Box::new(secure));
                    is_secure = true;
                    continue;
                }
                None => {
                    was_tls_asked = true;
                    wire.output.put_u8(b'N');
                    wire.flush().await?;
                    continue;
                }
            },
            Ok(Opening::Gss) => {
                was_gss_asked = true;
                wire.output.put_u8(b'N');
                wire.flush().await?;
                continue;
            }
            Ok(Opening::Cancel { backend, secret }) => {
                server.registry.cancel(backend, secret);
                return Ok(None);
            }
            Ok(Opening::Startup { minor, parameters }) => {
                if server.needs_tls && !is_secure {
                    let message = "this server takes connections from other machines with TLS only";
                    Complaint::fatal("28000", message).hint("connect with sslmode=require")
                } else {
                    match startup(minor, parameters) {
                        Ok(startup) => return Ok(Some((wire, startup))),
                        Err(complaint) => complaint,
                    }
                }
            }
            Ok(Opening::Unknown { major, minor }) => unknown_protocol(major, minor),
            Err(complaint) => complaint,
        };
        reply::error(&mut wire.output, &refused);
        wire.close().await;
        return Ok(None);
    }
}

fn unknown_protocol(major: u16, minor: u16) -> Complaint {
    let message = format!("unsupported frontend protocol {major}.{minor}: server supports 3.0");
    Complaint::fatal("0A000", message)
}

fn startup(minor: u16, parameters: Vec<(String, String)>) -> Result<Startup, Complaint> {
    let mut startup = Startup {
        user: String::new(),
        database: None,
        settings: Vec::new(),
        unknown: Vec::new(),
        minor,
        only_reads: false,
    };
    for (name, value) in parameters {
        match name.as_str() {
            "user" => startup.user = value,
            "database" => startup.database = Some(value).filter(|value| !value.is_empty()),
            "options" => options(&value, &mut startup.settings)?,
            "replication" => {
                if !["false", "off", "no", "0"].contains(&value.as_str()) {
                    return Err(Complaint::fatal("0A000", "replication is not supported"));
                }
            }
            _ if name.starts_with("_pq_.") => startup.unknown.push(name),
            _ => startup.settings.push((name, value)),
        }
    }
    startup.only_reads = asks_to_read(&mut startup.settings)?;
    if startup.user.is_empty() {
        let message = "no PostgreSQL user name specified in startup packet";
        return Err(Complaint::fatal("28000", message));
    }
    Ok(startup)
}

/// Takes out what asks for a session that only reads: it is no setting, which could be set back.
fn asks_to_read(settings: &mut Vec<(String, String)>) -> Result<bool, Complaint> {
    let mut asks = false;
    for (_, value) in settings.extract_if(.., |(name, _)| name.eq_ignore_ascii_case(ONLY_READS)) {
        asks = match value.trim_matches('\'').to_ascii_lowercase().as_str() {
            "on" | "true" | "yes" | "1" => true,
            "off" | "false" | "no" | "0" => false,
            _ => {
                let message = format!("parameter \"{ONLY_READS}\" requires a Boolean value");
                return Err(Complaint::fatal("22023", message));
            }
        };
    }
    Ok(asks)
}

/// The settings of `-c name=value --name=value`, in which a backslash escapes a blank.
fn options(text: &str, settings: &mut Vec<(String, String)>) -> Result<(), Complaint> {
    let mut words = vec![String::new()];
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        let is_blank = letter.is_whitespace();
        let kept = if letter == '\\' { letters.next() } else { Some(letter).filter(|_| !is_blank) };
        match (kept, words.last_mut()) {
            (Some(kept), Some(word)) => word.push(kept),
            _ if is_blank => words.push(String::new()),
            _ => {}
        }
    }
    let mut words = words.into_iter().filter(|word| !word.is_empty());
    while let Some(word) = words.next() {
        let assigned = match word.strip_prefix("--") {
            Some(assigned) => Some(assigned.to_owned()),
            None if word == "-c" => words.next(),
            None => word.strip_prefix("-c").map(str::to_owned),
        };
        let pair = assigned.as_deref().and_then(|assigned| assigned.split_once('='));
        let Some((name, value)) = pair else {
            let message = format!("invalid command-line argument for server process: {word}");
            return Err(Complaint::fatal("42601", message).hint("it takes -c name=value"));
        };
        settings.push((name.replace('-', "_"), value.to_owned()));
    }
    Ok(())
}

/// The rights of an authenticated client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// A superuser: by the users file, or because the server asks nobody.
    Superuser,
    /// As the role of its name, if there is one.
    Role,
}

/// Authenticates the client as the user it names.
pub(crate) async fn authenticate(
    server: &Server,
    wire: &mut Wire,
    startup: &Startup,
) -> Result<Known, Stop> {
    if startup.minor > 0 || !startup.unknown.is_empty() {
        let unknown: Vec<&str> = startup.unknown.iter().map(String::as_str).collect();
        reply::negotiate_version(&mut wire.output, 0, &unknown);
    }
    if server.beside.is_some() {
        // The socket was asked whose process it is.
        check_database(server, startup)?;
        return Ok(Known::Superuser);
    }
    let user = startup.user.as_str();
    let users = Users::read(&server.users).map_err(|error| {
        server.log(&error.to_string());
        Complaint::fatal("58030", "the server cannot read its users; its log says why")
    })?;
    let login = server.database.login(user);
    let known = known_in(&users, user);
    if server.asks_nobody(&users).await {
        check_database(server, startup)?;
        return Ok(if login.is_some() { known } else { Known::Superuser });
    }
    let mut mechanisms = scram::MECHANISM.as_bytes().to_vec();
    mechanisms.extend([0, 0]);
    reply::authentication(&mut wire.output, 10, &mechanisms);
    wire.flush().await?;
    let first = initial_response(&password(wire).await?)?;
    let nonce = scram::nonce().map_err(|error| Complaint::fatal("XX000", error.to_string()))?;
    let checked_by = verifier(server, &users, user, login.as_ref());
    let exchange = Exchange::begin(&first, checked_by, &nonce)
        .map_err(|refused| refusal(refused, &startup.user))?;
    reply::authentication(&mut wire.output, 11, exchange.challenge().as_bytes());
    wire.flush().await?;
    let last = password(wire).await?;
    let last =
        std::str::from_utf8(&last).map_err(|_| refusal(Refused::Malformed, &startup.user))?;
    let verdict = exchange.finish(last).map_err(|refused| refusal(refused, &startup.user))?;
    reply::authentication(&mut wire.output, 12, verdict.as_bytes());
    check_database(server, startup)?;
    Ok(known)
}

/// The rights of `user` after a proof, by the users file.
pub(crate) fn known_in(users: &Users, user: &str) -> Known {
    let is_superuser = users.user(user).is_some_and(|user| user.is_superuser);
    if is_superuser { Known::Superuser } else { Known::Role }
}

/// The verifier of the password of `user`, and whether any proof suffices.
///
/// The password of a superuser of the users file is the one in the file, whatever roles exist: creating a role of that
/// name does not give its rights. Otherwise a role's own password takes precedence over the file's.
pub(crate) fn verifier(
    server: &Server,
    users: &Users,
    user: &str,
    login: Option<&Login>,
) -> (Verifier, bool) {
    // Computed for everyone, so that it takes the same time for all.
    let mut counts = server.database.iteration_counts();
    for (_, user) in users.iter() {
        *counts.entry(user.verifier.iteration_count).or_default() += 1;
    }
    let nobody = server.login_secret().verifier_of_nobody(user, &counts);
    let in_file = users.user(user);
    if let Some(superuser) = in_file.filter(|user| user.is_superuser) {
        return (superuser.verifier.clone(), true);
    }
    let has_expired = login.is_some_and(|login| login.has_expired);
    let own = login.and_then(|login| login.verifier.as_ref());
    match own.or(in_file.map(|user| &user.verifier)) {
        Some(verifier) => (verifier.clone(), !has_expired),
        None => (nobody, false),
    }
}

fn check_database(server: &Server, startup: &Startup) -> Result<(), Complaint> {
    let served = server.database_name.as_str();
    let asked = startup.database.as_deref().unwrap_or(&startup.user);
    // libpq asks for a database of the user's name by default; tools such as `psql -l` ask for "postgres".
    if [served, "cleave", "postgres", startup.user.as_str()].contains(&asked) {
        return Ok(());
    }
    let message = format!("database \"{asked}\" does not exist");
    let hint = format!("this server has one database, \"{served}\"");
    Err(Complaint::fatal("3D000", message).hint(hint))
}

async fn password(wire: &mut Wire) -> Result<Bytes, Stop> {
    // The client is not yet authenticated: messages of a session are not read.
    match wire.kind().await? {
        b'p' => Ok(wire.message().await?.1),
        b'X' => Err(Stop::Lost),
        kind => {
            let message = format!("expected SASL response, got message type {kind}");
            Err(Complaint::fatal("08P01", message).into())
        }
    }
}

/// The client's first message out of SASLInitialResponse: mechanism, length, message.
fn initial_response(body: &Bytes) -> Result<String, Complaint> {
    let malformed = || Complaint::fatal("08P01", "malformed SASL response");
    let end = body.iter().position(|byte| *byte == 0).ok_or_else(malformed)?;
    let mechanism = body.get(..end).unwrap_or_default();
    if mechanism != scram::MECHANISM.as_bytes() {
        let message = "the client chose a SASL mechanism that this server does not have";
        return Err(Complaint::fatal("28000", message).hint("it has SCRAM-SHA-256"));
    }
    let message = body.get(end + 5..).ok_or_else(malformed)?;
    String::from_utf8(message.to_vec()).map_err(|_| malformed())
}

fn refusal(refused: Refused, user: &str) -> Complaint {
    match refused {
        Refused::Malformed => Complaint::fatal("08P01", "malformed SCRAM message"),
        Refused::ChannelBinding => {
            let message = "the client asks for channel binding, which this server does not have";
            Complaint::fatal("28000", message).hint("connect with channel_binding=prefer")
        }
        Refused::Proof => {
            let message = format!("password authentication failed for user \"{user}\"");
            Complaint::fatal("28P01", message)
        }
    }
}

/// Applies the settings of the role, `own`, and those that the client asks for to the session; returns notices for the
/// client.
pub(crate) fn settings(
    session: &mut Session,
    own: &BTreeMap<String, String>,
    startup: &Startup,
) -> Result<Vec<Complaint>, Complaint> {
    let mut warnings = Vec::new();
    for (name, value) in own {
        // A role that could not connect could not repair it.
        if let Err(error) = session.set(name, value) {
            let complaint = Complaint::of(&error, "");
            warnings.push(Complaint { severity: Severity::Warning, ..complaint });
        }
    }
    for (name, value) in &startup.settings {
        let mut value = value.trim_matches('\'');
        if name.eq_ignore_ascii_case("application_name") {
            // As in PostgreSQL: a long name is truncated and not refused.
            value = value.get(..value.floor_char_boundary(APPLICATION_NAME_BYTES)).unwrap_or(value);
        }
        let Err(error) = session.set(name, value) else { continue };
        let complaint = Complaint::of(&error, "");
        // Drivers send the time zone of their machine, asked or not.
        if name.eq_ignore_ascii_case("TimeZone") {
            let message = format!("{}: it stays UTC", complaint.message);
            warnings.push(Complaint { message, severity: Severity::Warning, ..complaint });
        } else {
            return Err(Complaint { severity: Severity::Fatal, ..complaint });
        }
    }
    Ok(warnings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_settings() {
        let mut settings = Vec::new();
        options(r"-c split=h0 --batch-size=7 -cx=a\ b", &mut settings).unwrap();
        let expected = [("split", "h0"), ("batch_size", "7"), ("x", "a b")];
        assert_eq!(settings, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert!(options("-x", &mut settings).is_err());
    }

    #[test]
    fn a_session_has_a_user() {
        assert_eq!(startup(0, Vec::new()).unwrap_err().sqlstate, "28000");
        let asks = |value: &str| {
            let user = ("user".to_owned(), "ada".to_owned());
            startup(0, vec![user, ("options".to_owned(), format!("-c cleave.only_reads={value}"))])
        };
        assert!(asks("on").unwrap().only_reads && asks("on").unwrap().settings.is_empty());
        assert!(!asks("off").unwrap().only_reads);
        assert_eq!(asks("perhaps").unwrap_err().sqlstate, "22023");
        let replication = vec![("replication".to_owned(), "database".to_owned())];
        assert_eq!(startup(0, replication).unwrap_err().sqlstate, "0A000");
    }
}
