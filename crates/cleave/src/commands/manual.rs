//! `cleave completions` and `cleave man`: what shells complete command lines with, and manual pages. Definitions of
//! command lines in, text out.
//!
//! `cleave` is defined by its arguments; `cleaved` has [its help](HELP), which is read here: an option begins a line
//! with two spaces, and deeper lines go on with it.

use std::io::Write;
use std::path::PathBuf;

use clap::{Arg, ArgAction, Args, Command, ValueEnum, ValueHint};
use clap_complete::generate;
use clap_mangen::Man;
use cleave_device::command_line::HELP;

use crate::arguments::command_line;
use crate::failure::Failure;

/// The version of both programs.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// `cleave completions …`.
#[derive(Debug, Clone, Args)]
pub(crate) struct CompletionsOptions {
    /// The shell that shall complete command lines
    #[arg(value_enum)]
    shell: Shell,
    /// The program whose command lines they are
    #[arg(value_enum, default_value_t = Program::Cleave)]
    program: Program,
}

/// `cleave man …`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ManOptions {
    /// The page to print, as in cleave, sql or cleaved
    #[arg(default_value = "cleave", conflicts_with = "out")]
    page: String,
    /// Write all pages into this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Program {
    Cleave,
    Cleaved,
}

/// Runs `cleave completions …`.
pub(crate) fn completions(options: &CompletionsOptions) -> Result<(), Failure> {
    let (mut command, name) = match options.program {
        Program::Cleave => (command_line(), "cleave"),
        Program::Cleaved => (cleaved(), "cleaved"),
    };
    let shell = match options.shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut script = Vec::new();
    generate(shell, &mut command, name, &mut script);
    Ok(std::io::stdout().write_all(&script)?)
}

/// Runs `cleave man …`.
pub(crate) fn man(options: &ManOptions) -> Result<(), Failure> {
    let pages = pages();
    if let Some(folder) = &options.out {
        std::fs::create_dir_all(folder).map_err(Failure::file(folder))?;
        for page in &pages {
            let path = folder.join(page.get_filename());
            let mut text = Vec::new();
            page.render(&mut text)?;
            std::fs::write(&path, text).map_err(Failure::file(&path))?;
        }
        return Ok(());
    }
    let names = [options.page.clone(), format!("cleave-{}", options.page)];
    let is_wanted = |page: &&Man| {
        let file = page.get_filename();
        let name = file.rsplit_once('.').map_or(file.as_str(), |(name, _)| name);
        names.iter().any(|wanted| wanted == name)
    };
    match pages.iter().find(is_wanted) {
        Some(page) => Ok(page.render(&mut std::io::stdout())?),
        None => {
            let wanted = &options.page;
            Err(Failure::Usage(format!(
                "there is no manual page \"{wanted}\"; cleave(1) has them all"
            )))
        }
    }
}

/// One page for each program and subcommand.
fn pages() -> Vec<Man> {
    let mut pages = Vec::new();
    let mut program = command_line().disable_help_subcommand(true);
    program.build();
    add_pages(program, &mut pages);
    pages.push(page(cleaved()).section("8"));
    pages
}

fn add_pages(command: Command, pages: &mut Vec<Man>) {
    let below = command.get_subcommands().filter(|one| !one.is_hide_set()).cloned();
    let below: Vec<Command> = below.collect();
    pages.push(page(command));
    below.into_iter().for_each(|one| add_pages(one, pages));
}

fn page(command: Command) -> Man {
    // Without quotes the empty date would not count as an argument.
    Man::new(command).date("\"\"").source(format!("Cleave {VERSION}")).manual("Cleave")
}

/// The command line of `cleaved`, as its help has it.
fn cleaved() -> Command {
    let mut command =
        Command::new("cleaved").version(VERSION).disable_help_flag(true).disable_version_flag(true);
    let mut description = Vec::new();
    for (place, paragraph) in HELP.trim_end().split("\n\n").enumerate() {
        if paragraph.starts_with("  --") {
            command = command.args(options_of(paragraph));
        } else if let Some(usage) = paragraph.strip_prefix("Usage: ") {
            command = command.override_usage(usage);
        } else if let Some(about) = paragraph.strip_prefix("cleaved: ") {
            command = command.about(about);
            description.push(about);
        } else if place < 3 {
            description.push(paragraph);
        } else {
            command = command.after_help(paragraph);
        }
    }
    command.long_about(description.join("\n\n"))
}

/// The options that a paragraph of the help lists.
fn options_of(paragraph: &'static str) -> Vec<Arg> {
    let mut listed: Vec<(&'static str, Vec<&'static str>)> = Vec::new();
    for line in paragraph.lines() {
        match (line.strip_prefix("  --"), listed.last_mut()) {
            (Some(option), _) => {
                let (head, help) = option.split_once("  ").unwrap_or((option, ""));
                listed.push((head, vec![help.trim()]));
            }
            (None, Some((_, help))) => help.push(line.trim()),
            (None, None) => {}
        }
    }
    let option = |(head, help): (&'static str, Vec<&'static str>)| {
        let (name, value) = match head.split_once(' ') {
            Some((name, value)) => (name, Some(value)),
            None => (head, None),
        };
        let option = Arg::new(name).long(name).help(help.join(" "));
        match value {
            Some(value) => {
                let is_file = matches!(value, "FILE" | "SOCKET");
                let hint = if is_file { ValueHint::FilePath } else { ValueHint::Other };
                option.value_name(value).value_hint(hint).action(ArgAction::Append)
            }
            None => option.action(ArgAction::SetTrue),
        }
    };
    listed.into_iter().map(option).collect()
}
