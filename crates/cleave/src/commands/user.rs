//! `cleave user`: manages the users who may connect to a server of the database.

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use cleave_host::catalog::manifest;

use crate::arguments::Place;
use crate::failure::Failure;
use crate::serve::users::{FILE, Users, UsersError};

/// `cleave user …`.
#[derive(Debug, Clone, Args)]
pub(crate) struct UserOptions {
    #[command(subcommand)]
    action: Action,
    /// The users file, instead of `users` in the database's folder
    #[arg(long, value_name = "FILE", global = true)]
    users: Option<PathBuf>,
}

#[derive(Debug, Clone, Subcommand)]
enum Action {
    /// Add a user or change a password, which is read from standard input
    Add {
        /// The user's name
        name: String,
        /// Make it a superuser; the first user always is one
        #[arg(long)]
        superuser: bool,
    },
    /// Change whether a user is a superuser
    Alter {
        /// The user's name
        name: String,
        /// Make it a superuser
        #[arg(long, required_unless_present = "no_superuser", conflicts_with = "no_superuser")]
        superuser: bool,
        /// Give it the rights of the role of the same name; without such a role it cannot connect
        #[arg(long)]
        no_superuser: bool,
    },
    /// List users
    List,
    /// Remove a user
    Remove {
        /// The user's name
        name: String,
    },
}

/// Runs `cleave user …`.
pub(crate) fn run(options: &UserOptions, place: &Place) -> Result<(), Failure> {
    let path = match (&options.users, &place.directory) {
        (Some(path), _) => path.clone(),
        (None, Some(folder)) if manifest::exists(folder) => folder.join(FILE),
        (None, Some(folder)) => {
            let folder = folder.display();
            return Err(Failure::Usage(format!("there is no database in {folder}")));
        }
        (None, None) => {
            let message = "which users? Name the database's folder with --db DIR, or a file with --users FILE";
            return Err(Failure::Usage(message.to_owned()));
        }
    };
    let mut users = Users::read(&path).map_err(wrong)?;
    let mut out = io::stdout();
    match &options.action {
        Action::Add { name, superuser } => {
            let is_new = users.set(name, &password(name)?).map_err(wrong)?;
            if *superuser {
                users.set_superuser(name, true).map_err(wrong)?;
            }
            users.write(&path).map_err(wrong)?;
            match is_new {
                true => writeln!(out, "user \"{name}\" may connect{}", as_whom(&users, name))?,
                false => writeln!(out, "user \"{name}\" has another password")?,
            }
        }
        Action::Alter { name, superuser, .. } => {
            users.set_superuser(name, *superuser).map_err(wrong)?;
            users.write(&path).map_err(wrong)?;
            writeln!(out, "user \"{name}\" connects{}", as_whom(&users, name))?;
        }
        Action::List => {
            for (name, user) in users.iter() {
                let mark = if user.is_superuser { " superuser" } else { "" };
                writeln!(out, "{name}{mark}")?;
            }
        }
        Action::Remove { name } => {
            users.remove(name).map_err(wrong)?;
            users.write(&path).map_err(wrong)?;
            writeln!(out, "user \"{name}\" may not connect any more")?;
        }
    }
    Ok(())
}

/// The user's rights.
fn as_whom(users: &Users, name: &str) -> String {
    match users.user(name).is_some_and(|user| user.is_superuser) {
        true => " as a superuser".to_owned(),
        false => format!(" as the role \"{name}\", once there is one"),
    }
}

fn wrong(error: UsersError) -> Failure {
    Failure::Usage(error.to_string())
}

/// The first line of standard input; a terminal does not echo it.
pub(crate) fn password(name: &str) -> Result<String, Failure> {
    let stdin = io::stdin();
    let mut line = String::new();
    let read =
        |line: &mut String| stdin.lock().read_line(line).map_err(Failure::file("standard input"));
    if stdin.is_terminal() {
        write!(io::stderr(), "password of {name}: ")?;
        let hidden = Hidden::begin();
        read(&mut line)?;
        drop(hidden);
        writeln!(io::stderr())?;
    } else {
        read(&mut line)?;
    }
    Ok(line.trim_end_matches(['\n', '\r']).to_owned())
}

/// As long as it lives, the terminal does not echo input.
struct Hidden {
    before: Option<nix::sys::termios::Termios>,
}

impl Hidden {
    fn begin() -> Self {
        use nix::sys::termios::{LocalFlags, SetArg, tcgetattr, tcsetattr};
        let before = tcgetattr(io::stdin()).ok();
        if let Some(before) = &before {
            let mut silent = before.clone();
            silent.local_flags.remove(LocalFlags::ECHO);
            // A terminal that cannot be silenced echoes it.
            let _ = tcsetattr(io::stdin(), SetArg::TCSANOW, &silent);
        }
        Self { before }
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        use nix::sys::termios::{SetArg, tcsetattr};
        if let Some(before) = &self.before {
            let _ = tcsetattr(io::stdin(), SetArg::TCSANOW, before);
        }
    }
}
