//! `weir`: the gateway's binary. It reads settings and the declarative file, runs the data plane, and answers those
//! who operate it; how a request is served is `weir-proxy`'s business.
mod admin;
mod apisix;
mod apisix_admin;
mod cli;
mod commands;
mod configuration;
mod control;
mod data_plane;
mod depth;
mod listener;
mod logger;
mod low_priority;
mod node;
mod prefix;
mod registry;
mod settings;
mod start_error;
mod status;
mod store;

use clap::Parser;
use cli::{AdminCommand, Cli, Command, SettingsArgs};
use commands::{check, database, demo, echo, explain};
use node::Node;
use node::command_socket::{self, Request};
use settings::Loaded;
use std::io::{self, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    match perform(Cli::parse().command) {
        Ok(code) => code,
        Err(message) => {
            // Nothing is left to do when even this cannot be written.
            let _ = writeln!(io::stderr(), "{message}");
            ExitCode::FAILURE
        }
    }
}

fn perform(command: Command) -> Result<ExitCode, String> {
    match command {
        Command::Run(args) => run(args),
        Command::Check { files, settings } => {
            let settings = load(settings.into())?.settings;
            let good = check::check(files, &settings, &mut io::stdout(), &mut io::stderr())
                .map_err(|error| error.to_string())?;
            Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Command::Explain(question) => explain::explain(question, &mut io::stdout()),
        Command::Reload(args) => ask(args.into(), Request::Reload),
        Command::Quit(args) => ask(args.into(), Request::Quit),
        Command::Demo(args) => demo::run(load(args)?),
        Command::Echo { addresses } => echo::serve(&addresses).map_err(|error| error.to_string()),
        Command::Admin(AdminCommand::Token) => print(&settings::new_token()),
        Command::Migrations(command) => {
            let settings = load(command.store().clone().into())?.settings;
            let (said, good) = database::migrate(command, &settings)?;
            print(&said).map(|_| if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Command::Config(command) => {
            let settings = load(command.store().clone().into())?.settings;
            print(&database::transfer(command, &settings)?)
        }
        Command::Settings => print(&settings::manual()),
        Command::Version => print(concat!("weir ", env!("CARGO_PKG_VERSION"), "\n")),
    }
}

fn run(args: SettingsArgs) -> Result<ExitCode, String> {
    let node =
        Node::start(load(args)?, configuration::process_environment()).map_err(|error| error.to_string())?;
    let line = serde_json::to_string(node.addresses()).map_err(|error| error.to_string())?;
    print(&format!("{line}\n"))?;
    node.serve().map_err(|error| error.to_string())?;
    Ok(ExitCode::SUCCESS)
}

fn load(args: SettingsArgs) -> Result<Loaded, String> {
    settings::load(args.sources())
        .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

fn ask(args: SettingsArgs, request: Request) -> Result<ExitCode, String> {
    let folder = prefix::or_default(load(args)?.settings.prefix).map_err(|error| error.to_string())?;
    let reply = command_socket::ask(&folder, request)?;
    if !reply.errors.is_empty() {
        return Err(reply.errors.join("\n"));
    }
    for warning in &reply.warnings {
        writeln!(io::stderr(), "warning: {warning}").map_err(|error| error.to_string())?;
    }
    match reply.configuration_hash {
        Some(hash) => print(&format!("reloaded: configuration_hash {hash}\n")),
        None => Ok(ExitCode::SUCCESS),
    }
}

fn print(text: &str) -> Result<ExitCode, String> {
    let mut output = io::stdout().lock();
    output.write_all(text.as_bytes()).and_then(|()| output.flush()).map_err(|error| error.to_string())?;
    Ok(ExitCode::SUCCESS)
}
