//! The command line.
use crate::commands::CompareArgs;
use crate::settings::{Flag, Sources};
use clap::{Args, Parser, Subcommand};
use std::net::SocketAddr;
use std::path::PathBuf;

/// An API gateway that reads Kong's configuration.
#[derive(Debug, Parser)]
#[command(name = "weir", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve in the foreground. SIGHUP reloads, SIGUSR1 reopens the access log; SIGTERM, SIGQUIT and SIGINT drain, a
    /// second one stops at once.
    Run(SettingsArgs),
    /// Check declarative files: every error as `file:line:column: message`.
    Check {
        /// The files, YAML or JSON; `-` is the standard input.
        #[arg(required = true)]
        files: Vec<PathBuf>,
        #[command(flatten)]
        settings: CheckArgs,
    },
    /// Explain how a request would be handled: its route, plugins and upstream. Nothing is sent.
    Explain(ExplainArgs),
    /// Send the same requests to two gateways, and report how their responses differ.
    Compare(CompareArgs),
    /// Make the running node read its declarative file again; fails with the errors if the file is invalid.
    Reload(NodeArgs),
    /// Make the running node drain and stop; waits until it has.
    Quit(NodeArgs),
    /// Serve a sample configuration with a built-in upstream, and print requests to try.
    Demo(SettingsArgs),
    /// Serve the demo's upstream alone, which echoes requests.
    Echo {
        /// Where to listen.
        #[arg(default_value = "127.0.0.1:9000")]
        addresses: Vec<SocketAddr>,
    },
    /// Manage access to the Admin API.
    #[command(subcommand)]
    Admin(AdminCommand),
    /// Manage the tables of the database.
    #[command(subcommand)]
    Migrations(MigrationsCommand),
    /// Import configurations into the database, and export them.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print the manual of all settings.
    Settings,
    /// Print the version.
    Version,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AdminCommand {
    /// Generate a token for the Admin API: print it, and its hash for the setting `admin_auth`.
    Token,
}

#[derive(Debug, Subcommand)]
pub(crate) enum MigrationsCommand {
    /// Create the tables.
    Bootstrap(StoreArgs),
    /// Migrate the tables of an older version.
    #[command(alias = "finish")]
    Up(StoreArgs),
    /// Report the state of the tables; fails unless they can be used as they are.
    #[command(alias = "list")]
    Status(StoreArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Import a declarative file; its entities replace those with the same ids.
    #[command(name = "db_import")]
    DbImport {
        /// The file, YAML or JSON; `-` is the standard input.
        file: PathBuf,
        #[command(flatten)]
        store: StoreArgs,
    },
    /// Export everything to a declarative file, which must not exist yet.
    #[command(name = "db_export")]
    DbExport {
        /// The file; `-` is the standard output.
        #[arg(default_value = "kong.yml")]
        file: PathBuf,
        #[command(flatten)]
        store: StoreArgs,
    },
}

impl MigrationsCommand {
    /// Which database is meant.
    pub(crate) fn store(&self) -> &StoreArgs {
        let (MigrationsCommand::Bootstrap(store)
        | MigrationsCommand::Up(store)
        | MigrationsCommand::Status(store)) = self;
        store
    }
}

impl ConfigCommand {
    /// Which database is meant.
    pub(crate) fn store(&self) -> &StoreArgs {
        let (ConfigCommand::DbImport { store, .. } | ConfigCommand::DbExport { store, .. }) = self;
        store
    }
}

/// Where the settings come from.
#[derive(Debug, Args)]
pub(crate) struct SettingsArgs {
    /// The declarative file to serve, as `--set declarative_config=…`.
    #[arg(long, value_name = "FILE")]
    config: Option<String>,
    /// A file of settings, in TOML.
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
    /// The node's own folder, as `--set prefix=…`.
    #[arg(long, value_name = "DIR")]
    prefix: Option<String>,
    /// One setting; may be given several times.
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_and_value)]
    set: Vec<(String, String)>,
}

/// Where the settings of a check come from.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// A file of settings, in TOML.
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
    /// One setting, such as `plugins`; may be given several times.
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_and_value)]
    set: Vec<(String, String)>,
}

/// A request to explain.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// The declarative file, YAML or JSON; `-` is the standard input.
    pub(crate) file: PathBuf,
    /// The method.
    pub(crate) method: String,
    /// The URL of the request: `https://host:port/path?query`.
    pub(crate) url: String,
    /// A header, as `name: value`; may be given several times.
    #[arg(short = 'H', long = "header", value_name = "NAME:VALUE", value_parser = name_and_value)]
    pub(crate) headers: Vec<(String, String)>,
    /// The client's address.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub(crate) client_ip: String,
    /// Print the response of `POST /explain`.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which node is meant.
#[derive(Debug, Args)]
pub(crate) struct NodeArgs {
    /// The file of settings that the node was started with.
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
    /// The node's own folder.
    #[arg(long, value_name = "DIR")]
    prefix: Option<String>,
}

/// Which database is meant.
#[derive(Debug, Clone, Args)]
pub(crate) struct StoreArgs {
    /// The file of settings that nodes are started with.
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
    /// The node's own folder.
    #[arg(long, value_name = "DIR")]
    prefix: Option<String>,
    /// One setting, such as `pg_host`; may be given several times.
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_and_value)]
    set: Vec<(String, String)>,
}

impl From<StoreArgs> for SettingsArgs {
    fn from(StoreArgs { settings, prefix, set }: StoreArgs) -> Self {
        SettingsArgs { config: None, settings, prefix, set }
    }
}

impl From<CheckArgs> for SettingsArgs {
    fn from(CheckArgs { settings, set }: CheckArgs) -> Self {
        SettingsArgs { config: None, settings, prefix: None, set }
    }
}

impl From<NodeArgs> for SettingsArgs {
    fn from(NodeArgs { settings, prefix }: NodeArgs) -> Self {
        SettingsArgs { config: None, settings, prefix, set: Vec::new() }
    }
}

impl SettingsArgs {
    /// The settings' sources: these flags, and the environment.
    pub(crate) fn sources(self) -> Sources {
        let named = [("--config", "declarative_config", self.config), ("--prefix", "prefix", self.prefix)];
        let named = named.into_iter().filter_map(|(written, name, value)| {
            Some(Flag { written: written.to_owned(), name: name.to_owned(), value: value? })
        });
        let set =
            self.set.into_iter().map(|(name, value)| Flag { written: format!("--set {name}"), name, value });
        Sources { flags: set.chain(named).collect(), environment: environment(), file: self.settings }
    }
}

fn key_and_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write it as key=value")?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

pub(crate) fn name_and_value(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("write it as name: value")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

/// The environment, without variables that are not UTF-8.
fn environment() -> std::collections::BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}
