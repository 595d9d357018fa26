//! `cleave`: a SQL database whose storage computes, as one program.
//!
//! A command line in, an exit code out: 0 done, 1 the command line or a file that it names is wrong, 2 a
//! database or device cannot be opened or reached, 3 a statement failed, 4 results disagree (`demo`).
//!
//! 1. [`arguments`] reads the command line.
//! 2. [`open`] opens the database with its embedded device.
//! 3. [`shell`] is `cleave sql`, [`serve`] is `cleave serve`; [`commands`] are `generate`, `load`, `import`, `advise`,
//!    `explain`, `backup`, `restore`, `check`, `inspect`, `device`, `config`, `user`, `completions` and `man`; [`demo`]
//!    is `cleave demo`, [`mod@bench`] `cleave bench`.
//! 4. [`generate`] computes the databases that `generate` and `demo` load.
//! 5. [`simulate`] is `cleave simulate`, which opens no database.
//! 6. [`failure`] holds the failures that end a command.
//! 7. [`picture`] is the file of a drawing.

// A connection's future contains those of everything that a statement may do, nested.
#![recursion_limit = "256"]

mod allocator;
mod arguments;
mod bench;
mod commands;
mod demo;
mod failure;
mod generate;
mod open;
mod picture;
mod serve;
mod shell;
mod simulate;

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use arguments::{Command, Invocation};
use failure::Failure;
use open::Create;
use serve::beside::Beside;
use shell::Target;
use shell::remote::Remote;

/// Stack of the threads that parse and plan. Planning recurses once for each operator of a chain; unused stack takes no
/// memory.
pub(crate) const STACK_BYTES: usize = 32 << 20;

/// SQLSTATE of a database that another process has open.
const IN_USE: &str = "55006";
/// How long threads may take to end with the program.
const SHUTDOWN: std::time::Duration = std::time::Duration::from_secs(1);

/// Threads that compute for a server's clients, more than processors: what works for long on rows that it holds, as a
/// window or a sort, keeps its thread, even after it was cancelled, and other statements must go on beside it.
fn serving_threads() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    processors.saturating_mul(4).max(8)
}

fn main() -> ExitCode {
    let invocation = match arguments::parse(std::env::args_os()) {
        Ok(invocation) => invocation,
        Err(error) => {
            drop(error.print());
            // Help and version are printed on request; everything else is misuse.
            return if error.use_stderr() { ExitCode::from(1) } else { ExitCode::SUCCESS };
        }
    };
    if let Command::DeviceProcess { arguments } = invocation.command {
        return cleave_device::main_with_args(arguments);
    }
    if let Command::Serve(_) = invocation.command {
        cleave_device::signals::block();
    }
    // These two go by another process that has the database open, if it answers.
    let is_lone = !matches!(invocation.command, Command::Sql { .. } | Command::Explain(_));
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.thread_stack_size(STACK_BYTES).enable_all();
    builder.on_thread_start(cleave_fragment::wanted::may_leave);
    if let Command::Serve(_) = invocation.command {
        builder.worker_threads(serving_threads());
    }
    let runtime = builder.build();
    // The first thread's stack size is set by the caller of the program, and a thread of the runtime must not wait for
    // user input.
    let outcome = runtime.and_then(|runtime| {
        let thread = std::thread::Builder::new().name("cleave".to_owned()).stack_size(STACK_BYTES);
        thread.spawn(move || {
            let outcome = runtime.block_on(Box::pin(run(invocation)));
            // Cancelled work that is still busy is not awaited.
            runtime.shutdown_timeout(SHUTDOWN);
            outcome
        })
    });
    let outcome = match outcome {
        Ok(running) => running.join(),
        Err(error) => {
            complain(&format!("no threads to run on: {error}"));
            return ExitCode::from(2);
        }
    };
    match outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) if failure.is_closed_pipe() => ExitCode::SUCCESS,
        Err(failure) => {
            let failure = if is_lone { failure.of_lone_command() } else { failure };
            if !matches!(failure, Failure::Reported) {
                complain(&failure.to_string());
            }
            failure.exit_code()
        }
    }
}

async fn run(invocation: Invocation) -> Result<(), Failure> {
    let mut place = invocation.place;
    match invocation.command {
        Command::Demo(options) => demo::run(&options, &place).await,
        Command::Sql { format, create, read_only, sources } => {
            let temporary = open::temporary_folder(&mut place)?;
            let mut in_use = None;
            let (database, mut session) = loop {
                if let Some(remote) = Box::pin(Remote::open(&place, read_only)).await? {
                    return shell::run(Target::Remote(Box::new(remote)), format, &sources).await;
                }
                if let Some(error) = in_use.take() {
                    return Err(Failure::Open(error));
                }
                let opened = match &temporary {
                    Some(_) => Box::pin(open::open(&place, Create::Temporary)).await,
                    None => open::open_asked(&place, create).await,
                };
                match opened {
                    // Another process has opened it since, and may answer by now.
                    Err(Failure::Open(error)) if error.sqlstate() == IN_USE => in_use = Some(error),
                    opened => break opened?,
                }
            };
            if read_only {
                session.only_read("the database was opened with --read-only");
            }
            let beside = Beside::begin(&database);
            if let Err(error) = &beside {
                complain(&format!("other processes cannot read this database beside: {error}"));
            }
            let target = Target::local(Arc::clone(&database), session);
            let ran = shell::run(target, format, &sources).await;
            if let Ok(beside) = beside {
                beside.end().await;
            }
            // So that the next incarnation has nothing to recover.
            ran.and(database.checkpoint().await.map_err(Failure::Sql))
        }
        Command::Serve(options) => serve::run(&options, &place).await,
        Command::Bench(options) => bench::run(&options, &place).await,
        Command::Config(options) => commands::config::run(&options),
        Command::User(options) => commands::user::run(&options, &place),
        Command::Generate(options) => commands::generate::run(&options, &place).await,
        Command::Import(options) => commands::import::run(&options, &place).await,
        Command::Load(options) => commands::load::run(&options, &place).await,
        Command::Advise(options) => commands::advise::run(&options, &place).await,
        Command::Explain(options) => commands::explain::run(&options, &place).await,
        Command::Backup(options) => commands::backup::run(&options, &place).await,
        Command::Restore(options) => commands::backup::restore(&options, &place).await,
        Command::Failover(options) => commands::failover::run(&options, &place).await,
        Command::Check(options) => commands::check::run(&options, &place).await,
        Command::Inspect(options) => commands::inspect::run(&options, &place).await,
        Command::Device(options) => commands::device::run(&options, &place).await,
        Command::Simulate(options) => simulate::run(&options),
        Command::Completions(options) => commands::manual::completions(&options),
        Command::Man(options) => commands::manual::man(&options),
        // Handled before there is a runtime: the device builds its own.
        Command::DeviceProcess { .. } => Ok(()),
    }
}

/// Writes to standard error, as the log does where there is one; if that is closed, nobody reads it.
fn complain(message: &str) {
    match cleave_device::process_log::has_begun() {
        true => tracing::error!(target: "cleave", "{message}"),
        false => drop(writeln!(std::io::stderr(), "cleave: {message}")),
    }
}
