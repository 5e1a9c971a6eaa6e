//! The commands to a running node: `weir stop`, `quit`, `reload` and `health`.
use super::start::folder;
use super::{Context, print};
use crate::cli::{NodeArgs, Program, QuitArgs, ReloadArgs, UpgradeArgs};
use crate::node::command_socket::{self, CommandError, Quit, Reply, Request};
use crate::prefix;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Stops a node at once.
pub(super) fn stop(args: NodeArgs, context: &Context) -> Result<ExitCode, String> {
    succeeded(ask(args, Request::Quit(Quit::AT_ONCE), context)?)?;
    print(&format!("{} stopped\n", context.program.product()))
}

/// Has a node finish its requests and stop.
pub(super) fn quit(args: QuitArgs, context: &Context) -> Result<ExitCode, String> {
    let quit =
        Quit { timeout: milliseconds("--timeout", args.timeout)?, delay: milliseconds("--wait", args.wait)? };
    context.say(1, "waiting for requests in flight");
    let asked = Instant::now();
    let reply = succeeded(ask(args.node, Request::Quit(quit), context)?)?;
    let in_time =
        asked.elapsed() < Duration::from_millis(reply.shutdown_delay.saturating_add(reply.drain_timeout));
    let product = context.program.product();
    match in_time {
        true => print(&format!("{product} stopped (gracefully)\n")),
        false => print(&format!("Timeout, {product} stopped forcefully\n")),
    }
}

fn succeeded(reply: Reply) -> Result<Reply, String> {
    if reply.errors.is_empty() { Ok(reply) } else { Err(reply.errors.join("\n")) }
}

/// Seconds of an option, in milliseconds.
fn milliseconds(option: &str, seconds: Option<f64>) -> Result<Option<u64>, String> {
    let time = seconds.map(Duration::try_from_secs_f64).transpose();
    let time = time.map_err(|error| format!("{option}: {error}"))?;
    Ok(time.map(|time| time.as_millis().try_into().unwrap_or(u64::MAX)))
}

/// Has a new process take over.
pub(super) fn upgrade(args: UpgradeArgs, context: &Context) -> Result<ExitCode, String> {
    let timeout = milliseconds("--timeout", args.timeout)?;
    let program = args.program.map(std::path::absolute).transpose();
    let program = program.map_err(|error| format!("--program: {error}"))?;
    let reply = ask(args.node, Request::Upgrade(program, timeout), context)?;
    match reply.pid {
        Some(pid) => print(&format!("upgraded: process {pid} serves, the old one drains\n")),
        None => Err(reply.errors.join("\n")),
    }
}

/// Has a node read its declarative file again.
pub(super) fn reload(args: ReloadArgs, context: &Context) -> Result<ExitCode, String> {
    args.nginx.refuse()?;
    let reply = ask(args.node, Request::Reload, context)?;
    // Kong's scripts reload a node with a database too.
    let succeeds = reply.errors.is_empty() || (reply.is_stored && context.program == Program::Kong);
    if !succeeds {
        return Err(reply.errors.join("\n"));
    }
    for warning in reply.warnings.iter().chain(&reply.errors) {
        writeln!(io::stderr(), "warning: {warning}").map_err(|error| error.to_string())?;
    }
    match (context.program, reply.configuration_hash) {
        (Program::Kong, _) => print("Kong reloaded\n"),
        (_, Some(hash)) => print(&format!("reloaded: configuration_hash {hash}\n")),
        (_, None) => Ok(ExitCode::SUCCESS),
    }
}

/// Reports whether a node serves.
pub(super) fn health(args: NodeArgs, context: &Context) -> Result<ExitCode, String> {
    let folder = folder(&context.load_of_running(args.into())?.settings)?;
    let product = context.program.product();
    exists(&folder)?;
    match command_socket::ask(&folder, Request::Health) {
        Ok(_) => print(&format!("weir........running\n\n{product} is healthy at {}\n", folder.display())),
        Err(CommandError::NotRunning(_)) => {
            print("weir........not running\n\n")?;
            Err(format!("{product} is not running at {}", folder.display()))
        }
        Err(CommandError::NoReply(error)) => {
            Err(format!("{product} does not respond at {}: {error}", folder.display()))
        }
    }
}

fn ask(args: NodeArgs, request: Request, context: &Context) -> Result<Reply, String> {
    let folder = folder(&context.load_of_running(args.into())?.settings)?;
    command_socket::ask(&folder, request).map_err(|error| {
        let socket = prefix::socket(&folder);
        match error {
            CommandError::NotRunning(error) if context.program == Program::Kong => match exists(&folder) {
                Err(message) => message,
                Ok(()) => {
                    let folder = folder.display();
                    format!("Kong is not running in {folder}: nginx not running in prefix: {folder}: {error}")
                }
            },
            CommandError::NotRunning(error) => format!(
                "no node runs at {}: {error}: start one, or name its folder with `--prefix DIR`",
                socket.display()
            ),
            CommandError::NoReply(error) => {
                format!("the node at {} did not respond: {error}", socket.display())
            }
        }
    })
}

fn exists(folder: &Path) -> Result<(), String> {
    match folder.exists() {
        true => Ok(()),
        false => Err(format!("no such prefix: {}", folder.display())),
    }
}
