//! The password file: lines `host:port:database:user:password`, of which the first that fits counts; `*` fits all, and
//! a backslash takes the meaning of what follows.
//!
//! Source: PostgreSQL's manual, "The Password File".

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A longer file is none of passwords.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The password of these fields, from the file at `path`; None if it has none, or is not there.
pub(super) fn look_up(path: &Path, fields: [&str; 4]) -> Result<Option<String>, String> {
    let found = match path.metadata() {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    if !found.is_file() || found.len() > FILE_BYTES_MAX {
        return Err("it is no file of passwords".to_owned());
    }
    if found.permissions().mode() & 0o077 != 0 {
        return Err("others may read it: chmod 600 takes that right".to_owned());
    }
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    Ok(text.lines().find_map(|line| password_of(line, fields)))
}

/// The password of a line that fits.
pub(super) fn password_of(line: &str, wanted: [&str; 4]) -> Option<String> {
    if line.starts_with('#') {
        return None;
    }
    let mut fields: Vec<(String, bool)> = vec![(String::new(), false)];
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        let is_escaped = letter == '\\';
        let letter = if is_escaped { letters.next()? } else { letter };
        // The password is the rest of the line up to the next colon, which libpq ignores.
        if letter == ':' && !is_escaped {
            fields.push((String::new(), false));
        } else if let Some((field, has_escapes)) = fields.last_mut() {
            field.push(letter);
            *has_escapes |= is_escaped;
        }
    }
    let [host, port, database, user, password, ..] = fields.as_slice() else { return None };
    let fits = [host, port, database, user]
        .into_iter()
        .zip(wanted)
        .all(|((field, escaped), want)| (field == "*" && !escaped) || field == want);
    fits.then(|| password.0.clone())
}
