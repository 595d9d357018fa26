//! `cleave config`: a sample of the file that `cleave serve --config` reads, and a check of one.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::arguments::config;
use crate::failure::Failure;

/// `cleave config …`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ConfigOptions {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Clone, Subcommand)]
enum What {
    /// Print a file with every option of `cleave serve`, its meaning and its default
    Sample,
    /// Check a file without starting a server
    Check {
        /// The file
        file: PathBuf,
    },
}

/// Runs `cleave config`.
pub(crate) fn run(options: &ConfigOptions) -> Result<(), Failure> {
    match &options.what {
        What::Sample => Ok(std::io::stdout().write_all(config::sample().as_bytes())?),
        What::Check { file } => {
            let checked = config::check_file(file);
            checked.map_err(|error| Failure::Usage(error.to_string().trim_end().to_owned()))
        }
    }
}
