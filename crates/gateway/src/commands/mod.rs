//! The subcommands: what each does is here or in a module of its own.
mod against;
mod check;
mod client;
mod compare;
mod container;
mod database;
mod demo;
mod demo_traffic;
mod echo;
mod explain;
mod generate;
mod hybrid;
mod migrations;
mod running_node;
mod start;
mod vault;

pub(crate) use container::entrypoint;

use crate::admin::plugin_conflicts;
use crate::cli::{AdminCommand, Cli, Command, HybridCommand, Program, SettingsArgs, VaultCommand};
use crate::plugins::{Definitions, NodePlugins};
use crate::settings::{self, Loaded, Problem, Settings, Sources, TokenRole};
use std::io::{self, Write};
use std::process::ExitCode;
use weir_plugins::KONG_VERSION;

/// What every command knows.
#[derive(Clone, Copy)]
struct Context {
    /// The name that the program was called by.
    program: Program,
    /// How much is printed about what is done.
    verbosity: u8,
    /// The plugins of this program.
    definitions: Definitions,
}

/// Does what the command line asks for.
pub(crate) fn perform(cli: Cli, program: Program, definitions: Definitions) -> Result<ExitCode, String> {
    let context = Context { program, verbosity: cli.verbosity(), definitions };
    match cli.command {
        Command::Run(args) => start::run(args, &context),
        Command::Start(args) => start::start(args, &context),
        Command::Restart(args) => start::restart(args, &context),
        Command::Prepare(args) => start::prepare(args, &context),
        Command::DockerStart(args) => container::docker_start(args, &context),
        Command::Stop(args) => running_node::stop(args, &context),
        Command::Quit(args) => running_node::quit(args, &context),
        Command::Reload(args) => running_node::reload(args, &context),
        Command::Upgrade(args) => running_node::upgrade(args, &context),
        Command::Health(args) => running_node::health(args, &context),
        Command::Check { files, against, plugins, settings } => {
            check::check(files, (against, plugins), settings, &context)
        }
        Command::Explain(question) => explain::explain(question, &context, &mut io::stdout()),
        Command::Compare(arguments) => compare::compare(arguments, &mut io::stdout()),
        Command::Demo(args) => demo::run(context.load(args)?, definitions),
        Command::Echo { addresses } => echo::serve(&addresses).map_err(|error| error.to_string()),
        Command::Admin(AdminCommand::Token { read_only }) => {
            print(&settings::new_token(if read_only { TokenRole::ReadOnly } else { TokenRole::ReadWrite }))
        }
        Command::Migrations(command) => migrations::migrate(&command, &context),
        Command::Config(command) => database::configure(command, &context),
        Command::Hybrid(HybridCommand::GenCert { files, days }) => hybrid::gen_cert(&files, days),
        Command::Vault(VaultCommand::Get { reference, settings }) => {
            let reference = reference.ok_or(vault::NO_REFERENCE)?;
            let loaded = context.load(settings)?;
            loaded.warnings.iter().for_each(|warning| context.say(0, &format!("warning: {warning}")));
            print(&vault::get(&reference, &loaded.settings, &context)?)
        }
        Command::Settings => print(&settings::manual()),
        Command::Plugins(args) => print(&context.plugin_names(args.into())?),
        Command::Completions { shell } => generate::completions(shell, program),
        Command::ManualPages { folder } => generate::manual_pages(&folder, program),
        Command::Version { all } => print(&version(program, all)),
    }
}

impl Context {
    /// Reads the settings.
    fn load(&self, args: SettingsArgs) -> Result<Loaded, String> {
        self.load_from(args.sources(self.program))
    }

    /// The same, for a node that runs already. No vault is asked, because the node must stop without one too.
    fn load_of_running(&self, args: SettingsArgs) -> Result<Loaded, String> {
        self.load_from(Sources { without_secrets: true, ..args.sources(self.program) })
    }

    fn load_from(&self, sources: Sources) -> Result<Loaded, String> {
        self.load_or_problems(sources)
            .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    }

    fn load_or_problems(&self, sources: Sources) -> Result<Loaded, Vec<Problem>> {
        let files = [&sources.kong_conf, &sources.file];
        files.into_iter().flatten().for_each(|file| self.say(1, &format!("reading {}", file.display())));
        let loaded = settings::load(sources)?;
        self.say(2, &format!("settings given: {}", loaded.given.join(", ")));
        Ok(loaded)
    }

    /// The plugins of a node with these settings.
    fn plugins(&self, settings: &Settings) -> Result<NodePlugins, String> {
        NodePlugins::load(self.definitions, settings, plugin_conflicts::check)
            .map_err(|errors| errors.join("\n"))
    }

    /// The plugins that a node with these settings allows, a line each.
    fn plugin_names(&self, args: SettingsArgs) -> Result<String, String> {
        let NodePlugins { schemas, .. } = self.plugins(&self.load(args)?.settings)?;
        let allowed = schemas.iter().filter(|plugin| plugin.available);
        let mut lines: Vec<_> = allowed.map(|plugin| format!("{}\n", plugin.name)).collect();
        lines.sort_unstable();
        Ok(lines.concat())
    }

    /// Prints what is done, if so much was asked for.
    fn say(&self, verbosity: u8, text: &str) {
        if self.verbosity >= verbosity {
            // What is missed is of no consequence.
            let _ = writeln!(io::stderr(), "{text}");
        }
    }
}

/// Kong's version as `kong`, because scripts compare it: that of the Kong whose API this is.
fn version(program: Program, all: bool) -> String {
    const WEIR: &str = env!("CARGO_PKG_VERSION");
    match (program, all) {
        (Program::Kong, false) => format!("{KONG_VERSION}\n"),
        (Program::Kong, true) => format!("Kong: {KONG_VERSION}\nweir: {WEIR}\n"),
        (_, false) => format!("weir {WEIR}\n"),
        (_, true) => format!("weir: {WEIR}\nKong's API: {KONG_VERSION}\n"),
    }
}

fn print(text: &str) -> Result<ExitCode, String> {
    print_bytes(text.as_bytes())
}

fn print_bytes(bytes: &[u8]) -> Result<ExitCode, String> {
    let mut output = io::stdout().lock();
    output.write_all(bytes).and_then(|()| output.flush()).map_err(|error| error.to_string())?;
    Ok(ExitCode::SUCCESS)
}
