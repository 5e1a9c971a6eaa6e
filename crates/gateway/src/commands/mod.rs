//! The subcommands: what each does is here or in a module of its own.
mod check;
mod compare;
mod database;
mod demo;
mod echo;
mod explain;

pub(crate) use compare::CompareArgs;

use crate::cli::{AdminCommand, Command, SettingsArgs};
use crate::configuration::process_environment;
use crate::node::Node;
use crate::node::command_socket::{self, Request};
use crate::plugins::Definitions;
use crate::prefix;
use crate::settings::{self, Loaded};
use std::io::{self, Write};
use std::process::ExitCode;

/// Does what the command line asks for.
pub(crate) fn perform(command: Command, definitions: Definitions) -> Result<ExitCode, String> {
    match command {
        Command::Run(args) => run(args, definitions),
        Command::Check { files, settings } => {
            let settings = load(settings.into())?.settings;
            let good = check::check(files, &settings, definitions, &mut io::stdout(), &mut io::stderr())
                .map_err(|error| error.to_string())?;
            Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Command::Explain(question) => explain::explain(question, definitions, &mut io::stdout()),
        Command::Compare(arguments) => compare::compare(arguments, &mut io::stdout()),
        Command::Reload(args) => ask(args.into(), Request::Reload),
        Command::Quit(args) => ask(args.into(), Request::Quit),
        Command::Demo(args) => demo::run(load(args)?, definitions),
        Command::Echo { addresses } => echo::serve(&addresses).map_err(|error| error.to_string()),
        Command::Admin(AdminCommand::Token) => print(&settings::new_token()),
        Command::Migrations(command) => {
            let settings = load(command.store().clone().into())?.settings;
            let (said, good) = database::migrate(command, &settings)?;
            print(&said).map(|_| if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Command::Config(command) => {
            let settings = load(command.store().clone().into())?.settings;
            print(&database::transfer(command, &settings, definitions)?)
        }
        Command::Settings => print(&settings::manual()),
        Command::Version => print(concat!("weir ", env!("CARGO_PKG_VERSION"), "\n")),
    }
}

fn run(args: SettingsArgs, definitions: Definitions) -> Result<ExitCode, String> {
    let node = Node::start(load(args)?, process_environment(), definitions);
    let node = node.map_err(|error| error.to_string())?;
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
