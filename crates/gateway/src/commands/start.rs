//! `weir run`, `start`, `restart` and `prepare`: what makes a folder ready, and a node serve in it.
use super::{Context, database, migrations, print};
use crate::cli::{PrepareArgs, Program, RunArgs, SettingsArgs, StartArgs};
use crate::configuration::process_environment;
use crate::data_plane::try_out;
use crate::logger;
use crate::node::command_socket::{self, Quit, Request};
use crate::node::{self, Node, Start};
use crate::prefix;
use crate::process_limit;
use crate::program;
use crate::settings::{Loaded, Settings};
use crate::start_error::StartError;
use crate::store::migrations::Task;
use crate::upgrade::{Launch, Predecessor};
use rustix::stdio;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Serves in the foreground, perhaps in the place of another process.
pub(super) fn run(args: RunArgs, context: &Context) -> Result<ExitCode, String> {
    let predecessor = Predecessor::of_environment();
    let predecessor = predecessor.map_err(|error| format!("the process to replace: {error}"))?;
    let failing = predecessor.as_ref().map(Predecessor::failing);
    run_after(predecessor, args, context).inspect_err(|reason| {
        if let Some(failing) = failing {
            failing.tell(reason);
        }
    })
}

fn run_after(predecessor: Option<Predecessor>, args: RunArgs, context: &Context) -> Result<ExitCode, String> {
    let loaded = context.load(args.settings.clone())?;
    let start = start_of(&args.settings, predecessor, context)?;
    if !args.detach {
        return serve(loaded, start, context, |_| Ok(()));
    }
    // Fails if this process leads a session already, which is as good.
    let _ = rustix::process::setsid();
    serve(loaded, start, context, leave_terminal)
}

/// How a node with these options comes to be, and the process that replaces it one day.
pub(super) fn start_of(
    args: &SettingsArgs,
    predecessor: Option<Predecessor>,
    context: &Context,
) -> Result<Start, String> {
    let launch = Launch::new(context.program.command(), args.options()).map_err(|error| error.to_string())?;
    Ok(Start { launch, predecessor, temporary: None })
}

/// Starts a node, in the background unless the settings say otherwise.
pub(super) fn start(args: StartArgs, context: &Context) -> Result<ExitCode, String> {
    args.nginx.refuse()?;
    let loaded = context.load(args.settings.clone())?;
    make_ready(&loaded.settings, context)?;
    if args.run_migrations == Some(true) {
        let settings = context.load(args.settings.clone().and(args.timeouts.setting()))?.settings;
        let lock_timeout = args.timeouts.lock_timeout;
        print(&migrations::report(Task::Up, &settings, lock_timeout, context)?.text)?;
    }
    launch(loaded, &args.settings, context)
}

/// Stops the node, if one runs, and starts it again.
pub(super) fn restart(args: PrepareArgs, context: &Context) -> Result<ExitCode, String> {
    args.nginx.refuse()?;
    let loaded = context.load(args.settings.clone())?;
    let folder = folder(&loaded.settings)?;
    if command_socket::is_running(&folder) {
        refuse_broken(&loaded.settings, context)?;
    }
    if command_socket::ask(&folder, Request::Quit(Quit::AT_ONCE)).is_ok() {
        context.say(1, "stopped");
    }
    make_ready(&loaded.settings, context)?;
    launch(loaded, &args.settings, context)
}

/// Keeps a node from being stopped for a configuration with which it would not start again.
fn refuse_broken(settings: &Settings, context: &Context) -> Result<(), String> {
    let source = database::source_at(node::origin(settings), settings, context)?;
    try_out(&source, settings).map(drop).map_err(|invalid| {
        let product = context.program.product();
        format!("{}\n{product} was not restarted and goes on as it was", invalid.errors.join("\n"))
    })
}

fn launch(loaded: Loaded, args: &SettingsArgs, context: &Context) -> Result<ExitCode, String> {
    match loaded.settings.nginx_daemon {
        true => in_background(args, context),
        false => serve(loaded, start_of(args, None, context)?, context, |_| Ok(())),
    }
}

/// Checks the settings and creates the folder.
pub(super) fn prepare(args: PrepareArgs, context: &Context) -> Result<ExitCode, String> {
    args.nginx.refuse()?;
    create(&context.load(args.settings)?.settings, context)?;
    Ok(ExitCode::SUCCESS)
}

/// Starts a node and serves until it is stopped; `started` is called once it serves.
pub(super) fn serve(
    loaded: Loaded,
    start: Start,
    context: &Context,
    started: impl FnOnce(&Path) -> io::Result<()>,
) -> Result<ExitCode, String> {
    let folder = folder(&loaded.settings)?;
    let replaces = start.predecessor.is_some();
    let node = Node::start(loaded, process_environment(), context.definitions, start);
    if let Err(stopped @ StartError::Stopped) = &node
        && !replaces
    {
        // As it was asked for, service managers should not see a failure.
        tracing::info!("{stopped}");
        return Ok(ExitCode::SUCCESS);
    }
    let mut node = node.map_err(|error| error.to_string())?;
    node.open().map_err(|error| StartError::System(error).to_string())?;
    let line = serde_json::to_string(node.addresses()).map_err(|error| error.to_string())?;
    // The reader of the replaced process's line may have closed the pipe.
    print(&format!("{line}\n")).or_else(|error| if replaces { Ok(ExitCode::SUCCESS) } else { Err(error) })?;
    started(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    node.serve();
    Ok(ExitCode::SUCCESS)
}

/// Makes the folder ready for a node, which must not run yet.
pub(super) fn make_ready(settings: &Settings, context: &Context) -> Result<PathBuf, String> {
    let folder = folder(settings)?;
    if command_socket::is_running(&folder) {
        let product = context.program.product();
        return Err(format!("{product} is already running in {}", folder.display()));
    }
    create(settings, context)?;
    let removed = prefix::remove_sockets(&folder).map_err(|error| error.to_string())?;
    if !removed.is_empty() {
        let warning = format!(
            "WARN: found dangling unix sockets in the prefix directory ({}) and removed them: {}. The node there was \
             probably killed",
            folder.display(),
            removed.join(", ")
        );
        writeln!(io::stderr(), "{warning}").map_err(|error| error.to_string())?;
    }
    Ok(folder)
}

/// The node's folder.
pub(super) fn folder(settings: &Settings) -> Result<PathBuf, String> {
    prefix::or_default(settings.prefix.clone()).map_err(|error| error.to_string())
}

/// Creates the folder, with what scripts look for in that of Kong.
fn create(settings: &Settings, context: &Context) -> Result<(), String> {
    let folder = folder(settings)?;
    context.say(1, &format!("preparing {}", folder.display()));
    prefix::create(&folder).and_then(|()| prefix::logs(&folder)).map_err(|error| error.to_string())?;
    if context.program == Program::Kong {
        let pids = folder.join("pids");
        let link = pids.join("nginx.pid");
        let created = std::fs::create_dir_all(&pids).and_then(|()| match link.symlink_metadata() {
            Ok(_) => Ok(()),
            Err(_) => symlink("../weir.pid", &link),
        });
        created.map_err(|error| format!("{}: {error}", link.display()))?;
    }
    Ok(())
}

/// Runs a node in a process of its own; returns once that serves, or has said why it does not.
fn in_background(args: &SettingsArgs, context: &Context) -> Result<ExitCode, String> {
    let program = program::own().map_err(|error| error.to_string())?;
    let mut node = Command::new(&program)
        .arg0(program::argument(&program, context.program.command()))
        .args(["run", "--detach"])
        .args(args.options())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| {
            format!("cannot start the node's process: {error}{}", process_limit::hint(&error))
        })?;
    let mut line = String::new();
    if let Some(output) = node.stdout.take() {
        BufReader::new(output).read_line(&mut line).map_err(|error| error.to_string())?;
    }
    if line.is_empty() {
        let _ = node.wait();
        return Ok(ExitCode::FAILURE);
    }
    context.say(1, line.trim_end());
    print(&format!("{} started\n", context.program.product()))
}

/// Closes what the process shares with the one that started it. Standard error goes to a log in the folder.
fn leave_terminal(folder: &Path) -> io::Result<()> {
    prefix::logs(folder).map_err(|error| io::Error::other(error.to_string()))?;
    let path = prefix::error_log(folder);
    let log = File::options().create(true).append(true).open(&path)?;
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    stdio::dup2_stdin(&nothing)?;
    stdio::dup2_stdout(&nothing)?;
    stdio::dup2_stderr(&log)?;
    logger::follow_standard_error(&path);
    Ok(())
}
