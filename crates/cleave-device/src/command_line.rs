//! The program `cleaved`, from its arguments to its exit code. `cleave device-process` is the same program.
//!
//! Each `--media` is an engine of its own: to hosts a device, with its own ports. Together they are a [`Node`].
//!
//! It makes nothing silently: it reports when it creates a missing media file or identity. It needs no orderly
//! shutdown: writes that a host was told are synced are on the media, and the host repeats or gives up the others, so a
//! signal may stop it at any moment. With traces, SIGTERM and SIGINT let it send the spans that wait first.

mod config_file;

use std::ffi::OsString;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use cleave_fragment::link::{DeviceIdentity, TlsFileError, Token};
use cleave_fragment::trace::SpanSink;
use cleave_media::{DirectFile, MediaError, MediaIdentity, OpenMode, private};
use cleave_traces::{Collector, Traces, TracesError};
use futures::future::join_all;

use crate::node::Node;
use crate::owner_record::{OwnerRecord, OwnerRecordError};
use crate::process_log::{self, LogFormat, LogLevel};
use crate::runtime::{Runtime, RuntimeError, RuntimeOptions};
use crate::serve::{ListenOptions, Listener, LocalListener, LocalOptions, Log, ServeError};
use crate::signals::{self, Signals};
use crate::supervisor;

/// What `--help` prints. An option begins a line with two spaces; deeper lines go on with it.
pub const HELP: &str = "\
cleaved: a Cleave device: serves the blocks of its media, and runs fragments of queries beside them

Usage: cleaved --media FILE --listen HOST:PORT (--token-file FILE | --token-env NAME) [options]
       cleaved --media FILE --local SOCKET [options]
       cleaved --node NAME --media FILE [its options] --media FILE [its options] ... [options]

To hosts each --media is a device of its own. Those of one process are a node, and lend idle cores to each other.
The options from --id-file to --port-file are for the --media before them, the others for all.

  --media FILE            file or block device that holds the pages; a file is made if it is not there
  --id-file FILE          keeps the media's identity (default: beside the media, as its name with .id); beside
                          it, as its name with .owner, lies whose it is; a block device keeps both itself
  --listen HOST:PORT      where hosts connect; port 0 takes a free one
  --local SOCKET          where this user's hosts on this machine connect, through shared memory; may stand
                          beside --listen
  --cores N               threads that run fragments (default: all cores, divided among the devices)
  --memory BYTES          memory for fragments, as in 256MiB (default: 256MiB)
  --filter-history BYTES  memory for which rows conditions were true for (default: 32MiB; 0: none)
  --port-file FILE        write the port to FILE once hosts can connect

  --config FILE           a TOML file with options, as packaging/cleaved.toml; those given here win, and a
                          --media given here takes the place of all of the file's
  --node NAME             the node's name: letters, digits, -, _ and .
  --overwrite-media       take a block device that holds something else, and lose that
  --hand-over             forget whose the media is: the next database that asks may have all of it
  --token-file FILE       file with the token that hosts must show (16 characters or more)
  --token-env NAME        environment variable with the token, instead of a file
  --tls-cert FILE         certificate (PEM) to show; required where other machines can connect
  --tls-key FILE          its private key (PEM)
  --rate-cap BYTES        bytes a second in each direction of each device, as in 125MB (default: none)
  --log-format FORMAT     lines of the log, on standard error: text (default) or json
  --log-level LEVEL       which events it has: error, warn, info (default) or debug
  --traces URL            send traces of fragments to this collector, by OpenTelemetry's protocol, as in
                          http://127.0.0.1:4318; http on this machine alone
  --traces-ca FILE        the certificate (PEM) of the collector, or of its authority, for https
  --until-stdin-closes    end when standard input is closed, as by a program that started this one
  --help                  print this
  --version               print the version

Exit codes: 0 ended as asked, 1 wrong arguments, 2 could not start or go on.
";

/// Exit code of wrong arguments.
const MISUSE: u8 = 1;
/// Exit code of a device that could not start or continue.
const FAILURE: u8 = 2;

/// How long the threads of the sockets may take to end with it.
const SHUTDOWN: Duration = Duration::from_secs(1);

/// Why `cleaved` ended.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{0}; try --help")]
    Usage(String),
    #[error(transparent)]
    Credentials(#[from] TlsFileError),
    #[error(transparent)]
    Media(#[from] MediaError),
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error(transparent)]
    Owner(#[from] OwnerRecordError),
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error("{what} {}: {source}", path.display())]
    File { what: &'static str, path: PathBuf, source: std::io::Error },
    #[error("cannot start: {0}")]
    Threads(std::io::Error),
    #[error(transparent)]
    Traces(#[from] TracesError),
}

/// The parsed arguments.
#[derive(Debug, Default)]
struct Options {
    engines: Vec<EngineOptions>,
    node: Option<String>,
    overwrite_media: bool,
    token_file: Option<PathBuf>,
    token_env: Option<String>,
    tls_cert: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    rate_cap: Option<u64>,
    until_stdin_closes: bool,
    hand_over: bool,
    log_format: LogFormat,
    log_level: LogLevel,
    traces: Option<String>,
    traces_ca: Option<PathBuf>,
}

/// Those of one media.
#[derive(Debug, Default)]
struct EngineOptions {
    media: Option<PathBuf>,
    id_file: Option<PathBuf>,
    listen: Option<String>,
    local: Option<PathBuf>,
    cores: Option<u32>,
    memory_bytes: Option<u64>,
    filter_history_bytes: Option<u64>,
    port_file: Option<PathBuf>,
}

#[derive(Debug)]
enum Invocation {
    Help,
    Version,
    Run(Box<Options>),
}

/// Runs a device; `arguments` come without the program's name.
pub fn main_with_args<A: Into<OsString>>(arguments: impl IntoIterator<Item = A>) -> ExitCode {
    let done = match parse_with_file(arguments.into_iter().map(Into::into)) {
        Ok(Invocation::Help) => print(HELP),
        Ok(Invocation::Version) => print(&format!("cleaved {}\n", env!("CARGO_PKG_VERSION"))),
        Ok(Invocation::Run(options)) => run(&options),
        Err(failure) => Err(failure),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            match process_log::has_begun() {
                true => tracing::error!(target: "cleaved", "{failure}"),
                false => drop(writeln!(std::io::stderr(), "cleaved: {failure}")),
            }
            ExitCode::from(if matches!(failure, Failure::Usage(_)) { MISUSE } else { FAILURE })
        }
    }
}

fn print(text: &str) -> Result<(), Failure> {
    // A reader that closes the pipe is not a failure.
    drop(std::io::stdout().write_all(text.as_bytes()));
    Ok(())
}

/// Tells the operator.
fn say(text: &str) {
    tracing::info!(target: "cleaved", "{text}");
}

/// Tells the operator of peers that are refused, and of connections that break.
fn warn(text: &str) {
    tracing::warn!(target: "cleaved", "{text}");
}

/// Parses `arguments`, with those of the file that `--config` names, which count where they say nothing else.
fn parse_with_file(arguments: impl Iterator<Item = OsString>) -> Result<Invocation, Failure> {
    let (mut given, mut config) = (Vec::new(), None);
    let mut arguments = arguments;
    while let Some(argument) = arguments.next() {
        let text = argument.to_str().unwrap_or_default();
        if text == "--config" {
            let missing = || Failure::Usage("--config needs a value".to_owned());
            config = Some(PathBuf::from(arguments.next().ok_or_else(missing)?));
        } else if let Some(path) = text.strip_prefix("--config=") {
            config = Some(PathBuf::from(path));
        } else {
            given.push(argument);
        }
    }
    let Some(config) = config else { return parse(given.into_iter()) };
    let is_given = |option: &str| {
        let is_it = |text: &str| text.split('=').next() == Some(option);
        given.iter().any(|argument| argument.to_str().is_some_and(is_it))
    };
    let check = |argument: &OsString| match parse(std::iter::once(argument.clone())) {
        Ok(_) => Ok(()),
        Err(Failure::Usage(why)) => Err(why),
        Err(failure) => Err(failure.to_string()),
    };
    let file = config_file::read(&config, &check).map_err(Failure::Usage)?;
    // Either excludes the other.
    let has_token = is_given("--token-file") || is_given("--token-env");
    let of_process = file.process.into_iter();
    let mut all: Vec<OsString> = of_process
        .filter(|(name, _)| !(has_token && name.starts_with("token_")))
        .map(|(_, argument)| argument)
        .collect();
    if !is_given("--media") {
        all.extend(file.engines);
    }
    all.append(&mut given);
    parse(all.into_iter())
}

fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Invocation, Failure> {
    let mut options = Options::default();
    let mut engine = EngineOptions::default();
    let mut arguments = arguments.peekable();
    while let Some(argument) = arguments.next() {
        let Some(text) = argument.to_str() else {
            return Err(Failure::Usage(format!("unknown argument {}", argument.display())));
        };
        // Both `--name value` and `--name=value`.
        let (name, inline) = match text.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(OsString::from(value))),
            None => (text.to_owned(), None),
        };
        match name.as_str() {
            "--help" | "-h" => return Ok(Invocation::Help),
            "--version" | "-V" => return Ok(Invocation::Version),
            "--until-stdin-closes" if inline.is_none() => {
                options.until_stdin_closes = true;
                continue;
            }
            "--overwrite-media" if inline.is_none() => {
                options.overwrite_media = true;
                continue;
            }
            "--hand-over" if inline.is_none() => {
                options.hand_over = true;
                continue;
            }
            _ => {}
        }
        let mut value =
            || inline.clone().or_else(|| arguments.next()).filter(|value| !value.is_empty());
        let missing = || Failure::Usage(format!("{name} needs a value"));
        match name.as_str() {
            "--media" => {
                let media = value().ok_or_else(missing)?;
                if engine.media.is_some() {
                    options.engines.push(std::mem::take(&mut engine));
                }
                engine.media = Some(media.into());
            }
            "--id-file" => engine.id_file = Some(value().ok_or_else(missing)?.into()),
            "--listen" => engine.listen = Some(text_of(&name, value().ok_or_else(missing)?)?),
            "--local" => engine.local = Some(value().ok_or_else(missing)?.into()),
            "--node" => {
                options.node = Some(node_name(text_of(&name, value().ok_or_else(missing)?)?)?);
            }
            "--token-file" => options.token_file = Some(value().ok_or_else(missing)?.into()),
            "--token-env" => {
                options.token_env = Some(text_of(&name, value().ok_or_else(missing)?)?)
            }
            "--tls-cert" => options.tls_cert = Some(value().ok_or_else(missing)?.into()),
            "--tls-key" => options.tls_key = Some(value().ok_or_else(missing)?.into()),
            "--cores" => {
                let text = text_of(&name, value().ok_or_else(missing)?)?;
                let cores = text.parse().ok().filter(|cores| (1..=1024).contains(cores));
                engine.cores = Some(cores.ok_or_else(|| {
                    Failure::Usage(format!("--cores takes a number from 1 to 1024, not `{text}`"))
                })?);
            }
            "--memory" => {
                engine.memory_bytes = Some(bytes_of(&name, value().ok_or_else(missing)?)?)
            }
            "--filter-history" => {
                let size = value().ok_or_else(missing)?;
                let is_none = size == "0";
                let bytes = if is_none { 0 } else { bytes_of(&name, size)? };
                engine.filter_history_bytes = Some(bytes);
            }
            "--rate-cap" => options.rate_cap = Some(bytes_of(&name, value().ok_or_else(missing)?)?),
            "--port-file" => engine.port_file = Some(value().ok_or_else(missing)?.into()),
            "--log-format" => {
                let text = text_of(&name, value().ok_or_else(missing)?)?;
                options.log_format = LogFormat::named(&text).map_err(misused(&name))?;
            }
            "--log-level" => {
                let text = text_of(&name, value().ok_or_else(missing)?)?;
                options.log_level = LogLevel::named(&text).map_err(misused(&name))?;
            }
            "--traces" => options.traces = Some(text_of(&name, value().ok_or_else(missing)?)?),
            "--traces-ca" => options.traces_ca = Some(value().ok_or_else(missing)?.into()),
            _ => return Err(Failure::Usage(format!("unknown argument {text}"))),
        }
    }
    options.engines.push(engine);
    Ok(Invocation::Run(Box::new(options)))
}

fn misused(name: &str) -> impl FnOnce(String) -> Failure {
    move |why| Failure::Usage(format!("{name}: {why}"))
}

/// Hosts show it before the name of a device, with a colon between them.
fn node_name(text: String) -> Result<String, Failure> {
    const BYTES_MAX: usize = 63;
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if text.len() <= BYTES_MAX && text.chars().all(is_allowed) {
        return Ok(text);
    }
    Err(Failure::Usage(format!(
        "--node takes up to {BYTES_MAX} letters, digits, `-`, `_` and `.`, not `{text}`"
    )))
}

fn text_of(name: &str, value: OsString) -> Result<String, Failure> {
    value.into_string().map_err(|_| Failure::Usage(format!("the value of {name} is not text")))
}

/// Bytes in the units that users write: 1000000, 125MB, 256MiB; above 0.
fn bytes_of(name: &str, value: OsString) -> Result<u64, Failure> {
    let text = text_of(name, value)?;
    let wrong = || {
        Failure::Usage(format!("{name} takes bytes, as in 1000000, 125MB or 256MiB, not `{text}`"))
    };
    let digits_end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(digits_end);
    let scale: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1000,
        "kib" => 1 << 10,
        "m" | "mb" => 1_000_000,
        "mib" => 1 << 20,
        "g" | "gb" => 1_000_000_000,
        "gib" => 1 << 30,
        _ => return Err(wrong()),
    };
    let count: u64 = digits.parse().map_err(|_| wrong())?;
    count.checked_mul(scale).filter(|bytes| *bytes > 0).ok_or_else(wrong)
}

fn run(options: &Options) -> Result<(), Failure> {
    private::keep_to_oneself();
    process_log::begin(options.log_format, options.log_level);
    let log: Log = Arc::new(warn);
    let remote = |engine| remote_options(options, engine, &log);
    // All of them before any media is made.
    let remotes = options.engines.iter().map(remote).collect::<Result<Vec<_>, Failure>>()?;
    // Before there is another thread.
    let mut signals = options.traces.as_ref().map(|_| end_by_signal()).transpose()?;
    let traces = begin_traces(options)?;
    let node = Node::new(options.node.clone().unwrap_or_default());
    let engines = options.engines.iter().zip(remotes);
    let engines = engines.map(|(given, remote)| Engine::open(options, given, remote, &node));
    let engines = engines.collect::<Result<Vec<_>, Failure>>()?;
    if let Some(traces) = &traces {
        for engine in &engines {
            // It is new, and has no other one.
            engine.runtime.trace_to(Arc::clone(traces) as Arc<dyn SpanSink>);
        }
    }
    // The sockets' own thread; fragments and media have others.
    let threads = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("cleaved-link")
        .enable_all()
        .build()
        .map_err(Failure::Threads)?;
    let served: Result<(), Failure> = threads.block_on(async {
        // All before anything is reported: the node is then reachable on all ways.
        let mut listening = Vec::new();
        for engine in engines {
            listening.push(engine.listen(options.rate_cap, &log).await?);
        }
        listening.iter().try_for_each(Listening::report)?;
        supervisor::tell(supervisor::READY);
        let serving = async {
            join_all(listening.into_iter().map(Listening::serve)).await;
        };
        let closed = options.until_stdin_closes.then(stdin_closed).transpose()?;
        let signalled = signals.as_mut().map(Signals::next);
        tokio::select! {
            () = serving => {}
            _ = of_option(closed) => {}
            () = of_option(signalled) => {}
        }
        Ok(())
    });
    if let Some(traces) = traces {
        traces.end();
    }
    // A signal that has come ends the process, whatever they do, as one without traces would.
    threads.shutdown_timeout(SHUTDOWN);
    served
}

/// The signals that end the process, which by themselves do so no longer.
fn end_by_signal() -> Result<Signals, Failure> {
    signals::block();
    Signals::listen().map_err(Failure::Threads)
}

/// What `future` gives, if there is one; otherwise nothing ever.
async fn of_option<F: Future>(future: Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

/// Begins to send traces, if that is asked for.
fn begin_traces(options: &Options) -> Result<Option<Arc<Traces>>, Failure> {
    let Some(url) = &options.traces else {
        return match options.traces_ca {
            Some(_) => Err(Failure::Usage("--traces-ca goes with --traces".to_owned())),
            None => Ok(None),
        };
    };
    let collector = Collector::at(url, options.traces_ca.as_deref());
    let collector = collector.map_err(|error| Failure::Usage(format!("--traces: {error}")))?;
    say(&format!("traces go to {}", collector.url()));
    let node = options.node.iter().map(|node| ("cleave.node", node.clone()));
    Ok(Some(Traces::begin(collector, "cleaved", node, Box::new(warn))?))
}

/// An engine that may serve.
struct Engine<'a> {
    given: &'a EngineOptions,
    remote: Option<ListenOptions>,
    runtime: Arc<Runtime>,
    summary: String,
}

impl<'a> Engine<'a> {
    /// Opens the media of `given`, for an engine of `node`.
    fn open(
        options: &Options,
        given: &'a EngineOptions,
        remote: Option<ListenOptions>,
        node: &Arc<Node>,
    ) -> Result<Self, Failure> {
        let media_path = given.media.as_deref().ok_or_else(|| needed("--media"))?;
        let id_file = match &given.id_file {
            Some(path) => path.clone(),
            None => MediaIdentity::path_beside(media_path),
        };
        let media = Arc::new(open_media(media_path, &id_file, options.overwrite_media)?);
        if let Some(path) = &given.port_file
            && path.exists()
        {
            // The port of a dead device, which nobody who waits for the new one may find.
            let failed =
                |source| Failure::File { what: "cannot replace", path: path.clone(), source };
            std::fs::remove_file(path).map_err(failed)?;
        }
        let mut runtime_options = RuntimeOptions::new(device_id(&media, &id_file)?);
        if options.hand_over {
            // First, because the present record may be damaged.
            OwnerRecord::beside_identity(&id_file).replace(None)?;
        }
        runtime_options.owner = OwnerRecord::of_media(&media, &id_file)?;
        if options.hand_over {
            runtime_options.owner.replace(None)?;
            say("handed over: the next database that asks may have all of the media");
        }
        let engine_count = u32::try_from(options.engines.len()).unwrap_or(u32::MAX);
        let share = runtime_options.cores / engine_count.max(1);
        runtime_options.cores = given.cores.unwrap_or(share.max(1));
        if let Some(bytes) = given.memory_bytes {
            runtime_options.fragment_memory_bytes = bytes;
        }
        if let Some(bytes) = given.filter_history_bytes {
            runtime_options.filter_history_bytes = bytes;
        }
        let summary = format!(
            "media {}, {} cores and {} bytes for fragments",
            media_path.display(),
            runtime_options.cores,
            runtime_options.fragment_memory_bytes
        );
        let runtime = Runtime::in_node(media, runtime_options, node)?;
        Ok(Self { given, remote, runtime, summary })
    }

    async fn listen(self, rate_cap: Option<u64>, log: &Log) -> Result<Listening<'a>, Failure> {
        let Self { given, remote, runtime, summary } = self;
        let local = match &given.local {
            Some(socket) => {
                let options =
                    LocalOptions { socket: socket.clone(), rate_cap, log: Arc::clone(log) };
                Some(LocalListener::bind(Arc::clone(&runtime) as _, options).await?)
            }
            None => None,
        };
        let remote = match remote {
            Some(options) => {
                let with_tls = if options.identity.is_some() { "with TLS" } else { "without TLS" };
                Some((Listener::bind(runtime, options).await?, with_tls))
            }
            None => None,
        };
        Ok(Listening { given, local, remote, summary })
    }
}

/// An engine that hosts can reach.
struct Listening<'a> {
    given: &'a EngineOptions,
    local: Option<LocalListener>,
    /// Whether with TLS, in words.
    remote: Option<(Listener, &'static str)>,
    summary: String,
}

impl Listening<'_> {
    fn report(&self) -> Result<(), Failure> {
        let summary = &self.summary;
        if let Some(socket) = &self.given.local {
            say(&format!("listening on {} for this user; {summary}", socket.display()));
        }
        if let Some((listener, with_tls)) = &self.remote {
            let address = listener.local_address();
            say(&format!("listening on {address} {with_tls}; {summary}"));
            if let Some(path) = &self.given.port_file {
                write_port(path, address.port())?;
            }
        }
        Ok(())
    }

    async fn serve(self) {
        let Self { local, remote, .. } = self;
        let serve_remote = async {
            if let Some((listener, _)) = remote {
                listener.serve().await;
            }
        };
        let serve_local = async {
            if let Some(listener) = local {
                listener.serve().await;
            }
        };
        futures::future::join(serve_remote, serve_local).await;
    }
}

fn needed(name: &str) -> Failure {
    Failure::Usage(format!("{name} is needed, or the option of that name in the file of --config"))
}

/// How other machines reach `engine`; None: they do not.
fn remote_options(
    options: &Options,
    engine: &EngineOptions,
    log: &Log,
) -> Result<Option<ListenOptions>, Failure> {
    if engine.media.is_none() {
        return Err(needed("--media"));
    }
    if let Some(listen) = &engine.listen {
        return listen_options(options, listen, log).map(Some);
    }
    if engine.local.is_none() {
        return Err(needed("--listen or --local"));
    }
    let listens = options.engines.iter().any(|engine| engine.listen.is_some());
    let given = [
        (options.token_file.is_some() && !listens, "--token-file"),
        (options.token_env.is_some() && !listens, "--token-env"),
        (options.tls_cert.is_some() && !listens, "--tls-cert"),
        (options.tls_key.is_some() && !listens, "--tls-key"),
        (engine.port_file.is_some(), "--port-file"),
    ];
    match given.iter().find(|(is_given, _)| *is_given) {
        Some((_, name)) => Err(Failure::Usage(format!("{name} goes with --listen"))),
        None => Ok(None),
    }
}

/// The options for connections from other machines.
fn listen_options(options: &Options, listen: &str, log: &Log) -> Result<ListenOptions, Failure> {
    let address = resolve(listen)?;
    let token = match (&options.token_file, &options.token_env) {
        (Some(path), None) => Token::from_file(path)?,
        (None, Some(name)) => Token::from_env(name)?,
        (None, None) => {
            return Err(Failure::Usage("--token-file or --token-env is needed".to_owned()));
        }
        (Some(_), Some(_)) => {
            let message = "--token-file and --token-env exclude each other";
            return Err(Failure::Usage(message.to_owned()));
        }
    };
    let identity = match (&options.tls_cert, &options.tls_key) {
        (Some(cert), Some(key)) => Some(Arc::new(DeviceIdentity::from_files(cert, key)?)),
        (None, None) => None,
        _ => {
            return Err(Failure::Usage("--tls-cert and --tls-key go together".to_owned()));
        }
    };
    if identity.is_none() && !address.ip().is_loopback() {
        return Err(ServeError::Unprotected { address }.into());
    }
    Ok(ListenOptions { address, identity, token, rate_cap: options.rate_cap, log: Arc::clone(log) })
}

fn resolve(listen: &str) -> Result<SocketAddr, Failure> {
    let wrong = |why: &str| {
        Failure::Usage(format!(
            "--listen takes HOST:PORT, as in 127.0.0.1:7700, not `{listen}`{why}"
        ))
    };
    let addresses = listen.to_socket_addrs().map_err(|source| match source.kind() {
        ErrorKind::InvalidInput => wrong(&format!(": {source}")),
        // A name that has no address now may have one later.
        _ => Failure::File { what: "cannot resolve", path: listen.into(), source },
    });
    addresses?.next().ok_or_else(|| wrong(""))
}

fn open_media(path: &Path, id_file: &Path, overwrite: bool) -> Result<DirectFile, Failure> {
    let failed = |source| Failure::File { what: "cannot open", path: path.to_owned(), source };
    if path.exists() && private::make_private(path).map_err(failed)? {
        say(&format!("took the rights of others from {}, which holds rows", path.display()));
    }
    let media = if overwrite && path.exists() {
        retry_while_locked(|| DirectFile::open(path, OpenMode::Overwrite))?
    } else {
        if !path.exists() && MediaIdentity::kept(id_file)?.is_none() {
            say(&format!("{} is not there: making it, empty", path.display()));
        }
        retry_while_locked(|| DirectFile::open_or_create(path, id_file))?
    };
    if !media.direct() {
        say(&format!(
            "{} lies where direct I/O is refused: going through the page cache",
            path.display()
        ));
    }
    if !media.reads_at_once() {
        say("the system grants no io_uring: reading one place after the other");
    }
    Ok(media)
}

/// Opens media that the device before this one may still hold: the kernel ends the reads of a killed process, and with
/// them its lock, a moment after the process itself. Locked media is asked for again for two seconds.
fn retry_while_locked(
    open: impl Fn() -> Result<DirectFile, MediaError>,
) -> Result<DirectFile, MediaError> {
    const PAUSE: Duration = Duration::from_millis(25);
    for _ in 1..80 {
        match open() {
            Err(MediaError::Locked { .. }) => std::thread::park_timeout(PAUSE),
            opened => return opened,
        }
    }
    open()
}

/// The identity of the media: its own, or the one stored in `id_file`.
fn device_id(media: &DirectFile, id_file: &Path) -> Result<[u8; 16], Failure> {
    let identity = MediaIdentity::of_media(media, id_file)?;
    if identity.is_new {
        let place = if media.head().is_some() { media.path() } else { id_file };
        say(&format!("gave the media the identity {identity}, kept in {}", place.display()));
    }
    Ok(identity.bytes)
}

/// Writes the port atomically.
fn write_port(path: &Path, port: u16) -> Result<(), Failure> {
    let failed = |source| Failure::File { what: "cannot write", path: path.to_owned(), source };
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    std::fs::write(&part, format!("{port}\n")).map_err(failed)?;
    std::fs::rename(&part, path).map_err(failed)
}

/// Resolves when standard input is closed.
fn stdin_closed() -> Result<tokio::sync::oneshot::Receiver<()>, Failure> {
    let (sender, closed) = tokio::sync::oneshot::channel();
    std::thread::Builder::new()
        .name("cleaved-stdin".to_owned())
        .spawn(move || {
            let mut buffer = [0; 256];
            let mut stdin = std::io::stdin().lock();
            while stdin.read(&mut buffer).is_ok_and(|count| count > 0) {}
            sender.send(()).unwrap_or_default();
        })
        .map_err(Failure::Threads)?;
    Ok(closed)
}

#[cfg(test)]
mod tests;
